//! Sliding-window counter: counts the current window in full, and the previous one in proportion to
//! the part that the sliding window still covers.
//!
//! Windows start at multiples of their length since the Unix epoch. The state is the start of the
//! current window, the cost used in the previous window, and the cost used in the current one. The
//! estimate is `previous x (window - elapsed) / window + current`.
//!
//! Allows less than twice the limit in any window, and at most the limit if traffic is even. The
//! estimate is rounded up, which favours the limit.
//!
//! A refund takes units from the current window first, then from the previous one.
//!
//! Source: the approximation that Cloudflare described for its counters in 2017.

use crate::bounds::{self, Cost, Limit, Period};
use crate::call::{Limiter, Standing};
use crate::decision::{Decision, Next};
use crate::fields::{Field, Fields};
use crate::time::{Instant, Span};

/// The rule: about `limit` units in any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Units per window.
    pub limit: Limit,
    /// Length of a window.
    pub window: Period,
}

/// The stored counters of two neighbouring windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The start of the current window.
    pub start: Instant,
    /// Units used in the previous window.
    pub previous: u64,
    /// Units used in the current window.
    pub current: u64,
}

impl State {
    /// The largest value of either counter. Allowed calls alone reach at most a thousandth of it.
    /// Only changes of the window's length, under a clock that keeps stepping back, add up to more.
    pub const COUNT_MAX: u64 = 1_000 * Limit::MAX;

    const fn empty(start: Instant) -> Self {
        Self { start, previous: 0, current: 0 }
    }
}

/// The two windows as seen at one instant.
struct CounterView<'a> {
    rule: &'a SlidingWindow,
    now: Instant,
    windows: State,
    /// The units of both windows that count as used.
    estimate: u64,
    repaired: bool,
}

impl Limiter<'_> for SlidingWindow {
    type State = State;
    type NewState = State;

    /// Returns the windows at `now`. A window that starts after `now` has not begun to elapse. If
    /// it starts more than one window length after `now`, the clock stepped back, and its counters
    /// move to the window of `now`.
    #[inline(always)]
    fn standing(&self, stored: Option<State>, now: Instant) -> impl Standing<NewState = State> {
        let (windows, repaired) = self.windows(stored, now);
        let elapsed = now.since(windows.start);
        let faded = self.still_counting(windows.previous, elapsed);
        let estimate = faded.saturating_add(windows.current);
        CounterView { rule: self, now, windows, estimate, repaired }
    }
}

impl Standing for CounterView<'_> {
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
    fn room_in(&self, cost: Cost) -> Span {
        self.rule.room_for(self.windows, cost).since(self.now)
    }

    fn used(&self) -> u128 {
        self.estimate.into()
    }

    #[inline(always)]
    fn take(&mut self, cost: Cost) {
        self.windows.current = self.windows.current.saturating_add(cost.units());
        self.estimate = self.estimate.saturating_add(cost.units());
    }

    fn give_back(&mut self, cost: Cost) {
        let window = self.rule.window.span();
        let State { start, previous, current } = self.windows;
        let current_left = current.saturating_sub(cost.units());
        let previous_left = previous.saturating_sub(cost.units().saturating_sub(current));
        let faded = self.rule.still_counting(previous_left, self.now.since(start));
        self.windows = State { start, previous: previous_left, current: current_left };
        self.estimate = faded.saturating_add(current_left);
        if current_left == 0 {
            // The units left in the previous window become the usage of a state that starts there.
            let before = start.before(window);
            self.windows =
                State { start: before.unwrap_or(start), previous: 0, current: previous_left };
            if before.is_none() {
                // There is no window before the first one, so the rest counts in the first.
                self.estimate = previous_left;
            }
        }
    }

    #[inline(always)]
    fn remaining(&self) -> u64 {
        self.rule.limit.units().saturating_sub(self.estimate)
    }

    #[inline(always)]
    fn reset_after(&self) -> Span {
        self.rule.expires_at(self.windows).since(self.now)
    }

    #[inline(always)]
    fn next(self, _decision: &Decision) -> Next<State> {
        Next::until(self.rule.expires_at(self.windows), self.windows)
    }
}

impl Fields<3> for SlidingWindow {
    type Stored = State;
    const FIELDS: [Field; 3] = [
        Field::instant("window_start_us"),
        Field::new("previous", 0, State::COUNT_MAX),
        Field::new("current", 1, State::COUNT_MAX),
    ];

    fn numbers(state: &State) -> [u64; 3] {
        [state.start.as_us(), state.previous, state.current]
    }

    fn state([start_us, previous, current]: [u64; 3]) -> Option<State> {
        Some(State { start: Instant::from_us(start_us), previous, current })
    }
}

impl SlidingWindow {
    /// Returns the two windows at `now`. Returns true with them if the clock stepped back and the
    /// counters moved to the window of `now`.
    fn windows(&self, stored: Option<State>, now: Instant) -> (State, bool) {
        let window = self.window.span();
        let current_start = now.floor_to(window);
        let Some(mut state) = stored else {
            return (State::empty(current_start), false);
        };
        let grid_start = state.start.floor_to(window);
        if grid_start != state.start {
            // A rule with another window length wrote the state: the instants of the usage are
            // lost, so all of it counts as current.
            let used = state.previous.saturating_add(state.current).min(State::COUNT_MAX);
            state = State { start: grid_start, previous: 0, current: used };
        }
        if state.start.since(now) > window {
            return (State { start: current_start, ..state }, true);
        }
        let windows = if state.start >= current_start {
            state
        } else if state.start.after(window) == current_start {
            State { start: current_start, previous: state.current, current: 0 }
        } else {
            State::empty(current_start)
        };
        (windows, false)
    }

    /// Returns the units of `previous`, rounded up, that still count after `elapsed` of the current
    /// window.
    fn still_counting(&self, previous: u64, elapsed: Span) -> u64 {
        let window = self.window.as_us();
        let overlap = window.saturating_sub(elapsed.as_us());
        let parts = u128::from(previous) * u128::from(overlap);
        u64::try_from(bounds::div_ceil(parts, window)).unwrap_or(u64::MAX)
    }

    /// Returns the first instant at which there is room for `cost`, which is at most the limit.
    fn room_for(&self, windows: State, cost: Cost) -> Instant {
        let free = self.limit.units() - cost.units();
        let window = self.window.span();
        match free.checked_sub(windows.current) {
            Some(room) => windows.start.after(self.fades_to(windows.previous, room)),
            // There is no room in this window. In the next one, the current count becomes the
            // previous count.
            None => windows.start.after(window).after(self.fades_to(windows.current, free)),
        }
    }

    /// Returns the time that must elapse in a window until `count` units of the previous window
    /// count as at most `room`.
    fn fades_to(&self, count: u64, room: u64) -> Span {
        let window = u128::from(self.window.as_us());
        let overlap = (u128::from(room) * window).checked_div(u128::from(count)).unwrap_or(window);
        Span::from_us_saturating(window.saturating_sub(overlap))
    }

    /// Returns the instant from which nothing of `state` counts.
    fn expires_at(&self, state: State) -> Instant {
        let window = self.window.span();
        match (state.previous, state.current) {
            (0, 0) => Instant::from_us(0),
            (_, 0) => state.start.after(window),
            _ => state.start.after(window).after(window),
        }
    }
}
