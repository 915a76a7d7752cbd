//! Token bucket: starts full, a call takes tokens out, time puts them back.
//!
//! The state is when it was last written, the whole tokens it held then, and the fraction of a
//! token beside them, as a numerator over the period in microseconds. Time is worth exactly `rate`
//! such parts a microsecond, so nothing is ever lost to rounding.
//!
//! Never more than `capacity + rate x t` in any stretch `t`.
//!
//! Source: the token bucket of RFC 2697 and RFC 2698, refilled continuously.

use super::bounds::{Cost, Quota};
use super::decision::{Decision, Next, Outcome, Verdict};
use super::time::{Instant, Span};

/// The rule: a bucket of `capacity` that gains `rate` tokens per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket(pub Quota);

/// A bucket that is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// When the tokens were counted.
    pub updated: Instant,
    /// Whole tokens.
    pub tokens: u64,
    /// The fraction of a token beside them: a numerator over the period in microseconds.
    pub fraction: u64,
}

/// The bucket as it stands: `parts` of tokens at `origin`, from where on time counts.
struct View {
    parts: u128,
    origin: Instant,
    repaired: bool,
}

impl TokenBucket {
    /// Decides one call.
    ///
    /// Time before the state's own instant refills nothing. A state ahead of `now` by more than the
    /// time to refill from empty can only come from a clock that stepped back: its tokens stay and
    /// time counts from `now` on.
    pub fn decide(&self, stored: Option<State>, now: Instant, cost: Cost) -> Outcome<State> {
        let quota = &self.0;
        let full = quota.full();
        let view = self.view(stored, now);
        let asked = quota.parts(cost.units());
        // No time counts until the state's instant is reached.
        let standstill = view.origin.since(now);

        let verdict = if asked > full {
            Verdict::Impossible
        } else if asked <= view.parts {
            Verdict::ALLOWED
        } else {
            let missing = quota.time_to_earn(asked - view.parts);
            Verdict::Denied { retry_after: standstill.plus(missing) }
        };
        let taken = if verdict.is_allowed() { asked } else { 0 };
        let parts = view.parts - taken;
        let (tokens, fraction) = quota.units(parts);
        let reset_after = if parts == full {
            Span::ZERO
        } else {
            standstill.plus(quota.time_to_earn(full - parts))
        };

        let writes = !cost.is_zero() && (verdict.is_allowed() || view.repaired);
        let after = State { updated: view.origin, tokens, fraction };
        Outcome {
            decision: Decision { verdict, limit: quota.capacity(), remaining: tokens, reset_after },
            next: writes.then(|| Next::drifting(now.after(reset_after), quota.refill(), after)),
        }
    }

    fn view(&self, stored: Option<State>, now: Instant) -> View {
        let quota = &self.0;
        let full = quota.full();
        let Some(state) = stored else {
            return View { parts: full, origin: now, repaired: false };
        };
        // A fraction that another period wrote and this one cannot hold is given up.
        let fits = state.fraction < quota.period().as_us();
        let fraction = if fits { u128::from(state.fraction) } else { 0 };
        let held = (quota.parts(state.tokens) + fraction).min(full);
        if held == full {
            // More than a lowered capacity: a full bucket is no state at all, whatever its time.
            return View { parts: full, origin: now, repaired: false };
        }
        let ahead = state.updated.since(now);
        if !ahead.is_zero() && ahead > quota.refill() {
            return View { parts: held, origin: now, repaired: true };
        }
        let earned = quota.earned(now.since(state.updated));
        View { parts: (held + earned).min(full), origin: now.max(state.updated), repaired: false }
    }
}
