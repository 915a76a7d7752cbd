//! A call at a node: its turn, and one command, sent once.
//!
//! A command whose caller has gone drains: a task of its own reads the reply.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{RedisError, Value};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::Error;
use crate::net::connection::{Link, OwnedReply};
use crate::net::line::{Calls, Effects, Lane};
use crate::net::node::{Fault, Node, is_loss};
use crate::net::{breaker::Tally, budget::Time};
use crate::rules::clock;
use crate::wire::command::{Command, Sent};

/// The time after which a call in line looks whether the timer still runs.
const TIMER_CHECK: Duration = Duration::from_secs(1);

/// Reads a reply whose caller has gone.
pub(crate) type OnLate = Box<dyn FnOnce(&Value) + Send>;
/// Makes what reads the reply to a command if its caller goes.
pub(crate) type Late<'a> = dyn Fn() -> OnLate + Send + Sync + 'a;

impl Node {
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
            has_reply: AtomicBool::new(false),
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
    /// Whether the last command has a reply, which is counted with the next step of the call.
    has_reply: AtomicBool,
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
        match flight.wait().await {
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

    /// Counts the reply to the last command.
    fn hear(&self) {
        if self.has_reply.swap(false, Ordering::Relaxed) {
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
        let tally = (tally, *self.has_reply.get_mut());
        let leave = || self.node.change(|calls, effects| calls.leave(id, tally, now, effects));
        self.drained.get().copied().unwrap_or_else(leave)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.leave(Tally::Nothing);
    }
}

/// A command that was sent. If its caller goes, it drains.
struct Flight<'a> {
    pass: &'a Pass,
    link: Arc<Link>,
    reply: Option<OwnedReply>,
    sent: Option<&'a Sent>,
    late: Option<&'a Late<'a>>,
}

impl Flight<'_> {
    /// Waits for the reply.
    ///
    /// # Errors
    /// The end of the call.
    async fn wait(&mut self) -> Result<Result<Value, RedisError>, Error> {
        poll_fn(|context| {
            let Some(reply) = &mut self.reply else { return Poll::Pending };
            match reply.as_mut().poll(context) {
                Poll::Ready(result) => {
                    self.reply = None;
                    let has_reply = !result.as_ref().is_err_and(is_loss);
                    self.pass.has_reply.store(has_reply, Ordering::Relaxed);
                    Poll::Ready(Ok(result))
                }
                Poll::Pending => self.pass.poll_end(context).map(Err),
            }
        })
        .await
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let Some(reply) = self.reply.take() else { return };
        let node = &self.pass.node;
        let Ok(runtime) = Handle::try_current() else { return };
        let (id, now) = (self.pass.id, clock::now());
        let Some(took) = node.change(|calls, effects| calls.drain(id, now, effects)) else {
            return;
        };
        // A call's command drains once: nothing is sent after that.
        let _ = self.pass.drained.set(took);
        if let Some(sent) = self.sent {
            sent.begin_draining();
        }
        let draining = Draining {
            node: node.clone(),
            id: self.pass.id,
            link: self.link.clone(),
            sent: self.sent.cloned(),
            tally: Tally::Nothing,
            has_reply: false,
        };
        runtime.spawn(draining.run(reply, self.late.map(|late| late())));
    }
}

/// A command whose caller has gone.
struct Draining {
    node: Arc<Node>,
    id: usize,
    link: Arc<Link>,
    sent: Option<Sent>,
    tally: Tally,
    has_reply: bool,
}

impl Draining {
    async fn run(mut self, mut reply: OwnedReply, late: Option<OnLate>) {
        let (node, id) = (self.node.clone(), self.id);
        let result = poll_fn(|context| {
            if let Poll::Ready(result) = reply.as_mut().poll(context) {
                return Poll::Ready(Some(result));
            }
            node.calls().ended(id, context.waker()).map_or(Poll::Pending, |_| Poll::Ready(None))
        })
        .await;
        let Some(result) = result else { return };
        self.has_reply = !result.as_ref().is_err_and(is_loss);
        match result {
            Ok(value) => {
                self.tally = Tally::Replied;
                if let Some(sent) = self.sent.as_ref().filter(|_| is_denial(&value)) {
                    sent.set(false);
                }
                if let Some(late) = late {
                    late(&value);
                }
            }
            Err(error) => {
                if let Some(sent) = self.sent.as_ref().filter(|_| !is_loss(&error)) {
                    sent.set(false);
                }
                self.tally = node.refused(&self.link, error).tally;
            }
        }
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        let (id, tally, now) = (self.id, (self.tally, self.has_reply), clock::now());
        self.node.change(|calls, effects| calls.leave(id, tally, now, effects));
        if let Some(sent) = &self.sent {
            sent.end_draining();
        }
    }
}

/// Returns true if a reply denies the call: its first integer is 0.
fn is_denial(reply: &Value) -> bool {
    matches!(reply, Value::Array(values) if values.first() == Some(&Value::Int(0)))
}
