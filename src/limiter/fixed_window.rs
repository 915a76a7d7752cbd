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
use super::decision::{Decision, Next, Outcome, Verdict};
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
    /// How much has been used in it: at least 1, or there would be no state.
    pub used: u64,
}

impl FixedWindow {
    /// Decides one call.
    ///
    /// A window that starts ahead of `now` counts as open; ahead by more than its length, only a
    /// clock that stepped back can explain it, and it is opened anew with what was used.
    pub fn decide(&self, stored: Option<State>, now: Instant, cost: Cost) -> Outcome<State> {
        let (open, repaired) = self.open_window(stored, now);
        let limit = self.limit.units();
        let until_end = self.end(open.start).since(now);

        let verdict = if cost.units() > limit {
            Verdict::Impossible
        } else if cost.units() <= limit.saturating_sub(open.used) || cost.is_zero() {
            Verdict::ALLOWED
        } else {
            Verdict::Denied { retry_after: until_end }
        };
        let taken = if verdict.is_allowed() { cost.units() } else { 0 };
        let after = State { start: open.start, used: open.used + taken };

        let writes = !cost.is_zero() && (verdict.is_allowed() || repaired);
        let lapses_at = after.start.after(self.window.span());
        Outcome {
            decision: Decision {
                verdict,
                limit: self.limit,
                remaining: limit.saturating_sub(after.used),
                reset_after: if after.used == 0 { Span::ZERO } else { until_end },
            },
            next: writes.then(|| Next::until(lapses_at, after)),
        }
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
