//! The calls to a node: in line, in flight and draining, with the deadlines of each, the node's
//! connection and its circuit breaker. It does no I/O.
//!
//! One timer per node ends calls and finds that the node is silent. It runs while a call waits, so
//! that a call whose reply comes at once needs none of its own.

mod commands;
mod dials;
mod timer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use redis::RedisError;
use slab::Slab;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::net::breaker::{Breaker, Tally};
use crate::net::{budget::Time, clock::RunClock, connection::Link, dial::undialled};
use crate::rules::clock;
use crate::{Error, Options, Reason};

/// The shortest time that a dial may take.
const DIAL_MIN: Duration = Duration::from_secs(1);
/// The time that `ready` has at least, its dial included.
pub(crate) const READY_MIN: Duration = Duration::from_secs(5);
/// The time without a call after which the limiter checks whether a connection is closed.
const IDLE: Duration = Duration::from_millis(1);
/// The time after which a timer that has not fired belongs to a runtime that no longer runs.
const OVERDUE: Duration = Duration::from_millis(500);
/// The parts of `silence` in which the timer fires.
const TICKS_IN_SILENCE: u32 = 4;
/// The wall clock ends a call after this number of timeouts, even if the process hardly runs.
const TIMEOUTS_MAX: u32 = 3;

/// The kind of a call, which decides the bounds that apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Any call but those below.
    Call,
    /// A status call that waits longer than others. It has a place of its own, and a node that does
    /// not reply to it is not silent.
    Ready,
    /// A renewal or an end. It has a slot of its own, and passes an open circuit breaker while a
    /// connection is up.
    Hold,
    /// A command that is part of a call, or of none: it has its place.
    Part,
}

/// The stage of a call.
#[derive(Debug)]
enum Stage {
    /// In line for a place or a connection, at this position.
    Line(u64),
    /// Neither in line nor sent: its turn has come, or it waits for a search.
    Turn,
    /// Sent on the connection, until this run time. `None`: its caller has gone, and it drains.
    Sent { link: Arc<Link>, until: Option<Duration> },
}

#[derive(Debug)]
struct Call {
    lane: Lane,
    stage: Stage,
    began: Instant,
    /// The run time at which the call began, and the time that it has.
    began_run: Duration,
    budget: Duration,
    /// Whether the caller set the budget.
    is_callers: bool,
    /// Whether the call ended because the budget was used up.
    is_cut: bool,
    /// The time for which it stands in line.
    patience: Duration,
    has_place: bool,
    /// Whether it found no place, although a connection was up.
    is_crowded: bool,
    is_probe: bool,
    waker: Option<Waker>,
    ended: Option<Error>,
}

/// A dial under way.
#[derive(Debug)]
struct DialUnderWay {
    number: u64,
    generation: u64,
    until: Duration,
    task: Option<AbortHandle>,
}

/// What follows a change, done without the lock on the calls.
#[derive(Default)]
pub(crate) struct Effects {
    pub wakers: Vec<Waker>,
    /// Connections that have ended. The last reference to one runs code of the driver.
    ended: Vec<Arc<Link>>,
    /// Tasks of dials that took too long.
    pub overdue: Option<AbortHandle>,
    /// The number of the dial to start.
    pub dial: Option<u64>,
    /// The number of the timer to start.
    pub timer: Option<u64>,
    /// Whether a call has ended, or drains, for which the end of the limiter waits.
    pub is_last: bool,
}

/// A call's right to go on.
#[derive(Debug)]
pub(crate) struct Entered {
    pub id: usize,
    /// Whether it stands in line, and whether that is for a place.
    pub waits: bool,
    pub is_crowded: bool,
    /// The connection, if no other call has used it for a while: it may be closed.
    pub idle: Option<Arc<Link>>,
    /// The connection on which the call is sent at once.
    pub sent: Option<Arc<Link>>,
}

#[derive(Debug)]
pub(crate) struct Calls {
    timeout: Duration,
    silence: Duration,
    dial_max: Duration,
    pause: Duration,
    jitter: f64,
    places: usize,
    waiting_max: usize,
    clock: RunClock,
    timer: u64,
    pub breaker: Breaker,
    /// The number of retirements.
    generation: u64,
    link: Option<Arc<Link>>,
    /// The run time at which the last connection was lost.
    lost: Duration,
    dial: Option<DialUnderWay>,
    dials: u64,
    /// Whether the first dial has ended.
    has_dialled: bool,
    /// The end of the pause after a failed dial, and the failure.
    refused: Option<(Instant, RedisError)>,
    calls: Slab<Call>,
    line: BTreeMap<u64, usize>,
    arrivals: u64,
    /// The calls that have a place, and those that wait for one.
    placed: usize,
    waiting: usize,
    /// The commands on the connection without a reply.
    pending: usize,
    /// The run time of the last reply, or of the first command since all had a reply.
    heard: Duration,
    /// The connection of a probe that got no reply in time. The next probe opens another one.
    hung: Option<Arc<Link>>,
    /// The instants until which calls have short patience: in line, and for their reply.
    short_in_line: Option<Instant>,
    short_sent: Option<Instant>,
    used: Instant,
    closed: bool,
}

fn ends(call: &mut Call, error: Error, effects: &mut Effects) {
    call.ended.get_or_insert(error);
    effects.wakers.extend(call.waker.take());
}

impl Call {
    fn is_on(&self, other: &Arc<Link>) -> bool {
        matches!(&self.stage, Stage::Sent { link, .. } if Arc::ptr_eq(link, other))
    }

    /// Returns the run time that the call has taken: all of it, if its caller's time is over.
    fn took(&self, run: Duration) -> Duration {
        let took = run.saturating_sub(self.began_run);
        if self.is_cut { took.max(self.budget) } else { took }
    }
}

impl Calls {
    pub fn new(options: &Options) -> Self {
        let now = clock::now();
        let (timeout, silence) = options.deadlines();
        Self {
            timeout,
            silence,
            dial_max: timeout.max(DIAL_MIN),
            pause: options.breaker_pause,
            jitter: options.jitter,
            places: options.max_in_flight,
            waiting_max: options.max_waiting,
            clock: RunClock::new(now),
            timer: 0,
            breaker: Breaker::new(options),
            generation: 0,
            link: None,
            lost: Duration::ZERO,
            dial: None,
            dials: 0,
            has_dialled: false,
            refused: None,
            calls: Slab::new(),
            line: BTreeMap::new(),
            arrivals: 0,
            placed: 0,
            waiting: 0,
            pending: 0,
            heard: Duration::ZERO,
            hung: None,
            short_in_line: None,
            short_sent: None,
            used: now,
            closed: false,
        }
    }

    /// Returns true if a connection is up.
    pub fn is_up(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_up())
    }

    fn is_current(&self, link: &Arc<Link>) -> bool {
        self.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link))
    }

    /// Begins a call: it has its turn, or stands in line. Its command is sent at once if `sends` is
    /// true and the connection is not idle.
    pub fn enter(
        &mut self,
        lane: Lane,
        Time { began: now, budget, is_callers }: Time,
        sends: bool,
        effects: &mut Effects,
    ) -> Result<Entered, Error> {
        if self.closed && matches!(lane, Lane::Call | Lane::Ready) {
            return Err(Error::Closed);
        }
        if budget.is_zero() {
            let reason = if is_callers { Reason::Timeout } else { Reason::Overloaded };
            return Err(Error::unavailable(reason));
        }
        let passes = lane == Lane::Part || (lane == Lane::Hold && self.is_up());
        if !passes && self.breaker.is_open(now) {
            return Err(Error::unavailable(Reason::Circuit));
        }
        self.keep_time(now, budget, effects);
        let run = self.clock.read(now);
        let is_full = self.placed + self.waiting >= self.places + self.waiting_max;
        let has_turn = lane != Lane::Call || (self.placed < self.places && self.line.is_empty());
        let is_probe = lane != Lane::Part && self.breaker.enter(now);
        if is_probe && let Some(hung) = self.hung.take() {
            self.retire(&hung, effects);
        }
        if !self.is_up()
            && let Err(error) = self.start_dial(now, effects)
        {
            self.end_probe_of(is_probe);
            return Err(undialled(error));
        }
        if lane == Lane::Call && is_full {
            self.end_probe_of(is_probe);
            return Err(Error::unavailable(Reason::Overloaded));
        }
        if lane == Lane::Ready
            && let Some(dial) = &mut self.dial
        {
            dial.until = dial.until.max(run + budget);
        }
        let is_idle = self.calls.is_empty() && now - self.used >= IDLE;
        let idle = self.link.as_ref().filter(|_| is_idle).cloned();
        let waits = !self.is_up() || !has_turn;
        // A call that lacks only a connection is not under pressure.
        let lacks_place = self.is_up() || self.placed + self.waiting >= self.places;
        let is_crowded = !has_turn && lacks_place;
        let id = self.calls.insert(Call {
            lane,
            stage: Stage::Turn,
            began: now,
            began_run: run,
            budget,
            is_callers,
            is_cut: false,
            patience: self.patience(lane, now, budget),
            has_place: false,
            is_crowded,
            is_probe,
            waker: None,
            ended: None,
        });
        if waits {
            self.stand(id)
        } else {
            self.place(id)
        }
        let at_once = sends && !waits && idle.is_none();
        let sent = if at_once { self.send(id, (now, run), effects)? } else { None };
        Ok(Entered { id, waits, is_crowded, idle, sent })
    }

    fn end_probe_of(&mut self, is_probe: bool) {
        if is_probe {
            self.breaker.end_probe();
        }
    }

    fn patience(&self, lane: Lane, now: Instant, budget: Duration) -> Duration {
        let half = self.timeout / 2;
        match lane {
            Lane::Call if self.short_in_line.is_some_and(|until| now < until) => {
                half.min(self.silence)
            }
            Lane::Call => half,
            _ => budget,
        }
    }

    /// Puts a call at the end of the line.
    fn stand(&mut self, id: usize) {
        self.arrivals += 1;
        self.line.insert(self.arrivals, id);
        let call = &mut self.calls[id];
        call.stage = Stage::Line(self.arrivals);
        self.waiting += usize::from(call.lane == Lane::Call && !call.has_place);
    }

    /// Gives a call its turn.
    fn place(&mut self, id: usize) {
        let call = &mut self.calls[id];
        let takes = call.lane == Lane::Call && !call.has_place;
        if let Stage::Line(at) = call.stage {
            self.line.remove(&at);
            self.waiting -= usize::from(takes);
        }
        call.stage = Stage::Turn;
        call.has_place |= takes;
        self.placed += usize::from(takes);
    }

    /// Gives free places to the calls that are first in line, while a connection is up.
    fn grant(&mut self, effects: &mut Effects) {
        while self.placed < self.places
            && self.is_up()
            && let Some((_, id)) = self.line.first_key_value()
        {
            let id = *id;
            self.place(id);
            effects.wakers.extend(self.calls[id].waker.take());
        }
    }

    /// Returns whether the call had to wait for a place, when it has its turn.
    ///
    /// # Errors
    /// The end of the call.
    pub fn has_turn(&mut self, id: usize, waker: &Waker) -> Result<Option<bool>, Error> {
        let call = &mut self.calls[id];
        if let Some(error) = &call.ended {
            return Err(error.clone());
        }
        if matches!(call.stage, Stage::Turn) {
            return Ok(Some(call.is_crowded));
        }
        call.waker = Some(waker.clone());
        Ok(None)
    }

    /// Returns the end of a call that waits for anything but its turn.
    pub fn ended(&mut self, id: usize, waker: &Waker) -> Option<Error> {
        let call = &mut self.calls[id];
        if call.ended.is_none() && !call.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            call.waker = Some(waker.clone());
        }
        call.ended.clone()
    }

    /// Returns the run time that a call has taken so far.
    pub fn took(&self, id: usize, now: Instant) -> Duration {
        self.calls[id].took(self.clock.read(now))
    }

    /// Ends a call, whose last command may have had its reply just now. Returns the run time that
    /// it took.
    pub fn leave(
        &mut self,
        id: usize,
        (tally, has_reply): (Tally, bool),
        now: Instant,
        effects: &mut Effects,
    ) -> Duration {
        let run = self.clock.read(now);
        if has_reply {
            self.hear(id, (now, run));
        }
        effects.is_last = self.closed;
        let call = self.calls.remove(id);
        self.placed -= usize::from(call.has_place);
        match &call.stage {
            Stage::Line(at) => {
                self.line.remove(at);
                self.waiting -= usize::from(call.lane == Lane::Call && !call.has_place);
            }
            Stage::Sent { link, .. } if self.is_current(link) => {
                self.pending -= usize::from(call.lane != Lane::Ready);
            }
            _ => {}
        }
        match tally {
            Tally::Replied => self.breaker.succeed(),
            Tally::Failed if call.is_probe => self.breaker.fail_probe(self.dial_due()),
            Tally::Failed => self.breaker.fail(now),
            Tally::Nothing => {}
        }
        if call.is_probe {
            self.breaker.end_probe();
        }
        if !self.line.is_empty() {
            self.grant(effects);
        }
        call.took(run)
    }

    /// Ends the calls in line for good. Those that were sent go on.
    pub fn close(&mut self, effects: &mut Effects) {
        self.closed = true;
        for id in self.line.values() {
            let call = &mut self.calls[*id];
            if matches!(call.lane, Lane::Call | Lane::Ready) {
                ends(call, Error::Closed, effects);
            }
        }
    }

    /// Returns true if no call waits for a reply. Those whose callers have gone do not count.
    pub fn is_quiet(&self) -> bool {
        self.calls.iter().all(|(_, call)| matches!(call.stage, Stage::Sent { until: None, .. }))
    }
}
