//! Local versions of the algorithms, for the fallback [`OnError::Local`](crate::OnError::Local).
//!
//! GCRA, the two buckets, the fixed window and the log are exact. The sliding window is computed as
//! a log, which is never more lenient. Instants are in microseconds.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;

use crate::{Decision, Kind, Rule, Source};

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
    /// less than one unit, the window allows one unit and is made longer.
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
#[derive(Debug, Clone, Default)]
struct State {
    at: u64,
    level: u128,
    used: u64,
    log: VecDeque<(u64, u64)>,
}

/// The integers of a reply: allowed, limit, remaining, and the times until retry and reset in ms.
type Row = [i64; 5];

/// The states of a bounded number of keys. The least recently used ones are evicted.
#[derive(Debug)]
pub(crate) struct LocalLimiter(LruCache<String, State>);

impl LocalLimiter {
    pub fn new(keys: NonZeroUsize) -> Self {
        Self(LruCache::new(keys))
    }

    /// Removes the state of a key.
    pub fn forget(&mut self, key: &str) {
        self.0.pop(key);
    }

    /// Decides the call and returns the five integers of a reply. A peek stores nothing.
    fn decide(&mut self, limits: Limits, key: &str, cost: u64, now_us: u64, peek: bool) -> Row {
        let mut state = self.0.get(key).cloned().unwrap_or_default();
        state.lapse(limits, now_us);
        let left = limits.capacity.saturating_sub(state.used(limits));
        let allowed = cost <= left;
        let before_us = if limits.is_bucket() { limits.span_us(state.level) } else { 0 };
        if allowed && cost > 0 {
            state.take(limits, cost, now_us);
        }
        let remaining = limits.capacity.saturating_sub(state.used(limits));
        let retry_us = if !allowed {
            (cost <= limits.capacity).then(|| state.until(limits, cost, now_us))
        } else if limits.kind == Kind::LeakyBucket {
            Some(before_us)
        } else {
            Some(0)
        };
        let reset_us = state.until(limits, limits.capacity, now_us);
        if allowed && cost > 0 && !peek {
            self.0.put(key.to_owned(), state);
        }
        let ms = |us: u64| signed(us.div_ceil(1000));
        let retry_ms = retry_us.map_or(-1, ms);
        [allowed.into(), signed(limits.capacity), signed(remaining), retry_ms, ms(reset_us)]
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl State {
    /// Removes the usage that has expired or drained by `now_us`.
    fn lapse(&mut self, limits: Limits, now_us: u64) {
        let ends = |at: u64| at.saturating_add(limits.period_us) <= now_us;
        if limits.is_log() {
            while let Some((at, units)) = self.log.front().copied().filter(|(at, _)| ends(*at)) {
                debug_assert!(ends(at));
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

    fn take(&mut self, limits: Limits, units: u64, now_us: u64) {
        if limits.is_bucket() {
            self.level = self.level.saturating_add(limits.parts(units));
            return;
        }
        self.used = self.used.saturating_add(units);
        if limits.is_log() {
            self.log.push_back((now_us, units));
        } else if self.at == 0 {
            self.at = now_us;
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

/// Decides a call by the local limits of its rule.
pub(crate) fn local_decision(
    limiter: &mut LocalLimiter,
    rule: &Rule,
    key: &str,
    cost: u64,
    now_us: u64,
    peek: bool,
) -> Decision {
    let terms = rule.terms();
    let whole = terms.default.as_ref().map_or(terms, Rule::terms).limit.unwrap_or(0);
    let limits = Limits::of(rule, terms.local_share);
    let beyond_share = cost > limits.capacity && cost <= whole;
    let [allowed, limit, remaining, retry, reset] = if beyond_share {
        // The whole rule would allow this cost, but the local share never does: deny with a retry
        // time.
        [0, signed(limits.capacity), 0, 1000, 1000]
    } else {
        limiter.decide(limits, key, cost, now_us, peek)
    };
    let retry_after = u64::try_from(retry).map_or(Duration::MAX, Duration::from_millis);
    Decision {
        allowed: allowed > 0,
        limit: limit.unsigned_abs(),
        remaining: remaining.unsigned_abs(),
        reset_after: Duration::from_millis(reset.unsigned_abs()),
        source: Source::Local,
        granted: allowed.unsigned_abs(),
        window: terms.window,
        ..Decision::without_answer(terms.name.clone(), allowed > 0, retry_after)
    }
}
