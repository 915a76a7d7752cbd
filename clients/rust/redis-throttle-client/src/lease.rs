//! Leases: held while work runs, renewed at a third of their ttl, given back at its end.
//!
//! Whether a permit is still held is told by this process' clock: a lease lasts at least a ttl from
//! the moment before the call that was answered with 1.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

use crate::{Decision, Error, Limiter, Rule, clock, protocol};

/// Two renewals may be lost before the lease is.
const RENEWALS_IN_TTL: u32 = 3;

/// Whose permit it is.
#[derive(Debug, Clone)]
pub(crate) struct Holder {
    pub limiter: Limiter,
    pub rule: Rule,
    pub key: String,
    pub id: String,
}

impl Holder {
    /// Gives the permit back in a task of its own, which outlives whoever asked for it. Outside of
    /// a runtime, and without an answer, the permit lapses by itself.
    fn give_back(&self) -> Option<JoinHandle<()>> {
        let holder = self.clone();
        let release = async move { holder.release().await };
        Handle::try_current().ok().map(|runtime| runtime.spawn(release))
    }

    async fn release(&self) {
        let Ok(command) = protocol::release(&self.key, &self.id) else { return };
        // Without an answer it lapses by itself; a mistake was told to the hook.
        let _ = self.limiter.ask(&command, clock::now(), protocol::held).await;
    }
}

/// A permit that was asked for and not yet answered: given back when nobody learns the answer.
#[derive(Debug)]
pub(crate) struct Asked(Option<Holder>);

impl Asked {
    pub fn new(holder: Holder) -> Self {
        Self(Some(holder))
    }

    /// The answer came.
    pub fn answered(mut self) -> Option<Holder> {
        self.0.take()
    }

    /// No answer came: what may be held there is given back.
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

    /// Renews until the lease is lost. A renewal without an answer is tried again in a while.
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

/// A permit: it renews itself while it lives, and is given back when it is released or dropped.
///
/// It is no lock: a process that was stopped for longer than the ttl does not know that it lost it.
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

    /// What was decided when the permit was taken.
    pub fn decision(&self) -> &Decision {
        &self.held.decision
    }

    /// The name of the holder.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.held.holder.id
    }

    /// Whether the permit is still ours by this process' clock. Of a lease that nobody decided:
    /// always.
    #[must_use]
    pub fn held(&self) -> bool {
        let lost = *self.held.lost.borrow();
        self.renewing.is_none() || (!lost && clock::now() < self.held.until())
    }

    /// Completes when the permit is lost: stop then, somebody else may hold it.
    pub async fn lost(&self) {
        let mut lost = self.held.lost.subscribe();
        // The sender lives as long as this lease.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    /// Keeps it for another ttl; false when it has lapsed: stop what it stands for. It renews
    /// itself, so this is for who wants to know.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, and what the server refuses.
    pub async fn renew(&self) -> Result<bool, Error> {
        if self.renewing.is_none() { Ok(true) } else { self.held.renew().await }
    }

    /// Gives it back, and waits for the answer; without one the permit lapses by itself.
    pub async fn release(mut self) {
        if let Some(release) = self.give_back() {
            // It fails when the runtime ends, which nobody waits for.
            let _ = release.await;
        }
    }

    fn give_back(&mut self) -> Option<JoinHandle<()>> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        // Without one, nobody decided and there is nothing to give back.
        self.renewing.as_ref()?.abort();
        self.held.holder.give_back()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back();
    }
}
