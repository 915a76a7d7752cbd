//! The time that a caller waits for answers: the timeout of the options, or less if the caller set
//! it.

#[cfg(feature = "cluster")]
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Error;
#[cfg(feature = "cluster")]
use crate::rules::clock;
use crate::{Limiter, Reason};

/// The time that a caller waits for answers, in one call or in several.
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

    /// Returns true if a call without an answer says nothing about the node: it was overloaded, or
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

impl Limiter {
    /// Returns a view of the limiter for a caller that has less time than
    /// [`timeout`](crate::Options::timeout), such as that of a request with a deadline. It is as
    /// cheap as a clone, and shares all state.
    ///
    /// Each call of the view ends after `time` at most, its first dial included. A call that ends
    /// so has the reason [`Timeout`](crate::Reason::Timeout), and its reply is still read. It is no
    /// failure for the circuit breaker, because the server may be well: known denials decide, or
    /// else `on_error`, under which [`Allow`](crate::OnError::Allow) keeps the limit in this
    /// process. A dropped future decides nothing, so prefer the view to a timeout around a call.
    ///
    /// A longer time than that of the limiter changes nothing. With a time of zero no call is sent.
    /// [`ready`](Limiter::ready), and what outlives its call, such as a renewal or a refund in the
    /// background, have the limiter's own time.
    #[must_use]
    pub fn within(&self, time: Duration) -> Self {
        Self(self.0.clone(), Some(self.1.map_or(time, |set| set.min(time))))
    }

    /// Returns the limiter without the time of a view, for what outlives a call.
    pub(crate) fn whole(&self) -> Self {
        Self(self.0.clone(), None)
    }

    pub(crate) fn budget(&self) -> Budget {
        let timeout = self.0.options.deadlines().0;
        match self.1.filter(|time| *time < timeout) {
            Some(time) => Budget { is_callers: true, ..Budget::new(time) },
            None => Budget::new(timeout),
        }
    }
}
