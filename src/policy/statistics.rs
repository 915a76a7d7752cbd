//! What became of the calls of each policy.

use crate::limiter::Instant;

/// Where the calls of one policy are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was allowed, and would have been if that had been enforced.
    Allowed,
    /// It was denied.
    Denied,
    /// It was allowed, and would not have been if that had been enforced.
    ShadowDenied,
}

/// What is counted of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How it ended.
    pub ending: Ending,
    /// The limit that it had.
    pub limit_units: u64,
    /// What was left after it.
    pub remaining_units: u64,
    /// What it took.
    pub taken_units: u64,
    /// Whether it stored the first state of its subject.
    pub created: bool,
}

/// The counters of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that were allowed.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that were allowed and would not have been.
    pub shadow_denied: u64,
    /// Allowed calls that left little.
    pub near_limit: u64,
    /// Calls that stored the first state of their subject.
    pub created: u64,
    /// Units taken.
    pub units: u64,
    /// Calls that ended in an error.
    pub errors: u64,
    /// When it last denied, in microseconds of Unix time; 0 when it never did.
    pub last_denied_us: u64,
}

/// The counters of all policies.
#[derive(Debug, Default)]
pub struct Statistics {
    counters: Vec<Counters>,
}

impl Statistics {
    /// Counts a call at `now`; it was near the limit with less than `near_limit_percent` left.
    pub fn count(&mut self, key: Key, call: &Counted, near_limit_percent: u8, now: Instant) {
        let Some(counters) = self.counters.get_mut(key.0 as usize) else { return };
        let left = u128::from(call.remaining_units) * 100;
        let near = left < u128::from(call.limit_units) * u128::from(near_limit_percent);
        match call.ending {
            Ending::Allowed => counters.allowed += 1,
            Ending::Denied => {
                counters.denied += 1;
                counters.last_denied_us = now.as_us();
            }
            Ending::ShadowDenied => counters.shadow_denied += 1,
        }
        counters.near_limit += u64::from(near && call.ending == Ending::Allowed);
        counters.created += u64::from(call.created);
        counters.units = counters.units.saturating_add(call.taken_units);
    }

    /// Counts units that were taken afterwards.
    pub fn charge(&mut self, key: Key, units: u64) {
        if let Some(counters) = self.counters.get_mut(key.0 as usize) {
            counters.units = counters.units.saturating_add(units);
        }
    }

    /// Counts a call that ended in an error.
    pub fn count_error(&mut self, key: Key) {
        if let Some(counters) = self.counters.get_mut(key.0 as usize) {
            counters.errors += 1;
        }
    }

    /// Where calls of a policy are counted that is known from a `DEFAULT` only.
    pub fn key_of_default(&mut self, _name: &[u8]) -> Key {
        Key(0)
    }
}
