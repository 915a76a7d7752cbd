//! The timer of a node: ends calls that wait too long, and finds that the node is silent.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Call, Calls, Effects, Lane, OVERDUE, Stage, TICKS_IN_SILENCE, TIMEOUTS_MAX, ends};
use crate::{Error, Reason};

impl Calls {
    /// Starts the timer if none runs, if it is later than a call's deadline, or if its runtime does
    /// not run any more.
    pub fn keep_time(&mut self, now: Instant, budget: Duration, effects: &mut Effects) {
        let tick = self.silence / TICKS_IN_SILENCE;
        let planned = budget.min(tick);
        let in_time = self
            .clock
            .fires_at()
            .is_some_and(|at| at <= now + planned && now.saturating_duration_since(at) <= OVERDUE);
        if !in_time {
            self.timer += 1;
            self.clock.plan(now, Some(planned));
            effects.timer = Some(self.timer);
        }
    }

    /// Returns the run time at an instant.
    pub fn run_time(&self, now: Instant) -> Duration {
        self.clock.read(now)
    }

    /// Returns true if calls wait without a timer, because its runtime has shut down.
    pub fn lacks_timer(&self) -> bool {
        self.clock.fires_at().is_none()
    }

    /// Returns the instant at which a timer fires. `None` if another one has replaced it, or no
    /// call waits.
    pub fn fires_at(&self, timer: u64) -> Option<Instant> {
        self.clock.fires_at().filter(|_| timer == self.timer)
    }

    /// Stops a timer whose runtime shuts down, and wakes the calls, which start another one.
    pub fn stop_timer(&mut self, timer: u64, now: Instant, effects: &mut Effects) {
        if timer == self.timer {
            self.clock.plan(now, None);
            effects.wakers.extend(self.calls.iter_mut().filter_map(|(_, call)| call.waker.take()));
        }
    }

    /// Returns true if the timer, which fires now, ends anything.
    pub fn is_due(&self, now: Instant) -> bool {
        let run = self.clock.read(now);
        let ends = |call: &Call| call.ended.is_none() && self.is_over(call, run, now);
        self.is_silent(run)
            || self.dial.as_ref().is_some_and(|dial| run >= dial.until)
            || self.calls.iter().any(|(_, call)| ends(call))
    }

    pub(super) fn is_silent(&self, run: Duration) -> bool {
        self.pending > 0 && run >= self.heard + self.silence
    }

    pub(super) fn is_over(&self, call: &Call, run: Duration, now: Instant) -> bool {
        let (until, cap) = self.deadline(call);
        until.is_some_and(|until| run >= until) || cap.is_some_and(|cap| now >= cap)
    }

    /// Returns the run time and the instant at which a call ends.
    pub(super) fn deadline(&self, call: &Call) -> (Option<Duration>, Option<Instant>) {
        let whole = call.began_run + call.budget;
        let until = match &call.stage {
            Stage::Sent { until: None, .. } => return (None, None),
            Stage::Sent { until: Some(until), .. } => *until,
            Stage::Turn => whole,
            Stage::Line(_) if self.is_up() => whole.min(call.began_run + call.patience),
            Stage::Line(_) if call.lane == Lane::Ready => whole,
            Stage::Line(_) if !self.has_dialled && call.is_callers => whole,
            // The first dial ends by itself.
            Stage::Line(_) if !self.has_dialled => return (None, None),
            Stage::Line(_) => whole.min(call.began_run.max(self.lost) + self.silence),
        };
        (Some(until), Some(self.cap(call)))
    }

    /// Returns the instant at which a call ends, even if the process hardly runs.
    fn cap(&self, call: &Call) -> Instant {
        let most = if call.is_callers { call.budget } else { call.budget.max(self.timeout) };
        call.began + most * TIMEOUTS_MAX
    }

    /// Ends what is over, and plans the timer again. Returns false if no call waits.
    pub fn fire(&mut self, now: Instant, effects: &mut Effects) -> bool {
        self.clock.plan(now, None);
        let run = self.clock.read(now);
        if let Some(dial) = &self.dial
            && run >= dial.until
        {
            let late = io::Error::from(io::ErrorKind::TimedOut).into();
            effects.overdue.clone_from(&dial.task);
            self.dialled(dial.number, Err(late), now, effects);
        }
        if self.is_silent(run) {
            self.fall_silent(run, now, effects);
        }
        let over: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| call.ended.is_none() && self.is_over(call, run, now))
            .map(|(id, _)| id)
            .collect();
        for id in over {
            self.end_late(id, now, effects);
        }
        self.free_ended(run, effects);
        if self.calls.is_empty() && self.dial.is_none() {
            return false;
        }
        let mut next = self.silence / TICKS_IN_SILENCE;
        let mut sooner = |until: Option<Duration>| {
            next = next.min(until.map_or(next, |until| until.saturating_sub(run)));
        };
        sooner(self.dial.as_ref().map(|dial| dial.until));
        sooner((self.pending > 0).then_some(self.heard + self.silence));
        for (_, call) in self.calls.iter().filter(|(_, call)| call.ended.is_none()) {
            sooner(self.deadline(call).0);
        }
        self.clock.plan(now, Some(next));
        true
    }

    /// Frees what calls that have ended keep: the probe, and their places. Their futures may be
    /// held without being polled. One that was sent keeps its place for another silence, in which
    /// its caller leaves it draining.
    fn free_ended(&mut self, run: Duration, effects: &mut Effects) {
        let current = self.link.clone();
        for (_, call) in self.calls.iter_mut().filter(|(_, call)| call.ended.is_some()) {
            if std::mem::take(&mut call.is_probe) {
                self.breaker.end_probe();
            }
            match &call.stage {
                Stage::Sent { until: None, .. } => continue,
                Stage::Sent { until: Some(until), .. } if run < *until + self.silence => continue,
                Stage::Sent { link, .. } => {
                    let is_current = current.as_ref().is_some_and(|it| Arc::ptr_eq(it, link));
                    self.pending -= usize::from(is_current && call.lane != Lane::Ready);
                }
                Stage::Line(at) => {
                    self.line.remove(at);
                    self.waiting -= usize::from(call.lane == Lane::Call && !call.has_place);
                }
                Stage::Turn => {}
            }
            call.stage = Stage::Turn;
            self.placed -= usize::from(std::mem::take(&mut call.has_place));
        }
        self.grant(effects);
    }

    /// Ends the calls to a node that does not reply, and its generation: one failure. That of a
    /// probe stays, because a later reply closes the breaker.
    pub(super) fn fall_silent(&mut self, run: Duration, now: Instant, effects: &mut Effects) {
        let Some(link) = self.link.clone() else { return };
        let timeout = || Error::unavailable(Reason::Timeout);
        let probes = self.calls.iter().any(|(_, call)| call.is_probe && call.is_on(&link));
        if probes || self.hung.is_some() {
            for (_, call) in &mut self.calls {
                let drains = matches!(call.stage, Stage::Sent { until: None, .. });
                if call.is_on(&link) && call.lane != Lane::Ready && !drains {
                    call.is_probe = false;
                    ends(call, timeout(), effects);
                }
            }
            self.hung = Some(link);
            self.heard = run;
            self.breaker.fail_probe(self.dial_due());
            return;
        }
        for id in self.line.values() {
            let call = &mut self.calls[*id];
            if run.saturating_sub(call.began_run) >= self.silence {
                ends(call, timeout(), effects);
            }
        }
        self.generation += 1;
        self.drop_link(Reason::Timeout, effects);
        self.breaker.fail(now);
        self.dial_for_line(now, effects);
    }

    /// Ends a call that has waited too long, while the node is not silent.
    pub(super) fn end_late(&mut self, id: usize, now: Instant, effects: &mut Effects) {
        let (is_up, until, run) = (self.is_up(), now + self.pause, self.clock.read(now));
        let cap = self.cap(&self.calls[id]);
        let call = &mut self.calls[id];
        call.is_cut = call.is_callers && (run >= call.began_run + call.budget || now >= cap);
        if call.is_cut {
            // The time of the caller says nothing about the node.
            return ends(call, Error::unavailable(Reason::Timeout), effects);
        }
        let reason = match &call.stage {
            Stage::Line(_) if !is_up => Reason::Connection,
            Stage::Line(_) => {
                self.short_in_line = Some(until);
                Reason::Overloaded
            }
            Stage::Sent { link, .. } if call.is_probe => {
                self.hung = Some(link.clone());
                Reason::Timeout
            }
            Stage::Sent { .. } if call.lane == Lane::Ready => Reason::Timeout,
            Stage::Sent { .. } => {
                if call.lane == Lane::Call {
                    self.short_sent = Some(until);
                }
                Reason::Overloaded
            }
            Stage::Turn => Reason::Overloaded,
        };
        if reason == Reason::Timeout && std::mem::take(&mut call.is_probe) {
            self.breaker.fail_probe(self.refused.as_ref().map(|(due, _)| *due));
        }
        ends(&mut self.calls[id], Error::unavailable(reason), effects);
    }
}
