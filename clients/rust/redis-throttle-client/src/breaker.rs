//! The circuit breaker of a node, which also limits the calls in flight.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::{Error, Options, Reason, clock};

/// The number of renewals and releases to a node at a time, in addition to `max_in_flight`.
const LEASE_CALLS_MAX: usize = 8;

/// Counts the calls in flight and the failures of a node. After `failures` failures in a row, it
/// rejects calls for the duration `pause`. Then one call probes the node.
#[derive(Debug)]
pub(crate) struct Gate {
    max_in_flight: usize,
    failures: u32,
    pause: Duration,
    lease_slots: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    failed: u32,
    answers: u64,
    shut_until: Option<Instant>,
    probing: bool,
    /// The last instant at which a call failed that had waited in vain, for a connection or for a
    /// search. The calls that waited at that instant are together one failure.
    waited_until: Option<Instant>,
}

/// The kind of a call, which decides the bound that applies to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Any call but a renewal or a release.
    Call,
    /// A renewal or a release. It has a slot of its own, and passes an open circuit breaker while a
    /// connection is up.
    Lease,
}

/// The end of a call, as the circuit breaker counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tally {
    /// The node answered, perhaps with an error that is permanent.
    Answered,
    /// The node did not answer, or refused temporarily.
    Failed,
    /// The deadline passed before the command was sent.
    Waited,
    /// Neither: the failure is counted elsewhere, or no call was made.
    Nothing,
}

/// A call in flight. If it is dropped before [`end`](Pass::end), the caller gave up, which counts
/// neither as an answer nor as a failure of the node.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    lane: Lane,
    probe: bool,
    began: Instant,
    /// The number of answers when the call began.
    answers: u64,
    alone: bool,
    tally: Tally,
}

impl Gate {
    pub fn of(options: &Options) -> Self {
        Self::new(options.max_in_flight, options.breaker_failures, options.breaker_pause)
    }

    fn new(max_in_flight: usize, failures: u32, pause: Duration) -> Self {
        let lease_slots = Semaphore::new(LEASE_CALLS_MAX);
        Self { max_in_flight, failures, pause, lease_slots, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the circuit breaker is open.
    pub fn is_open(&self) -> bool {
        self.state().is_open(clock::now())
    }

    /// Begins a call, unless the circuit breaker is open or too many calls are in flight. `is_up`
    /// returns true if a connection is up.
    pub fn enter(
        &self,
        lane: Lane,
        now: Instant,
        is_up: impl FnOnce() -> bool,
    ) -> Result<Pass<'_>, Error> {
        let mut state = self.state();
        let shut = state.is_open(now);
        if shut && !(lane == Lane::Lease && is_up()) {
            return Err(Error::unavailable(Reason::Circuit));
        }
        if lane == Lane::Call && state.in_flight >= self.max_in_flight {
            return Err(Error::unavailable(Reason::Overloaded));
        }
        let alone = state.in_flight == 0;
        if lane == Lane::Call {
            state.in_flight += 1;
        }
        let probe = state.shut_until.is_some() && !shut;
        // An earlier probe may still be in flight, if an older call closed the breaker in the
        // meantime.
        state.probing |= probe;
        let answers = state.answers;
        Ok(Pass { gate: self, lane, probe, began: now, answers, alone, tally: Tally::Nothing })
    }

    /// Waits for a slot for a renewal or a release. `None` if no slot is free in time.
    pub async fn lease_slot(&self, until: Instant) -> Option<SemaphorePermit<'_>> {
        let slot = tokio::time::timeout_at(until, self.lease_slots.acquire()).await;
        slot.ok()?.ok()
    }
}

impl Pass<'_> {
    /// Returns true if no other call was in flight when this one began.
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// Returns true if the node has answered another call since this one began.
    pub fn saw_answers(&self) -> bool {
        self.gate.state().answers != self.answers
    }

    /// Ends the call.
    pub fn end(mut self, tally: Tally) {
        self.tally = tally;
    }
}

impl State {
    fn is_open(&self, now: Instant) -> bool {
        self.shut_until.is_some_and(|until| self.probing || now < until)
    }

    fn fail(&mut self, probe: bool, gate: &Gate) {
        self.failed = self.failed.saturating_add(1);
        if probe || self.failed >= gate.failures {
            self.shut_until = Some(clock::now() + gate.pause);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.state();
        if self.lane == Lane::Call {
            state.in_flight -= 1;
        }
        if self.probe {
            state.probing = false;
        }
        match self.tally {
            Tally::Answered => {
                state.answers += 1;
                (state.failed, state.shut_until) = (0, None);
            }
            Tally::Failed => state.fail(self.probe, self.gate),
            Tally::Waited => {
                if state.waited_until.is_none_or(|until| self.began >= until) {
                    state.waited_until = Some(clock::now());
                    state.fail(self.probe, self.gate);
                }
            }
            Tally::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(10);

    fn enter(gate: &Gate) -> Result<Pass<'_>, Error> {
        gate.enter(Lane::Call, clock::now(), || true)
    }

    #[tokio::test(start_paused = true)]
    async fn breaker_sends_no_second_probe_when_an_older_call_ends_during_the_first() {
        let gate = Gate::new(9, 1, PAUSE);
        let older = enter(&gate).unwrap();
        enter(&gate).unwrap().end(Tally::Failed);
        tokio::time::advance(PAUSE).await;
        let probe = enter(&gate).unwrap();
        older.end(Tally::Answered);
        enter(&gate).unwrap().end(Tally::Failed);
        tokio::time::advance(PAUSE).await;
        assert!(enter(&gate).is_err());
        probe.end(Tally::Answered);
        assert!(enter(&gate).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_wait_in_vain_together_are_one_failure() {
        let gate = Gate::new(9, 2, PAUSE);
        let waiting: Vec<_> = (0..3).map(|_| enter(&gate).unwrap()).collect();
        tokio::time::advance(PAUSE).await;
        waiting.into_iter().for_each(|call| call.end(Tally::Waited));
        // The second call begins after the first failure, so it is a second one.
        let later = enter(&gate).unwrap();
        tokio::time::advance(PAUSE).await;
        later.end(Tally::Waited);
        assert!(enter(&gate).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn lease_call_passes_an_open_breaker_only_while_a_connection_is_up() {
        let gate = Gate::new(1, 1, PAUSE);
        let lease = |is_up| gate.enter(Lane::Lease, clock::now(), move || is_up);
        enter(&gate).unwrap().end(Tally::Failed);
        assert!(enter(&gate).is_err() && lease(false).is_err() && lease(true).is_ok());
        // Neither the pass above nor this one is the probe.
        tokio::time::advance(PAUSE).await;
        let probe = enter(&gate).unwrap();
        assert!(lease(false).is_err() && lease(true).is_ok());
        probe.end(Tally::Answered);
        assert!(lease(false).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn lease_call_waits_for_one_of_eight_slots() {
        let gate = Gate::new(1, 1, PAUSE);
        let _call = enter(&gate).unwrap();
        let mut slots = Vec::new();
        for _ in 0..LEASE_CALLS_MAX {
            slots.push(gate.lease_slot(clock::now() + PAUSE).await.unwrap());
        }
        let began = clock::now();
        assert!(gate.lease_slot(began + PAUSE).await.is_none());
        assert_eq!(clock::now(), began + PAUSE);
        slots.pop();
        assert!(gate.lease_slot(clock::now() + PAUSE).await.is_some());
    }
}
