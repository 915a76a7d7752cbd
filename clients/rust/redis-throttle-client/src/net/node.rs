//! A node: one server, or one primary of a cluster, with its connection, its line and its circuit
//! breaker.
//!
//! A command whose caller has gone drains: a task of its own reads the reply.

mod flight;
mod tasks;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use crate::calls::denials::Late;
use crate::net::breaker::Tally;
use crate::net::budget::Time;
use crate::net::connection::{Command, Dial};
use crate::net::line::{Calls, Effects, Lane};
use crate::net::link::Link;
use crate::rules::clock;
use crate::{Error, Options, Reason};
use flight::Flight;
use tasks::{DialTask, Timer};

/// The number of renewals to a node at a time, and that of ends, in addition to `max_in_flight`.
const RENEWALS_MAX: usize = 8;
const ENDS_MAX: usize = 32;
/// The time after which a call in line looks whether the timer still runs.
const TIMER_CHECK: Duration = Duration::from_secs(1);

/// A command that got no reply, or an error reply.
#[derive(Debug)]
pub(crate) struct Fault {
    pub error: Error,
    pub tally: Tally,
}

impl Fault {
    /// Creates the fault of a call for which the node is not to blame, or whose failure is counted
    /// elsewhere.
    pub fn uncounted(error: Error) -> Self {
        Self { error, tally: Tally::Nothing }
    }

    /// Creates the fault of a call that lost its runtime.
    pub fn lost() -> Self {
        Self::uncounted(Error::unavailable(Reason::Connection))
    }
}

/// An error reply.
impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        let redirects = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask)
        );
        let error = Error::from(error);
        let answered = redirects || !matches!(error, Error::Unavailable { .. });
        Self { error, tally: if answered { Tally::Answered } else { Tally::Failed } }
    }
}

/// The slots of a call that is not one of `max_in_flight`. Neither kind waits for the other.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slots {
    Renewals,
    Ends,
}

/// One server, or one primary of a cluster.
pub(crate) struct Node {
    dialler: Box<dyn Dial>,
    timeout: Duration,
    calls: Mutex<Calls>,
    renewal_slots: Semaphore,
    end_slots: Semaphore,
    /// Wakes [`Limiter::close`](crate::Limiter::close) when a call ends.
    left: Notify,
    /// The number of the last search for a back end. The lock is held during a search.
    pub searched: tokio::sync::Mutex<u64>,
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Node").field("calls", &self.calls).finish_non_exhaustive()
    }
}

impl Node {
    pub fn new(dialler: Box<dyn Dial>, options: &Options) -> Arc<Self> {
        Arc::new(Self {
            dialler,
            timeout: options.deadlines().0,
            calls: Mutex::new(Calls::new(options)),
            renewal_slots: Semaphore::new(RENEWALS_MAX),
            end_slots: Semaphore::new(ENDS_MAX),
            left: Notify::new(),
            searched: tokio::sync::Mutex::default(),
        })
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the calls, and does without the lock what follows.
    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Calls, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let changed = change(&mut self.calls(), &mut effects);
        self.follow(effects);
        changed
    }

    fn follow(self: &Arc<Self>, effects: Effects) {
        effects.wakers.into_iter().for_each(std::task::Waker::wake);
        if effects.is_last {
            self.left.notify_waiters();
        }
        if let Some(task) = effects.overdue {
            task.abort();
        }
        if effects.dial.is_none() && effects.timer.is_none() {
            return;
        }
        let runtime = Handle::try_current().ok();
        if let Some(number) = effects.dial {
            let dial = DialTask { node: self.clone(), number, ended: false };
            match &runtime {
                Some(runtime) => {
                    let task = runtime.spawn(dial.run()).abort_handle();
                    self.calls().dials_in(number, task);
                }
                // The drop of the dial ends it.
                None => drop(dial),
            }
        }
        if let Some(number) = effects.timer {
            let timer = Timer { node: self.clone(), number };
            match &runtime {
                Some(runtime) => drop(runtime.spawn(timer.run())),
                None => drop(timer),
            }
        }
    }

    /// Returns true if a connection is up.
    #[cfg(feature = "cluster")]
    pub fn is_up(&self) -> bool {
        self.calls().is_up()
    }

    /// Returns true if the circuit breaker is open.
    pub fn is_open(&self) -> bool {
        self.calls().breaker.is_open(clock::now())
    }

    /// Waits for a slot for a renewal or an end. `None` if no slot is free in time.
    pub async fn slot(&self, slots: Slots, until: Instant) -> Option<SemaphorePermit<'_>> {
        let slots = match slots {
            Slots::Renewals => &self.renewal_slots,
            Slots::Ends => &self.end_slots,
        };
        timeout_at(until, slots.acquire()).await.ok()?.ok()
    }

    /// Begins a call, unless the circuit breaker is open or too many calls wait. `sends`: its
    /// command is sent next.
    pub fn enter(self: &Arc<Self>, lane: Lane, time: Time, sends: bool) -> Result<Pass, Error> {
        let now = time.began;
        let entered = self.change(|calls, effects| calls.enter(lane, time, sends, effects))?;
        let pass = Pass {
            node: self.clone(),
            id: entered.id,
            waits: entered.waits,
            is_crowded: entered.is_crowded,
            is_sent: AtomicBool::new(entered.sent.is_some()),
            link: entered.sent,
            is_answered: AtomicBool::new(false),
            drained: OnceLock::new(),
            ended: false,
        };
        if let Some(idle) = entered.idle.filter(|link| link.wire.is_closed()) {
            self.change(|calls, effects| calls.lose(&idle, true, now, effects));
        }
        Ok(pass)
    }

    /// Sends a command that is part of a call, or of none, and waits at most `budget` for the
    /// reply.
    pub async fn command(
        self: &Arc<Self>,
        command: &Command<'_>,
        asking: bool,
        budget: Option<Duration>,
    ) -> Result<Value, Fault> {
        let budget = budget.unwrap_or(self.timeout);
        let time = Time { began: clock::now(), budget, is_callers: false };
        let pass = self.enter(Lane::Part, time, true).map_err(Fault::uncounted)?;
        if pass.waits() {
            pass.turn().await.map_err(Fault::uncounted)?;
        }
        pass.send(command, asking, None).await
    }

    /// Ends the calls in line, and begins no further call.
    pub fn close(self: &Arc<Self>) {
        self.change(Calls::close);
    }

    /// Waits until no call waits for a reply.
    pub async fn quiet(&self) {
        loop {
            let left = self.left.notified();
            if self.calls().is_quiet() {
                return;
            }
            left.await;
        }
    }
}

/// A call that has begun. Dropping it ends the call.
#[derive(Debug)]
pub(crate) struct Pass {
    node: Arc<Node>,
    id: usize,
    waits: bool,
    is_crowded: bool,
    /// The connection for which the call was counted as sent when it began, and whether its command
    /// is not sent yet.
    link: Option<Arc<Link>>,
    is_sent: AtomicBool,
    /// Whether the last command was answered, which is counted with the next step of the call.
    is_answered: AtomicBool,
    /// The run time that the call took, if its command drains: then it is not this call's any more.
    drained: OnceLock<Duration>,
    ended: bool,
}

impl Pass {
    /// Returns the run time that the call has taken so far.
    pub fn took(&self) -> Duration {
        self.node.calls().took(self.id, clock::now())
    }

    /// Returns true if the call began in line.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Returns true if the call began in line because there was no place.
    pub fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Waits for the turn of the call. Returns true if it had to wait for a place.
    pub async fn turn(&self) -> Result<bool, Error> {
        let mut turn = poll_fn(|context| {
            let turn = self.node.change(|calls, effects| {
                let turn = calls.has_turn(self.id, context.waker());
                self.keep_time(calls, effects);
                turn
            });
            match turn {
                Ok(None) => Poll::Pending,
                Ok(Some(is_crowded)) => Poll::Ready(Ok(is_crowded)),
                Err(error) => Poll::Ready(Err(error)),
            }
        });
        loop {
            if let Ok(turn) = timeout(TIMER_CHECK, &mut turn).await {
                return turn;
            }
            // The runtime of the timer may not run any more.
            let now = clock::now();
            self.node.change(|calls, effects| calls.keep_time(now, TIMER_CHECK, effects));
        }
    }

    fn keep_time(&self, calls: &mut Calls, effects: &mut Effects) {
        if calls.lacks_timer() {
            calls.keep_time(clock::now(), TIMER_CHECK, effects);
        }
    }

    /// Returns the end of the call, or has it wake the context.
    fn poll_end(&self, context: &mut Context<'_>) -> Poll<Error> {
        let ended = self.node.change(|calls, effects| {
            self.keep_time(calls, effects);
            calls.ended(self.id, context.waker())
        });
        ended.map_or(Poll::Pending, Poll::Ready)
    }

    /// Waits for a future, at most until the end of the call.
    pub async fn until_ended<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        self.hear();
        let mut future = pin!(future);
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => self.poll_end(context).map(Err),
        })
        .await
    }

    /// Sends a command once, and waits for the reply until the end of the call. `asking` sends
    /// `ASKING` before it. `late` gets a reply whose caller has gone.
    pub async fn send(
        &self,
        command: &Command<'_>,
        asking: bool,
        late: Option<&Late<'_>>,
    ) -> Result<Value, Fault> {
        let link = match &self.link {
            Some(link) if self.is_sent.swap(false, Ordering::Relaxed) => link.clone(),
            _ => self.next_link().await.map_err(Fault::uncounted)?,
        };
        command.set_sent(true);
        let reply = Some(link.wire.start(command, asking));
        let mut flight = Flight { pass: self, link, reply, sent: command.sent(), late };
        match flight.answer().await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                if !is_loss(&error) {
                    command.set_sent(false);
                }
                Err(self.node.refused(&flight.link, error))
            }
            Err(ended) => Err(Fault::uncounted(ended)),
        }
    }

    /// Counts the command as sent, and returns its connection. Without one, waits for a dial.
    async fn next_link(&self) -> Result<Arc<Link>, Error> {
        self.hear();
        loop {
            let now = clock::now();
            let sent = self.node.change(|calls, effects| {
                let run = calls.run_time(now);
                calls.send(self.id, (now, run), effects)
            });
            match sent? {
                Some(link) => return Ok(link),
                None => self.turn().await.map(drop)?,
            }
        }
    }

    /// Counts the answer to the last command.
    fn hear(&self) {
        if self.is_answered.swap(false, Ordering::Relaxed) {
            let (now, mut calls) = (clock::now(), self.node.calls());
            let run = calls.run_time(now);
            calls.hear(self.id, (now, run));
        }
    }

    /// Ends the call. Returns the run time that it took.
    pub fn end(mut self, tally: Tally) -> Duration {
        self.leave(tally)
    }

    fn leave(&mut self, tally: Tally) -> Duration {
        if std::mem::replace(&mut self.ended, true) {
            return Duration::ZERO;
        }
        let (id, now) = (self.id, clock::now());
        let tally = (tally, *self.is_answered.get_mut());
        let leave = || self.node.change(|calls, effects| calls.leave(id, tally, now, effects));
        self.drained.get().copied().unwrap_or_else(leave)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.leave(Tally::Nothing);
    }
}

fn is_loss(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse)
}

impl Node {
    /// Reacts to an error: a lost connection, or an error reply.
    fn refused(self: &Arc<Self>, link: &Arc<Link>, error: RedisError) -> Fault {
        let now = clock::now();
        if is_loss(&error) {
            self.change(|calls, effects| calls.lose(link, false, now, effects));
            return Fault::uncounted(Error::from(error));
        }
        let is_replica = matches!(
            error.kind(),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        );
        let is_locked_out = matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
        let first = (is_replica || is_locked_out)
            && self.change(|calls, effects| calls.retire_and_dial(link, now, effects));
        let fault = Fault::from(error);
        // The replies of a replica are one failure.
        if is_replica && !first { Fault::uncounted(fault.error) } else { fault }
    }
}
