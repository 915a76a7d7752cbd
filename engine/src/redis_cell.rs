//! GCRA as redis-cell and Redis' own `GCRA` decide it, for programs that use their commands.
//!
//! The state is the theoretical arrival time in nanoseconds and nothing else, as redis-cell and
//! Dragonfly store it, so a live key can move between them. Three things differ from
//! [`gcra`](crate::algorithms::gcra). The emission interval `T = period / count` is rounded *down*
//! to the nanosecond. Times in replies are whole seconds. There is no repair, because nothing in
//! the state distinguishes a debt from a clock that stepped back.
//!
//! Both commands share rule and state, so they may use the same key. They differ in the accepted
//! periods and in the rounding of times ([`Rounding`]).
//!
//! Allows at most `limit + t / T` units in any stretch of time `t`. The interval is shorter than
//! requested by less than 1 ns.
//!
//! Source: the README of redis-cell 0.5; Redis pull request 14826.

use crate::bounds::{Cost, Limit, Refill};
use crate::decision::Next;
use crate::time::{Instant, Span};
use std::num::NonZeroU64;

const MS_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// The rule: `limit` units at once, and `count` units per `period` in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisCell {
    /// The `max_burst` of redis-cell, plus one.
    limit: Limit,
    /// Nanoseconds between two units, at least one.
    interval_ns: u64,
    /// The time by which a call may come early: `limit x interval`, in nanoseconds.
    tolerance_ns: u64,
    rounding: Rounding,
}

/// The rounding of times in replies to whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Up, but a remainder below a millisecond is dropped: `CL.THROTTLE`, as in redis-cell.
    DropBelowMs,
    /// Up: `GCRA`, as in Redis.
    Up,
}

/// The stored theoretical arrival time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The theoretical arrival time, in nanoseconds since the Unix epoch.
    pub arrival_ns: u64,
}

/// The verdict on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The call is allowed.
    Allowed,
    /// The call is denied for now.
    Limited {
        /// The time until the same call is allowed if no other call comes, at least one second,
        /// rounded as the rule says.
        retry_after_s: u64,
    },
    /// The call can never be allowed: it takes more than the limit.
    Impossible,
}

/// A verdict and the numbers of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The units allowed at once.
    pub limit: Limit,
    /// The units still allowed right after this decision, rounded down.
    pub remaining: u64,
    /// The time until the full allowance is back if no call comes, rounded as the rule says.
    pub reset_after_s: u64,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The reply.
    pub decision: Decision,
    /// The state to store; `None` for a denial, and for a quantity of 0.
    pub next: Option<Next<State>>,
}

impl State {
    /// The latest arrival time, in the year 2262: redis-cell and Dragonfly store a signed 64-bit
    /// number.
    pub const ARRIVAL_MAX_NS: u64 = i64::MAX as u64;
}

impl RedisCell {
    /// Makes the rule of `CL.THROTTLE` from a refill. The emission interval is rounded down to the
    /// nanosecond. It is never 0, since no refill is faster than one unit per nanosecond.
    pub fn new(refill: Refill) -> Self {
        let interval_ns = refill.period().as_us() * 1_000 / refill.rate().units();
        // At most 36,525 days, 3.2 x 10^18.
        let tolerance_ns = interval_ns.saturating_mul(refill.capacity().units());
        Self {
            limit: refill.capacity(),
            interval_ns,
            tolerance_ns,
            rounding: Rounding::DropBelowMs,
        }
    }

    /// Makes the rule of `GCRA`: `limit` units at once, and `count` units per `period`, which may
    /// be any number and any time. Rounds the emission interval as [`RedisCell::new`] does.
    ///
    /// Returns `None` if `count` units per `period` are more than one per nanosecond, or if the
    /// refill from empty takes longer than [`Refill::SPAN_MAX`].
    pub fn of_any_period(limit: Limit, count: NonZeroU64, period: Span) -> Option<Self> {
        let (units, period_us) = (u128::from(limit.units()), u128::from(period.as_us()));
        let longest = u128::from(Refill::SPAN_MAX.as_us()) * u128::from(count.get());
        if units * period_us > longest {
            return None;
        }
        // Nearly all periods fit in 64 bits, in which a division takes far fewer instructions.
        let interval_ns = match period.as_us().checked_mul(1_000) {
            Some(period_ns) => period_ns / count,
            None => u64::try_from(period_us * 1_000 / u128::from(count.get())).ok()?,
        };
        let tolerance_ns = interval_ns.checked_mul(limit.units())?;
        let rule = Self { limit, interval_ns, tolerance_ns, rounding: Rounding::Up };
        (interval_ns > 0).then_some(rule)
    }

    /// Decides a call of `quantity` at `now` on the stored state. The outcome holds the state to
    /// store. A call of quantity 0 takes nothing. Such a call is denied only if more units are
    /// owed than the limit, which happens if the limit was lowered.
    pub fn decide(&self, stored: Option<State>, now: Instant, quantity: Cost) -> Outcome {
        let now_ns = now.as_us().saturating_mul(1_000);
        let owed_ns = stored.map_or(0, |state| state.arrival_ns.saturating_sub(now_ns));
        // Arrival times above the maximum cannot be stored, so no call may move the time beyond it.
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
            Verdict::Limited { retry_after_s: self.rounding.seconds(early_ns).max(1) }
        };
        // An allowed call stays within the tolerance, which fits in 64 bits.
        let allowed_ns = u64::try_from(wanted_ns).ok().filter(|_| verdict == Verdict::Allowed);
        let owed_ns = allowed_ns.unwrap_or(owed_ns);
        let decision = Decision {
            verdict,
            limit: self.limit,
            remaining: tolerance_ns.saturating_sub(owed_ns) / self.interval_ns,
            reset_after_s: self.rounding.seconds(owed_ns),
        };
        let takes = allowed_ns.is_some() && !quantity.is_zero();
        Outcome { decision, next: takes.then(|| Self::next(now_ns.saturating_add(owed_ns))) }
    }

    /// Returns the decision on a call of `quantity` while a ban of the key lasts for `left`. Times
    /// are whole seconds, rounded up.
    #[cold]
    pub fn denial(&self, left: Span, quantity: Cost) -> Decision {
        let left_s = left.as_us().div_ceil(1_000_000);
        let verdict = if quantity.units() > self.limit.units() {
            Verdict::Impossible
        } else {
            Verdict::Limited { retry_after_s: left_s }
        };
        Decision { verdict, limit: self.limit, remaining: 0, reset_after_s: left_s }
    }

    fn next(arrival_ns: u64) -> Next<State> {
        Next::until(Instant::from_us(arrival_ns.div_ceil(1_000)), State { arrival_ns })
    }
}

impl Rounding {
    /// Converts to whole seconds.
    fn seconds(self, ns: u64) -> u64 {
        let counted_rest_ns = match self {
            Self::DropBelowMs => MS_NS,
            Self::Up => 1,
        };
        ns / SECOND_NS + u64::from(ns % SECOND_NS >= counted_rest_ns)
    }
}

#[cfg(test)]
mod tests;
