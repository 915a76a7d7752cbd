//! The end of a limiter: what it still waits for, and what it gives back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use slab::Slab;
use tokio::sync::{Notify, SetOnce};
use tokio::time::timeout;

use crate::Limiter;
use crate::net::node::Slots;
use crate::rules::clock;
use crate::rules::item::Keyed;
use crate::wire::replies;
use crate::wire::words;
use crate::wire::words::Verb;

/// What a caller holds until it ends it, or the limiter is closed.
pub(crate) trait Held: Send + Sync {
    /// Sends the end, once.
    fn give_back(&self);
}

/// The state of a limiter's end.
#[derive(Default)]
pub(crate) struct Closing {
    has_begun: AtomicBool,
    /// Set when no further call begins.
    pub closed: SetOnce<()>,
    /// Set when ends without an answer are given up.
    pub given_up: SetOnce<()>,
    done: SetOnce<()>,
    held: Mutex<Slab<Weak<dyn Held>>>,
    /// The number of requests that hold something and of ends without an answer.
    open: AtomicUsize,
    ended: Notify,
}

impl fmt::Debug for Closing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Closing").field("open", &self.open).finish_non_exhaustive()
    }
}

/// A request or an end for whose answer the end of the limiter waits.
#[derive(Debug)]
pub(crate) struct Open(Limiter);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.closing.open.fetch_sub(1, Ordering::AcqRel);
        self.0.0.closing.ended.notify_waiters();
    }
}

/// The place of something held in the list of its limiter.
#[derive(Debug)]
pub(crate) struct Listed {
    limiter: Limiter,
    at: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let held = &self.limiter.0.closing.held;
        held.lock().unwrap_or_else(PoisonError::into_inner).remove(self.at);
    }
}

/// Marks the limiter as closed for good, even if the task of its end did not finish because the
/// runtime shut down.
struct Done(Limiter);

impl Drop for Done {
    fn drop(&mut self) {
        // The end runs once.
        let _ = self.0.0.closing.done.set(());
    }
}

impl Limiter {
    pub(crate) fn is_closed(&self) -> bool {
        self.0.closing.closed.initialized()
    }

    /// Waits for a future. `None` if the end of the limiter gives it up before.
    pub(crate) async fn or_given_up<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut given_up = pin!(self.0.closing.given_up.wait());
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => given_up.as_mut().poll(context).map(|_| None),
        })
        .await
    }

    /// Has [`close`](Limiter::close) wait for an answer.
    pub(crate) fn open(&self) -> Open {
        self.0.closing.open.fetch_add(1, Ordering::AcqRel);
        Open(self.whole())
    }

    /// Has [`close`](Limiter::close) give back what a caller holds.
    pub(crate) fn list(&self, held: Weak<dyn Held>) -> Listed {
        let list = &self.0.closing.held;
        let at = list.lock().unwrap_or_else(PoisonError::into_inner).insert(held);
        Listed { limiter: self.whole(), at }
    }

    /// Closes the limiter: every later call returns [`Error::Closed`](crate::Error::Closed), and so
    /// do calls in line. Calls that were sent get their replies.
    ///
    /// Gives back what is held: leases and open admissions end as at their own ends, which then
    /// send nothing, and prefetched permits are refunded. Waits for the answers at most
    /// [`timeout`](crate::Options::timeout). Each end without an answer is one
    /// [`Counters::unsettled`](crate::Counters::unsettled). A second call waits for the first.
    pub async fn close(&self) {
        if !self.0.closing.has_begun.swap(true, Ordering::AcqRel) {
            let done = Done(self.whole());
            tokio::spawn(async move { done.0.end().await });
        }
        self.0.closing.done.wait().await;
    }

    async fn end(&self) {
        let closing = &self.0.closing;
        // It is set once: the end runs once.
        let _ = closing.closed.set(());
        let held: Vec<_> = {
            let list = closing.held.lock().unwrap_or_else(PoisonError::into_inner);
            list.iter().filter_map(|(_, held)| held.upgrade()).collect()
        };
        held.iter().for_each(|held| held.give_back());
        drop(held);
        let nodes = self.0.nodes.all();
        nodes.iter().for_each(|node| node.close());
        let answered = async {
            self.refund_permits().await;
            for node in &nodes {
                node.quiet().await;
            }
            self.no_open().await;
        };
        if timeout(self.budget().left(), answered).await.is_err() {
            let _ = closing.given_up.set(());
            // The tasks that wait for answers end now.
            let _ = timeout(Duration::from_secs(1), self.no_open()).await;
        }
        self.0.unanswered.flush();
    }

    async fn no_open(&self) {
        loop {
            let ended = self.0.closing.ended.notified();
            if self.0.closing.open.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }

    async fn refund_permits(&self) {
        for (key, rule, cost) in self.0.grants.drain().await {
            let call = Keyed::of_cost(&rule, key, cost);
            let Ok(command) = words::named(Verb::Refund, &call) else { continue };
            let read = |reply: &redis::Value| replies::settled(&call, reply);
            let _ = self.ask_in_slot(Slots::Ends, &command, clock::now(), read).await;
        }
    }
}
