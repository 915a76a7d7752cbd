//! A node: one server, or one primary of a cluster, with its connection, its line, its circuit
//! breaker, and the tasks that dial and keep time. `pass` sends its commands, each once.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::net::connection::{Connection, Link};
use crate::net::line::{Calls, Effects};
use crate::net::{breaker::Tally, dial::Dial};
use crate::rules::clock;
use crate::{Error, Options, Reason};

/// The number of renewals to a node at a time, and that of ends, in addition to `max_in_flight`.
const RENEWALS_MAX: usize = 8;
const ENDS_MAX: usize = 32;
/// The turns of the scheduler in which the driver reads what has arrived, and callers see it.
const TURNS_TO_READ: usize = 3;
/// The time that other threads have for it.
const TIME_TO_READ: Duration = Duration::from_millis(1);

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
        let is_final = redirects || !matches!(error, Error::Unavailable { .. });
        Self { error, tally: if is_final { Tally::Replied } else { Tally::Failed } }
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
    pub(super) timeout: Duration,
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

    pub(super) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the calls, and does without the lock what follows.
    pub(super) fn change<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Calls, &mut Effects) -> T,
    ) -> T {
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

impl Node {
    /// Reacts to an error: a lost connection, or an error reply.
    pub(super) fn refused(self: &Arc<Self>, link: &Arc<Link>, error: RedisError) -> Fault {
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

pub(super) fn is_loss(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Parse)
}

/// The timer of a node. Dropping it has the calls start another one: its runtime may have shut
/// down.
struct Timer {
    node: Arc<Node>,
    number: u64,
}

impl Timer {
    async fn run(self) {
        let node = &self.node;
        loop {
            let Some(at) = node.calls().fires_at(self.number) else { return };
            sleep_until(at).await;
            let is_due = node.calls().is_due(clock::now());
            if is_due {
                let_others_read().await;
            }
            let goes_on = node.change(|calls, effects| {
                calls.fires_at(self.number).is_some() && calls.fire(clock::now(), effects)
            });
            if !goes_on {
                return;
            }
        }
    }
}

/// Lets the driver read the replies that have arrived, and the callers see them: the program may
/// have been busy for longer than a deadline.
async fn let_others_read() {
    // Another thread may run the driver, or the callers, while this one has nothing else to do.
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        sleep(TIME_TO_READ).await;
    }
    for _ in 0..TURNS_TO_READ {
        tokio::task::yield_now().await;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let now = clock::now();
        self.node.change(|calls, effects| calls.stop_timer(self.number, now, effects));
    }
}

/// A dial under way, in a task of its own, because the connection serves later calls too. Dropping
/// it ends the dial for its callers, even if its task did not finish because the runtime shut down.
struct DialTask {
    node: Arc<Node>,
    number: u64,
    ended: bool,
}

impl DialTask {
    async fn run(mut self) {
        let dialled = self.node.dialler.dial().await;
        self.end(dialled);
    }

    fn end(&mut self, dialled: Result<Box<dyn Connection>, RedisError>) {
        self.ended = true;
        let (number, now) = (self.number, clock::now());
        self.node.change(|calls, effects| calls.dialled(number, dialled, now, effects));
    }
}

impl Drop for DialTask {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Err(io::Error::other("the dial was given up").into()));
        }
    }
}
