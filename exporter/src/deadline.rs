//! The shared deadline for all servers of a scrape: by then their replies must have arrived and be
//! parsed.

use std::time::{Duration, Instant};

/// A deadline that all servers of a scrape share. Its time starts when the servers are queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    started: Instant,
    timeout: Duration,
}

impl Deadline {
    /// Returns the deadline `timeout` from now.
    pub fn after(timeout: Duration) -> Self {
        Self { started: Instant::now(), timeout }
    }

    /// Returns the time since the servers were queried.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the time until the deadline, or zero if the deadline has passed.
    pub fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.elapsed())
    }

    /// Checks that the deadline has not passed, so that parsing may continue.
    ///
    /// # Errors
    ///
    /// Returns [`unparsed`](Self::unparsed) after the deadline has passed.
    pub fn check(&self) -> Result<(), String> {
        if self.left().is_zero() { Err(self.unparsed()) } else { Ok(()) }
    }

    /// Returns the error text for a server whose reply was not parsed in time.
    pub fn unparsed(&self) -> String {
        format!("its reply was not parsed within {} ms", self.timeout.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_fails_once_the_deadline_has_passed() {
        let passed = Deadline::after(Duration::ZERO);
        assert_eq!(passed.left(), Duration::ZERO);
        assert_eq!(passed.check(), Err("its reply was not parsed within 0 ms".to_owned()));
        assert_eq!(Deadline::after(Duration::MAX).check(), Ok(()));
    }
}
