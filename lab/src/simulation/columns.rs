//! The calls that one choice decided.

use super::retries::Retry;
use crate::rules::Reply;
use redis_throttle_engine::time::Instant;

/// The instant at which every time line starts: 2026-01-01 00:00 UTC.
pub const START: Instant = Instant::from_us(1_767_225_600_000_000);

/// The calls that one choice decided, in order of time. All columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The instant of a call, in microseconds after [`START`].
    pub at_us: Vec<u64>,
    /// The key, counted from 0.
    pub key: Vec<u8>,
    /// The attempt: 1 for a call that is no retry.
    pub attempt: Vec<u8>,
    /// The five integers of the reply.
    pub integers: [Vec<i64>; 5],
    /// The place of the rule that gives the reply, counted from 0.
    pub rule: Vec<u8>,
}

impl Columns {
    /// Makes empty columns with room for some calls.
    pub fn with_capacity(calls: usize) -> Self {
        Self {
            at_us: Vec::with_capacity(calls),
            key: Vec::with_capacity(calls),
            attempt: Vec::with_capacity(calls),
            integers: [(); 5].map(|()| Vec::with_capacity(calls)),
            rule: Vec::with_capacity(calls),
        }
    }

    /// Adds a call and its reply.
    pub fn push(&mut self, retry: &Retry, reply: &Reply) {
        self.at_us.push(retry.at_us);
        self.key.push(retry.key);
        self.attempt.push(retry.attempt);
        for (column, integer) in self.integers.iter_mut().zip(reply.integers) {
            column.push(integer);
        }
        self.rule.push(u8::try_from(reply.rule).unwrap_or(u8::MAX));
    }

    /// Returns the number of calls.
    pub fn len(&self) -> usize {
        self.at_us.len()
    }

    /// Returns true if there is no call.
    pub fn is_empty(&self) -> bool {
        self.at_us.is_empty()
    }
}
