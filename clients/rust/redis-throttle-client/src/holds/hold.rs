//! Holds: a lease or a reservation is renewed after each third of its ttl and ended once.
//!
//! A process decides by its own clock whether it still holds it: for one ttl from the instant
//! before the last successful request.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::calls::closing::Open;
use crate::holds::ending::{End, Ending};
use crate::net::node::Slots;
use crate::rules::clock;
use crate::rules::item::{Keyed, Owned};
use crate::wire::command::{Command, Sent};
use crate::wire::{replies, words};
use crate::{Decision, Error, Item, Limiter, Reason, Source};

/// The number of renewals per ttl: two may fail before the hold is lost.
const RENEWALS_IN_TTL: u32 = 3;

/// Returns a name for what one call holds.
pub(crate) fn random_id() -> String {
    Uuid::new_v4().simple().to_string()
}

/// The items of a request that has no reply yet. What it holds is given back if the request may
/// have run and the caller has nothing by it.
#[derive(Debug)]
pub(crate) struct Pending {
    limiter: Limiter,
    items: Vec<Owned>,
    sent: Sent,
    at: Instant,
    /// Whether the ends are those of an admission.
    is_admission: bool,
    #[allow(dead_code, reason = "its drop signals to `close` that this request is over")]
    open: Open,
}

impl Pending {
    /// Begins the request of a command. A drop gives back what the command takes if its reply
    /// never reaches the caller.
    pub fn new(
        limiter: &Limiter,
        items: &[Item<'_>],
        calls: &[Keyed<'_>],
        command: &mut Command<'_>,
        is_admission: bool,
    ) -> Self {
        let (open, sent) = (limiter.0.closing.open(), command.record());
        let items = items.iter().zip(calls).map(|(item, call)| Owned::new(item, call)).collect();
        Self { limiter: limiter.whole(), items, sent, at: clock::now(), is_admission, open }
    }

    /// Ends the request. Returns each item with what it holds, if the decision allows them.
    ///
    /// # Errors
    /// [`Error::Closed`] if the limiter was closed in the meantime. The drop gives back what the
    /// request holds.
    pub fn decided(mut self, decision: &Decision) -> Result<Vec<(Owned, Option<Hold>)>, Error> {
        if self.limiter.is_closed() && self.items.iter().any(Owned::is_held) {
            if !decision.allowed && !decision.degraded {
                self.items.clear();
            }
            return Err(Error::Closed);
        }
        if decision.degraded && !decision.allowed {
            // The server may have run the request: the drop gives back what it holds.
            return Ok(Vec::new());
        }
        let mut items = std::mem::take(&mut self.items);
        if !decision.allowed {
            items.clear();
        }
        let with_hold = |(item, row): (Owned, &Decision)| {
            let hold = item.is_held().then(|| self.hold(item.clone(), row));
            (item, hold)
        };
        Ok(items.into_iter().zip(decision.rows_or_self()).map(with_hold).collect())
    }

    fn hold(&self, item: Owned, row: &Decision) -> Hold {
        let may_be_held = row.source != Source::Local && self.sent.may_have_run();
        let kept = Arc::new(Kept {
            limiter: self.limiter.clone(),
            until: Mutex::new(self.at + item.ttl()),
            item,
            lost: watch::Sender::new(false),
            is_admission: self.is_admission,
        });
        let (keeping, at) = (kept.clone(), self.at);
        let on_server = !row.degraded;
        let renewing =
            on_server.then(|| tokio::spawn(async move { keeping.keep(at).await }).abort_handle());
        Hold { kept, renewing, may_be_held, ended: AtomicBool::new(false) }
    }

    /// Ends the request after an error: the server refused it.
    pub fn refused(mut self) {
        self.items.clear();
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        items.retain(Owned::is_held);
        let (true, false, Ok(runtime)) =
            (self.sent.may_have_run(), items.is_empty(), Handle::try_current())
        else {
            return;
        };
        let (limiter, sent) = (self.limiter.clone(), self.sent.clone());
        let (at, is_reported, open) = (self.at, self.is_admission, self.limiter.0.closing.open());
        runtime.spawn(async move {
            let of = |item: Owned| {
                let end = if item.is_lease() { End::Release } else { End::Cancel };
                let expires = at + item.ttl();
                Ending { limiter: limiter.clone(), end, expires, item, is_reported }
            };
            // An end that overtakes the request ends nothing.
            let is_settled = limiter.0.closing.or_given_up(sent.drained()).await.is_some();
            for ending in items.into_iter().filter(|_| sent.may_have_run()).map(of) {
                match is_settled {
                    true => drop(ending.start()),
                    false => ending.give_up(at),
                }
            }
            drop(open);
        });
    }
}

#[derive(Debug)]
struct Kept {
    limiter: Limiter,
    item: Owned,
    until: Mutex<Instant>,
    lost: watch::Sender<bool>,
    is_admission: bool,
}

impl Kept {
    fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews once. Returns false if what was held is lost.
    async fn renew(&self) -> Result<bool, Error> {
        let began = clock::now();
        let renewed = if self.item.is_lease() {
            let command = words::renew(&self.item.rule, &self.item.key, &self.item.id)?;
            self.limiter.send_in_slot(Slots::Renewals, &command, self.until(), replies::held).await
        } else {
            let call = self.item.keyed();
            let read = |reply: &Value| replies::decision(&call, reply).map(|row| row.allowed);
            let command = words::reserve(&call)?;
            self.limiter.send_in_slot(Slots::Renewals, &command, self.until(), read).await
        };
        match &renewed {
            Ok(true) => {
                let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
                *until = (*until).max(began + self.item.ttl());
            }
            Ok(false) => self.lose(),
            Err(error) => {
                let Owned { rule, subject, .. } = &self.item;
                self.limiter.report_rejection(error, rule, subject, began);
                // A reservation that the server refuses to renew is not requested again.
                if error.is_rejection() && !self.item.is_lease() {
                    self.lose();
                }
            }
        }
        renewed
    }

    fn lose(&self) {
        self.lost.send_replace(true);
    }

    /// Renews until it is lost. No renewal waits for the reply to another one.
    async fn keep(&self, at: Instant) {
        let third = self.item.ttl() / RENEWALS_IN_TTL;
        let (mut due, mut renewals) = (at + third, Vec::new());
        loop {
            let mut sleep = pin!(sleep_until(due.min(self.until())));
            // In one task, so that its end ends all of them at once.
            poll_fn(|context| {
                renewals
                    .retain_mut(|one: &mut Renewal<'_>| one.as_mut().poll(context).is_pending());
                sleep.as_mut().poll(context)
            })
            .await;
            let now = clock::now();
            if *self.lost.borrow() {
                return;
            }
            if now >= self.until() {
                return self.lose();
            }
            if now >= due {
                due = now + third;
                renewals.push(Box::pin(self.renew()));
            }
        }
    }
}

/// A renewal under way.
type Renewal<'a> = Pin<Box<dyn Future<Output = Result<bool, Error>> + Send + 'a>>;

/// A lease or a reservation that the caller holds. It renews itself until it is ended.
#[derive(Debug)]
pub(crate) struct Hold {
    kept: Arc<Kept>,
    /// `None` if `on_error` allowed the request: there is nothing to renew.
    renewing: Option<AbortHandle>,
    /// Whether the server may hold something for this caller.
    may_be_held: bool,
    ended: AtomicBool,
}

impl Hold {
    pub fn id(&self) -> &str {
        &self.kept.item.id
    }

    /// Returns true if this process still holds it, by its own clock. If `on_error` allowed the
    /// request, true until the end.
    pub fn held(&self) -> bool {
        let lost = *self.kept.lost.borrow();
        let is_valid = self.renewing.is_none() || (!lost && clock::now() < self.kept.until());
        is_valid && !self.ended.load(Ordering::Acquire)
    }

    /// Waits until it is lost.
    pub async fn lost(&self) {
        let mut lost = self.kept.lost.subscribe();
        // The wait cannot fail: the sender lives as long as this hold.
        let _ = lost.wait_for(|lost| *lost).await;
    }

    pub async fn renew(&self) -> Result<bool, Error> {
        if self.kept.limiter.is_closed() {
            return Err(Error::Closed);
        }
        if self.renewing.is_none() {
            return Ok(true);
        }
        // In a task, because a future that is held without being polled would keep its slot.
        let kept = self.kept.clone();
        let renewed = tokio::spawn(async move { kept.renew().await }).await;
        renewed.unwrap_or_else(|_| Err(Error::unavailable(Reason::Connection)))
    }

    /// Ends the renewals and what is held, the first time. The returned task ends after the first
    /// try to end it.
    pub fn end(&self, end: End) -> Option<JoinHandle<()>> {
        if self.ended.swap(true, Ordering::AcqRel) {
            return None;
        }
        if let Some(renewing) = &self.renewing {
            renewing.abort();
        }
        let Kept { limiter, item, is_admission, .. } = &*self.kept;
        let (limiter, item) = (limiter.clone(), item.clone());
        let ending =
            Ending { limiter, item, end, expires: self.kept.until(), is_reported: *is_admission };
        if self.may_be_held { ending.start() } else { None }
    }
}
