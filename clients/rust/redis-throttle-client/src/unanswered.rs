//! The log of decisions without an answer.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{Reason, clock};

/// The shortest time between two lines with the same reason.
const PAUSE: Duration = Duration::from_secs(1);

const REASONS: [Reason; 5] =
    [Reason::Timeout, Reason::Connection, Reason::Server, Reason::Overloaded, Reason::Circuit];

/// The decisions with one reason that are not logged yet.
#[derive(Debug, Default)]
struct Line {
    logged: Option<Instant>,
    count: u64,
}

/// Logs, per reason, at most one line per second.
#[derive(Debug)]
pub(crate) struct Unanswered {
    logs: bool,
    lines: [Mutex<Line>; REASONS.len()],
}

impl Unanswered {
    pub fn new(logs: bool) -> Self {
        Self { logs, lines: Default::default() }
    }

    /// Counts a decision.
    pub fn count(&self, reason: Reason) {
        if !self.logs {
            return;
        }
        let mut line = self.lines[reason as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        line.count += 1;
        if line.logged.is_none_or(|logged| now - logged >= PAUSE) {
            line.log(reason);
            line.logged = Some(now);
        }
    }

    /// Logs the decisions since the last lines.
    pub fn flush(&self) {
        for (line, reason) in self.lines.iter().zip(REASONS) {
            line.lock().unwrap_or_else(PoisonError::into_inner).log(reason);
        }
    }
}

impl Line {
    fn log(&mut self, reason: Reason) {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            log::warn!("redis-throttle: {count} calls decided without an answer: {reason}");
        }
    }
}
