//! Fixed window: count the cost in a window of time, start again in the next.
//!
//! The state is when the window opened and how much has been used in it. A window opens at the
//! first allowed call, or, aligned, at multiples of its length since the Unix epoch.
//!
//! Never more than the limit in one window. Around the edge of two windows up to twice the limit
//! may pass in a time shorter than one: that is the price of two numbers of state.
//!
//! Source: the `INCR` and `EXPIRE` pattern of the Redis documentation, made atomic and exact.

use super::bounds::{Cost, Limit, Period};
use super::decision::{Decision, Next};
use super::fields::{Field, Fields};
use super::reserved::{OpenWindow, Window};
use super::standing::{Limiter, Standing};
use super::time::{Instant, Span};

/// The rule: `limit` units per `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Units per window.
    pub limit: Limit,
    /// Length of a window.
    pub window: Period,
    /// Whether windows start at multiples of their length since the Unix epoch.
    pub aligned: bool,
}

/// An open window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// When it opened.
    pub start: Instant,
    /// How much has been used in it: at least 1, or there would be no state. Above the limit, what
    /// was charged is owed until the window ends.
    pub used: u64,
}

/// The window that is open at one instant.
struct View<'a> {
    rule: &'a FixedWindow,
    open: State,
    until_end: Span,
    repaired: bool,
}

impl Limiter<'_> for FixedWindow {
    type State = State;
    type NewState = State;

    /// A window that starts ahead of `now` counts as open; ahead by more than its length, it is
    /// opened anew with what was used.
    #[inline(always)]
    fn standing(&self, stored: Option<State>, now: Instant) -> impl Standing<NewState = State> {
        let (open, repaired) = self.open_window(stored, now);
        View { rule: self, open, until_end: self.end(open.start).since(now), repaired }
    }
}

impl Standing for View<'_> {
    type NewState = State;

    #[inline(always)]
    fn limit(&self) -> Limit {
        self.rule.limit
    }

    #[inline(always)]
    fn is_repaired(&self) -> bool {
        self.repaired
    }

    #[inline(always)]
    fn has_room_for(&self, cost: Cost) -> bool {
        cost.units() <= self.remaining()
    }

    #[inline(always)]
    fn room_in(&self, _cost: Cost) -> Span {
        self.until_end
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
        self.rule.limit.units().saturating_sub(self.open.used)
    }

    #[inline(always)]
    fn reset_after(&self) -> Span {
        if self.open.used == 0 { Span::ZERO } else { self.until_end }
    }

    #[inline(always)]
    fn next(self, _decision: &Decision) -> Next<State> {
        Next::until(self.open.start.after(self.rule.window.span()), self.open)
    }
}

impl Fields<2> for FixedWindow {
    type Stored = State;
    const FIELDS: [Field; 2] =
        [Field::instant("window_start_us"), Field::new("used", 1, Cost::TOTAL_MAX)];

    fn numbers(state: &State) -> [u64; 2] {
        [state.start.as_us(), state.used]
    }

    fn state([start_us, used]: [u64; 2]) -> Option<State> {
        Some(State { start: Instant::from_us(start_us), used })
    }
}

impl FixedWindow {
    /// The window that is open at `now`, by what is stored, for a key with reservations.
    pub(super) fn window_at(&self, stored: Option<Window>, now: Instant) -> OpenWindow {
        let stored = stored.map(|Window { start, used }| State { start, used });
        let (State { start, used }, repaired) = self.open_window(stored, now);
        let until_end = self.end(start).since(now);
        OpenWindow { start, used, until_end, lapses_at: start.after(self.window.span()), repaired }
    }

    /// The window that is open at `now`, and whether it had to be repaired.
    fn open_window(&self, stored: Option<State>, now: Instant) -> (State, bool) {
        let fresh = if self.aligned { now.floor_to(self.window.span()) } else { now };
        match stored {
            Some(state) if state.start.since(now) > self.window.span() => {
                (State { start: fresh, used: state.used }, true)
            }
            Some(state) if now < self.end(state.start) => (state, false),
            _ => (State { start: fresh, used: 0 }, false),
        }
    }

    /// When a window that opened at `start` ends. Aligned, the next boundary ends it, also when it
    /// was opened off the boundary by a call without `ALIGNED`.
    fn end(&self, start: Instant) -> Instant {
        let window = self.window.span();
        let from = if self.aligned { start.floor_to(window) } else { start };
        from.after(window)
    }
}
