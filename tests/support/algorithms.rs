//! The algorithms that allow units per period, for tests that apply to each of them.

use redis_throttle_engine::algorithms::{Algorithm as Row, Argument};

/// An algorithm: the name of its command, and its name in PEEK and INSPECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    pub name: &'static str,
    pub command: &'static str,
    /// Whether the algorithm takes a rate and a period rather than a window.
    pub has_rate: bool,
}

pub const FIXED: Algorithm = Algorithm::of(Row::FixedWindow);
pub const SLIDING: Algorithm = Algorithm::of(Row::SlidingWindow);
pub const SLIDINGLOG: Algorithm = Algorithm::of(Row::SlidingLog);
pub const TOKENBUCKET: Algorithm = Algorithm::of(Row::TokenBucket);
pub const LEAKYBUCKET: Algorithm = Algorithm::of(Row::LeakyBucket);
pub const GCRA: Algorithm = Algorithm::of(Row::Gcra);
/// The calendar quota. Its windows are calendar periods, so it is not one of [`ALGORITHMS`].
pub const QUOTA: Algorithm = Algorithm::of(Row::CalendarQuota);

/// The algorithms of the engine's table whose arguments are a limit and a period, or a capacity, a
/// rate and a period.
pub const ALGORITHMS: [Algorithm; per_period(Row::ALL.len())] = {
    let mut all = [FIXED; per_period(Row::ALL.len())];
    let mut at = 0;
    while at < Row::ALL.len() {
        if is_per_period(Row::ALL[at]) {
            all[per_period(at)] = Algorithm::of(Row::ALL[at]);
        }
        at += 1;
    }
    all
};

/// Counts the algorithms with a period in the first `rows` rows of the engine's table.
const fn per_period(rows: usize) -> usize {
    let (mut number, mut at) = (0, 0);
    while at < rows {
        number += is_per_period(Row::ALL[at]) as usize;
        at += 1;
    }
    number
}

const fn is_per_period(row: Row) -> bool {
    use Argument::{Duration, Number};
    matches!(row.arguments(), [Number, Duration] | [Number, Number, Duration])
}

impl Algorithm {
    pub const fn of(row: Row) -> Self {
        let has_rate = matches!(row.arguments(), [Argument::Number, Argument::Number, ..]);
        Self { name: row.name(), command: row.command(), has_rate }
    }

    /// Returns the arguments after the key for `limit` per `period`. For an algorithm with a rate:
    /// a capacity of `limit`, refilled at `limit` per `period`.
    pub fn arguments(&self, limit: u64, period: &str) -> String {
        if self.has_rate {
            format!("{limit} {limit} {period}")
        } else {
            format!("{limit} {period}")
        }
    }

    /// Returns the call that decides by `limit` per `period`.
    pub fn call(&self, key: &str, limit: u64, period: &str) -> String {
        format!("{} {key} {}", self.command, self.arguments(limit, period))
    }

    /// Returns the PEEK for the same limit and period.
    pub fn peek(&self, key: &str, limit: u64, period: &str) -> String {
        format!("RL.PEEK {key} {} {}", self.name, self.arguments(limit, period))
    }
}
