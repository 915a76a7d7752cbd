//! The six algorithms that take a cost as data, for the tests that hold for every one of them.

/// One algorithm, as its command and as the word that PEEK and INSPECT use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Algorithm {
    pub name: &'static str,
    pub command: &'static str,
    /// Whether it takes a rate and a period rather than a window.
    pub has_rate: bool,
}

pub const FIXED: Algorithm = windowed("FIXED", "RL.FIXED");
pub const SLIDING: Algorithm = windowed("SLIDING", "RL.SLIDING");
pub const SLIDINGLOG: Algorithm = windowed("SLIDINGLOG", "RL.SLIDINGLOG");
pub const TOKENBUCKET: Algorithm = rated("TOKENBUCKET", "RL.TOKENBUCKET");
pub const LEAKYBUCKET: Algorithm = rated("LEAKYBUCKET", "RL.LEAKYBUCKET");
pub const GCRA: Algorithm = rated("GCRA", "RL.GCRA");
/// Its windows are units of the calendar, so it is none of those below.
pub const QUOTA: Algorithm = windowed("QUOTA", "RL.QUOTA");

pub const ALGORITHMS: [Algorithm; 6] = [FIXED, SLIDING, SLIDINGLOG, TOKENBUCKET, LEAKYBUCKET, GCRA];

const fn windowed(name: &'static str, command: &'static str) -> Algorithm {
    Algorithm { name, command, has_rate: false }
}

const fn rated(name: &'static str, command: &'static str) -> Algorithm {
    Algorithm { name, command, has_rate: true }
}

impl Algorithm {
    /// The arguments after the key for `limit` per `period`: of the rate algorithms, a
    /// capacity of `limit` that refills at `limit` per `period`.
    pub fn arguments(&self, limit: u64, period: &str) -> String {
        if self.has_rate {
            format!("{limit} {limit} {period}")
        } else {
            format!("{limit} {period}")
        }
    }

    /// The deciding call for `limit` per `period`.
    pub fn call(&self, key: &str, limit: u64, period: &str) -> String {
        format!("{} {key} {}", self.command, self.arguments(limit, period))
    }

    /// The same question asked with PEEK.
    pub fn peek(&self, key: &str, limit: u64, period: &str) -> String {
        format!("RL.PEEK {key} {} {}", self.name, self.arguments(limit, period))
    }
}
