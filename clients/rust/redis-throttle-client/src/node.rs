//! A node: one server, or one primary of a cluster, with its connection and its circuit breaker.
//!
//! The connections that were opened since the last retirement are a generation. A call that times
//! out after it was sent retires the generation, and the next call opens a connection: without a
//! reset from the network, a connection that fell silent looks like one that is slow.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use crate::attempt::{Attempt, Attempts, jittered};
use crate::breaker::{Gate, Tally};
use crate::connection::{Command, Connection, Dial};
use crate::link::Link;
use crate::{Error, Options, Reason, clock};

/// The shortest time that a dial may take.
const DIAL_MIN: Duration = Duration::from_secs(1);
/// The time without a call after which a connection is asked whether it is closed.
const IDLE: Duration = Duration::from_millis(1);

/// A command that got no reply, or an error reply.
#[derive(Debug)]
pub(crate) struct Fault {
    pub error: Error,
    pub tally: Tally,
}

impl Fault {
    fn new(error: impl Into<Error>, tally: Tally) -> Self {
        Self { error: error.into(), tally }
    }

    /// Creates the fault of a call whose deadline passed before its command was sent.
    pub fn waited() -> Self {
        Self::new(Error::unavailable(Reason::Timeout), Tally::Waited)
    }

    /// Counts the failure only if `first` is true, because it is one failure for several calls.
    pub fn once(mut self, first: impl FnOnce() -> bool) -> Self {
        if matches!(self.tally, Tally::Failed | Tally::Waited) && !first() {
            self.tally = Tally::Nothing;
        }
        self
    }

    /// Creates the fault of a call that lost its connection, or its runtime.
    pub fn lost(tally: Tally) -> Self {
        Self::new(Error::unavailable(Reason::Connection), tally)
    }
}

/// An error that does not come from the server itself.
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let answered = !matches!(error, Error::Unavailable { .. });
        Self::new(error, if answered { Tally::Answered } else { Tally::Failed })
    }
}

/// One server, or one primary of a cluster.
pub(crate) struct Node {
    dialler: Box<dyn Dial>,
    pub gate: Gate,
    dial_max: Duration,
    pause: Duration,
    jitter: f64,
    timeout: Duration,
    lines: Mutex<Lines>,
    /// The number of the last search for a back end. The lock is held during a search.
    pub searched: Arc<tokio::sync::Mutex<u64>>,
    made: Instant,
}

impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Node").field("gate", &self.gate).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Lines {
    /// The number of retirements.
    generation: u64,
    link: Option<Arc<Link>>,
    dials: Attempts<Arc<Link>>,
}

impl Node {
    pub fn new(dialler: Box<dyn Dial>, options: &Options) -> Arc<Self> {
        Arc::new(Self {
            dialler,
            gate: Gate::of(options),
            dial_max: options.deadlines().0.max(DIAL_MIN),
            pause: options.breaker_pause,
            jitter: options.jitter,
            timeout: options.deadlines().0,
            lines: Mutex::default(),
            searched: Arc::default(),
            made: clock::now(),
        })
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the deadline of a command that is not part of a call.
    pub fn deadline(&self) -> Instant {
        clock::now() + self.timeout
    }

    /// Returns true if a connection is up.
    pub fn is_up(&self) -> bool {
        self.lines().link.as_ref().is_some_and(|link| link.is_up())
    }

    /// Drops the connection if it was closed while it was idle. Called before a call that is alone.
    pub fn drop_closed(&self, now: Instant) {
        let Some(link) = self.lines().link.clone() else { return };
        let now_us = u64::try_from((now - self.made).as_micros()).unwrap_or(u64::MAX);
        let used_us = link.use_at(now_us);
        let is_idle = u128::from(now_us.saturating_sub(used_us)) >= IDLE.as_micros();
        if is_idle && link.wire.is_closed() {
            self.lose(&link);
        }
    }

    /// Removes a connection that was lost. Returns true the first time.
    fn lose(&self, link: &Arc<Link>) -> bool {
        let mut lines = self.lines();
        if lines.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            lines.link = None;
        }
        drop(lines);
        link.end()
    }

    /// Retires the generation of a connection: the calls on it end, and a dial that began before
    /// this instant has no use. Returns true the first time.
    fn retire(&self, link: &Link) -> bool {
        let mut lines = self.lines();
        if lines.generation > link.generation {
            return false;
        }
        lines.generation = link.generation + 1;
        let current = lines.link.take();
        drop(lines);
        if let Some(current) = current {
            current.end();
        }
        link.end();
        true
    }

    /// Returns the connection. Without one, waits for a dial, which all waiting calls share.
    async fn link(self: &Arc<Self>, deadline: Instant) -> Result<Arc<Link>, Fault> {
        loop {
            let (dial, generation) = {
                let mut lines = self.lines();
                if let Some(link) = lines.link.as_ref().filter(|link| link.is_up()) {
                    return Ok(link.clone());
                }
                (lines.dials.join(self.dial_max), lines.generation)
            };
            // During the pause after a failed dial, no call is made.
            let (dial, is_new) =
                dial.map_err(|error| Fault::new(undialled(error), Tally::Nothing))?;
            if is_new {
                self.dial(dial.clone(), generation);
            }
            match timeout_at(deadline, dial.wait()).await {
                // The callers of a dial are one failure, also those whose deadline passes before it
                // ends.
                Err(_) => return Err(Fault::waited().once(|| dial.counts())),
                // The reply would hardly arrive in time, and the call would retire the connection.
                Ok(Some(Ok(_))) if is_new && deadline - clock::now() < dial.age() => {
                    return Err(Fault::waited().once(|| dial.counts()));
                }
                Ok(Some(Ok(link))) if link.is_up() => return Ok(link.clone()),
                Ok(Some(Err(error))) => {
                    return Err(Fault::from(undialled(error.clone())).once(|| dial.counts()));
                }
                Ok(_) => {}
            }
        }
    }

    /// Dials in a task of its own, because the connection serves later calls too.
    fn dial(self: &Arc<Self>, attempt: Arc<Attempt<Arc<Link>>>, generation: u64) {
        let dial = UnderWay { node: self.clone(), attempt, generation, ended: false };
        tokio::spawn(dial.run());
    }

    /// Sends a command once, and ends at the deadline. `asking` sends `ASKING` before it.
    pub async fn send(
        self: &Arc<Self>,
        command: &Command<'_>,
        asking: bool,
        deadline: Instant,
    ) -> Result<Value, Fault> {
        loop {
            let link = self.link(deadline).await?;
            let mut retired = pin!(link.retired.notified());
            // The connection may have ended before the line above.
            if !link.is_up() {
                continue;
            }
            command.set_sent(true);
            let mut sent = Sent::new(self, &link);
            let mut reply = pin!(link.wire.send(command, asking));
            let ended = poll_fn(|context| {
                if let Poll::Ready(reply) = reply.as_mut().poll(context) {
                    return Poll::Ready(Some(reply));
                }
                retired.as_mut().poll(context).map(|()| None)
            });
            let replied = match timeout_at(deadline, ended).await {
                Ok(replied) => replied,
                Err(_) => {
                    // The program may have been busy for longer than the deadline: let the driver
                    // read the replies that have arrived.
                    tokio::task::yield_now().await;
                    poll_fn(|context| match reply.as_mut().poll(context) {
                        Poll::Ready(reply) => Poll::Ready(Some(reply)),
                        Poll::Pending => Poll::Ready(None),
                    })
                    .await
                }
            };
            sent.ended = true;
            return match replied {
                Some(Ok(value)) => {
                    link.count_reply();
                    Ok(value)
                }
                Some(Err(error)) => {
                    link.count_reply();
                    Err(self.refused(&link, command, error))
                }
                None => Err(self.unanswered(&link, deadline)),
            };
        }
    }

    /// Returns the fault of a call that was sent and that got no answer: the deadline passed, which
    /// retires the generation, or another call has retired it.
    fn unanswered(&self, link: &Link, deadline: Instant) -> Fault {
        if clock::now() < deadline {
            return Fault::lost(Tally::Nothing);
        }
        let tally = if self.retire(link) { Tally::Failed } else { Tally::Nothing };
        Fault::new(Error::unavailable(Reason::Timeout), tally)
    }

    /// Reacts to an error: a lost connection, or an error reply.
    fn refused(&self, link: &Arc<Link>, command: &Command<'_>, error: RedisError) -> Fault {
        let kind = error.kind();
        if matches!(kind, ErrorKind::Io | ErrorKind::Parse) {
            let first = self.lose(link);
            return Fault::from(Error::from(error)).once(|| first);
        }
        command.set_sent(false);
        let is_replica = matches!(
            kind,
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
        );
        let is_locked_out = matches!(error.code(), Some("NOAUTH" | "WRONGPASS"));
        let redirects =
            matches!(kind, ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask));
        let first = (is_replica || is_locked_out) && self.retire(link);
        let fault = Fault::from(Error::from(error));
        match (is_replica, redirects) {
            (true, _) => fault.once(|| first),
            (_, true) => Fault { tally: Tally::Answered, ..fault },
            _ => fault,
        }
    }
}

/// A command that was sent. If its caller gives up, the connection is watched.
struct Sent<'a> {
    node: &'a Arc<Node>,
    link: &'a Arc<Link>,
    at: Instant,
    /// The number of replies on the connection when the command was sent.
    replies: u64,
    ended: bool,
}

impl<'a> Sent<'a> {
    fn new(node: &'a Arc<Node>, link: &'a Arc<Link>) -> Self {
        Self { node, link, at: clock::now(), replies: link.replies(), ended: false }
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if let (false, Ok(runtime)) = (self.ended, Handle::try_current()) {
            let (node, link) = (self.node.clone(), self.link.clone());
            runtime.spawn(watch(node, link, self.replies, self.at));
        }
    }
}

/// Watches a connection for the timeout of a command whose caller gave up. If nothing arrives, the
/// generation is retired: callers that always give up early would never notice that it is silent.
async fn watch(node: Arc<Node>, link: Arc<Link>, replies: u64, sent: Instant) {
    let began = if link.wire.pings() { clock::now() } else { sent };
    let answered = timeout_at(began + node.timeout, link.wire.is_answered()).await;
    if answered != Ok(true) && link.replies() == replies && link.is_up() {
        node.retire(&link);
    }
}

/// Returns the error of a call for which no connection could be opened, or no slots be read.
pub(crate) fn undialled(error: RedisError) -> Error {
    match Error::from(error) {
        Error::Unavailable { source, .. } => {
            Error::Unavailable { reason: Reason::Connection, source }
        }
        rejected => rejected,
    }
}

/// A dial under way. Dropping it ends the dial for its waiters, even if its task did not finish
/// because the runtime shut down.
struct UnderWay {
    node: Arc<Node>,
    attempt: Arc<Attempt<Arc<Link>>>,
    generation: u64,
    ended: bool,
}

impl UnderWay {
    async fn run(mut self) {
        let dialled = tokio::time::timeout(self.node.dial_max, self.node.dialler.dial()).await;
        let late = || RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
        self.end(dialled.unwrap_or_else(|_| Err(late())));
    }

    fn end(&mut self, dialled: Result<Box<dyn Connection>, RedisError>) {
        self.ended = true;
        let mut lines = self.node.lines();
        let is_current = lines.generation == self.generation && lines.dials.is_last(&self.attempt);
        let outcome = match dialled {
            Ok(_) if !is_current => None,
            dialled => {
                let used = clock::now() - self.node.made;
                let used_us = u64::try_from(used.as_micros()).unwrap_or(u64::MAX);
                let open = |connection| Link::new(connection, self.generation, used_us);
                Some(dialled.map(|connection| Arc::new(open(connection))))
            }
        };
        if let Some(Ok(link)) = &outcome {
            lines.link = Some(link.clone());
        }
        let pause = jittered(self.node.pause, self.node.jitter);
        lines.dials.end(&self.attempt, outcome, pause);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Err(io::Error::other("the dial was given up").into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::connection::Reply;

    /// A connection that answers nothing.
    struct Silent;

    impl Connection for Silent {
        fn send<'a>(&'a self, _: &'a Command<'a>) -> Reply<'a> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_whose_dial_began_before_a_retirement_is_not_used() {
        let dials = Arc::new(AtomicUsize::new(0));
        let counted = dials.clone();
        let dial = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(Silent)
            }
        };
        let node = Node::new(Box::new(dial), &Options::default());
        let deadline = clock::now() + Duration::from_secs(1);
        let first = node.link(deadline).await.unwrap();
        assert!(node.lose(&first) && !node.lose(&first));
        let waiting = node.clone();
        let waiting = tokio::spawn(async move { waiting.link(deadline).await });
        tokio::time::sleep(Duration::from_millis(10)).await;
        // A call on the first connection learns that it led to a replica.
        assert!(node.retire(&first) && !node.retire(&first));
        let link = waiting.await.unwrap().unwrap();
        assert_eq!((link.generation, dials.load(Ordering::Relaxed)), (1, 3));
    }
}
