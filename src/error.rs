//! The errors of the commands, and their texts.

use crate::api::call::NoKey;
use crate::api::key::RepeatedKey;
use crate::api::reply::Context;
use crate::clock::OutOfRange;
use crate::keyspace::CommitError;
use crate::leases::set::HoldersError;
use crate::policies::file::FileError;
use redis_throttle_engine::algorithms::OtherAlgorithm;
use redis_throttle_engine::call::ChargeError;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::policy_file::{LineError, LineFault};
use redis_throttle_engine::grammar::redis_gcra::GcraError;
use redis_throttle_engine::msgpack::NotAState;
use redis_throttle_engine::policy::families::Refusal;
use redis_throttle_engine::reservations::window::ReservationError;
use std::ffi::{CStr, CString};

/// The error reply of a command that panicked.
pub const INTERNAL: &CStr =
    c"ERR internal error: the call was stopped and the key left as it was, see the server's log";

const WRONG_TYPE: &CStr = c"WRONGTYPE the key does not hold a state of this algorithm";

const NO_POLICY: &CStr = c"NOPOLICY no such policy";

const QUERY_REFUSED: &CStr = c"ERR internal error: the server refused to count the holders";

/// The reason why a command failed. The texts of grammar errors are in the engine's grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The arguments are invalid.
    Grammar(GrammarError),
    /// The arguments of `GCRA` are invalid.
    Gcra(GcraError),
    /// The key holds no state of the requested algorithm.
    WrongType,
    /// The key holds no state at all.
    NotAState,
    /// There is no such policy, and the call has no `DEFAULT` rule.
    NoPolicy,
    /// One of several rules failed.
    InRule {
        /// The rule's number, counted from 1.
        number: usize,
        /// The rule's error.
        error: RuleError,
    },
    /// A charge is refused: the key has a state of another algorithm, or the charge would exceed
    /// the largest debt or total.
    Charge(ChargeError),
    /// The server did not count the holders of a lease key.
    QueryRefused,
    /// A reservation is not made, or not settled.
    Reservation(ReservationError),
    /// The server did not store the new state, or did not replicate its effect.
    Commit(CommitError),
    /// `RL.DEBUG` is disabled.
    DebugDisabled,
    /// `RL.TOP` is disabled.
    TopDisabled,
    /// `RL.DEBUG CLOCK` would move the clock out of its range.
    ClockRange,
    /// `RL.POLICY` has no such subcommand.
    UnknownSubcommand,
    /// A policy is rejected.
    Policy(Refusal),
    /// The policy file cannot be read or written.
    PolicyFile(FileError),
}

/// The error of one of several rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// The rule's arguments are invalid.
    Grammar(GrammarError),
    /// An earlier rule has the same key.
    RepeatedKey,
    /// The rule's key holds no state of the rule's algorithm.
    WrongType,
    /// The server did not count the holders of the rule's key.
    QueryRefused,
    /// The rule's policy does not exist, and the rule names no `DEFAULT` rule.
    NoPolicy,
    /// The rule's reservation is not made.
    Reservation(ReservationError),
}

impl RuleError {
    fn text(self) -> Option<&'static CStr> {
        match self {
            Self::Grammar(error) => error.text(),
            Self::RepeatedKey => Some(c"ERR repeated key: each key may be given once"),
            Self::WrongType => Some(WRONG_TYPE),
            Self::QueryRefused => Some(QUERY_REFUSED),
            Self::NoPolicy => Some(NO_POLICY),
            Self::Reservation(error) => Some(reservation_text(error)),
        }
    }
}

impl CommandError {
    /// Replies with the error.
    pub fn reply(self, context: Context<'_>) {
        match (self, self.text()) {
            (Self::PolicyFile(error), _) => context.reply_error(&file_error_text(error)),
            (Self::InRule { number, .. }, Some(text)) => {
                context.reply_error(&with_number(text, number));
            }
            (_, Some(text)) => context.reply_error(text),
            (_, None) => context.reply_wrong_arity(),
        }
    }

    fn text(self) -> Option<&'static CStr> {
        Some(match self {
            Self::Grammar(error) => return error.text(),
            Self::Gcra(error) => return error.text(),
            Self::InRule { error, .. } => return error.text(),
            Self::WrongType => WRONG_TYPE,
            Self::NotAState => c"WRONGTYPE the key does not hold a rate limiter's state",
            Self::QueryRefused => QUERY_REFUSED,
            Self::NoPolicy => NO_POLICY,
            Self::Charge(error) => charge_text(error),
            Self::Reservation(error) => reservation_text(error),
            Self::Commit(CommitError::NotStored) => {
                c"ERR internal error: the server refused to store the state"
            }
            Self::Commit(CommitError::NotReplicated) => {
                c"ERR internal error: the state was stored, but the server refused to replicate it"
            }
            Self::DebugDisabled => {
                c"ERR RL.DEBUG is disabled: set rl.debug-commands yes in the server's configuration and restart"
            }
            Self::TopDisabled => {
                c"ERR RL.TOP is disabled: set rl.top-slots above 0 in the server's configuration and restart"
            }
            Self::UnknownSubcommand => c"ERR unknown subcommand. Try RL.POLICY HELP.",
            Self::Policy(refusal) => refusal_text(refusal),
            Self::PolicyFile(error) => file_error(error),
            Self::ClockRange => {
                c"ERR invalid duration: the clock must stay between the years 1970 and 2200"
            }
        })
    }
}

fn charge_text(error: ChargeError) -> &'static CStr {
    match error {
        ChargeError::OtherAlgorithm => WRONG_TYPE,
        ChargeError::TooManyUnits => {
            c"ERR invalid cost: the total of used units must not exceed 2000000000000"
        }
        ChargeError::TooLong => {
            c"ERR invalid cost: the time until the key is reset must not exceed 36525d"
        }
    }
}

fn reservation_text(error: ReservationError) -> &'static CStr {
    match error {
        ReservationError::OtherAlgorithm => WRONG_TYPE,
        ReservationError::Settled => {
            c"ERR invalid id: already committed, use a new id for each job"
        }
        ReservationError::TooMany => {
            c"ERR too many reservations: a key remembers at most 1024 ids at a time"
        }
        ReservationError::Charge(error) => charge_text(error),
    }
}

fn refusal_text(refusal: Refusal) -> &'static CStr {
    match refusal {
        Refusal::OtherAlgorithm => {
            c"ERR invalid algorithm: a policy, its variants and its override must share one"
        }
        Refusal::Repeated => c"ERR repeated policy: each policy may be in the file once",
        Refusal::NoRule => c"ERR no such policy: give a rule",
        Refusal::TooMany => c"ERR too many policies: expected at most 10000",
    }
}

/// Returns the text of an error about the policy file; for an error in a line, it includes the
/// line's number.
pub fn file_error_text(error: FileError) -> CString {
    match error {
        FileError::Line(LineError { line, .. }) => {
            about(&format!("policy file, line {line}"), file_error(error))
        }
        FileError::NotSet => file_error(error).to_owned(),
        _ => about("policy file", file_error(error)),
    }
}

fn file_error(error: FileError) -> &'static CStr {
    match error {
        FileError::NotSet => {
            c"ERR no policy file: set rl.policy-file in the server's configuration and restart"
        }
        FileError::Missing => c"ERR no such file",
        FileError::NotAFile => c"ERR not a regular file",
        FileError::TooLong => c"ERR too long: expected at most 4194304 bytes",
        FileError::NotRead => c"ERR the system refused to read it",
        FileError::NotWritten => {
            c"ERR the system refused to replace it: check the free space and the server's write permission on the folder"
        }
        FileError::NotLasting => {
            c"ERR replaced, but the system did not confirm that it is on disk: save again"
        }
        FileError::Busy => c"ERR another server is saving it: save again",
        FileError::Empty => {
            c"ERR it has no policies, so loading it would remove all: add policies, or use RL.POLICY DEL"
        }
        FileError::Line(LineError { fault, .. }) => match fault {
            LineFault::Grammar(error) => error.text().unwrap_or(c"ERR invalid line"),
            LineFault::Refused(refusal) => refusal_text(refusal),
            LineFault::Ends => c"ERR invalid option: EX is for RL.POLICY SET, not for the file",
            LineFault::TooLong => c"ERR line too long: expected at most 1024 bytes",
        },
    }
}

/// Inserts `rule`, its number and a colon after the first word of an error text.
fn with_number(text: &CStr, number: usize) -> CString {
    about(&format!("rule {number}"), text)
}

/// Inserts `subject` and a colon after the first word of an error text.
fn about(subject: &str, text: &CStr) -> CString {
    let text = text.to_string_lossy();
    let (prefix, rest) = text.split_once(' ').unwrap_or(("ERR", &text));
    CString::new(format!("{prefix} {subject}: {rest}")).unwrap_or_default()
}

/// Converts each error to the variant that it becomes.
macro_rules! become_errors {
    ($($error:pat => $from:ty as $into:ident: $value:expr,)*) => {
        $(impl From<$from> for $into {
            fn from($error: $from) -> Self {
                $value
            }
        })*
    };
}

become_errors! {
    error => GrammarError as CommandError: Self::Grammar(error),
    error => GcraError as CommandError: Self::Gcra(error),
    RepeatedKey(at) => RepeatedKey as CommandError:
        Self::InRule { number: at + 1, error: RuleError::RepeatedKey },
    NoKey => NoKey as CommandError: Self::Grammar(GrammarError::Arity),
    NotAState => NotAState as CommandError: Self::NotAState,
    OtherAlgorithm => OtherAlgorithm as CommandError: Self::WrongType,
    error => ChargeError as CommandError: Self::Charge(error),
    error => ReservationError as CommandError: Self::Reservation(error),
    refusal => Refusal as CommandError: Self::Policy(refusal),
    error => FileError as CommandError: Self::PolicyFile(error),
    error => CommitError as CommandError: Self::Commit(error),
    OutOfRange => OutOfRange as CommandError: Self::ClockRange,
    error => HoldersError as CommandError: RuleError::from(error).into(),

    error => GrammarError as RuleError: Self::Grammar(error),
    OtherAlgorithm => OtherAlgorithm as RuleError: Self::WrongType,
    error => ReservationError as RuleError: Self::Reservation(error),
    error => HoldersError as RuleError: match error {
        HoldersError::WrongType => Self::WrongType,
        HoldersError::QueryRefused => Self::QueryRefused,
    },
}

impl From<RuleError> for CommandError {
    fn from(error: RuleError) -> Self {
        match error {
            RuleError::Grammar(error) => Self::Grammar(error),
            RuleError::RepeatedKey => Self::InRule { number: 1, error },
            RuleError::WrongType => Self::WrongType,
            RuleError::QueryRefused => Self::QueryRefused,
            RuleError::NoPolicy => Self::NoPolicy,
            RuleError::Reservation(error) => Self::Reservation(error),
        }
    }
}
