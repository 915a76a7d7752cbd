//! The circuit breaker of a node.

use std::time::Duration;

use tokio::time::Instant;

use crate::Options;

/// Counts the failures of a node. After `failures` failures in a row, it rejects calls for the
/// duration `pause`. Then one call probes the node.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures: u32,
    pause: Duration,
    failed: u32,
    shut_until: Option<Instant>,
    /// The instant at which the probe in flight began.
    probe: Option<Instant>,
}

/// The end of a call, as the circuit breaker counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    /// The node sent a final reply: a decision, or an error that is permanent.
    Replied,
    /// The node refused temporarily.
    Failed,
    /// Neither: the failure is counted elsewhere, or no call was sent.
    Nothing,
}

impl Breaker {
    pub fn new(options: &Options) -> Self {
        let (failures, pause) = (options.breaker_failures, options.breaker_pause);
        Self { failures, pause, failed: 0, shut_until: None, probe: None }
    }

    /// Returns true if calls are rejected: during the pause, and while the probe is in flight.
    pub fn is_open(&self, now: Instant) -> bool {
        self.shut_until.is_some_and(|until| self.probe.is_some() || now < until)
    }

    /// Begins a call that may pass. Returns true if it is the probe.
    pub fn enter(&mut self, now: Instant) -> bool {
        let probes = self.shut_until.is_some() && !self.is_open(now);
        if probes {
            self.probe = Some(now);
        }
        probes
    }

    /// Counts a final reply, also one to a call that has ended.
    pub fn succeed(&mut self) {
        (self.failed, self.shut_until) = (0, None);
    }

    /// Counts a failure. One during the pause does not prolong it.
    pub fn fail(&mut self, now: Instant) {
        self.failed = self.failed.saturating_add(1);
        if self.failed >= self.failures && self.shut_until.is_none_or(|until| until <= now) {
            self.shut_until = Some(now + self.pause);
        }
    }

    /// Counts the failure of the probe. The next one is due a pause after this one began, and not
    /// before `earliest`.
    pub fn fail_probe(&mut self, earliest: Option<Instant>) {
        let Some(began) = self.probe.take() else { return };
        self.failed = self.failed.saturating_add(1);
        let due = began + self.pause;
        self.shut_until = Some(earliest.map_or(due, |earliest| earliest.max(due)));
    }

    /// Ends a probe that began before this instant, whose caller does not look at its end.
    #[cfg(feature = "cluster")]
    pub fn end_probe_before(&mut self, instant: Option<Instant>) {
        self.probe = self.probe.filter(|began| instant.is_none_or(|instant| *began >= instant));
    }

    /// Ends the probe without a failure: after a final reply, or so that the next call is the
    /// probe.
    pub fn end_probe(&mut self) {
        self.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::clock;

    const PAUSE: Duration = Duration::from_millis(10);

    fn breaker(failures: u32) -> Breaker {
        Breaker::new(&Options::default().breaker_failures(failures).breaker_pause(PAUSE))
    }

    #[test]
    fn breaker_sends_no_second_probe_when_an_older_call_ends_during_the_first() {
        let (mut breaker, now) = (breaker(1), clock::now());
        breaker.fail(now);
        assert!(breaker.is_open(now) && breaker.enter(now + PAUSE));
        // An older call gets its reply, and a later one fails.
        breaker.succeed();
        assert!(!breaker.is_open(now + PAUSE));
        breaker.fail(now + PAUSE);
        assert!(breaker.is_open(now + PAUSE * 3));
        breaker.end_probe();
        assert!(!breaker.is_open(now + PAUSE * 3) && breaker.enter(now + PAUSE * 3));
    }
}
