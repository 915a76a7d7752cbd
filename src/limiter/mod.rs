//! The decision itself: state, now and cost in; a verdict and perhaps a new state out.
//!
//! Nothing here knows a server, reads a clock, allocates or uses a float. Reading order: `time`
//! and `bounds` (the types), `decision` (the answer), then any of the six algorithms.

pub mod bounds;
pub mod decision;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
pub mod sliding_log;
pub mod sliding_window;
pub mod time;
pub mod token_bucket;

#[cfg(any(test, feature = "oracle"))]
pub mod oracle;
#[cfg(test)]
pub(crate) mod properties;
#[cfg(test)]
mod tables;

pub use bounds::{Cost, Limit, Period, Quota, QuotaError, Slots};
pub use decision::{Decision, Next, Outcome, Verdict};
pub use fixed_window::FixedWindow;
pub use gcra::Gcra;
pub use leaky_bucket::LeakyBucket;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use time::{Instant, Span};
pub use token_bucket::TokenBucket;

/// One of the six algorithms with its limits: everything about a call but its subject and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// `RL.FIXED`
    FixedWindow(FixedWindow),
    /// `RL.SLIDING`
    SlidingWindow(SlidingWindow),
    /// `RL.SLIDINGLOG`
    SlidingLog(SlidingLog),
    /// `RL.TOKENBUCKET`
    TokenBucket(TokenBucket),
    /// `RL.LEAKYBUCKET`
    LeakyBucket(LeakyBucket),
    /// `RL.GCRA`
    Gcra(Gcra),
}

/// What a key holds, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State<'a> {
    /// An open window.
    FixedWindow(fixed_window::State),
    /// Two neighbouring windows.
    SlidingWindow(sliding_window::State),
    /// A log, read in place.
    SlidingLog(sliding_log::Log<'a>),
    /// A bucket that is not full.
    TokenBucket(token_bucket::State),
    /// A queue that is not empty.
    LeakyBucket(leaky_bucket::State),
    /// A debt of time.
    Gcra(gcra::State),
}

/// What a key is to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewState<'a> {
    /// The whole state.
    FixedWindow(fixed_window::State),
    /// The whole state.
    SlidingWindow(sliding_window::State),
    /// A change to the log that was read.
    SlidingLog(sliding_log::Edit<'a>),
    /// The whole state.
    TokenBucket(token_bucket::State),
    /// The whole state.
    LeakyBucket(leaky_bucket::State),
    /// The whole state.
    Gcra(gcra::State),
}

/// The key holds the state of another algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherAlgorithm;

/// The stored state as the one kind that a rule reads, or out with [`OtherAlgorithm`].
macro_rules! expect_state {
    ($stored:expr, $kind:ident) => {
        match $stored {
            None => None,
            Some(State::$kind(state)) => Some(state),
            Some(_) => return Err(OtherAlgorithm),
        }
    };
}

impl Rule {
    /// Decides a call of `cost` at `now` on what is stored, changing nothing.
    ///
    /// # Errors
    ///
    /// [`OtherAlgorithm`] when `stored` is not a state of this rule's algorithm.
    pub fn decide<'a>(
        &self,
        stored: Option<State<'a>>,
        now: Instant,
        cost: Cost,
    ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
        Ok(match self {
            Self::FixedWindow(rule) => rule
                .decide(expect_state!(stored, FixedWindow), now, cost)
                .map(NewState::FixedWindow),
            Self::SlidingWindow(rule) => rule
                .decide(expect_state!(stored, SlidingWindow), now, cost)
                .map(NewState::SlidingWindow),
            Self::SlidingLog(rule) => {
                rule.decide(expect_state!(stored, SlidingLog), now, cost).map(NewState::SlidingLog)
            }
            Self::TokenBucket(rule) => rule
                .decide(expect_state!(stored, TokenBucket), now, cost)
                .map(NewState::TokenBucket),
            Self::LeakyBucket(rule) => rule
                .decide(expect_state!(stored, LeakyBucket), now, cost)
                .map(NewState::LeakyBucket),
            Self::Gcra(rule) => {
                rule.decide(expect_state!(stored, Gcra), now, cost).map(NewState::Gcra)
            }
        })
    }
}
