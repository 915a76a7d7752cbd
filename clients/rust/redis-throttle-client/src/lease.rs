//! Leases: held during work, renewed after each third of their ttl, released at the end.
//!
//! A process decides by its own clock whether it still holds a permit: for one ttl from the instant
//! before the last successful request.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::{Decision, Error, Limiter, Rule, clock, protocol};

/// The number of renewals per ttl: two may fail before the lease is lost.
const RENEWALS_IN_TTL: u32 = 3;

/// The data that renews or releases a permit. `id` is the holder's name.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub limiter: Limiter,
    pub rule: Rule,
    pub key: String,
    pub id: String,
}

impl Holder {
    /// Releases the permit in its own task, so the caller need not wait. Outside of a runtime, or
    /// without an answer, the permit expires by itself.
    fn give_back(&self) -> Option<JoinHandle<()>> {
        let holder = self.clone();
        let release = async move { holder.release().await };
        Handle::try_current().ok().map(|runtime| runtime.spawn(release))
    }

    async fn release(&self) {
        let Ok(command) = protocol::release(&self.key, &self.id) else { return };
        // Ignore the result: without an answer the permit expires by itself, and `ask` counts
        // errors.
        let _ = self.limiter.ask(&command, clock::now(), protocol::held).await;
    }
}

/// A permit whose request has no answer yet. It is released if the answer never reaches the caller.
#[derive(Debug)]
pub(crate) struct Asked(Option<Holder>);

impl Asked {
    pub fn new(holder: Holder) -> Self {
        Self(Some(holder))
    }

    /// Returns the permit's holder, and does not release the permit. Called after an answer.
    pub fn answered(mut self) -> Option<Holder> {
        self.0.take()
    }

    /// Returns the permit's holder, and releases the permit. Called if there was no answer, because
    /// the server may have granted the permit.
    pub fn unanswered(self) -> Option<Holder> {
        self.0.clone()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(holder) = self.0.take() {
            holder.give_back();
        }
    }
}

#[derive(Debug)]
struct Held {
    holder: Holder,
    decision: Decision,
    ttl: Duration,
    until: Mutex<Instant>,
    lost: watch::Sender<bool>,
}

impl Held {
    fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn renew(&self) -> Result<bool, Error> {
        let Holder { limiter, rule, key, id } = &self.holder;
        let asked = clock::now();
        let command = protocol::renew(rule, key, id)?;
        let kept = limiter.ask(&command, asked, protocol::held).await?;
        if kept {
            *self.until.lock().unwrap_or_else(PoisonError::into_inner) = asked + self.ttl;
        } else {
            self.lost.send_replace(true);
        }
        Ok(kept)
    }

    /// Renews the lease until it is lost. A renewal without an answer is retried later.
    async fn keep(&self) {
        loop {
            let next = clock::now() + self.ttl / RENEWALS_IN_TTL;
            tokio::time::sleep_until(next.min(self.until())).await;
            if clock::now() >= self.until() {
                self.lost.send_replace(true);
            } else {
                let _ = self.renew().await;
            }
            if *self.lost.borrow() {
                return;
            }
        }
    }
}

/// A permit. It renews itself until it is released by `release` or by a drop.
///
/// It is not a lock: a process stopped for longer than the ttl does not notice the loss.
#[derive(Debug)]
#[must_use = "a lease that is dropped is given back"]
pub struct Lease {
    held: Arc<Held>,
    renewing: Option<AbortHandle>,
    released: bool,
}

impl Lease {
    pub(crate) fn new(holder: Holder, asked: Instant, decision: Decision) -> Self {
        let ttl = Duration::from_micros(holder.rule.terms().period_us);
        let until = Mutex::new(asked + ttl);
        let lost = watch::Sender::new(false);
        let on_server = !decision.degraded;
        let held = Arc::new(Held { holder, decision, ttl, until, lost });
        let keeping = held.clone();
        let renewing =
            on_server.then(|| tokio::spawn(async move { keeping.keep().await }).abort_handle());
        Self { held, renewing, released: false }
    }

    /// Returns the decision that granted the permit.
    pub fn decision(&self) -> &Decision {
        &self.held.decision
    }

    /// Returns the holder's name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.held.holder.id
    }

    /// Returns true if this process still holds the permit, by its own clock. Always true for a
    /// lease that `on_error` allowed because the server gave no answer.
    #[must_use]
    pub fn held(&self) -> bool {
        let lost = *self.held.lost.borrow();
        self.renewing.is_none() || (!lost && clock::now() < self.held.until())
    }

    /// Waits until the permit is lost. Stop the work then: another holder may have the permit.
    pub async fn lost(&self) {
        let mut lost = self.held.lost.subscribe();
        // The wait cannot fail: the sender lives as long as this lease.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Renews the permit for another ttl. Returns false if it has expired: stop the work then.
    /// Leases renew themselves; call this only to learn the result.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, otherwise the same as [`check`](Limiter::check).
    pub async fn renew(&self) -> Result<bool, Error> {
        if self.renewing.is_none() { Ok(true) } else { self.held.renew().await }
    }

    /// Releases the permit and waits for the answer; without one the permit expires by itself.
    pub async fn release(mut self) {
        if let Some(release) = self.give_back() {
            // The task fails if the runtime shuts down; no caller waits then.
            let _ = release.await;
        }
    }

    fn give_back(&mut self) -> Option<JoinHandle<()>> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        // Without a renewal task, `on_error` decided and there is nothing to release.
        self.renewing.as_ref()?.abort();
        self.held.holder.give_back()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back();
    }
}
