//! Decisions: what was answered, as a value.

use std::sync::Arc;
use std::time::Duration;

/// Who decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The server.
    Server,
    /// This process: a cached denial, a permit fetched in advance, or the share of a rule under
    /// [`OnError::Local`](crate::OnError::Local).
    Local,
    /// Nobody: there was no answer, and the rule is open or closed.
    Error,
}

impl Source {
    /// `server`, `local` or `error`, for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Local => "local",
            Self::Error => "error",
        }
    }
}

/// May it happen now?
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Decision {
    /// Whether it may.
    pub allowed: bool,
    /// The capacity that was asked for; 0 where only the server knows it and did not answer.
    pub limit: u64,
    /// What would still be allowed, rounded down.
    pub remaining: u64,
    /// Denied: after so many ms the same call is allowed, or -1 when it never is. Allowed: 0; the
    /// leaky bucket alone tells there how long to wait before acting.
    pub retry_after_ms: i64,
    /// When the subject is back to its full allowance, rounded up.
    pub reset_after_ms: u64,
    /// The name of the rule that decided.
    pub rule: Arc<str>,
    /// Who decided.
    pub source: Source,
    /// Whether the server gave no answer and `on_error` decided.
    pub degraded: bool,
    /// What a policy in the shadow would say; elsewhere as `allowed`.
    pub would_allow: bool,
    /// What a policy in the shadow would say; elsewhere as `retry_after_ms`.
    pub would_retry_after_ms: i64,
    /// The units that were taken, or with them allowed.
    pub granted: u64,
    /// The length of the rule's window or its time to refill, where it has one.
    pub window_us: Option<u64>,
    /// One decision for each rule of a call with several, in their order.
    pub rows: Vec<Decision>,
    /// Which of the calls decided, counted from 0.
    pub deciding: usize,
}

impl Decision {
    /// Whether coming back does not help: the cost is above the limit.
    #[must_use]
    pub fn never(&self) -> bool {
        !self.allowed && self.retry_after_ms < 0
    }

    /// How long to wait: before coming back after a denial, before acting in a leaky bucket.
    /// Nothing when coming back does not help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        u64::try_from(self.retry_after_ms).ok().map(Duration::from_millis)
    }

    /// The decision of nobody.
    pub(crate) fn without_answer(rule: Arc<str>, allowed: bool, retry_after_ms: i64) -> Self {
        Self {
            allowed,
            limit: 0,
            remaining: 0,
            retry_after_ms,
            reset_after_ms: 0,
            rule,
            source: Source::Error,
            degraded: true,
            would_allow: allowed,
            would_retry_after_ms: retry_after_ms,
            granted: 0,
            window_us: None,
            rows: Vec::new(),
            deciding: 0,
        }
    }

    /// The decision of which one row of several stands for the whole.
    pub(crate) fn of_rows(at: usize, rows: Vec<Self>) -> Self {
        Self { rows: rows.clone(), deciding: at, ..rows[at].clone() }
    }
}
