//! Run time: the time in which the process runs.
//!
//! Deadlines of calls count it, because a process that was stopped knows nothing of its server.

use std::time::Duration;

use tokio::time::Instant;

/// The most by which the timer may be late without a stop of the process.
const LATE_MAX: Duration = Duration::from_millis(10);

/// A clock that a timer moves. While no timer is planned, it stands still.
#[derive(Debug)]
pub(crate) struct RunClock {
    run: Duration,
    /// The instant at which `run` was read.
    at: Instant,
    /// The time of the timer, from `at`.
    planned: Option<Duration>,
}

impl RunClock {
    pub fn new(now: Instant) -> Self {
        Self { run: Duration::ZERO, at: now, planned: None }
    }

    /// Returns the run time. A timer that is later than planned adds at most 10 ms.
    pub fn read(&self, now: Instant) -> Duration {
        let most = self.planned.map_or(Duration::ZERO, |planned| planned + LATE_MAX);
        self.run + now.saturating_duration_since(self.at).min(most)
    }

    /// Plans the timer, from now. Without one the clock stands still.
    pub fn plan(&mut self, now: Instant, planned: Option<Duration>) {
        (self.run, self.at, self.planned) = (self.read(now), now.max(self.at), planned);
    }

    /// Returns the instant of the timer. `None` if none is planned.
    pub fn fires_at(&self) -> Option<Instant> {
        self.planned.map(|planned| self.at + planned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::clock;

    #[test]
    fn clock_counts_a_stop_of_the_process_as_one_timer() {
        let (now, ms) = (clock::now(), Duration::from_millis);
        let mut clock = RunClock::new(now);
        assert_eq!(clock.read(now + ms(500)), ms(0));
        clock.plan(now + ms(500), Some(ms(25)));
        assert_eq!(clock.read(now + ms(520)), ms(20));
        assert_eq!(clock.read(now + ms(2500)), ms(35));
        clock.plan(now + ms(2500), Some(ms(25)));
        assert_eq!(clock.read(now + ms(2525)), ms(60));
        clock.plan(now + ms(2525), None);
        assert_eq!((clock.read(now + ms(9000)), clock.fires_at()), (ms(60), None));
    }
}
