//! Naive models of the six algorithms, for the property tests to compare with.
//!
//! A model keeps exact numbers or a list of events and can answer one question only: would this
//! cost be allowed at that time? Everything else a limiter answers is found by asking that question
//! again and again (`answer`), so that no formula of the limiters is repeated here. Times are in
//! microseconds and, like all numbers, `i128`: nothing overflows.
//!
//! Beside the models stands what property tests, fuzz targets, simulation and soak share: the
//! `key` that is compared with a model, the `subject` that names the bounds, and `draw`.

mod answer;
mod draw;
mod key;
mod read;
mod subject;

pub use answer::{Answer, call, peek, remaining, reset_after_ms, retry_after_ms};
pub use draw::{CLOCK_MAX_US, DAY_US, Share, Source, Step, UNITS_MAX};
pub use key::{Key, Write, overwrite};
pub use read::Unexplained;
pub use subject::{CellRate, Fixed, Leaky, Log, Sliding, Subject, Token, Twin, check_retry};

/// The arguments of any of the six: `capacity` is also the limit or the burst, `period` the window.
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
    /// `cost` was allowed at `now`.
    fn take(&mut self, limits: &Limits, now: i128, cost: i128);
    /// How long an allowed call has to wait before it acts.
    fn wait_us(&self, _limits: &Limits, _now: i128) -> i128 {
        0
    }
}

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
}

/// Every call with the instant it counts from.
#[derive(Clone, Default)]
pub struct SlidingLog {
    calls: Vec<(i128, i128)>,
    coarsest_slot: i128,
}

impl SlidingLog {
    fn slot(limits: &Limits) -> i128 {
        let exact = limits.capacity <= limits.slots;
        if exact { 1 } else { div_ceil(limits.period_us, limits.slots) }
    }

    fn rounded(limits: &Limits, now: i128) -> i128 {
        let slot = Self::slot(limits);
        div_ceil(now, slot) * slot
    }

    fn newest(&self) -> i128 {
        self.calls.iter().map(|(at, _)| *at).max().unwrap_or(0)
    }

    fn counts(limits: &Limits, at: i128, now: i128) -> bool {
        now < at + limits.period_us
    }

    /// How many different instants there are among the calls that do, or do not, count.
    fn instants(&self, limits: &Limits, now: i128, counting: bool) -> usize {
        let of_kind = |at: &i128| Self::counts(limits, *at, now) == counting;
        let mut instants: Vec<_> = self.calls.iter().map(|(at, _)| *at).filter(of_kind).collect();
        instants.dedup();
        instants.len()
    }

    fn forget(&mut self, limits: &Limits, now: i128) {
        self.calls.retain(|(at, _)| Self::counts(limits, *at, now));
        if self.calls.is_empty() {
            self.coarsest_slot = 0;
        }
    }
}

impl Oracle for SlidingLog {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let span = limits.period_us.max(self.coarsest_slot);
        let ahead = !self.calls.is_empty() && self.newest() - now > span;
        if ahead {
            self.forget(limits, now);
            let moved = Self::rounded(limits, now);
            let survivors = self.calls.iter().any(|(at, _)| *at <= now && *at != moved);
            self.calls.iter_mut().filter(|(at, _)| *at > now).for_each(|(at, _)| *at = moved);
            let slot = Self::slot(limits);
            self.coarsest_slot = if survivors { self.coarsest_slot.max(slot) } else { slot };
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let counting = self.calls.iter().filter(|(at, _)| Self::counts(limits, *at, now));
        counting.map(|(_, cost)| cost).sum::<i128>() + cost <= limits.capacity
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        let dead = self.instants(limits, now, false);
        if dead > 0 && dead * 2 >= self.instants(limits, now, true) {
            self.forget(limits, now);
        }
        let at = if self.calls.is_empty() {
            Self::rounded(limits, now)
        } else {
            Self::rounded(limits, now).max(self.newest())
        };
        // Whatever still counts keeps its rounding, also what the new call shares an instant with.
        let survivors = self.calls.iter().any(|(other, _)| Self::counts(limits, *other, now));
        let slot = Self::slot(limits);
        self.coarsest_slot = if survivors { self.coarsest_slot.max(slot) } else { slot };
        self.calls.push((at, cost));
    }
}

/// An exact amount: whole units and a fraction over the period of those who left it.
#[derive(Clone, Copy, Default)]
struct Amount {
    at: i128,
    whole: i128,
    numerator: i128,
}

/// How many parts, of which the period has one a microsecond, make the full capacity.
fn full(limits: &Limits) -> i128 {
    limits.capacity * limits.period_us
}

fn span_us(limits: &Limits) -> i128 {
    div_ceil(full(limits), limits.rate)
}

fn amount(limits: &Limits, at: i128, parts: i128) -> Amount {
    let whole = parts.div_euclid(limits.period_us);
    Amount { at, whole, numerator: parts.rem_euclid(limits.period_us) }
}

/// The tokens left, unless the bucket is full.
#[derive(Clone, Default)]
pub struct TokenBucket {
    left: Option<Amount>,
}

impl TokenBucket {
    fn parts(&self, limits: &Limits, now: i128) -> i128 {
        let Some(left) = self.left else {
            return full(limits);
        };
        let fits = left.numerator < limits.period_us;
        let fraction = if fits { left.numerator } else { 0 };
        let held = left.whole * limits.period_us + fraction;
        (held + limits.rate * (now - left.at).max(0)).min(full(limits))
    }
}

impl Oracle for TokenBucket {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let parts = self.parts(limits, now);
        let ahead = self.left.is_some_and(|left| left.at - now > span_us(limits));
        if ahead && parts < full(limits) {
            self.left = Some(amount(limits, now, parts));
        }
        ahead && parts < full(limits)
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        cost * limits.period_us <= self.parts(limits, now)
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        let parts = self.parts(limits, now);
        // A full bucket is no state: when it was last looked at does not matter.
        let left = self.left.filter(|_| parts < full(limits));
        let at = left.map_or(now, |left| left.at.max(now));
        self.left = Some(amount(limits, at, parts - cost * limits.period_us));
    }
}

/// Longer than any queue takes to drain: a thousand years.
const FOREVER_US: i128 = 1_000 * 366 * 86_400_000_000;

/// What stands in the queue, unless it is empty.
#[derive(Clone, Default)]
pub struct LeakyBucket {
    queued: Option<Amount>,
}

impl LeakyBucket {
    fn parts(&self, limits: &Limits, now: i128) -> i128 {
        let Some(queued) = self.queued else {
            return 0;
        };
        let fits = queued.numerator < limits.period_us;
        let fraction = if fits { queued.numerator } else { limits.period_us };
        let held = (queued.whole * limits.period_us + fraction).min(full(limits));
        (held - limits.rate * (now - queued.at).max(0)).max(0)
    }
}

impl Oracle for LeakyBucket {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let ahead = self.queued.is_some_and(|queued| queued.at - now > span_us(limits));
        if ahead {
            self.queued = Some(amount(limits, now, self.parts(limits, now)));
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        self.parts(limits, now) + cost * limits.period_us <= full(limits)
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        let parts = self.parts(limits, now) + cost * limits.period_us;
        let at = self.queued.map_or(now, |queued| queued.at.max(now));
        self.queued = Some(amount(limits, at, parts));
    }

    /// The first time at which nothing is left of what stands in the queue now.
    fn wait_us(&self, limits: &Limits, now: i128) -> i128 {
        smallest(FOREVER_US, |us| self.parts(limits, now + us) == 0).expect("drains")
    }
}

/// The theoretical arrival time in ns, and the largest tolerance its writer can have had.
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
        self.writer_ns = Self::power_of_two_from(Self::tolerance_ns(limits));
    }
}
