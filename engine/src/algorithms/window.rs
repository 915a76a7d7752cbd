//! What is counted in a window of time: shared by all that start again with the next window.
//!
//! A limiter tells which window is open and when it ends; what follows from that stands here.

use crate::bounds::{Cost, Limit};
use crate::call::Standing;
use crate::decision::{Decision, Next};
use crate::time::{Instant, Span};

/// A window as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it opened, under the rule that opened it.
    pub start: Instant,
    /// How much has been used in it: at least 1, or there would be no state. Above the limit, what
    /// was charged is owed until the window ends.
    pub used: u64,
}

/// The window that is open at one instant.
#[derive(Clone, Copy, Debug)]
pub struct OpenWindow {
    /// When it opened, or, with nothing used, would.
    pub start: Instant,
    /// How much is used in it.
    pub used: u64,
    /// How long until it ends, and what is used in it with it.
    pub until_end: Span,
    /// When it ends at the latest, under this rule.
    pub lapses_at: Instant,
    /// Whether it had to be re-based, after a clock that stepped back.
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
        let OpenWindow { start, used, lapses_at, .. } = self.open;
        Next::until(lapses_at, Window { start, used })
    }
}
