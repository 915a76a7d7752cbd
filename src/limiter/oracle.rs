//! Naive models of the algorithms, for the property tests to compare with.
//!
//! A model keeps exact numbers or a list of events and can answer one question only: would this
//! cost be allowed at that time? Everything else a limiter answers is found by asking that question
//! again and again (`answer`), also with a cost below 0, which fits once a debt is no larger than
//! that: so no formula of the limiters is repeated here. Times are in
//! microseconds and, like all numbers, `i128`: nothing overflows.
//!
//! Beside the models stands what property tests, fuzz targets, simulation and soak share: the
//! `key` that is compared with a model, the `subject` that names the bounds, and `draw`.

mod answer;
mod backoff;
mod buckets;
mod draw;
mod key;
mod leases;
mod log;
mod quota;
mod read;
mod redis_cell;
mod reserved;
mod several;
mod subject;

pub use answer::{Answer, Verb, Wrote, act, call, peek};
pub use backoff::{Backoff, delays};
use buckets::Amount;
pub use buckets::{LeakyBucket, TokenBucket};
pub use draw::{CLOCK_MAX_US, DAY_US, Share, Source, Step, UNITS_MAX};
pub use key::{Key, Write, overwrite};
pub use leases::{Leases, Seen, lease_rule};
pub use log::SlidingLog;
pub use quota::{CalendarQuota, calendar};
pub use read::Unexplained;
pub use redis_cell::{CellKey, CellLimits};
pub use reserved::{
    AnyCall, IDS, Reserved, Reserving, Step as ReservationStep, WindowModel, take_step,
};
pub use several::{AnyOracle, AnySubject, Part, Together, TwinOfAny, TwinPart, act_all, call_all};
pub use subject::{
    CellRate, Delays, Fixed, Leaky, Log, Quotas, Sliding, Subject, Token, Twin, check_retry,
};
use subject::{call_both, check_promise};

/// The arguments of any algorithm: `capacity` is also the limit or the burst, `period` the window;
/// growing delays are made of them by [`delays`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Units: the capacity, the limit or the burst.
    pub capacity: i128,
    /// Units per period.
    pub rate: i128,
    /// The period or the window.
    pub period_us: i128,
    /// Of the fixed window: whether it opens at multiples of its length.
    pub aligned: bool,
    /// Of the sliding log: into how many slots it divides its window.
    pub slots: i128,
}

/// One naive limiter.
pub trait Oracle: Default + Clone {
    /// Moves what lies ahead of `now` by more than its span back to `now`; tells whether it did.
    fn repair(&mut self, limits: &Limits, now: i128) -> bool;
    /// Would `cost` be allowed at `now`, if nothing happens until then?
    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool;
    /// `cost` was allowed, or charged, at `now`.
    fn take(&mut self, limits: &Limits, now: i128, cost: i128);
    /// `cost` was given back at `now`, when something was used.
    fn give(&mut self, limits: &Limits, now: i128, cost: i128);
    /// How long an allowed call has to wait before it acts.
    fn wait_us(&self, _limits: &Limits, _now: i128) -> i128 {
        0
    }

    /// The capacity that is answered.
    fn limit(limits: &Limits) -> i128 {
        limits.capacity
    }
    /// Whether the full allowance will be there at `now`, if nothing happens until then.
    fn is_unused(&self, limits: &Limits, now: i128) -> bool {
        self.would_allow(limits, now, limits.capacity)
    }
    /// Whether the subject will be in no debt at `now`, if nothing happens until then.
    fn is_clear(&self, limits: &Limits, now: i128) -> bool {
        self.would_allow(limits, now, 0)
    }
    /// The largest cost that would be allowed; cost 0 always is.
    fn remaining(&self, limits: &Limits, now: i128) -> i128 {
        let allowed = |cost| cost == 0 || self.would_allow(limits, now, cost);
        let too_much = |cost| cost > limits.capacity || !allowed(cost);
        smallest(limits.capacity + 1, too_much).expect("more than all is too much") - 1
    }
    /// Whether a refund finds nothing to give back.
    fn finds_nothing(&self, limits: &Limits, now: i128) -> bool {
        self.is_unused(limits, now)
    }
    /// Whether nothing is left that has to be remembered.
    fn is_blank(&self, limits: &Limits, now: i128) -> bool {
        self.is_unused(limits, now)
    }
    /// It is written at `now`: what means nothing any more is dropped.
    fn stored(&mut self, _limits: &Limits, _now: i128) {}
    /// Whether more than so many units are used.
    fn uses_more_than(&self, limits: &Limits, now: i128, units: i128) -> bool {
        !self.would_allow(limits, now, limits.capacity - units)
    }
}

/// Takes `units` off the end of a list of costs; tells how many were not there.
fn take_off(costs: &mut Vec<i128>, mut units: i128) -> i128 {
    while units > 0 {
        let Some(last) = costs.pop() else { break };
        if last > units {
            costs.push(last - units);
        }
        units -= last.min(units);
    }
    units
}

/// The longest span there is, which stands for any longer one: only under rules that change can a
/// debt take that long.
const SPAN_MAX_US: i128 = u64::MAX as i128;

/// The smallest number for which `holds`, which then holds for all above; `None` if not up to max.
fn smallest(max: i128, holds: impl Fn(i128) -> bool) -> Option<i128> {
    if !holds(max) {
        return None;
    }
    let (mut low, mut high) = (0, max);
    while low < high {
        let middle = (low + high) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(low)
}

/// `dividend / divisor`, rounded up.
pub fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}

fn floor_to(instant: i128, grid: i128) -> i128 {
    instant.div_euclid(grid) * grid
}

/// The open window: its start and the cost of each call in it.
#[derive(Clone, Default)]
pub struct FixedWindow {
    start: i128,
    calls: Vec<i128>,
}

impl FixedWindow {
    fn is_open(&self, limits: &Limits, now: i128) -> bool {
        let ended = now >= self.start + limits.period_us;
        let before_boundary = self.start < floor_to(now, limits.period_us);
        let dropped = limits.aligned && before_boundary;
        !(self.calls.is_empty() || ended || dropped)
    }

    fn opening(limits: &Limits, now: i128) -> i128 {
        if limits.aligned { floor_to(now, limits.period_us) } else { now }
    }
}

impl Oracle for FixedWindow {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let ahead = !self.calls.is_empty() && self.start - now > limits.period_us;
        if ahead {
            self.start = Self::opening(limits, now);
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let used = if self.is_open(limits, now) { self.calls.iter().sum() } else { 0 };
        used + cost <= limits.capacity
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        if !self.is_open(limits, now) {
            *self = Self { start: Self::opening(limits, now), calls: Vec::new() };
        }
        self.calls.push(cost);
    }

    fn give(&mut self, _limits: &Limits, _now: i128, cost: i128) {
        take_off(&mut self.calls, cost);
    }
}

/// The calls of the current window, which starts at `start`, and of the one before.
#[derive(Clone, Default)]
pub struct SlidingWindow {
    start: i128,
    previous: Vec<i128>,
    current: Vec<i128>,
}

impl SlidingWindow {
    /// The same calls on the grid of `limits`: off it, all that count are in the current window.
    fn on_grid(&self, limits: &Limits) -> Self {
        let start = floor_to(self.start, limits.period_us);
        if start == self.start {
            return self.clone();
        }
        let current = [self.previous.clone(), self.current.clone()].concat();
        Self { start, previous: Vec::new(), current }
    }

    /// The two windows once time has moved on to `now`, or stands before the current one.
    fn at(&self, limits: &Limits, now: i128) -> Self {
        let mut seen = self.on_grid(limits);
        let start = floor_to(now, limits.period_us);
        if seen.start + limits.period_us == start {
            seen = Self { start, previous: seen.current, current: Vec::new() };
        } else if seen.start < start {
            seen = Self { start, ..Self::default() };
        }
        seen
    }
}

impl Oracle for SlidingWindow {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let seen = self.on_grid(limits);
        let ahead = !seen.current.is_empty() && seen.start - now > limits.period_us;
        if ahead {
            *self = Self { start: floor_to(now, limits.period_us), ..seen };
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let seen = self.at(limits, now);
        let (previous, current): (i128, i128) =
            (seen.previous.iter().sum(), seen.current.iter().sum());
        let left = limits.period_us - (now - seen.start).max(0);
        previous * left + (current + cost) * limits.period_us <= limits.capacity * limits.period_us
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        *self = self.at(limits, now);
        self.current.push(cost);
    }

    fn give(&mut self, limits: &Limits, now: i128, cost: i128) {
        *self = self.at(limits, now);
        let more = take_off(&mut self.current, cost);
        take_off(&mut self.previous, more);
        if self.current.is_empty() {
            // What is left is what the window before, if there is one, would have left.
            let before = self.start - limits.period_us;
            let start = if before < 0 { self.start } else { before };
            let current = std::mem::take(&mut self.previous);
            *self = Self { start, previous: Vec::new(), current };
        }
    }
}

/// The theoretical arrival time in ns, and the furthest ahead that its writer can have left it.
#[derive(Clone, Default)]
pub struct Gcra {
    arrival_ns: i128,
    writer_ns: i128,
}

impl Gcra {
    fn interval_ns(limits: &Limits) -> i128 {
        div_ceil(limits.period_us * 1_000, limits.rate)
    }

    fn tolerance_ns(limits: &Limits) -> i128 {
        Self::interval_ns(limits) * limits.capacity
    }

    fn power_of_two_from(ns: i128) -> i128 {
        let mut power = 1;
        while power < ns {
            power *= 2;
        }
        power
    }
}

impl Oracle for Gcra {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let tolerance_ns = Self::tolerance_ns(limits);
        let ahead_ns = self.arrival_ns - now * 1_000;
        let impossible = ahead_ns > self.writer_ns && ahead_ns > tolerance_ns;
        if impossible {
            self.arrival_ns = now * 1_000 + tolerance_ns;
            self.writer_ns = Self::power_of_two_from(tolerance_ns);
        }
        impossible
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let arrival_ns = self.arrival_ns.max(now * 1_000);
        let next_ns = arrival_ns + cost * Self::interval_ns(limits);
        next_ns <= now * 1_000 + Self::tolerance_ns(limits)
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        let arrival_ns = self.arrival_ns.max(now * 1_000);
        self.arrival_ns = arrival_ns + cost * Self::interval_ns(limits);
        let ahead_ns = self.arrival_ns - now * 1_000;
        self.writer_ns = Self::power_of_two_from(Self::tolerance_ns(limits).max(ahead_ns));
    }

    fn give(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.take(limits, now, -cost);
    }
}
