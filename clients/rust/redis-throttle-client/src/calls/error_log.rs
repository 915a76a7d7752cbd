//! The log of decisions that were made without the server.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::Reason;
use crate::rules::clock;

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
pub(crate) struct ErrorLog {
    logs: bool,
    lines: [Mutex<Line>; REASONS.len()],
}

impl ErrorLog {
    pub fn new(logs: bool) -> Self {
        Self { logs, lines: Default::default() }
    }

    /// Counts a decision.
    pub fn count(&self, reason: Reason) {
        if !self.logs {
            return;
        }
        let now = clock::now();
        let count = {
            let line = &self.lines[reason as usize];
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            line.count += 1;
            if line.logged.is_some_and(|logged| now.saturating_duration_since(logged) < PAUSE) {
                return;
            }
            line.logged = Some(now);
            std::mem::take(&mut line.count)
        };
        log(reason, count);
    }

    /// Logs the decisions since the last lines.
    pub fn flush(&self) {
        for (line, reason) in self.lines.iter().zip(REASONS) {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            let count = std::mem::take(&mut line.count);
            drop(line);
            log(reason, count);
        }
    }
}

/// Writes a line, without a lock: the logger may use the limiter.
fn log(reason: Reason, count: u64) {
    if count > 0 {
        log::warn!("redis-throttle: {count} calls decided without the server: {reason}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, mpsc};

    use log::{LevelFilter, Log, Metadata, Record};

    use super::*;

    static LINES: OnceLock<ErrorLog> = OnceLock::new();

    /// A logger that is limited itself.
    struct Limited;

    impl Log for Limited {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, _: &Record<'_>) {
            if let Some(lines) = LINES.get() {
                lines.count(Reason::Timeout);
            }
        }

        fn flush(&self) {}
    }

    #[test]
    fn logger_may_use_the_limiter() {
        // Only this test of the library sets a logger.
        log::set_logger(&Limited).unwrap();
        log::set_max_level(LevelFilter::Warn);
        let lines = LINES.get_or_init(|| ErrorLog::new(true));
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || {
            lines.count(Reason::Timeout);
            lines.flush();
            let _ = done.send(());
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("the lines are logged");
    }
}
