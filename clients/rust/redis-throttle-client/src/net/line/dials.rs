//! The connection of a node: dials, losses and retirements.

use std::sync::Arc;

use redis::RedisError;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::{Calls, DialUnderWay, Effects, Lane, ends};
use crate::net::connection::{Connection, Link};
use crate::net::dial::{DIAL_PAUSE_MAX, jittered, undialled};
use crate::rules::clock;
use crate::{Error, Reason};

impl Calls {
    pub(super) fn dial_due(&self) -> Option<Instant> {
        self.refused.as_ref().map(|(due, _)| *due)
    }

    /// Starts a dial, unless one is under way.
    ///
    /// # Errors
    /// The last failure, during the pause after it.
    pub(super) fn start_dial(
        &mut self,
        now: Instant,
        effects: &mut Effects,
    ) -> Result<(), RedisError> {
        if self.dial.is_some() {
            return Ok(());
        }
        if let Some((due, error)) = &self.refused
            && now < *due
        {
            return Err(error.clone());
        }
        self.dials += 1;
        let until = self.clock.read(now) + self.dial_max;
        let (number, generation) = (self.dials, self.generation);
        self.dial = Some(DialUnderWay { number, generation, until, task: None });
        effects.dial = Some(number);
        Ok(())
    }

    /// Starts a dial for the calls in line. During the pause after a failed one they end.
    pub(super) fn dial_for_line(&mut self, now: Instant, effects: &mut Effects) {
        if self.line.is_empty() {
            return;
        }
        if let Err(error) = self.start_dial(now, effects) {
            let error = undialled(error);
            for id in self.line.values() {
                ends(&mut self.calls[*id], error.clone(), effects);
            }
        }
    }

    /// Records the task of a dial.
    pub fn dials_in(&mut self, number: u64, task: AbortHandle) {
        if let Some(dial) = self.dial.as_mut().filter(|dial| dial.number == number) {
            dial.task = Some(task);
        }
    }

    /// Ends a dial. Its connection has no use if another dial began, or its generation retired.
    pub fn dialled(
        &mut self,
        number: u64,
        outcome: Result<Box<dyn Connection>, RedisError>,
        now: Instant,
        effects: &mut Effects,
    ) {
        let Some(dial) = self.dial.take_if(|dial| dial.number == number) else { return };
        let run = self.clock.read(now);
        let is_first = !std::mem::replace(&mut self.has_dialled, true);
        match outcome {
            Ok(_) if dial.generation != self.generation => self.dial_for_line(now, effects),
            Ok(connection) => {
                (self.refused, self.pending, self.used) = (None, 0, now);
                self.link = Some(Arc::new(Link::new(connection, dial.generation)));
                for id in self.line.values().copied().collect::<Vec<_>>() {
                    let call = &mut self.calls[id];
                    if is_first && call.lane != Lane::Ready && !call.is_callers {
                        (call.began, call.began_run) = (now, run);
                    }
                    if call.has_place || call.lane != Lane::Call {
                        effects.wakers.extend(call.waker.take());
                        self.place(id);
                    }
                }
                self.grant(effects);
                for id in self.line.values() {
                    self.calls[*id].is_crowded = true;
                }
            }
            Err(error) => {
                let pause = jittered(self.pause.min(DIAL_PAUSE_MAX), self.jitter);
                self.refused = Some((now + pause, error.clone()));
                let error = undialled(error);
                let mut probes = false;
                for id in self.line.values() {
                    let call = &mut self.calls[*id];
                    probes |= std::mem::take(&mut call.is_probe);
                    ends(call, error.clone(), effects);
                }
                match (&error, probes) {
                    (Error::Unavailable { .. }, true) => self.breaker.fail_probe(self.dial_due()),
                    (Error::Unavailable { .. }, false) => self.breaker.fail(now),
                    _ => self.breaker.succeed(),
                }
                self.end_probe_of(probes);
            }
        }
    }

    /// Removes a connection that was lost. That is a failure if it has delivered no reply yet,
    /// unless it was lost while idle.
    pub fn lose(&mut self, link: &Arc<Link>, was_idle: bool, now: Instant, effects: &mut Effects) {
        if link.end() && !was_idle && !link.has_replied() {
            let mut on_it = self.calls.iter_mut().filter(|(_, call)| call.is_on(link));
            let probes = on_it.any(|(_, call)| std::mem::take(&mut call.is_probe));
            match probes {
                true => self.breaker.fail_probe(self.dial_due()),
                false => self.breaker.fail(now),
            }
        }
        if self.is_current(link) {
            self.drop_link(Reason::Connection, effects);
            self.dial_for_line(now, effects);
        }
    }

    /// Retires the generation of a connection: the calls on it end, and a dial that began before
    /// this instant has no use. Returns true the first time.
    pub fn retire(&mut self, link: &Arc<Link>, effects: &mut Effects) -> bool {
        if self.generation > link.generation {
            return false;
        }
        self.generation = link.generation + 1;
        link.end();
        self.drop_link(Reason::Connection, effects);
        true
    }

    /// Retires as [`retire`](Calls::retire) does, and starts a dial for the calls in line.
    pub fn retire_and_dial(
        &mut self,
        link: &Arc<Link>,
        now: Instant,
        effects: &mut Effects,
    ) -> bool {
        let first = self.retire(link, effects);
        if first && !self.is_up() {
            self.dial_for_line(now, effects);
        }
        first
    }

    /// Drops the connection, and ends the calls on it.
    pub(super) fn drop_link(&mut self, reason: Reason, effects: &mut Effects) {
        let Some(link) = self.link.take() else { return };
        link.end();
        for (_, call) in &mut self.calls {
            if call.is_on(&link) {
                ends(call, Error::unavailable(reason), effects);
            }
        }
        (self.pending, self.hung) = (0, None);
        self.lost = self.clock.read(clock::now());
        effects.ended.push(link);
    }
}
