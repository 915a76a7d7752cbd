//! The naive GCRA.

use super::model::{Limits, Oracle, div_ceil};

/// The theoretical arrival time in ns, and the furthest ahead that its writer can have left it.
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
