//! Sliding-window counter: the current window plus the part of the previous one still in view.
//!
//! Windows lie on multiples of their length since the Unix epoch. The state is the start of the
//! current one and the cost used in the previous and in the current one; the estimate is
//! `previous x (window - elapsed) / window + current`, compared without dividing.
//!
//! Less than twice the limit in any window, and the limit itself when traffic is even. The
//! estimate is rounded up, which favours the limit.
//!
//! Source: the approximation that Cloudflare described for its counters in 2017.

use super::bounds::{Cost, Limit, Period};
use super::decision::{Decision, Next, Outcome, Verdict};
use super::time::{Instant, Span};

/// The rule: about `limit` units in any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Units per window.
    pub limit: Limit,
    /// Length of a window.
    pub window: Period,
}

/// Two neighbouring windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// When the current window started.
    pub start: Instant,
    /// How much was used in the window before.
    pub previous: u64,
    /// How much has been used in the current window.
    pub current: u64,
}

impl State {
    /// The most that one of the two counters holds. Allowed calls stay a thousand times below;
    /// only changes of the window under a clock that keeps stepping back add up further.
    pub const COUNT_MAX: u64 = 1_000 * Limit::MAX;

    const fn empty(start: Instant) -> Self {
        Self { start, previous: 0, current: 0 }
    }
}

impl SlidingWindow {
    /// Decides one call.
    ///
    /// A window that starts ahead of `now` has not begun to elapse; ahead by more than its length,
    /// only a clock that stepped back can explain it, and its counters move to the window of `now`.
    pub fn decide(&self, stored: Option<State>, now: Instant, cost: Cost) -> Outcome<State> {
        let (view, repaired) = self.view(stored, now);
        let limit = self.limit.units();
        let elapsed = now.since(view.start);
        let estimate = self.still_counting(view.previous, elapsed).saturating_add(view.current);

        let verdict = if cost.units() > limit {
            Verdict::Impossible
        } else if cost.units() <= limit.saturating_sub(estimate) || cost.is_zero() {
            Verdict::ALLOWED
        } else {
            Verdict::Denied { retry_after: self.room_for(view, cost).since(now) }
        };
        let taken = if verdict.is_allowed() { cost.units() } else { 0 };
        let after = State { current: view.current.saturating_add(taken), ..view };

        let lapses_at = self.lapses_at(after);
        let writes = !cost.is_zero() && (verdict.is_allowed() || repaired);
        Outcome {
            decision: Decision {
                verdict,
                limit: self.limit,
                remaining: limit.saturating_sub(estimate.saturating_add(taken)),
                reset_after: lapses_at.since(now),
            },
            next: writes.then(|| Next::until(lapses_at, after)),
        }
    }

    /// The two windows as they stand at `now`, and whether they had to be repaired.
    fn view(&self, stored: Option<State>, now: Instant) -> (State, bool) {
        let window = self.window.span();
        let current_start = now.floor_to(window);
        let Some(mut state) = stored else {
            return (State::empty(current_start), false);
        };
        let grid_start = state.start.floor_to(window);
        if grid_start != state.start {
            // Another window wrote it: where in the past the cost fell is lost, so all of it counts
            // as current.
            let used = state.previous.saturating_add(state.current).min(State::COUNT_MAX);
            state = State { start: grid_start, previous: 0, current: used };
        }
        if state.start.since(now) > window {
            return (State { start: current_start, ..state }, true);
        }
        let view = if state.start >= current_start {
            state
        } else if state.start.after(window) == current_start {
            State { start: current_start, previous: state.current, current: 0 }
        } else {
            State::empty(current_start)
        };
        (view, false)
    }

    /// What of `previous` still counts when `elapsed` of the current window is over; rounded up.
    fn still_counting(&self, previous: u64, elapsed: Span) -> u64 {
        let window = self.window.as_us();
        let overlap = window.saturating_sub(elapsed.as_us());
        let parts = u128::from(previous) * u128::from(overlap);
        u64::try_from(super::bounds::div_ceil(parts, window)).unwrap_or(u64::MAX)
    }

    /// The first instant at which `cost`, which is at most the limit, fits.
    fn room_for(&self, view: State, cost: Cost) -> Instant {
        let free = self.limit.units() - cost.units();
        let window = self.window.span();
        match free.checked_sub(view.current) {
            Some(room) => view.start.after(self.fades_to(view.previous, room)),
            // Not in this window. In the next one the current cost is the previous one.
            None => view.start.after(window).after(self.fades_to(view.current, free)),
        }
    }

    /// How far into a window `count`, used in the one before, has faded to `room`.
    fn fades_to(&self, count: u64, room: u64) -> Span {
        let window = u128::from(self.window.as_us());
        let overlap = (u128::from(room) * window).checked_div(u128::from(count)).unwrap_or(window);
        Span::from_us_saturating(window.saturating_sub(overlap))
    }

    /// When nothing of `state` counts any more.
    fn lapses_at(&self, state: State) -> Instant {
        let window = self.window.span();
        match (state.previous, state.current) {
            (0, 0) => Instant::from_us(0),
            (_, 0) => state.start.after(window),
            _ => state.start.after(window).after(window),
        }
    }
}
