//! The trait of all models, the limits of a call, and the shared arithmetic.

/// The arguments of any algorithm. `capacity` is also the limit or the burst, and `period_us` the
/// window. The function `delays` derives the arguments of `BACKOFF` from them. If `aligned`, a rule
/// of `SLIDINGLOG` sets its slots itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Units: the capacity, the limit or the burst.
    pub capacity: i128,
    /// Units per period.
    pub rate: i128,
    /// The period or the window.
    pub period_us: i128,
    /// Whether a fixed window opens at multiples of its length.
    pub aligned: bool,
    /// The number of slots into which a sliding log divides its window.
    pub slots: i128,
}

/// The naive model of one algorithm.
pub trait Oracle: Default + Clone {
    /// Repairs a state that lies further ahead of `now` than the algorithm allows, as after the
    /// clock stepped back: moves it to a time that is valid at `now`. Returns true if it moved.
    fn repair(&mut self, limits: &Limits, now: i128) -> bool;
    /// Returns true if `cost` would be allowed at `now`, provided that no call comes until then.
    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool;
    /// Records that `cost` was allowed at `now`.
    fn take(&mut self, limits: &Limits, now: i128, cost: i128);
    /// Records that `cost` was charged at `now`.
    fn charge(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.take(limits, now, cost);
    }
    /// Records that `cost` was given back at `now`. Called only if something was used.
    fn give(&mut self, limits: &Limits, now: i128, cost: i128);
    /// Returns the time that an allowed call has to wait before it acts.
    fn wait_us(&self, _limits: &Limits, _now: i128) -> i128 {
        0
    }

    /// Returns the limit in the reply.
    fn limit(limits: &Limits) -> i128 {
        limits.capacity
    }
    /// Returns true if the full allowance is back at `now`, provided that no call comes until then.
    fn is_unused(&self, limits: &Limits, now: i128) -> bool {
        self.would_allow(limits, now, limits.capacity)
    }
    /// Returns true if no debt is left at `now`, provided that no call comes until then.
    fn is_clear(&self, limits: &Limits, now: i128) -> bool {
        self.would_allow(limits, now, 0)
    }
    /// Returns the largest cost that would be allowed. Cost 0 is always allowed.
    fn remaining(&self, limits: &Limits, now: i128) -> i128 {
        let allowed = |cost| cost == 0 || self.would_allow(limits, now, cost);
        let too_much = |cost| cost > limits.capacity || !allowed(cost);
        smallest(limits.capacity + 1, too_much).expect("more than all is too much") - 1
    }
    /// Returns true if a refund finds nothing to give back.
    fn finds_nothing(&self, limits: &Limits, now: i128) -> bool {
        self.is_unused(limits, now)
    }
    /// Returns true if nothing is left to store.
    fn is_blank(&self, limits: &Limits, now: i128) -> bool {
        self.is_unused(limits, now)
    }
    /// Records that the state is written at `now`. Drops data that can affect no later reply.
    fn stored(&mut self, _limits: &Limits, _now: i128) {}
    /// Returns true if more than `units` units are used.
    fn uses_more_than(&self, limits: &Limits, now: i128, units: i128) -> bool {
        !self.would_allow(limits, now, limits.capacity - units)
    }
}

/// The state cannot be converted to a model: it belongs to another algorithm, or no calls can have
/// left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexplained;

/// Evaluates to the plain state of one algorithm, or makes the enclosing function return
/// [`Unexplained`].
macro_rules! expect_state {
    ($state:expr, $kind:ident) => {
        match $state {
            $crate::algorithms::State::$kind(state) => state,
            _ => return Err($crate::oracle::model::Unexplained),
        }
    };
}
pub(super) use expect_state;

/// Removes `units` from the end of a list of costs. Returns the number of units that were missing.
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

/// The longest time that a model returns. A longer time, which only a debt under changing rules can
/// take, becomes this one.
pub const SPAN_MAX_US: i128 = u64::MAX as i128;

/// Returns the smallest number up to `max` for which `holds` is true; `None` if there is none.
/// `holds` must stay true for all larger numbers.
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

/// Returns `dividend / divisor`, rounded up.
pub fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}

/// Returns the last multiple of `grid` up to `instant`.
pub fn floor_to(instant: i128, grid: i128) -> i128 {
    instant.div_euclid(grid) * grid
}
