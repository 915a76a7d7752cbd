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

use crate::connection::Sent;
use crate::{Decision, Error, Limiter, Rule, clock, protocol};

/// The number of renewals per ttl: two may fail before the lease is lost.
const RENEWALS_IN_TTL: u32 = 3;
/// The delay before a release without an answer is repeated. It doubles up to the maximum.
const REPEAT_MIN: Duration = Duration::from_millis(100);
const REPEAT_MAX: Duration = Duration::from_secs(5);

/// The data that renews or releases a permit. `id` is the holder's name.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub limiter: Limiter,
    pub rule: Rule,
    pub key: String,
    pub id: String,
}

impl Holder {
    fn ttl(&self) -> Duration {
        Duration::from_micros(self.rule.terms().period_us)
    }

    /// Releases the permit in its own task, so the caller need not wait. The returned task ends
    /// after the first attempt; the repetitions continue until the permit expires by itself.
    /// Without a runtime, it expires by itself.
    fn give_back(&self, expires: Instant) -> Option<JoinHandle<()>> {
        let (holder, runtime) = (self.clone(), Handle::try_current().ok()?);
        Some(runtime.spawn(async move {
            if !holder.release(expires).await {
                tokio::spawn(async move { holder.repeat(expires).await });
            }
        }))
    }

    /// Returns false if there is no answer.
    async fn release(&self, expires: Instant) -> bool {
        let Ok(command) = protocol::release(&self.key, &self.id) else { return true };
        let released = self.limiter.ask_for_lease(&command, expires, protocol::held).await;
        !matches!(released, Err(Error::Unavailable { .. }))
    }

    /// Repeats a release that got no answer, until the permit expires or the limiter is closed.
    async fn repeat(&self, expires: Instant) {
        let mut delay = REPEAT_MIN;
        while clock::now() + delay < expires {
            if tokio::time::timeout(delay, self.limiter.0.closed.wait()).await.is_ok()
                || self.release(expires).await
            {
                return;
            }
            delay = (delay * 2).min(REPEAT_MAX);
        }
    }
}

/// A permit whose request has no answer yet. It is given back if the request may have run and the
/// caller has no permit by it.
#[derive(Debug)]
pub(crate) struct Asked {
    holder: Option<Holder>,
    sent: Sent,
    asked: Instant,
}

impl Asked {
    pub fn new(holder: Holder, sent: Sent) -> Self {
        Self { holder: Some(holder), sent, asked: clock::now() }
    }

    /// Ends the request. Returns the lease if the decision allows it.
    pub fn decided(mut self, decision: &Decision) -> Option<Lease> {
        if decision.degraded && !decision.allowed {
            // The server may have granted the permit: the drop gives it back.
            return None;
        }
        let holder = self.holder.take().filter(|_| decision.allowed)?;
        Some(Lease::new(holder, self.asked, decision.clone(), self.sent.may_have_run()))
    }

    /// Ends the request after an error: the server refused it.
    pub fn refused(mut self) {
        self.holder = None;
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(holder) = self.holder.take().filter(|_| self.sent.may_have_run()) {
            holder.give_back(self.asked + holder.ttl());
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
        let kept = limiter.ask_for_lease(&command, self.until(), protocol::held).await?;
        if kept {
            *self.until.lock().unwrap_or_else(PoisonError::into_inner) = asked + self.ttl;
        } else {
            self.lost.send_replace(true);
        }
        Ok(kept)
    }

    /// Renews the lease until it is lost. After a renewal without an answer, the next one follows
    /// as if it had been answered.
    async fn keep(&self, mut asked: Instant) {
        loop {
            tokio::time::sleep_until((asked + self.ttl / RENEWALS_IN_TTL).min(self.until())).await;
            asked = clock::now();
            if asked >= self.until() {
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
    /// True if the server may have granted the permit.
    granted: bool,
    released: bool,
}

impl Lease {
    fn new(holder: Holder, asked: Instant, decision: Decision, granted: bool) -> Self {
        let ttl = holder.ttl();
        let until = Mutex::new(asked + ttl);
        let lost = watch::Sender::new(false);
        let on_server = !decision.degraded;
        let held = Arc::new(Held { holder, decision, ttl, until, lost });
        let keeping = held.clone();
        let renewing = on_server
            .then(|| tokio::spawn(async move { keeping.keep(asked).await }).abort_handle());
        Self { held, renewing, granted, released: false }
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

    /// Releases the permit and waits for the answer. Without one, the release is repeated in the
    /// background until the permit expires.
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
        if let Some(renewing) = &self.renewing {
            renewing.abort();
        }
        if self.granted { self.held.holder.give_back(self.held.until()) } else { None }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back();
    }
}
