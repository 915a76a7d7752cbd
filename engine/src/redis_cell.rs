//! GCRA as redis-cell decides it, for programs that speak its command.
//!
//! The state is the theoretical arrival time in nanoseconds and nothing else, as redis-cell and
//! Dragonfly keep it, so that a key may go from one to the other while it lives. What follows from
//! that, and differs from [`gcra`](crate::algorithms::gcra): the emission interval
//! `T = period / count` is rounded *down* to the nanosecond, times are answered in whole seconds,
//! and nothing tells a debt from a clock that stepped back, so nothing is repaired after one.
//!
//! Never more than `limit + t / T` in any stretch `t`: faster than asked by less than 1 ns a unit.
//!
//! Source: the README of redis-cell 0.5.

use crate::bounds::{Cost, Limit, Refill};
use crate::decision::Next;
use crate::time::Instant;

/// A second is counted once so much of it is needed.
const COUNTED_REST_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The rule: `limit` at once, and `count` per `period` in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisCell {
    /// What redis-cell calls `max_burst`, and one.
    limit: Limit,
    /// Nanoseconds between two units, at least one.
    interval_ns: u64,
    /// How early a call may come: `limit x interval`, in nanoseconds.
    tolerance_ns: u64,
}

/// A debt of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The theoretical arrival time, in nanoseconds since the Unix epoch.
    pub arrival_ns: u64,
}

/// May it happen now?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Yes.
    Allowed,
    /// Not now.
    Limited {
        /// Time until the same call is allowed if nobody else calls, at least one second; a rest
        /// below a millisecond is left out.
        retry_after_s: u64,
    },
    /// Never: it takes more than the limit.
    Impossible,
}

/// A verdict and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// May it happen now?
    pub verdict: Verdict,
    /// What is let through at once.
    pub limit: Limit,
    /// How much would still be allowed right now, after this decision; rounded down.
    pub remaining: u64,
    /// Time until the full allowance is there if nobody calls; a rest below a millisecond is left
    /// out.
    pub reset_after_s: u64,
}

/// What a call amounts to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What to answer.
    pub decision: Decision,
    /// What to store; `None` for a denial, and for a quantity of 0.
    pub next: Option<Next<State>>,
}

impl State {
    /// The latest arrival time, in the year 2262: the others keep it in 64 bits with a sign.
    pub const ARRIVAL_MAX_NS: u64 = i64::MAX as u64;
}

impl RedisCell {
    /// The rule for a refill. The emission interval is rounded down to the nanosecond; no refill is
    /// faster than one unit a nanosecond.
    pub fn new(refill: Refill) -> Self {
        let interval_ns = refill.period().as_us() * 1_000 / refill.rate().units();
        // At most 36,525 days, 3.2 x 10^18.
        let tolerance_ns = interval_ns.saturating_mul(refill.capacity().units());
        Self { limit: refill.capacity(), interval_ns, tolerance_ns }
    }

    /// Decides a call of `quantity` at `now` on what is stored, changing nothing. A quantity of 0
    /// only asks: it is limited while more is owed than the limit, as after the limit was lowered.
    pub fn decide(&self, stored: Option<State>, now: Instant, quantity: Cost) -> Outcome {
        let now_ns = now.as_us().saturating_mul(1_000);
        let owed_ns = stored.map_or(0, |state| state.arrival_ns.saturating_sub(now_ns));
        // No arrival can be kept that is later than the last one, so no call may lead there.
        let tolerance_ns = self.tolerance_ns.min(State::ARRIVAL_MAX_NS.saturating_sub(now_ns));
        let taken_ns = u128::from(quantity.units()) * u128::from(self.interval_ns);
        let wanted_ns = u128::from(owed_ns) + taken_ns;

        let early_ns = wanted_ns.saturating_sub(tolerance_ns.into());
        let verdict = if quantity.units() > self.limit.units() {
            Verdict::Impossible
        } else if early_ns == 0 {
            Verdict::Allowed
        } else {
            let early_ns = u64::try_from(early_ns).unwrap_or(u64::MAX);
            Verdict::Limited { retry_after_s: seconds(early_ns).max(1) }
        };
        // What is allowed is within the tolerance, of 64 bits.
        let allowed_ns = u64::try_from(wanted_ns).ok().filter(|_| verdict == Verdict::Allowed);
        let owed_ns = allowed_ns.unwrap_or(owed_ns);
        let decision = Decision {
            verdict,
            limit: self.limit,
            remaining: tolerance_ns.saturating_sub(owed_ns) / self.interval_ns,
            reset_after_s: seconds(owed_ns),
        };
        let takes = allowed_ns.is_some() && !quantity.is_zero();
        Outcome { decision, next: takes.then(|| Self::next(now_ns.saturating_add(owed_ns))) }
    }

    fn next(arrival_ns: u64) -> Next<State> {
        Next::until(Instant::from_us(arrival_ns.div_ceil(1_000)), State { arrival_ns })
    }
}

/// Whole seconds, and one more for a rest of at least a millisecond.
fn seconds(ns: u64) -> u64 {
    ns / SECOND_NS + u64::from(ns % SECOND_NS >= COUNTED_REST_NS)
}

#[cfg(test)]
mod tests;
