//! The calls that one choice decided.

use super::column::{Column, ColumnWriter};
use super::retries::Retry;
use crate::rules::Reply;
use redis_throttle_engine::time::Instant;

/// The instant at which every time line starts: 2026-01-01 00:00 UTC.
pub const START: Instant = Instant::from_us(1_767_225_600_000_000);

/// The calls that one choice decided, in order of time. All columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The instant of a call, in microseconds after [`START`].
    pub at_us: Column,
    /// The key, counted from 0.
    pub key: Column,
    /// The attempt: 1 for a call that is no retry.
    pub attempt: Column,
    /// The five integers of the reply.
    pub integers: [Column; 5],
    /// The place of the rule that gives the reply, counted from 0.
    pub rule: Column,
}

/// Columns that are being written.
pub struct ColumnsWriter {
    at_us: ColumnWriter,
    key: ColumnWriter,
    attempt: ColumnWriter,
    integers: [ColumnWriter; 5],
    rule: ColumnWriter,
}

impl ColumnsWriter {
    /// Creates empty columns with room for some calls.
    pub fn with_capacity(calls: usize) -> Self {
        let column = || ColumnWriter::with_capacity(calls);
        Self {
            at_us: column(),
            key: column(),
            attempt: column(),
            integers: [(); 5].map(|()| column()),
            rule: column(),
        }
    }

    /// Adds a call and its reply.
    pub fn push(&mut self, call: &Retry, reply: &Reply) {
        self.at_us.push(i64::try_from(call.at_us).unwrap_or(i64::MAX));
        self.key.push(call.key.into());
        self.attempt.push(call.attempt.into());
        for (column, integer) in self.integers.iter_mut().zip(reply.integers) {
            column.push(integer);
        }
        self.rule.push(i64::try_from(reply.rule).unwrap_or(i64::MAX));
    }

    /// Returns the whole columns.
    pub fn finish(self) -> Columns {
        Columns {
            at_us: self.at_us.finish(),
            key: self.key.finish(),
            attempt: self.attempt.finish(),
            integers: self.integers.map(ColumnWriter::finish),
            rule: self.rule.finish(),
        }
    }
}

impl Columns {
    /// Returns the number of calls.
    pub const fn len(&self) -> usize {
        self.at_us.len()
    }

    /// Returns true if there is no call.
    pub const fn is_empty(&self) -> bool {
        self.at_us.is_empty()
    }
}
