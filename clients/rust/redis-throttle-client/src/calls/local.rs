//! Local versions of the algorithms, for the fallback [`OnError::Local`](crate::OnError::Local).
//!
//! GCRA, the two buckets, the fixed window and the log are exact. The sliding window is computed as
//! a log, which is never more lenient. A log of more than 1,000 units has counters, whose units
//! expire with the newest of them. Instants are in microseconds.

use std::collections::VecDeque;
use std::time::Duration;

use lru::LruCache;

use crate::rules::item::Keyed;
use crate::{Decision, Kind, Rule, Source};

/// The maximum number of entries of a log.
const ENTRIES_MAX: u64 = 1000;

/// The numbers of a rule as this process enforces it: the whole rule, or its `local_share`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub kind: Kind,
    pub capacity: u64,
    pub rate: u64,
    pub period_us: u64,
}

impl Limits {
    /// Scales a rule to a share. The capacity is rounded down, but is at least one unit. The rate
    /// is lowered by a longer period, which is rounded up to a microsecond. If a window's share is
    /// less than one unit, the window allows one unit and becomes longer.
    pub fn of(rule: &Rule, share: f64) -> Self {
        let terms = rule.terms();
        let terms = terms.default.as_ref().map_or(terms, Rule::terms);
        let units = terms.limit.unwrap_or(1) as f64 * share;
        let longer = if terms.rate > 0 { share } else { units.min(1.0) };
        let period_us = (terms.period_us as f64 / longer).ceil() as u64;
        let capacity = (units.floor() as u64).max(1);
        Self { kind: terms.kind, capacity, rate: terms.rate, period_us }
    }

    fn is_bucket(&self) -> bool {
        matches!(self.kind, Kind::Gcra | Kind::TokenBucket | Kind::LeakyBucket)
    }

    fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Sliding | Kind::SlidingLog)
    }

    /// Returns the part of a log's window whose usage is one entry. Above 1,000 units an entry is a
    /// counter for a thousandth of the window, so that a decision takes a constant time.
    fn entry_width_us(&self) -> u64 {
        if self.capacity <= ENTRIES_MAX { 1 } else { self.period_us.div_ceil(ENTRIES_MAX) }
    }

    /// Converts units of a bucket to parts, in which its level is counted. For GCRA a part is 1 ns,
    /// and a unit is the emission interval in whole ns.
    fn parts(&self, units: u64) -> u128 {
        let period_us = u128::from(self.period_us);
        let unit = match self.kind {
            Kind::Gcra => (period_us * 1000).div_ceil(u128::from(self.rate)),
            _ => period_us,
        };
        u128::from(units).saturating_mul(unit)
    }

    /// Returns the number of parts that leave a bucket per microsecond.
    fn drain(&self) -> u128 {
        if self.kind == Kind::Gcra { 1000 } else { u128::from(self.rate) }
    }

    /// Returns the microseconds in which `parts` leave a bucket, rounded up.
    fn span_us(&self, parts: u128) -> u64 {
        u64::try_from(parts.div_ceil(self.drain())).unwrap_or(u64::MAX)
    }
}

/// The state of a key. For a bucket: its level, in parts of a unit, at an instant. For a window:
/// its start and its usage. For a log: each usage with its instant.
#[derive(Debug, Default)]
struct State {
    at: u64,
    level: u128,
    used: u64,
    log: VecDeque<(u64, u64)>,
    /// The instant at which an exhausted key has a unit again.
    free_at: u64,
}

/// The units that a call requests.
#[derive(Debug, Clone, Copy)]
struct Demand {
    cost: u64,
    /// The units that must remain after the call.
    leave: u64,
    /// Whether fewer units than the cost may be granted.
    partial: bool,
}

/// The integers of a reply: granted, limit, remaining, and the times until retry and reset in ms.
type Row = [i64; 5];

/// The states of a bounded number of keys. Keys with units left are evicted before exhausted ones,
/// because an eviction resets the limit of its key; among these the least recently used one.
#[derive(Debug)]
pub(crate) struct LocalLimiter {
    keys_max: usize,
    states: LruCache<String, State>,
    exhausted: LruCache<String, State>,
}

impl LocalLimiter {
    pub fn new(keys_max: usize) -> Self {
        Self { keys_max, states: LruCache::unbounded(), exhausted: LruCache::unbounded() }
    }

    /// Removes the state of a key.
    pub fn forget(&mut self, key: &str) {
        self.states.pop(key);
        self.exhausted.pop(key);
    }

    /// Begins the state of a key whose limit is whole again after `full_after`, unless the key has
    /// used more here. Windows and logs go on: no denial gives a key a second allowance.
    pub fn begin(&mut self, rule: &Rule, key: &str, full_after: Duration, now_us: u64) {
        let limits = Limits::of(rule, 1.0);
        if limits.is_bucket() {
            let stored = self.states.pop(key).or_else(|| self.exhausted.pop(key));
            let mut before = stored.unwrap_or_default();
            before.expire(limits, now_us);
            let used = full_after.as_micros().saturating_mul(limits.drain());
            let level = used.min(limits.parts(limits.capacity)).max(before.level);
            let state = State { at: now_us, level, ..State::default() };
            self.store(limits, key.to_owned(), state, now_us);
        }
    }

    /// Gives units back that a call took under this share of a rule.
    pub fn give_back(&mut self, (rule, share): (&Rule, f64), key: &str, units: u64, now_us: u64) {
        let limits = Limits::of(rule, share);
        let stored = self.states.pop_entry(key).or_else(|| self.exhausted.pop_entry(key));
        if let Some((key, mut state)) = stored {
            state.expire(limits, now_us);
            state.give_back(limits, units);
            self.store(limits, key, state, now_us);
        }
    }

    /// Decides the call and returns the five integers of a reply. A peek takes nothing.
    fn decide(
        &mut self,
        limits: Limits,
        key: &str,
        demand: Demand,
        now_us: u64,
        peek: bool,
    ) -> Row {
        let stored = self.states.pop_entry(key).or_else(|| self.exhausted.pop_entry(key));
        let (key, mut state) = stored.unwrap_or_else(|| (key.to_owned(), State::default()));
        state.expire(limits, now_us);
        let row = state.decide(limits, demand, now_us, peek);
        self.store(limits, key, state, now_us);
        row
    }

    /// Stores a state, unless nothing is used. Evicts another one if there are too many.
    fn store(&mut self, limits: Limits, key: String, mut state: State, now_us: u64) {
        let used = state.used(limits);
        if used == 0 {
            return;
        }
        if used < limits.capacity {
            self.states.put(key, state);
        } else {
            state.free_at = now_us.saturating_add(state.until(limits, 1, now_us));
            self.exhausted.put(key, state);
        }
        if self.states.len() + self.exhausted.len() > self.keys_max {
            let oldest = self.exhausted.peek_lru();
            let has_units = oldest.is_some_and(|(_, state)| state.free_at <= now_us);
            // If most keys have no units, one of these goes: else no other key would be kept.
            let is_crowded = self.exhausted.len() > self.keys_max / 2;
            let from_exhausted = has_units || is_crowded || self.states.is_empty();
            let from = if from_exhausted { &mut self.exhausted } else { &mut self.states };
            from.pop_lru();
        }
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl State {
    /// Decides a call on a state that has no expired usage.
    fn decide(&mut self, limits: Limits, demand: Demand, now_us: u64, peek: bool) -> Row {
        let Demand { cost, leave, partial } = demand;
        let left = limits.capacity.saturating_sub(self.used(limits));
        let free = left.saturating_sub(leave);
        let fits = left >= leave && cost <= free;
        let allowed = if partial { free > 0 } else { fits };
        let takes = if allowed { cost.min(free) } else { 0 };
        let needed = leave.saturating_add(if partial { 1 } else { cost });
        let retry_us = if !allowed {
            (needed <= limits.capacity).then(|| self.until(limits, needed, now_us))
        } else if limits.kind == Kind::LeakyBucket {
            Some(limits.span_us(self.level))
        } else {
            Some(0)
        };
        let (remaining, reset_us) = if peek && takes > 0 {
            // These numbers need only the newest entry of a log, which the cost becomes.
            let mut other =
                Self { at: self.at, level: self.level, used: self.used, ..Self::default() };
            other.take(limits, takes, now_us);
            other.rest(limits, now_us)
        } else {
            self.take(limits, takes, now_us);
            self.rest(limits, now_us)
        };
        let ms = |us: u64| signed(us.div_ceil(1000));
        let retry_ms = retry_us.map_or(-1, ms);
        let granted = if partial { signed(takes) } else { allowed.into() };
        [granted, signed(limits.capacity), signed(remaining), retry_ms, ms(reset_us)]
    }

    /// Returns the units left, and the microseconds until all units are free.
    fn rest(&self, limits: Limits, now_us: u64) -> (u64, u64) {
        let reset_us = match self.log.back() {
            Some((newest, _)) => newest.saturating_add(limits.period_us).saturating_sub(now_us),
            None => self.until(limits, limits.capacity, now_us),
        };
        (limits.capacity.saturating_sub(self.used(limits)), reset_us)
    }

    /// Removes the usage that has expired or drained by `now_us`.
    fn expire(&mut self, limits: Limits, now_us: u64) {
        let ends = |at: u64| at.saturating_add(limits.period_us) <= now_us;
        if limits.is_log() {
            while let Some((at, units)) = self.log.front()
                && ends(*at)
            {
                self.used -= units;
                self.log.pop_front();
            }
        } else if limits.is_bucket() {
            let drained = u128::from(now_us.saturating_sub(self.at)) * limits.drain();
            self.level = self.level.saturating_sub(drained);
            self.at = self.at.max(now_us);
        } else if self.at > now_us || ends(self.at) {
            *self = Self::default();
        }
    }

    /// Returns the units in use, rounded up.
    fn used(&self, limits: Limits) -> u64 {
        if !limits.is_bucket() {
            return self.used;
        }
        u64::try_from(self.level.div_ceil(limits.parts(1))).unwrap_or(u64::MAX)
    }

    fn take(&mut self, limits: Limits, mut units: u64, now_us: u64) {
        if units == 0 {
            return;
        }
        if limits.is_bucket() {
            self.level = self.level.saturating_add(limits.parts(units));
            return;
        }
        self.used = self.used.saturating_add(units);
        if limits.is_log() {
            let width_us = limits.entry_width_us();
            if let Some((at, newest)) = self.log.back()
                && at / width_us == now_us / width_us
            {
                // The units expire together, with the newest of them.
                units += newest;
                self.log.pop_back();
            }
            self.log.push_back((now_us, units));
        } else if self.at == 0 {
            self.at = now_us;
        }
    }

    /// Gives units back, the newest of a log first.
    fn give_back(&mut self, limits: Limits, units: u64) {
        if limits.is_bucket() {
            self.level = self.level.saturating_sub(limits.parts(units));
            return;
        }
        let mut left = units.min(self.used);
        self.used -= left;
        while let Some((_, newest)) = self.log.back_mut().filter(|_| left > 0) {
            let taken = left.min(*newest);
            (left, *newest) = (left - taken, *newest - taken);
            if *newest == 0 {
                self.log.pop_back();
            }
        }
    }

    /// Returns the microseconds until `units` are free.
    fn until(&self, limits: Limits, units: u64, now_us: u64) -> u64 {
        if limits.is_bucket() {
            let room = limits.parts(limits.capacity - units);
            return limits.span_us(self.level.saturating_sub(room));
        }
        if !limits.is_log() {
            let ends = self.at.saturating_add(limits.period_us);
            return if self.used > 0 { ends.saturating_sub(now_us) } else { 0 };
        }
        let mut used = self.used;
        let mut until = 0;
        for (at, taken) in &self.log {
            if used.saturating_add(units) <= limits.capacity {
                break;
            }
            used -= taken;
            until = (at + limits.period_us).saturating_sub(now_us);
        }
        until
    }
}

/// Decides a call of some cost by a share of the limits of its rule.
pub(crate) fn local_decision(
    limiter: &mut LocalLimiter,
    call: &Keyed<'_>,
    (cost, share): (u64, f64),
    now_us: u64,
    peek: bool,
) -> Decision {
    let terms = call.rule.terms();
    let whole = terms.default.as_ref().map_or(terms, Rule::terms).limit.unwrap_or(0);
    let limits = Limits::of(call.rule, share);
    let leave = call.leave.map_or(0, |leave| leave.units(limits.capacity));
    let partial = call.partial && cost > 0;
    let needed = if partial { 1 } else { cost }.saturating_add(leave);
    let [granted, limit, remaining, retry, reset] = if needed > limits.capacity && needed <= whole {
        // The whole rule would allow this cost, but the local share never does: deny with a retry
        // time.
        [0, signed(limits.capacity), 0, 1000, 1000]
    } else {
        limiter.decide(limits, &call.key, Demand { cost, leave, partial }, now_us, peek)
    };
    let allowed = granted > 0;
    let retry_after = u64::try_from(retry).map_or(Duration::MAX, Duration::from_millis);
    let units = if partial { granted.unsigned_abs() } else { cost };
    Decision {
        allowed,
        limit: limit.unsigned_abs(),
        remaining: remaining.unsigned_abs(),
        reset_after: Duration::from_millis(reset.unsigned_abs()),
        source: Source::Local,
        granted: if allowed { units } else { 0 },
        window: terms.window,
        ..Decision::without_server(terms.name.clone(), allowed, retry_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;

    fn of_cost(cost: u64) -> Demand {
        Demand { cost, leave: 0, partial: false }
    }

    fn limits(limit: u64) -> Limits {
        Limits::of(&Rule::sliding_log("log", limit, "60s").unwrap(), 1.0)
    }

    #[test]
    fn log_of_a_large_window_has_a_bounded_number_of_entries() {
        let (mut limiter, limits) = (LocalLimiter::new(10), limits(100_000));
        for call in 0..30_000 {
            // Two calls per millisecond, so that many of them share a counter.
            let [allowed, ..] = limiter.decide(limits, "42", of_cost(1), 1 + call * 500, false);
            assert_eq!(allowed, 1);
        }
        let (_, state) = limiter.states.iter().next().unwrap();
        assert_eq!((state.used, state.log.len()), (30_000, 250));
        // No unit is free before its minute is over; the units of a counter are free together.
        let last_us = 1 + 29_999 * 500;
        let remaining =
            |limiter: &mut LocalLimiter, us| limiter.decide(limits, "42", of_cost(0), us, true)[2];
        assert_eq!(remaining(&mut limiter, 60 * SECOND_US), 70_000);
        assert_eq!(remaining(&mut limiter, 60 * SECOND_US + 60_000), 70_120);
        assert_eq!(remaining(&mut limiter, 60 * SECOND_US + last_us), 100_000);
    }

    #[test]
    fn limiter_evicts_keys_with_units_before_exhausted_ones() {
        let (mut limiter, limits) = (LocalLimiter::new(4), limits(2));
        let mut check = |key, cost, us| {
            limiter.decide(limits, key, of_cost(cost), us * SECOND_US + 1, false)[0]
        };
        assert_eq!(check("exhausted", 2, 0), 1);
        for (us, key) in (1..).zip(["used", "a", "b", "c"]) {
            assert_eq!(check(key, 1, us), 1);
        }
        assert_eq!(check("exhausted", 1, 5), 0);
        // The key `used` was evicted, so its limit is whole again. Now `a` is evicted.
        assert_eq!(check("used", 2, 6), 1);
        assert_eq!(check("used", 1, 7), 0);
        // Exhausted keys are evicted too, first those that have a unit again.
        assert_eq!(check("other", 2, 61), 1);
        assert_eq!(check("used", 1, 62), 0);
    }

    #[test]
    fn exhausted_keys_leave_room_for_others() {
        let (mut limiter, limits) = (LocalLimiter::new(4), limits(2));
        let mut check = |key: &str, cost| limiter.decide(limits, key, of_cost(cost), 1, false)[0];
        for key in 0..8 {
            assert_eq!(check(&key.to_string(), 2), 1);
        }
        assert_eq!([(); 3].map(|()| check("admin", 1)), [1, 1, 0]);
    }
}
