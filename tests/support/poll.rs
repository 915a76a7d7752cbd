//! Waits for events of other processes by polling, with a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// The deadline, sufficient for a busy machine: only a failing test waits this long.
pub const DEADLINE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(5);

/// Calls `attempt` repeatedly until it returns a value.
///
/// # Panics
///
/// Panics after the deadline; the message says that `what` did not happen.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain: {what}");
        thread::sleep(PAUSE);
    }
}
