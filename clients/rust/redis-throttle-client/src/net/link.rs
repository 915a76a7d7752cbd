//! An open connection to a node, and its end.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::net::connection::{Connection, Wire};

/// An open connection.
pub(crate) struct Link {
    pub wire: Wire,
    /// The generation at the start of the dial.
    pub generation: u64,
    ended: AtomicBool,
    answered: AtomicBool,
}

impl fmt::Debug for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Link").field("is_up", &self.is_up()).finish_non_exhaustive()
    }
}

impl Link {
    pub fn new(connection: Box<dyn Connection>, generation: u64) -> Self {
        let (ended, answered) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { wire: Wire::new(connection), generation, ended, answered }
    }

    /// Ends the connection. Returns true the first time.
    pub fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    pub fn is_up(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Records a reply to a command.
    pub fn answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Returns true if a command has been answered on this connection.
    pub fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }
}
