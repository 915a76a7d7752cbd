//! Leases: held during work, released at the end.

use std::sync::{Arc, Weak};

use crate::calls::closing::{Held, Listed};
use crate::holds::ending::End;
use crate::holds::hold::Hold;
use crate::{Decision, Error, Limiter};

/// A permit. It renews itself until it is released by `release` or by a drop.
///
/// It is not a lock: a process stopped for longer than the ttl does not notice the loss.
#[derive(Debug)]
#[must_use = "a lease that is dropped is given back"]
pub struct Lease {
    hold: Arc<Hold>,
    decision: Decision,
    #[allow(dead_code, reason = "its drop ends the place in the limiter's list")]
    listed: Listed,
}

impl Held for Hold {
    fn give_back(&self) {
        self.end(End::Release);
    }
}

impl Lease {
    pub(crate) fn new(limiter: &Limiter, hold: Hold, decision: Decision) -> Self {
        let hold = Arc::new(hold);
        let held: Weak<Hold> = Arc::downgrade(&hold);
        Self { hold, decision, listed: limiter.list(held) }
    }

    /// Returns the decision that granted the permit.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the holder's name.
    #[must_use]
    pub fn id(&self) -> &str {
        self.hold.id()
    }

    /// Returns true if this process still holds the permit, by its own clock. Always true for a
    /// lease that `on_error` allowed because the server gave no answer, until
    /// [`close`](crate::Limiter::close).
    #[must_use]
    pub fn held(&self) -> bool {
        self.hold.held()
    }

    /// Waits until the permit is lost. Stop the work then: another holder may have the permit.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// Renews the permit for another ttl. Returns false if it has expired: stop the work then.
    /// Leases renew themselves; call this only to learn the result.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, otherwise the same as
    /// [`check`](crate::Limiter::check).
    pub async fn renew(&self) -> Result<bool, Error> {
        self.hold.renew().await
    }

    /// Releases the permit and waits for the answer. Without one, the release is repeated in the
    /// background until the permit expires.
    pub async fn release(self) {
        if let Some(released) = self.hold.end(End::Release) {
            // The task fails if the runtime shuts down; no caller waits then.
            let _ = released.await;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.hold.end(End::Release);
    }
}
