//! What a command can answer instead of a decision.

use super::api::{Context, RepeatedKey};
use super::clock::OutOfRange;
use super::keyspace::CommitError;
use crate::grammar::GrammarError;
use std::ffi::CStr;

/// The answer to a panic.
pub const INTERNAL: &CStr =
    c"ERR internal error: the call was stopped and the key left as it was, see the server's log";

/// Why a command did not do what it was asked for. The texts of the grammar stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The arguments are wrong.
    Grammar(GrammarError),
    /// The key holds no state of the algorithm asked for.
    WrongType,
    /// The key holds no state at all.
    NotAState,
    /// The same key comes twice in one call.
    RepeatedKey,
    /// The server did not take the new state, or its effect.
    Commit(CommitError),
    /// `RL.DEBUG` is switched off.
    DebugDisabled,
    /// The clock would leave its range.
    ClockRange,
}

impl CommandError {
    /// Sends it.
    pub fn reply(self, context: Context<'_>) {
        match self.text() {
            Some(text) => context.reply_error(text),
            None => context.reply_wrong_arity(),
        }
    }

    fn text(self) -> Option<&'static CStr> {
        Some(match self {
            Self::Grammar(error) => return error.text(),
            Self::WrongType => c"WRONGTYPE the key does not hold a state of this algorithm",
            Self::NotAState => c"WRONGTYPE the key does not hold a rate limiter's state",
            Self::RepeatedKey => c"ERR repeated key: each key may be given once",
            Self::Commit(CommitError::NotStored) => {
                c"ERR internal error: the server refused to store the state"
            }
            Self::Commit(CommitError::NotReplicated) => {
                c"ERR internal error: the state was stored, but the server refused to replicate it"
            }
            Self::DebugDisabled => {
                c"ERR RL.DEBUG is disabled: set rl.debug-commands yes in the server's configuration and restart"
            }
            Self::ClockRange => {
                c"ERR invalid duration: the clock must stay between the years 1970 and 2200"
            }
        })
    }
}

impl From<GrammarError> for CommandError {
    fn from(error: GrammarError) -> Self {
        Self::Grammar(error)
    }
}

impl From<RepeatedKey> for CommandError {
    fn from(_: RepeatedKey) -> Self {
        Self::RepeatedKey
    }
}

impl From<CommitError> for CommandError {
    fn from(error: CommitError) -> Self {
        Self::Commit(error)
    }
}

impl From<OutOfRange> for CommandError {
    fn from(_: OutOfRange) -> Self {
        Self::ClockRange
    }
}
