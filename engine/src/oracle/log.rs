//! The model of the sliding log: every call, and the copies of entries that refunds leave.

use crate::algorithms::{Rule, State, sliding_log};
use crate::bounds::Slots;
use crate::oracle::model::{Limits, Oracle, Unexplained, div_ceil, expect_state};
use crate::oracle::subject::{Subject, duration, limit, period};

/// The calls, each with the instant from which it counts and its cost.
#[derive(Clone, Default)]
pub struct SlidingLog {
    pub(super) calls: Vec<(i128, i128)>,
    /// The copies of entries that refunds leave in place of the entries they remove. A copy has the
    /// instant of an entry, and the running total up to that entry.
    pub(super) echoes: Vec<(i128, i128)>,
    pub(super) coarsest_slot: i128,
    /// Whether the clock stepped back before the current call.
    pub(super) is_repaired: bool,
}

impl SlidingLog {
    fn slot(limits: &Limits) -> i128 {
        let exact = limits.capacity <= limits.slots;
        if exact { 1 } else { Self::grid(limits) }
    }

    fn grid(limits: &Limits) -> i128 {
        div_ceil(limits.period_us, limits.slots)
    }

    fn rounded(limits: &Limits, now: i128) -> i128 {
        let slot = Self::slot(limits);
        div_ceil(now, slot) * slot
    }

    /// Adds a call at `now`, with the instant rounded up to `slot`.
    fn add(&mut self, limits: &Limits, now: i128, cost: i128, mut slot: i128) {
        self.forget_many(limits, now);
        let count = self.overwrite_stale(limits, now);
        let rounded = div_ceil(now, slot) * slot;
        let at = if self.calls.is_empty() { rounded } else { rounded.max(self.newest()) };
        // Entries that count keep their rounding, also if the new call shares their instant.
        let survivors = self.calls.iter().any(|(other, _)| Self::counts(limits, *other, now));
        if survivors {
            slot = slot.max(self.coarsest_slot);
        }
        let is_new_rounding = self.round_to(slot);
        self.calls.push((at, cost));
        if !is_new_rounding {
            self.echo_up_to(count);
        }
    }

    /// Removes the copies of the last entry. Returns the number of entries that the log keeps when
    /// the next call overwrites the copies. Returns 0 if the next call adds an entry or rewrites
    /// the log.
    fn overwrite_stale(&mut self, limits: &Limits, now: i128) -> i128 {
        let (count, stale) = (self.entries().len() as i128, self.stale());
        let dead = self.count(|at| !Self::counts(limits, at, now)) as i128;
        if stale == 0 {
            return 0;
        }
        if Self::is_too_many(stale, count - stale - dead) {
            self.forget(limits, now);
            return 0;
        }
        let total = self.total();
        self.echoes.retain(|echo| echo.1 < total);
        count
    }

    /// Copies the last entry until there are `count` entries.
    fn echo_up_to(&mut self, count: i128) {
        let last = (self.newest(), self.total());
        while (self.entries().len() as i128) < count {
            self.echoes.push(last);
        }
    }

    /// Returns the number of entries whose total exceeds `total`.
    fn more_than(&self, total: i128) -> i128 {
        self.entries().iter().filter(|entry| entry.1 > total).count() as i128
    }

    /// Returns the number of copies of the last entry.
    fn stale(&self) -> i128 {
        (self.more_than(self.total() - 1) - 1).max(0)
    }

    /// Returns true if rewriting the `stays` kept entries costs less than overwriting the `stale`
    /// copies again.
    fn is_too_many(stale: i128, stays: i128) -> bool {
        let root = (0..).find(|root| (root + 1) * (root + 1) > 2 * stays).expect("there is one");
        stale > root + 1
    }

    fn newest(&self) -> i128 {
        self.calls.iter().map(|(at, _)| *at).max().unwrap_or(0)
    }

    fn counts(limits: &Limits, at: i128, now: i128) -> bool {
        now < at + limits.period_us
    }

    fn total(&self) -> i128 {
        self.calls.iter().map(|(_, cost)| cost).sum()
    }

    /// Returns the entries, each with its instant and the total up to it: one entry for all calls
    /// in the same microsecond, and the copies.
    fn entries(&self) -> Vec<(i128, i128)> {
        let mut entries: Vec<(i128, i128)> = Vec::new();
        let mut total = 0;
        for (at, cost) in &self.calls {
            total += cost;
            match entries.last_mut() {
                Some(last) if last.0 == *at => last.1 = total,
                _ => entries.push((*at, total)),
            }
        }
        entries.extend(&self.echoes);
        entries
    }

    /// Returns the number of entries whose instants satisfy `of_kind`.
    fn count(&self, of_kind: impl Fn(i128) -> bool) -> usize {
        self.entries().iter().filter(|(at, _)| of_kind(*at)).count()
    }

    fn forget(&mut self, limits: &Limits, now: i128) {
        self.calls.retain(|(at, _)| Self::counts(limits, *at, now));
        self.echoes.clear();
        if self.calls.is_empty() {
            self.coarsest_slot = 0;
        }
    }

    /// Drops the dead entries if there are at least half as many as live ones. Returns true if it
    /// did.
    fn forget_many(&mut self, limits: &Limits, now: i128) -> bool {
        let dead = self.count(|at| !Self::counts(limits, at, now));
        let forgets = dead > 0 && dead * 2 >= self.count(|at| Self::counts(limits, at, now));
        if forgets {
            self.forget(limits, now);
        }
        forgets
    }

    /// Sets the rounding. Returns true if it changes, which rewrites the log without copies.
    fn round_to(&mut self, slot: i128) -> bool {
        let is_new = slot != self.coarsest_slot;
        if is_new {
            self.echoes.clear();
        }
        self.coarsest_slot = slot;
        is_new
    }
}

impl<'a> From<sliding_log::Log<'a>> for sliding_log::Edit<'a> {
    /// Returns the edit that stores the same log again.
    fn from(log: sliding_log::Log<'a>) -> Self {
        let kept = 0..log.entries.len() - 1;
        Self { log: Some(log), kept, last: log.last(), slot: log.slot, rewrites: false }
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
            let echoed = self.count(|at| live(at) && at == moved) > 1;
            self.forget(limits, now);
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

    /// Returns true if no call counts. Calls of cost 0, which only a forged log has, count too.
    fn is_unused(&self, limits: &Limits, now: i128) -> bool {
        !self.calls.iter().any(|(at, _)| Self::counts(limits, *at, now))
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.add(limits, now, cost, Self::slot(limits));
    }

    fn charge(&mut self, limits: &Limits, now: i128, cost: i128) {
        let count = self.count(|_| true);
        let live = self.count(|at| Self::counts(limits, at, now));
        let forgets = self.clone().forget_many(limits, now);
        let entries = (if forgets { live } else { count }) as i128;
        // Entries that were just moved to `now` keep that instant.
        let is_full = entries >= limits.slots && !self.is_repaired;
        let slot = if is_full { Self::grid(limits) } else { Self::slot(limits) };
        self.add(limits, now, cost, slot);
    }

    fn give(&mut self, limits: &Limits, now: i128, mut cost: i128) {
        let forgot = self.forget_many(limits, now);
        let before = self.clone();
        let dead: i128 = before.count(|at| !Self::counts(limits, at, now)) as i128;
        while let Some((at, units)) = self.calls.pop() {
            let dead = !Self::counts(limits, at, now);
            if dead || units > cost {
                self.calls.push((at, if dead { units } else { units - cost }));
                break;
            }
            cost -= units;
        }
        let (last, left) = (self.newest(), self.total());
        self.round_to(self.coarsest_slot.max(Self::slot(limits)));
        let entries = before.entries();
        let count = entries.len() as i128;
        let gone = before.more_than(left);
        let stays = count - gone - dead;
        let is_stale = Self::is_too_many(before.stale(), stays);
        let counting = self.calls.iter().filter(|(at, _)| Self::counts(limits, *at, now));
        let used = counting.map(|(_, cost)| cost).sum::<i128>();
        let is_rounded = Self::slot(limits) > 1;
        let most = used.min(limits.slots * if is_rounded { 1 } else { 2 } + 1);
        let has_waste = count > (most + 1) * 3 / 2 + 1;
        if forgot || self.is_repaired || has_waste || gone > stays + 1 || is_stale {
            self.forget(limits, now);
        } else if self.coarsest_slot != before.coarsest_slot {
            self.echoes.clear();
        } else {
            self.echoes.retain(|(_, total)| *total <= left);
            // An entry with the same instant and a smaller total is overwritten too.
            let largest = entries.iter().filter(|entry| entry.1 <= left).max();
            let less = largest.filter(|entry| entry.0 == last && entry.1 < left);
            if let Some(at) = self.echoes.iter().position(|echo| Some(echo) == less) {
                self.echoes.remove(at);
            }
            self.echo_up_to(count);
        }
    }
}

impl TryFrom<State<'_>> for SlidingLog {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let log = expect_state!(state, SlidingLog);
        // If a number does not fit in six bytes, the module rewrites the log without dead entries.
        // The model would keep them, and count them again once the clock is set back.
        let last = log.last();
        let age_us = last.instant.since(log.entry(0).instant).as_us();
        if last.total.max(age_us) >= 1 << 47 {
            return Err(Unexplained);
        }
        let (mut calls, mut echoes) = (Vec::<(i128, i128)>::new(), Vec::new());
        for index in 0..log.entries.len() {
            let entry = log.entry(index);
            let cost = entry.total.checked_sub(log.total_before(index)).ok_or(Unexplained)?;
            let at = entry.instant.as_us().into();
            // Every entry has a cost, except the copies that a refund leaves: they equal the entry
            // before them.
            let before = calls.last().map_or(-1, |(before, _)| *before);
            match cost {
                0 if before != at => return Err(Unexplained),
                _ if before > at => return Err(Unexplained),
                _ => {
                    let total = log.total_before(index).into();
                    echoes.extend((before == at).then_some((at, total)));
                    calls.extend((cost > 0).then_some((at, cost.into())));
                }
            }
        }
        let coarsest_slot = log.slot.as_us().into();
        Ok(Self { calls, echoes, coarsest_slot, is_repaired: false })
    }
}

/// `RL.SLIDINGLOG`
pub struct Log;

impl Subject for Log {
    type Model = SlidingLog;
    fn rule(limits: &Limits) -> Rule {
        Rule::SlidingLog(sliding_log::SlidingLog {
            limit: limit(limits.capacity),
            window: period(limits),
            slots: Slots::new(limits.slots.try_into().expect("small")).expect("in bounds"),
            has_own_slots: limits.aligned,
        })
    }
    fn words(limits: &Limits) -> String {
        let slots = if limits.aligned { format!(" SLOTS {}", limits.slots) } else { String::new() };
        format!("{} {}{slots}", limits.capacity, duration(limits.period_us))
    }
    fn explain(state: State<'_>, _limits: &Limits) -> Result<Self::Model, Unexplained> {
        let log = expect_state!(state, SlidingLog);
        // Also accepts entries of cost 0, as long as the instants are in order.
        let mut calls = Vec::<(i128, i128)>::new();
        for index in 0..log.entries.len() {
            let entry = log.entry(index);
            let cost = entry.total.checked_sub(log.total_before(index)).ok_or(Unexplained)?;
            let at = entry.instant.as_us().into();
            if calls.last().is_some_and(|(before, _)| *before > at) {
                return Err(Unexplained);
            }
            calls.push((at, cost.into()));
        }
        let coarsest_slot = log.slot.as_us().into();
        Ok(SlidingLog { calls, echoes: Vec::new(), coarsest_slot, is_repaired: false })
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::SlidingLog(log) = state else { return None };
        Some(log.last().instant.as_us())
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits, _cost: i128) -> i128 {
        limits.period_us + div_ceil(limits.period_us, limits.slots)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        (elapsed_us < limits.period_us).then_some(limits.capacity)
    }
}
