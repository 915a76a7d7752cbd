//! The errors of the client. Callers must distinguish two kinds.
//!
//! If the server is unavailable, the rule's `on_error` decides the call. An invalid argument, or a
//! call that the server refuses for good, is always returned as an error.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::{Decision, Reason};

/// The errors of this crate.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid argument: nothing is sent.
    #[error("invalid {argument}: {expected}")]
    InvalidArgument {
        /// The name of the argument or the option.
        argument: &'static str,
        /// The expected value.
        expected: String,
    },
    /// The server made no decision: it is unavailable, too slow or temporarily refuses calls. The
    /// call may have counted, so do not repeat it.
    #[error("no decision: {reason}{}", detail(.source.as_ref()))]
    Unavailable {
        /// The reason that there is no decision.
        reason: Reason,
        /// The driver's error, if it has one.
        source: Option<RedisError>,
    },
    /// The server refused the call, or its reply is not a decision. A retry does not help: alert on
    /// it.
    #[error("{}", rejection(.source))]
    CommandRejected {
        /// The driver's error.
        source: RedisError,
    },
    /// The limiter is closed.
    #[error("the limiter is closed")]
    Closed,
    /// A lease or an admission was denied. The decision says when to retry; it also makes the HTTP
    /// response, by [`problem`](Decision::problem) and [`headers`](Decision::headers).
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

    /// Returns the reason that the server made no decision.
    pub(crate) fn reason(&self) -> Option<Reason> {
        if let Self::Unavailable { reason, .. } = self { Some(*reason) } else { None }
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

/// Returns the text of an error that is no reply. A reply may repeat the key.
fn detail(source: Option<&RedisError>) -> String {
    let source = source.filter(|source| source.kind() == ErrorKind::Io);
    source.map(|source| format!(" ({source})")).unwrap_or_default()
}

fn rejection(source: &RedisError) -> String {
    if let ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask) = source.kind() {
        let (code, detail) = (source.code().unwrap_or(""), source.detail().unwrap_or(""));
        let what = "the server is a node of a cluster: use the cluster client";
        return format!("{what} ({code} {detail})");
    }
    let of_module = |detail: &str| detail.contains("unknown command") && detail.contains("RL.");
    let unknown = source.detail().is_some_and(of_module);
    let hint = if unknown { " (is the module loaded on this server?)" } else { "" };
    format!("the server refused the command: {source}{hint}")
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
