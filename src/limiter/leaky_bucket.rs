//! Leaky bucket as a queue: a call joins the queue if there is room, and is told when its turn is.
//!
//! The state is when it was last written, the whole units that stood in the queue then, and the
//! fraction of a unit beside them, as a numerator over the period in microseconds. The queue drains
//! exactly `rate` such parts a microsecond.
//!
//! Never more than `capacity + rate x t` enter in any stretch `t`; who waits as told acts at the
//! rate, evenly spaced.
//!
//! Source: Turner, "New directions in communications", 1986, in its form as a queue.

use super::bounds::{Cost, Quota};
use super::decision::{Decision, Next, Outcome, Verdict};
use super::time::{Instant, Span};

/// The rule: a queue of depth `capacity` that drains `rate` units per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket(pub Quota);

/// A queue that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// When the level was measured.
    pub updated: Instant,
    /// Whole units in the queue.
    pub level: u64,
    /// The fraction of a unit beside them: a numerator over the period in microseconds.
    pub fraction: u64,
}

/// The queue as it stands: `parts` in it at `origin`, from where on it drains.
struct View {
    parts: u128,
    origin: Instant,
    repaired: bool,
}

impl LeakyBucket {
    /// Decides one call. An allowed one is told how long to wait until what stood in the queue
    /// before it has drained; so is a call of cost 0, which only asks.
    ///
    /// Time before the state's own instant drains nothing. A state ahead of `now` by more than the
    /// time to drain a full queue can only come from a clock that stepped back: its level stays and
    /// drains from `now` on.
    pub fn decide(&self, stored: Option<State>, now: Instant, cost: Cost) -> Outcome<State> {
        let quota = &self.0;
        let full = quota.full();
        let view = self.view(stored, now);
        let asked = quota.parts(cost.units());
        // Nothing drains until the state's instant is reached.
        let standstill = view.origin.since(now);
        let drained_after = |parts: u128| match parts {
            0 => Span::ZERO,
            _ => standstill.plus(quota.time_to_earn(parts)),
        };

        let verdict = if asked > full {
            Verdict::Impossible
        } else if asked <= full - view.parts {
            Verdict::Allowed { wait: drained_after(view.parts) }
        } else {
            Verdict::Denied { retry_after: drained_after(view.parts + asked - full) }
        };
        let parts = if verdict.is_allowed() { view.parts + asked } else { view.parts };
        let (level, fraction) = quota.units(parts);
        let (remaining, _) = quota.units(full - parts);
        let reset_after = drained_after(parts);

        let writes = !cost.is_zero() && (verdict.is_allowed() || view.repaired);
        let after = State { updated: view.origin, level, fraction };
        Outcome {
            decision: Decision { verdict, limit: quota.capacity(), remaining, reset_after },
            next: writes.then(|| Next::drifting(now.after(reset_after), quota.refill(), after)),
        }
    }

    fn view(&self, stored: Option<State>, now: Instant) -> View {
        let quota = &self.0;
        let full = quota.full();
        let Some(state) = stored else {
            return View { parts: 0, origin: now, repaired: false };
        };
        // A fraction that another period wrote and this one cannot hold counts as a whole unit.
        let period = quota.period().as_us();
        let fraction = u128::from(state.fraction.min(period));
        let held = (quota.parts(state.level) + fraction).min(full);
        let ahead = state.updated.since(now);
        if !ahead.is_zero() && ahead > quota.refill() {
            return View { parts: held, origin: now, repaired: true };
        }
        let drained = quota.earned(now.since(state.updated));
        View {
            parts: held.saturating_sub(drained),
            origin: now.max(state.updated),
            repaired: false,
        }
    }
}
