//! The circuit breaker of a node, which also limits the calls in flight.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{Error, Reason, clock};

/// Counts the calls in flight and the failures of a node. After `failures` failures in a row, it
/// rejects calls for the duration `pause`. Then one call probes the node.
#[derive(Debug)]
pub(crate) struct Gate {
    max_in_flight: usize,
    failures: u32,
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    failed: u32,
    shut_until: Option<Instant>,
    probing: bool,
}

/// A call in flight. If it is dropped before [`end`](Pass::end), the caller gave up, which counts
/// neither as an answer nor as a failure of the node.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    probe: bool,
    answered: Option<bool>,
}

impl Gate {
    pub fn new(max_in_flight: usize, failures: u32, pause: Duration) -> Self {
        Self { max_in_flight, failures, pause, state: Mutex::default() }
    }

    /// Begins a call, unless the circuit breaker is open or too many calls are in flight.
    pub fn enter(&self, now: Instant) -> Result<Pass<'_>, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.shut_until.is_some_and(|until| state.probing || now < until) {
            return Err(Error::unavailable(Reason::Circuit));
        }
        if state.in_flight >= self.max_in_flight {
            return Err(Error::unavailable(Reason::Overloaded));
        }
        state.in_flight += 1;
        let probe = state.shut_until.is_some();
        // An earlier probe may still be in flight, if an older call closed the breaker in the
        // meantime.
        state.probing |= probe;
        Ok(Pass { gate: self, probe, answered: None })
    }
}

impl Pass<'_> {
    /// Ends the call. `answered` is true if the node answered, even with an error.
    pub fn end(mut self, answered: bool) {
        self.answered = Some(answered);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.in_flight -= 1;
        if self.probe {
            state.probing = false;
        }
        match self.answered {
            Some(true) => (state.failed, state.shut_until) = (0, None),
            Some(false) => {
                state.failed = state.failed.saturating_add(1);
                if self.probe || state.failed >= self.gate.failures {
                    state.shut_until = Some(clock::now() + self.gate.pause);
                }
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn breaker_sends_no_second_probe_when_an_older_call_ends_during_the_first() {
        let pause = Duration::from_millis(10);
        let gate = Gate::new(9, 1, pause);
        let older = gate.enter(clock::now()).unwrap();
        gate.enter(clock::now()).unwrap().end(false);
        tokio::time::advance(pause).await;
        let probe = gate.enter(clock::now()).unwrap();
        older.end(true);
        gate.enter(clock::now()).unwrap().end(false);
        tokio::time::advance(pause).await;
        assert!(gate.enter(clock::now()).is_err());
        probe.end(true);
        assert!(gate.enter(clock::now()).is_ok());
    }
}
