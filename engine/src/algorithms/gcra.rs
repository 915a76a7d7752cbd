//! Generic cell rate algorithm: a token bucket in one timestamp.
//!
//! The state is the theoretical arrival time: the instant at which the next call would arrive if
//! all calls had kept the emission interval `T = ceil(period / rate)`. A call may come early by at
//! most the tolerance, `burst x T`. Units charged beyond the tolerance move the arrival time
//! further ahead. The state also stores one byte: the exponent of a power of two, in nanoseconds,
//! that is at least the tolerance of the rule that wrote it and at least the time owed then. An
//! arrival time that lies further ahead than this power is no debt: the clock stepped back.
//!
//! Allows at most `burst + rate x t` units in any stretch of time `t`. The interval is rounded up
//! to the nanosecond, which favours the limit: a unit takes less than 1 ns longer than requested.
//!
//! Source: ITU-T I.371 and the ATM Forum's Traffic Management Specification 4.1, virtual
//! scheduling.

use crate::bounds::{Cost, Limit, Refill};
use crate::call::{Limiter, Standing};
use crate::decision::{Decision, Next};
use crate::fields::{Field, Fields};
use crate::time::{Instant, Span};

/// The rule: `burst` units at once, and `rate` per `period` in the long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gcra {
    burst: Limit,
    /// Nanoseconds between two units.
    interval_ns: u64,
    /// The time by which a call may come early: `burst x interval`, in nanoseconds.
    tolerance_ns: u64,
}

/// The stored theoretical arrival time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The theoretical arrival time, in nanoseconds since the Unix epoch.
    pub arrival_ns: u64,
    /// The smallest `n` for which 2^n ns is at least the tolerance of the rule that wrote the
    /// state, and at least the time owed when it was written.
    pub tolerance_log2: u8,
}

impl State {
    /// The latest arrival time: [`Instant::MAX`] plus the longest tolerance or debt.
    pub const ARRIVAL_MAX_NS: u64 =
        Instant::MAX.as_us() * 1_000 + Refill::SPAN_MAX.as_us() * 1_000 + Limit::MAX;
    /// The largest exponent: 2^62 ns exceeds the longest tolerance and the longest debt.
    pub const TOLERANCE_LOG2_MAX: u8 = 62;
}

/// The time owed as seen at one instant.
struct ArrivalView<'a> {
    rule: &'a Gcra,
    now_ns: u64,
    owed_ns: u64,
    repaired: bool,
}

impl Limiter<'_> for Gcra {
    type State = State;
    type NewState = State;

    /// Returns the view of the time owed at `now`. If more time is owed than the rule that wrote
    /// the state can have left, the clock stepped back, and the time owed is cut to the tolerance.
    #[inline(always)]
    fn standing(&self, stored: Option<State>, now: Instant) -> impl Standing<NewState = State> {
        let now_ns = now.as_us().saturating_mul(1_000);
        let (owed_ns, repaired) = self.owed_ns(stored, now_ns);
        ArrivalView { rule: self, now_ns, owed_ns, repaired }
    }
}

impl ArrivalView<'_> {
    /// Returns the time owed once `cost` is taken.
    fn wanted_ns(&self, cost: Cost) -> u128 {
        u128::from(self.owed_ns) + u128::from(cost.units()) * u128::from(self.rule.interval_ns)
    }
}

impl Standing for ArrivalView<'_> {
    type NewState = State;

    #[inline(always)]
    fn limit(&self) -> Limit {
        self.rule.burst
    }

    #[inline(always)]
    fn is_repaired(&self) -> bool {
        self.repaired
    }

    #[inline(always)]
    fn has_room_for(&self, cost: Cost) -> bool {
        self.wanted_ns(cost) <= u128::from(self.rule.tolerance_ns)
    }

    #[inline(always)]
    fn room_in(&self, cost: Cost) -> Span {
        let early_ns = self.wanted_ns(cost) - u128::from(self.rule.tolerance_ns);
        Span::from_ns_ceil(u64::try_from(early_ns).unwrap_or(u64::MAX))
    }

    fn used(&self) -> u128 {
        self.owed_ns.div_ceil(self.rule.interval_ns).into()
    }

    #[inline(always)]
    fn take(&mut self, cost: Cost) {
        // If there was room, the time owed is at most the tolerance. If the time owed after a
        // charge overflows, the caller refuses the charge.
        self.owed_ns = u64::try_from(self.wanted_ns(cost)).unwrap_or(u64::MAX);
    }

    fn give_back(&mut self, cost: Cost) {
        let interval_ns = u128::from(self.rule.interval_ns);
        let given_ns = u64::try_from(u128::from(cost.units()) * interval_ns).unwrap_or(u64::MAX);
        self.owed_ns = self.owed_ns.saturating_sub(given_ns);
    }

    #[inline(always)]
    fn remaining(&self) -> u64 {
        self.rule.units_in(self.rule.tolerance_ns.saturating_sub(self.owed_ns))
    }

    #[inline(always)]
    fn reset_after(&self) -> Span {
        Span::from_ns_ceil(self.owed_ns)
    }

    #[inline(always)]
    fn next(self, _decision: &Decision) -> Next<State> {
        let arrival_ns = self.now_ns.saturating_add(self.owed_ns);
        let expires_at = Instant::from_us(arrival_ns.div_ceil(1_000));
        let state = State { arrival_ns, tolerance_log2: self.rule.covering_log2(self.owed_ns) };
        Next::drifting(expires_at, self.rule.span(), state)
    }
}

impl Fields<2> for Gcra {
    type Stored = State;
    const FIELDS: [Field; 2] = [
        Field::new("theoretical_arrival_ns", 0, State::ARRIVAL_MAX_NS),
        Field::new("tolerance_log2_ns", 0, State::TOLERANCE_LOG2_MAX as u64),
    ];

    fn numbers(state: &State) -> [u64; 2] {
        [state.arrival_ns, state.tolerance_log2.into()]
    }

    fn state([arrival_ns, tolerance_log2]: [u64; 2]) -> Option<State> {
        let tolerance_log2 = u8::try_from(tolerance_log2).ok()?;
        Some(State { arrival_ns, tolerance_log2 })
    }
}

impl Gcra {
    /// Makes a rule from a refill. The emission interval is rounded up to the nanosecond.
    pub fn new(refill: Refill) -> Self {
        // At most 366 days in nanoseconds, 3.2 x 10^16.
        let interval_ns = (refill.period().as_us() * 1_000).div_ceil(refill.rate().units());
        // At most 36,525 days, plus up to 1 ns of rounding for each of 10^12 units: 3.2 x 10^18.
        let tolerance_ns = interval_ns.saturating_mul(refill.capacity().units());
        Self { burst: refill.capacity(), interval_ns, tolerance_ns }
    }

    /// Returns the time from `now` to the theoretical arrival time. Returns true with it if the
    /// clock stepped back and the time was cut to the tolerance.
    fn owed_ns(&self, stored: Option<State>, now_ns: u64) -> (u64, bool) {
        let Some(state) = stored else {
            return (0, false);
        };
        let ahead_ns = state.arrival_ns.saturating_sub(now_ns);
        let writable_ns = 1_u64.checked_shl(state.tolerance_log2.into()).unwrap_or(u64::MAX);
        if ahead_ns > writable_ns && ahead_ns > self.tolerance_ns {
            (self.tolerance_ns, true)
        } else {
            (ahead_ns, false)
        }
    }

    /// Returns the whole units in `room_ns`, rounded down. After most denials, less than one unit
    /// is left. Such a call skips the division, the slowest instruction.
    fn units_in(&self, room_ns: u64) -> u64 {
        if room_ns < self.interval_ns { 0 } else { room_ns / self.interval_ns }
    }

    /// Returns the tolerance: the longest time by which a state without debt may lie ahead of
    /// `now`.
    fn span(&self) -> Span {
        Span::from_ns_ceil(self.tolerance_ns)
    }

    /// Returns the smallest `n` for which 2^n ns is at least the tolerance and at least `owed_ns`.
    fn covering_log2(&self, owed_ns: u64) -> u8 {
        let longest_ns = self.tolerance_ns.max(owed_ns);
        let exponent = longest_ns.next_power_of_two().trailing_zeros();
        u8::try_from(exponent).unwrap_or(State::TOLERANCE_LOG2_MAX)
    }
}
