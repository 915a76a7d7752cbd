//! The model of `CL.THROTTLE` and of Redis' `GCRA`: an exact arrival time in nanoseconds. All
//! replies come from repeating one question: would this call be allowed at that time?

use crate::bounds::{Limit, Period, Refill};
use crate::oracle::model::Limits;
use crate::redis_cell::RedisCell;
use crate::time::Span;
use std::num::NonZeroU64;

/// The arguments of one of the two commands; `limit` is its `max_burst` plus one.
#[derive(Clone, Copy, Debug)]
pub struct CellLimits {
    /// Units at once.
    pub limit: i128,
    /// Units per period.
    pub count: i128,
    /// The period.
    pub period_us: i128,
    /// Whether the command is `GCRA`, which accepts any period and drops no remainder of a second.
    pub of_gcra: bool,
}

impl CellLimits {
    /// Converts limits for redis-cell, which accepts only whole seconds.
    pub fn of(limits: &Limits) -> Self {
        let period_us = (limits.period_us / 1_000_000).max(1) * 1_000_000;
        Self { limit: limits.capacity, count: limits.rate, period_us, of_gcra: false }
    }

    /// Converts limits for `GCRA`.
    pub fn for_gcra(limits: &Limits) -> Self {
        Self { of_gcra: true, period_us: limits.period_us, ..Self::of(limits) }
    }

    /// Returns the rule of these limits; `None` if they are invalid.
    pub fn rule(&self) -> Option<RedisCell> {
        let limit = |units: i128| Limit::new(u64::try_from(units).ok()?);
        let period = Span::from_us(u64::try_from(self.period_us).ok()?);
        if self.of_gcra {
            let count = NonZeroU64::new(u64::try_from(self.count).ok()?)?;
            return RedisCell::of_any_period(limit(self.limit)?, count, period);
        }
        let period = Period::new(period)?;
        let refill = Refill::new(limit(self.limit)?, limit(self.count)?, period).ok()?;
        Some(RedisCell::new(refill))
    }

    /// Returns the time between two units, in whole nanoseconds.
    fn interval_ns(&self) -> i128 {
        self.period_us * 1_000 / self.count
    }

    /// Converts to whole seconds. For `CL.THROTTLE`, a remainder below a millisecond does not
    /// count.
    fn seconds(&self, ns: i128) -> i128 {
        let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let is_counted = if self.of_gcra { rest > 0 } else { rest >= 1_000_000 };
        if is_counted { whole + 1 } else { whole }
    }
}

/// A key of redis-cell.
#[derive(Clone, Debug, Default)]
pub struct CellKey {
    /// The theoretical arrival time; `None` if there is no key.
    pub arrival_ns: Option<i128>,
}

/// A time that is longer than any wait, in nanoseconds.
const LONGEST_NS: i128 = 1 << 64;

impl CellKey {
    /// Returns true if a call of `quantity` would be allowed at `now_ns`.
    pub fn would_allow(&self, limits: &CellLimits, now_ns: i128, quantity: i128) -> bool {
        let interval_ns = limits.interval_ns();
        let arrival_ns = self.arrival_ns.unwrap_or(now_ns).max(now_ns);
        // Each unit moves the arrival time by one interval. A call may come early by as many
        // intervals as the limit has units.
        arrival_ns + quantity * interval_ns - limits.limit * interval_ns <= now_ns
    }

    /// Returns the five integers of the reply, and true if the call takes its quantity.
    pub fn call(&mut self, limits: &CellLimits, now_us: i128, quantity: i128) -> ([i128; 5], bool) {
        let now_ns = now_us * 1_000;
        let allowed = self.would_allow(limits, now_ns, quantity);
        let wait_ns = |key: &Self, quantity: i128| {
            first(LONGEST_NS, |wait| key.would_allow(limits, now_ns + wait, quantity))
        };
        let retry_after_s = if allowed || quantity > limits.limit {
            -1
        } else {
            limits.seconds(wait_ns(self, quantity)).max(1)
        };
        let takes = allowed && quantity > 0;
        if takes {
            let interval_ns = limits.interval_ns();
            let from_ns = self.arrival_ns.unwrap_or(now_ns).max(now_ns);
            self.arrival_ns = Some(from_ns + quantity * interval_ns);
        }
        let too_much = first(limits.limit + 1, |units| !self.would_allow(limits, now_ns, units));
        let remaining = (too_much - 1).max(0);
        let reset_after_s = limits.seconds(wait_ns(self, limits.limit));
        let limited = i128::from(!allowed);
        ([limited, limits.limit, remaining, retry_after_s, reset_after_s], takes)
    }
}

/// Returns the smallest number up to `last` for which `holds` is true; `last` if there is none.
fn first(last: i128, holds: impl Fn(i128) -> bool) -> i128 {
    let (mut from, mut to) = (0, last);
    while from < to {
        let middle = (from + to) / 2;
        if holds(middle) { to = middle } else { from = middle + 1 }
    }
    from
}
