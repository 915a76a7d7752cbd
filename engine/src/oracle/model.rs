//! The trait of all models, the limits they are asked about, and the arithmetic they share.

/// The arguments of any algorithm: `capacity` is also the limit or the burst, `period` the window;
/// growing delays are made of them by `delays`.
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
    /// `cost` was charged at `now`.
    fn charge(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.take(limits, now, cost);
    }
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

/// The state of another algorithm, or one that no calls can have left and that no model explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexplained;

/// Returns the plain state of one algorithm, or leaves with [`Unexplained`].
macro_rules! expect_state {
    ($state:expr, $kind:ident) => {
        match $state {
            $crate::algorithms::State::$kind(state) => state,
            _ => return Err($crate::oracle::model::Unexplained),
        }
    };
}
pub(super) use expect_state;

/// Takes `units` off the end of a list of costs; tells how many were not there.
pub fn take_off(costs: &mut Vec<i128>, mut units: i128) -> i128 {
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
pub const SPAN_MAX_US: i128 = u64::MAX as i128;

/// The smallest number for which `holds`, which then holds for all above; `None` if not up to max.
pub fn smallest(max: i128, holds: impl Fn(i128) -> bool) -> Option<i128> {
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

/// The last multiple of `grid` up to `instant`.
pub fn floor_to(instant: i128, grid: i128) -> i128 {
    instant.div_euclid(grid) * grid
}
