//! The places of a listener's connections. If none is left, the connection that has waited longest
//! for its peer loses its place to the next one: half a head must not keep others out.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

/// The places of a listener.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    queue: Mutex<Queue>,
    /// Notified when a connection begins to wait.
    begun: Notify,
}

/// The connections that wait for their peers, in the order in which they began.
#[derive(Debug, Default)]
struct Queue {
    last: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// The place of a connection.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    /// The number in the queue while the connection waits for its peer.
    number: Mutex<Option<u64>>,
    lost: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub fn new(most: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(most));
        Arc::new(Self { free, queue: Mutex::default(), begun: Notify::new() })
    }

    /// Takes a place for a connection that waits for its peer.
    pub async fn take(self: &Arc<Self>) -> Result<Place, AcquireError> {
        let mut free = pin!(self.free.clone().acquire_owned());
        let permit = tokio::select! {
            biased;
            permit = &mut free => permit,
            () = self.close_longest() => free.await,
        };
        let (number, lost) = (Mutex::default(), Arc::default());
        let place = Place { places: self.clone(), number, lost, _permit: permit? };
        place.wait();
        Ok(place)
    }

    /// Closes the connection that has waited longest, as soon as one waits.
    async fn close_longest(&self) {
        loop {
            let longest = self.queue().waiting.pop_first();
            if let Some((_, lost)) = longest {
                return lost.notify_one();
            }
            self.begun.notified().await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Begins to wait for the peer, unless the connection already waits.
    pub fn wait(&self) {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        if number.is_none() {
            let mut queue = self.places.queue();
            queue.last += 1;
            let last = queue.last;
            queue.waiting.insert(last, self.lost.clone());
            *number = Some(last);
            self.places.begun.notify_one();
        }
    }

    /// Ends the wait: the peer has sent what was expected.
    pub fn arrived(&self) {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = number.take() {
            self.places.queue().waiting.remove(&number);
        }
    }

    /// Waits until another connection needs the place.
    pub async fn lost(&self) {
        self.lost.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.arrived();
    }
}
