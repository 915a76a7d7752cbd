//! Attempts that all callers share: a dial, or a reading of the slot map of a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::RedisError;
use tokio::sync::SetOnce;
use tokio::time::Instant;
use uuid::Uuid;

use crate::clock;

/// An attempt that is under way or has ended. The outcome is `None` if its result is out of date,
/// so the callers begin another attempt.
#[derive(Debug)]
pub(crate) struct Attempt<T> {
    began: Instant,
    outcome: SetOnce<Option<Result<T, RedisError>>>,
    counted: AtomicBool,
}

impl<T> Attempt<T> {
    pub async fn wait(&self) -> Option<&Result<T, RedisError>> {
        self.outcome.wait().await.as_ref()
    }

    /// Returns true for one of the callers of a failed attempt: their failures count as one.
    pub fn counts(&self) -> bool {
        !self.counted.swap(true, Ordering::Relaxed)
    }
}

/// The attempts at one thing. One is under way at a time, and none begins during the pause after a
/// failure.
#[derive(Debug)]
pub(crate) struct Attempts<T> {
    under_way: Option<Arc<Attempt<T>>>,
    /// The end of the pause after a failure, and the failure.
    failed: Option<(Instant, RedisError)>,
}

impl<T> Default for Attempts<T> {
    fn default() -> Self {
        Self { under_way: None, failed: None }
    }
}

impl<T> Attempts<T> {
    /// Returns the attempt under way, or a new one, and true if it is new. The caller then starts
    /// it, without a lock on these attempts: a runtime that shuts down ends it at once.
    ///
    /// # Errors
    /// The last failure, during the pause after it.
    pub fn join(&mut self) -> Result<(Arc<Attempt<T>>, bool), RedisError> {
        if let Some(attempt) = &self.under_way {
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

    /// Ends an attempt. After a failure, the next one begins about `pause` after the failed one
    /// began: an attempt that hangs has paused already.
    pub fn end(
        &mut self,
        attempt: &Attempt<T>,
        outcome: Option<Result<T, RedisError>>,
        pause: Duration,
    ) {
        self.under_way = None;
        self.failed = match &outcome {
            Some(Err(error)) => Some((attempt.began + jittered(pause), error.clone())),
            _ => None,
        };
        // An attempt ends once.
        let _ = attempt.outcome.set(outcome);
    }
}

/// Returns a random duration that is up to 20 % shorter or longer, so that processes that lost
/// their server together do not return together.
fn jittered(pause: Duration) -> Duration {
    let random = f64::from(Uuid::new_v4().as_bytes()[0]) / f64::from(u8::MAX);
    pause.mul_f64(0.8 + 0.4 * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_changed_by_at_most_a_fifth() {
        let pauses: Vec<_> = (0..100).map(|_| jittered(Duration::from_secs(10))).collect();
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*least >= Duration::from_secs(8) && *most <= Duration::from_secs(12));
        assert!(*most - *least > Duration::from_secs(2), "{least:?} to {most:?}");
    }
}
