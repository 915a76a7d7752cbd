//! Code shared by the algorithms that count usage in one window and start again in the next.
//!
//! The algorithm says which window is open and when it ends; this module derives the rest.

use crate::bounds::{Cost, Limit};
use crate::call::Standing;
use crate::decision::{Decision, Next};
use crate::time::{Instant, Span};

/// A window as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The start, under the rule that opened the window.
    pub start: Instant,
    /// Units used: at least 1, since an unused window is not stored. Units above the limit were
    /// charged, and are owed until the window ends.
    pub used: u64,
}

/// The window that is open at one instant.
#[derive(Clone, Copy, Debug)]
pub struct OpenWindow {
    /// The start. If nothing is used, the start that a first call would set.
    pub start: Instant,
    /// Units used.
    pub used: u64,
    /// The time until the window ends and its usage resets.
    pub until_end: Span,
    /// The latest instant at which the window ends under this rule, with or without `ALIGNED`.
    pub expires_at: Instant,
    /// Whether the window had to be re-based because the clock stepped back.
    pub repaired: bool,
}

/// The open window under a limit.
pub struct WindowView {
    /// Units per window.
    pub limit: Limit,
    /// The window.
    pub open: OpenWindow,
}

impl Standing for WindowView {
    type NewState = Window;

    #[inline(always)]
    fn limit(&self) -> Limit {
        self.limit
    }

    #[inline(always)]
    fn is_repaired(&self) -> bool {
        self.open.repaired
    }

    #[inline(always)]
    fn has_room_for(&self, cost: Cost) -> bool {
        cost.units() <= self.remaining()
    }

    #[inline(always)]
    fn room_in(&self, _cost: Cost) -> Span {
        self.open.until_end
    }

    fn used(&self) -> u128 {
        self.open.used.into()
    }

    #[inline(always)]
    fn take(&mut self, cost: Cost) {
        self.open.used += cost.units();
    }

    fn give_back(&mut self, cost: Cost) {
        self.open.used = self.open.used.saturating_sub(cost.units());
    }

    #[inline(always)]
    fn remaining(&self) -> u64 {
        self.limit.units().saturating_sub(self.open.used)
    }

    #[inline(always)]
    fn reset_after(&self) -> Span {
        if self.open.used == 0 { Span::ZERO } else { self.open.until_end }
    }

    #[inline(always)]
    fn next(self, _decision: &Decision) -> Next<Window> {
        let OpenWindow { start, used, expires_at, .. } = self.open;
        Next::until(expires_at, Window { start, used })
    }
}
