//! The model of the sliding log: every call, and what refunds leave between them.

use super::{Limits, Oracle, div_ceil};

/// Every call with the instant it counts from.
#[derive(Clone, Default)]
pub struct SlidingLog {
    pub(super) calls: Vec<(i128, i128)>,
    /// Entries that say again what one of a call says: what stands where a refund left nothing.
    pub(super) echoes: Vec<i128>,
    pub(super) coarsest_slot: i128,
    /// Whether the clock stepped back before the call that is being made.
    pub(super) is_repaired: bool,
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

    /// How many entries there are with such an instant: one for all calls of one, and the echoes.
    fn entries(&self, of_kind: impl Fn(i128) -> bool) -> usize {
        let mut instants: Vec<_> = self.calls.iter().map(|(at, _)| *at).collect();
        instants.dedup();
        instants.iter().chain(&self.echoes).filter(|at| of_kind(**at)).count()
    }

    fn forget(&mut self, limits: &Limits, now: i128) {
        self.calls.retain(|(at, _)| Self::counts(limits, *at, now));
        self.echoes.clear();
        if self.calls.is_empty() {
            self.coarsest_slot = 0;
        }
    }

    /// Forgets the dead once they are half as many as the others.
    fn forget_many(&mut self, limits: &Limits, now: i128) -> bool {
        let dead = self.entries(|at| !Self::counts(limits, at, now));
        let forgets = dead > 0 && dead * 2 >= self.entries(|at| Self::counts(limits, at, now));
        if forgets {
            self.forget(limits, now);
        }
        forgets
    }

    /// Another rounding is written with the whole log, and without echoes.
    fn round_to(&mut self, slot: i128) {
        if slot != self.coarsest_slot {
            self.echoes.clear();
        }
        self.coarsest_slot = slot;
    }
}

impl Oracle for SlidingLog {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let span = limits.period_us.max(self.coarsest_slot);
        let ahead = !self.calls.is_empty() && self.newest() - now > span;
        self.is_repaired = ahead;
        if ahead {
            let moved = Self::rounded(limits, now);
            let live = |at: i128| at <= now && Self::counts(limits, at, now);
            let echoed = self.entries(|at| live(at) && at == moved) > 1;
            let is_last = self.entries(|at| at > now || at == moved) == 1;
            if !is_last || self.entries(|at| !Self::counts(limits, at, now)) > 0 {
                self.forget(limits, now);
            }
            let others = self.calls.iter().any(|(at, _)| *at <= now && *at != moved);
            let survivors = others || echoed;
            self.calls.iter_mut().filter(|(at, _)| *at > now).for_each(|(at, _)| *at = moved);
            let slot = Self::slot(limits);
            self.round_to(if survivors { self.coarsest_slot.max(slot) } else { slot });
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let counting = self.calls.iter().filter(|(at, _)| Self::counts(limits, *at, now));
        counting.map(|(_, cost)| cost).sum::<i128>() + cost <= limits.capacity
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.forget_many(limits, now);
        let at = if self.calls.is_empty() {
            Self::rounded(limits, now)
        } else {
            Self::rounded(limits, now).max(self.newest())
        };
        // Whatever still counts keeps its rounding, also what the new call shares an instant with.
        let survivors = self.calls.iter().any(|(other, _)| Self::counts(limits, *other, now));
        let slot = Self::slot(limits);
        self.round_to(if survivors { self.coarsest_slot.max(slot) } else { slot });
        self.calls.push((at, cost));
    }

    fn give(&mut self, limits: &Limits, now: i128, mut cost: i128) {
        let counting = self.entries(|at| Self::counts(limits, at, now)) as i128;
        let is_bloated = counting > 2 * limits.capacity.min(limits.slots) + 32;
        let forgot = self.forget_many(limits, now);
        let before = self.clone();
        while let Some((at, units)) = self.calls.pop() {
            let dead = !Self::counts(limits, at, now);
            if dead || units > cost {
                self.calls.push((at, if dead { units } else { units - cost }));
                break;
            }
            cost -= units;
        }
        let last = self.newest();
        let overwritten = before.entries(|at| at >= last);
        self.round_to(self.coarsest_slot.max(Self::slot(limits)));
        if overwritten > 1 {
            let anew = is_bloated || forgot || self.is_repaired || overwritten > 32;
            let stays = self.coarsest_slot == before.coarsest_slot && !anew;
            self.echoes.retain(|at| stays && *at < last);
            self.echoes.extend((1..overwritten).filter(|_| stays).map(|_| last));
        }
    }
}
