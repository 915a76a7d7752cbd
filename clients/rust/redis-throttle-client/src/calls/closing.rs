//! The end of a limiter: what it still waits for, and what it gives back.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Poll;

use slab::Slab;
use tokio::sync::{Notify, SetOnce};

/// A lease, reservation or admission, held until its caller ends it or the limiter is closed.
pub(crate) trait Held: Send + Sync {
    /// Sends the end, once.
    fn give_back(&self);
}

/// The state of a limiter's end.
#[derive(Default)]
pub(crate) struct Closing {
    pub has_begun: AtomicBool,
    /// Set when no further call begins.
    pub closed: SetOnce<()>,
    /// Set when ends without a reply are given up.
    pub given_up: SetOnce<()>,
    /// Set when the end of the limiter is over.
    pub done: SetOnce<()>,
    held: Mutex<Slab<Weak<dyn Held>>>,
    /// The number of requests that hold something and of ends without a reply.
    open: AtomicUsize,
    ended: Notify,
}

impl fmt::Debug for Closing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Closing").field("open", &self.open).finish_non_exhaustive()
    }
}

/// A request or an end whose reply the end of the limiter waits for.
#[derive(Debug)]
pub(crate) struct Open(Arc<Closing>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.ended.notify_waiters();
    }
}

/// The place of something held in the list of its limiter.
#[derive(Debug)]
pub(crate) struct Listed {
    closing: Arc<Closing>,
    at: usize,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let held = &self.closing.held;
        held.lock().unwrap_or_else(PoisonError::into_inner).remove(self.at);
    }
}

impl Closing {
    /// Waits for a future. `None` if the end of the limiter gives it up before.
    pub async fn or_given_up<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut given_up = pin!(self.given_up.wait());
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => given_up.as_mut().poll(context).map(|_| None),
        })
        .await
    }

    /// Has [`close`](crate::Limiter::close) wait for a reply.
    pub fn open(self: &Arc<Self>) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(self.clone())
    }

    /// Has [`close`](crate::Limiter::close) give back what a caller holds.
    pub fn list(self: &Arc<Self>, held: Weak<dyn Held>) -> Listed {
        let list = &self.held;
        let at = list.lock().unwrap_or_else(PoisonError::into_inner).insert(held);
        Listed { closing: self.clone(), at }
    }

    /// Waits until nothing is open.
    pub async fn no_open(&self) {
        loop {
            let ended = self.ended.notified();
            if self.open.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Returns what callers hold.
    pub fn all_held(&self) -> Vec<Arc<dyn Held>> {
        let list = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().filter_map(|(_, held)| held.upgrade()).collect()
    }
}
