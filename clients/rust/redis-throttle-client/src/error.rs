//! The errors of the client. Callers must tell two kinds apart.
//!
//! If the server is unavailable, the rule's `on_error` decides the call. A mistake in the program
//! or the server's setup is always returned as an error.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::Decision;

/// The errors of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid argument: no call is made.
    #[error("invalid {argument}: {expected}")]
    InvalidArgument {
        /// The name of the argument or the option.
        argument: &'static str,
        /// The expected value.
        expected: String,
    },
    /// The server made no decision: it is unavailable, too slow or temporarily refuses calls. The
    /// call may have counted, so do not repeat it.
    #[error("no answer: {reason}")]
    Unavailable {
        /// The reason that there is no decision.
        reason: &'static str,
        /// The driver's error, if it has one.
        source: Option<RedisError>,
    },
    /// The server answered with an error that a retry does not fix: alert on it.
    #[error("the server refused the command: {source}{}", hint(.source))]
    Rejected {
        /// The driver's error.
        source: RedisError,
    },
    /// The server's reply cannot be read as a decision.
    #[error("the reply is not a decision")]
    Protocol,
    /// No permit is free. The decision says when to retry.
    #[error("no permit of rule {} is free", .0.rule)]
    LeaseDenied(Box<Decision>),
}

impl Error {
    pub(crate) fn invalid(argument: &'static str, expected: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, expected: expected.into() }
    }

    pub(crate) fn away(reason: &'static str) -> Self {
        Self::Unavailable { reason, source: None }
    }

    /// Returns true for a mistake in the program, its permissions or the server's setup. `on_error`
    /// does not decide such a call.
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

/// Returns true if an error of the driver is temporary. An error of an unknown kind counts as
/// permanent, so that `on_error` does not allow the call.
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
