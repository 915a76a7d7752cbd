//! An open connection to a node, and its end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use crate::connection::{Connection, Wire};

/// An open connection.
pub(crate) struct Link {
    pub wire: Wire,
    /// The generation at the start of the dial.
    pub generation: u64,
    ended: AtomicBool,
    /// Wakes the calls on this connection when it is retired.
    pub retired: Notify,
    /// The instant of the last call that was alone, in microseconds since the node was made.
    used_us: AtomicU64,
    /// The number of replies whose callers have waited for them.
    replies: AtomicU64,
}

impl Link {
    pub fn new(connection: Box<dyn Connection>, generation: u64, used_us: u64) -> Self {
        Self {
            wire: Wire::new(connection),
            generation,
            ended: AtomicBool::new(false),
            retired: Notify::new(),
            used_us: AtomicU64::new(used_us),
            replies: AtomicU64::new(0),
        }
    }

    /// Records a call that is alone, and returns the instant of the one before.
    pub fn use_at(&self, now_us: u64) -> u64 {
        self.used_us.swap(now_us, Ordering::Relaxed)
    }

    /// Ends the connection. Returns true the first time.
    pub fn end(&self) -> bool {
        let first = !self.ended.swap(true, Ordering::AcqRel);
        self.retired.notify_waiters();
        first
    }

    pub fn is_up(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    pub fn count_reply(&self) {
        self.replies.fetch_add(1, Ordering::Relaxed);
    }

    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }
}
