//! The model of GCRA: the theoretical arrival time.

use crate::algorithms::{Rule, State, gcra};
use crate::oracle::model::{Limits, Oracle, Unexplained, div_ceil, expect_state};
use crate::oracle::subject::{Subject, at_the_rate, refill};

/// The theoretical arrival time, and the longest time by which the rule that wrote it can have set
/// it ahead of the clock. Both are in nanoseconds.
#[derive(Clone, Default)]
pub struct Gcra {
    pub(super) arrival_ns: i128,
    pub(super) writer_ns: i128,
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

impl TryFrom<State<'_>> for Gcra {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, Gcra);
        Ok(Self { arrival_ns: state.arrival_ns.into(), writer_ns: 1 << state.tolerance_log2 })
    }
}

/// `RL.GCRA`
pub struct CellRate;

impl Subject for CellRate {
    type Model = Gcra;
    fn rule(limits: &Limits) -> Rule {
        Rule::Gcra(gcra::Gcra::new(refill(limits)))
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::Gcra(state) = state else { return None };
        Some(state.arrival_ns / 1_000)
    }
    fn span_us(limits: &Limits) -> i128 {
        Self::longest_wait_us(limits, limits.capacity)
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        let interval_ns = div_ceil(limits.period_us * 1_000, limits.rate);
        div_ceil(cost * interval_ns, 1_000)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        at_the_rate(limits, elapsed_us)
    }
}
