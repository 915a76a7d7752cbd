//! What can go wrong, and whose fault it is.
//!
//! A server that is away and a mistake of the program are told apart: the first is what `on_error`
//! of a rule decides about, the second is an error whatever `on_error` says.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::Decision;

/// Everything that the functions of this crate fail with.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument that no call can be made of.
    #[error("{argument}: {expected}")]
    InvalidArgument {
        /// The name of the argument or the option.
        argument: &'static str,
        /// What it should have been.
        expected: String,
    },
    /// No decision: the server is away, too slow or refuses for the moment. The call may have
    /// counted, so it is not to be repeated.
    #[error("no answer: {reason}")]
    Unavailable {
        /// Why nobody decided.
        reason: &'static str,
        /// The driver's error, where it has one.
        source: Option<RedisError>,
    },
    /// The server answered with an error that no repetition mends: alert on it.
    #[error("the server refused the command: {source}{}", hint(.source))]
    Rejected {
        /// The driver's error.
        source: RedisError,
    },
    /// The server answered something that is no decision.
    #[error("the reply is no decision")]
    Protocol,
    /// No permit is free; the decision says when to come back.
    #[error("no permit of {} is free", .0.rule)]
    LeaseDenied(Box<Decision>),
}

impl Error {
    pub(crate) fn invalid(argument: &'static str, expected: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, expected: expected.into() }
    }

    pub(crate) fn away(reason: &'static str) -> Self {
        Self::Unavailable { reason, source: None }
    }

    /// Whether it is a mistake of the program, of its rights or of its server's set-up, which
    /// never opens a limit.
    #[must_use]
    pub fn is_mistake(&self) -> bool {
        !matches!(self, Self::Unavailable { .. } | Self::LeaseDenied(_))
    }
}

impl From<RedisError> for Error {
    fn from(source: RedisError) -> Self {
        if passes(&source) {
            Self::Unavailable {
                reason: "the connection or the server failed",
                source: Some(source),
            }
        } else {
            Self::Rejected { source }
        }
    }
}

fn hint(source: &RedisError) -> &'static str {
    let of_module = |detail: &str| detail.contains("unknown command") && detail.contains("RL.");
    let unknown = source.detail().is_some_and(of_module);
    if unknown { " (is the module loaded on this server?)" } else { "" }
}

/// Whether an error of the driver passes by itself. Every kind that is not known here is a mistake:
/// it must not open a limit.
fn passes(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::NoValidReplicasFoundBySentinel => true,
        ErrorKind::Server(kind) => match kind {
            ServerErrorKind::BusyLoading
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask => true,
            _ => error.detail().is_some_and(|detail| detail.contains("max number of clients")),
        },
        ErrorKind::Extension => {
            matches!(error.code(), Some("OOM" | "MISCONF" | "NOREPLICAS" | "BUSY"))
        }
        _ => false,
    }
}
