//! The time that a caller waits for replies: the timeout of the options, or less if the caller set
//! it.

#[cfg(feature = "cluster")]
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Reason;
#[cfg(feature = "cluster")]
use crate::{Error, rules::clock};

/// The time that a caller waits for replies, in one call or in several.
#[derive(Debug)]
pub(crate) struct Budget {
    left_us: AtomicU64,
    /// Whether the caller set it, because it has less than the timeout of the options.
    is_callers: bool,
}

/// The time of a call at a node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Time {
    pub began: Instant,
    pub budget: Duration,
    /// Whether the caller set the budget: then also the first dial ends with it.
    pub is_callers: bool,
}

impl Budget {
    pub fn new(time: Duration) -> Self {
        Self { left_us: AtomicU64::new(us(time)), is_callers: false }
    }

    /// Creates the time of a caller that has less than the timeout of the options.
    pub fn of_caller(time: Duration) -> Self {
        Self { is_callers: true, ..Self::new(time) }
    }

    pub fn left(&self) -> Duration {
        Duration::from_micros(self.left_us.load(Ordering::Relaxed))
    }

    pub fn spend(&self, time: Duration) {
        let left = self.left_us.load(Ordering::Relaxed).saturating_sub(us(time));
        self.left_us.store(left, Ordering::Relaxed);
    }

    /// Returns the time of a call that begins at its node now.
    pub fn from(&self, began: Instant) -> Time {
        Time { began, budget: self.left(), is_callers: self.is_callers }
    }

    /// Returns the reason of a call that ended because the time is over.
    pub fn reason(&self) -> Reason {
        if self.is_callers { Reason::Timeout } else { Reason::Overloaded }
    }

    /// Returns true if a call without a reply says nothing about the node: it was overloaded, or
    /// its caller's time was over. Then `allow` keeps the limit.
    pub fn keeps_limit(&self, reason: Reason) -> bool {
        let is_over = self.is_callers && reason == Reason::Timeout && self.left().is_zero();
        is_over || reason == Reason::Overloaded
    }

    /// Waits for a future, at most for the time that the caller has set.
    #[cfg(feature = "cluster")]
    pub async fn bound<T>(
        &self,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        if !self.is_callers {
            return future.await;
        }
        let (began, left) = (clock::now(), self.left());
        let bound = tokio::time::timeout(left, future).await;
        self.spend(if bound.is_ok() { clock::now() - began } else { left });
        bound.unwrap_or_else(|_| Err(Error::unavailable(Reason::Timeout)))
    }
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
