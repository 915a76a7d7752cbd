//! The errors of the client. Callers must tell two kinds apart.
//!
//! If the server is unavailable, the rule's `on_error` decides the call. An invalid argument, or a
//! call that the server refuses for good, is always returned as an error.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{Decision, Reason};

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
        reason: Reason,
        /// The driver's error, if it has one.
        source: Option<RedisError>,
    },
    /// The server refused the call, or its reply is not a decision. A retry does not help: alert on
    /// it.
    #[error("the server refused the command: {source}{}", hint(.source))]
    CommandRejected {
        /// The driver's error.
        source: RedisError,
    },
    /// A lease or an admission was denied. The decision says when to retry.
    #[error("denied by the rule {}", .0.rule)]
    Denied(Box<Decision>),
}

impl Error {
    pub(crate) fn invalid(argument: &'static str, expected: impl Into<String>) -> Self {
        Self::InvalidArgument { argument, expected: expected.into() }
    }

    pub(crate) fn unavailable(reason: Reason) -> Self {
        Self::Unavailable { reason, source: None }
    }

    /// Creates the error for a reply that is not a decision.
    pub(crate) fn not_a_decision() -> Self {
        let source = (ErrorKind::UnexpectedReturnType, "the reply is not a decision").into();
        Self::CommandRejected { source }
    }

    pub(crate) fn is_rejection(&self) -> bool {
        matches!(self, Self::CommandRejected { .. })
    }

    /// Returns true if a key has the largest number of reservations, and takes no further one.
    pub(crate) fn is_too_many_reservations(&self) -> bool {
        let detail = self.by_driver().and_then(RedisError::detail);
        self.is_rejection() && detail.is_some_and(|text| text.contains("too many reservations"))
    }

    /// Returns the driver's error, if it has one.
    pub(crate) fn by_driver(&self) -> Option<&RedisError> {
        match self {
            Self::Unavailable { source, .. } => source.as_ref(),
            Self::CommandRejected { source } => Some(source),
            _ => None,
        }
    }
}

impl From<RedisError> for Error {
    fn from(source: RedisError) -> Self {
        if !passes(&source) {
            return Self::CommandRejected { source };
        }
        let reason = match source.kind() {
            ErrorKind::Server(_) | ErrorKind::Extension => Reason::Server,
            _ if source.is_timeout() => Reason::Timeout,
            _ => Reason::Connection,
        };
        Self::Unavailable { reason, source: Some(source) }
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
