//! The decision on a call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The source of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The server.
    Server,
    /// This process: a cached or known denial, a prefetched permit, or the limit that this process
    /// keeps without the server.
    Local,
    /// The rule's `on_error`: the server did not decide, and the call was allowed or denied without
    /// a check of the limit.
    Error,
}

impl Source {
    /// Returns `server`, `local` or `error`, for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Local => "local",
            Self::Error => "error",
        }
    }
}

/// The reason that the server did not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The server is silent. The call may have run if it was sent.
    Timeout,
    /// No connection could be opened in time, or it was lost. The call may have run if it was sent.
    Connection,
    /// The server cannot decide now, for example while it loads its data. The call did not run.
    Server,
    /// Too many calls wait, or the reply is late although the server replies to others. The
    /// call may have run if it was sent.
    Overloaded,
    /// The circuit breaker is open. The call was not sent.
    Circuit,
}

impl Reason {
    /// Returns `timeout`, `connection`, `server`, `overloaded` or `circuit`, for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Overloaded => "overloaded",
            Self::Circuit => "circuit",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// The decision on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Decision {
    /// Whether the call is allowed.
    pub allowed: bool,
    /// The capacity of the rule; 0 if only the server knows it and did not decide.
    pub limit: u64,
    /// The units left, rounded down.
    pub remaining: u64,
    /// If denied: the time until the same call is allowed, or [`Duration::MAX`] if it never is. If
    /// allowed: zero, except in a leaky bucket, where it is the time to wait before acting.
    pub retry_after: Duration,
    /// The time until the full allowance is available, rounded up to a millisecond.
    pub reset_after: Duration,
    /// The name of the rule that decided.
    pub rule: Arc<str>,
    /// The source of the decision.
    pub source: Source,
    /// Whether `on_error` decided because the server did not.
    pub degraded: bool,
    /// The reason that the server did not decide, if the decision is degraded.
    pub reason: Option<Reason>,
    /// Whether a policy in shadow mode would allow the call if it were enforced; under other rules
    /// the same as `allowed`.
    pub would_allow: bool,
    /// The `retry_after` of a policy in shadow mode if it were enforced; under other rules the same
    /// as `retry_after`.
    pub would_retry_after: Duration,
    /// The units that the call took: its cost if it is allowed, otherwise 0. 0 if `on_error`
    /// allowed it without a check of the limit.
    pub granted: u64,
    /// The length of the rule's window, or the time to refill its bucket. `None` if the rule has
    /// neither.
    pub window: Option<Duration>,
    /// The decision of each rule, in order, if the call has several rules.
    pub rows: Vec<Decision>,
    /// The index of the deciding rule among the rules of the call, from 0.
    pub deciding: usize,
    /// Whether the caller is blocked, as by a policy in the state `BLOCK` or a limit of 0: a retry
    /// never helps although the cost is within the limit.
    pub banned: bool,
}

impl Decision {
    /// Returns true if a retry never helps: the cost is above the limit, or the caller is
    /// [banned](Decision::banned).
    #[must_use]
    pub fn never(&self) -> bool {
        !self.allowed && self.retry_after == Duration::MAX
    }

    /// Returns the decision of each rule.
    pub(crate) fn rows_or_self(&self) -> &[Self] {
        if self.rows.is_empty() { std::slice::from_ref(self) } else { &self.rows }
    }

    /// Returns true if the server took units for the call. A policy in shadow mode takes none for a
    /// call that it would deny.
    pub(crate) fn took_units(&self) -> bool {
        self.allowed && self.would_allow && !self.degraded
    }

    /// Creates the decision of `on_error` when the server did not decide.
    pub(crate) fn without_server(rule: Arc<str>, allowed: bool, retry_after: Duration) -> Self {
        Self {
            allowed,
            limit: 0,
            remaining: 0,
            retry_after,
            reset_after: Duration::ZERO,
            rule,
            source: Source::Error,
            degraded: true,
            reason: None,
            would_allow: allowed,
            would_retry_after: retry_after,
            granted: 0,
            window: None,
            rows: Vec::new(),
            deciding: 0,
            banned: false,
        }
    }

    /// Takes the numbers of another decision on the same call.
    pub(crate) fn assign(&mut self, other: &Self) {
        (self.allowed, self.banned, self.would_allow) =
            (other.allowed, other.banned, other.would_allow);
        (self.limit, self.remaining, self.granted) = (other.limit, other.remaining, other.granted);
        (self.retry_after, self.reset_after) = (other.retry_after, other.reset_after);
        (self.would_retry_after, self.window) = (other.would_retry_after, other.window);
    }

    /// Creates the decision on several rules, with the row at `at` as the deciding one.
    pub(crate) fn of_rows(at: usize, rows: Vec<Self>) -> Self {
        Self { rows: rows.clone(), deciding: at, ..rows[at].clone() }
    }
}
