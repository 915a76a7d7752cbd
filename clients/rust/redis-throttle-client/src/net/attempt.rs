//! Attempts that all callers share: a reading of the slot map of a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::SetOnce;
use tokio::time::Instant;

use crate::rules::clock;

/// An attempt that is under way or has ended. The outcome is `None` if its result is out of date,
/// so the callers begin another attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    began: Instant,
    outcome: SetOnce<Option<Result<(), RedisError>>>,
    counted: AtomicBool,
}

impl Attempt {
    /// Returns the time since the attempt began.
    pub fn age(&self) -> Duration {
        clock::now() - self.began
    }

    pub async fn wait(&self) -> Option<&Result<(), RedisError>> {
        self.outcome.wait().await.as_ref()
    }

    /// Returns true for one of the callers of a failed attempt: their failures count as one.
    pub fn counts(&self) -> bool {
        !self.counted.swap(true, Ordering::Relaxed)
    }
}

/// The attempts at one thing. One is under way at a time, and none begins during the pause after a
/// failure. An attempt that has lasted too long stays with its callers, but the next caller begins
/// another one: the runtime of the first may not run any more.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    under_way: Option<Arc<Attempt>>,
    /// The end of the pause after a failure, and the failure.
    failed: Option<(Instant, RedisError)>,
}

impl Attempts {
    /// Returns the attempt under way, or a new one, and true if it is new. The caller then starts
    /// it, without a lock on these attempts: a runtime that shuts down ends it at once. `longest`
    /// is the time in which an attempt ends if its runtime runs.
    ///
    /// # Errors
    /// The last failure, during the pause after it.
    pub fn join(&mut self, longest: Duration) -> Result<(Arc<Attempt>, bool), RedisError> {
        if let Some(attempt) = self.under_way.as_ref().filter(|one| one.age() <= longest) {
            return Ok((attempt.clone(), false));
        }
        if let Some((until, error)) = &self.failed
            && clock::now() < *until
        {
            return Err(error.clone());
        }
        let (began, outcome) = (clock::now(), SetOnce::new());
        let attempt = Arc::new(Attempt { began, outcome, counted: AtomicBool::new(false) });
        self.under_way = Some(attempt.clone());
        Ok((attempt, true))
    }

    /// Returns true if no other attempt began since this one.
    pub fn is_last(&self, attempt: &Arc<Attempt>) -> bool {
        self.under_way.as_ref().is_some_and(|last| Arc::ptr_eq(last, attempt))
    }

    /// Ends an attempt. After a failure, the next one begins `pause` later. If another attempt has
    /// begun, the result is out of date.
    pub fn end(
        &mut self,
        attempt: &Arc<Attempt>,
        outcome: Option<Result<(), RedisError>>,
        pause: Duration,
    ) {
        let outcome = outcome.filter(|_| self.is_last(attempt));
        if self.is_last(attempt) {
            self.under_way = None;
            self.failed = match &outcome {
                Some(Err(error)) => Some((clock::now() + pause, error.clone())),
                _ => None,
            };
        }
        // An attempt ends once.
        let _ = attempt.outcome.set(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempt_that_outlasts_the_longest_one_holds_no_later_caller() {
        let (longest, pause) = (Duration::from_secs(1), Duration::from_secs(3));
        let mut attempts = Attempts::default();
        let (first, _) = attempts.join(longest).unwrap();
        tokio::time::advance(longest).await;
        assert!(!attempts.join(longest).unwrap().1);
        tokio::time::advance(Duration::from_millis(1)).await;
        let (second, is_new) = attempts.join(longest).unwrap();
        assert!(is_new && !Arc::ptr_eq(&first, &second));
        // The end of the first changes nothing for the second.
        attempts.end(&first, Some(Err(std::io::Error::other("late").into())), pause);
        assert!(first.wait().await.is_none());
        let (joined, is_new) = attempts.join(longest).unwrap();
        assert!(!is_new && Arc::ptr_eq(&joined, &second));
    }
}
