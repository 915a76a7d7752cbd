//! Redis Cluster: each call goes to the primary of its key's slot. Each primary has its own
//! connection and its own circuit breaker.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisError, ServerErrorKind, Value,
};
use tokio::time::Instant;

use crate::net::attempt::{Attempt, Attempts};
use crate::net::dial::{DIAL_PAUSE_MAX, Dial, jittered, undialled};
use crate::net::{breaker::Breaker, node::Node};
use crate::rules::clock;
use crate::wire::command::Command;
use crate::{Error, Options, Reason};

/// The longest time that a node may take to return the slots, before another one is queried.
const REPLY_MAX: Duration = Duration::from_secs(1);

/// A cluster, to which a limiter opens its own connections.
#[derive(Clone)]
pub struct Cluster {
    seeds: Vec<ConnectionInfo>,
    config: AsyncConnectionConfig,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Names some nodes of the cluster, which know the others. The user, the password, TLS and the
    /// TCP settings of the first one apply to all nodes.
    ///
    /// # Errors
    /// The driver's error if an address is invalid, there is none, or one is a Unix socket.
    pub fn new<T: IntoConnectionInfo>(
        nodes: impl IntoIterator<Item = T>,
    ) -> Result<Self, RedisError> {
        let seeds: Result<Vec<_>, _> =
            nodes.into_iter().map(IntoConnectionInfo::into_connection_info).collect();
        let seeds = seeds?;
        let refused = |why| RedisError::from((ErrorKind::InvalidClientConfig, why));
        if seeds.is_empty() {
            return Err(refused("expected the address of at least one node"));
        }
        if seeds.iter().any(|seed| Address::of(seed).is_none()) {
            return Err(refused("expected the host and port of each node"));
        }
        Ok(Self { seeds, config: AsyncConnectionConfig::new() })
    }

    /// Sets the configuration of the connections. Its timeouts are not used: those of the limiter
    /// apply. A credentials provider in it is called at each dial.
    #[must_use]
    pub fn config(mut self, config: AsyncConnectionConfig) -> Self {
        self.config = config;
        self
    }

    pub(crate) fn addresses(&self) -> Vec<Address> {
        self.seeds.iter().filter_map(Address::of).collect()
    }

    /// Returns what opens connections to the node at an address.
    pub(crate) fn dialler(&self, address: &Address) -> Result<Box<dyn Dial>, RedisError> {
        let seed = &self.seeds[0];
        let there = match seed.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                let (host, port) = (address.host.clone(), address.port);
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(address.host.clone(), address.port),
        };
        let client = Client::open(seed.clone().set_addr(there))?;
        Ok(Box::new((client, self.config.clone())))
    }
}

/// The address of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub host: String,
    pub port: u16,
}

impl Address {
    fn of(info: &ConnectionInfo) -> Option<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// Returns the address in a reply of the node `sender`. A node that does not know its own
    /// address leaves the host out.
    fn in_reply(host: &str, port: u16, sender: Option<&Self>) -> Option<Self> {
        let host = if matches!(host, "" | "?") { &sender?.host } else { host };
        Some(Self { host: host.to_owned(), port })
    }
}

type SlotRange = std::ops::RangeInclusive<u16>;

/// Makes what opens connections to a node.
pub(crate) type Diallers = Box<dyn Fn(&Address) -> Result<Box<dyn Dial>, RedisError> + Send + Sync>;

/// The primaries of a cluster, and the slots of each.
pub(crate) struct Slots {
    seeds: Vec<Address>,
    diallers: Diallers,
    options: Options,
    state: Mutex<State>,
    /// The circuit breaker of the readings.
    breaker: Mutex<Breaker>,
    /// The number of calls that wait for a reading.
    waiting: AtomicUsize,
    has_read: AtomicBool,
}

#[derive(Default)]
struct State {
    slots: Vec<(SlotRange, Arc<Node>)>,
    nodes: HashMap<Address, Arc<Node>>,
    readings: Attempts,
}

impl Slots {
    pub fn new(seeds: Vec<Address>, diallers: Diallers, options: &Options) -> Arc<Self> {
        let breaker = Mutex::new(Breaker::new(options));
        let (waiting, has_read) = (AtomicUsize::new(0), AtomicBool::new(false));
        let options = options.clone();
        let state = Mutex::default();
        Arc::new(Self { seeds, diallers, options, state, breaker, waiting, has_read })
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the primary of the key's slot. If the slot is not known yet, reads the slots, in an
    /// attempt that all callers share.
    pub async fn find(self: &Arc<Self>, key: &str, began: Instant) -> Result<Arc<Node>, Error> {
        let slot = slot_of(key);
        if let Some(node) = self.state().owner(slot) {
            return Ok(node);
        }
        let mut waiting = Waiting::begin(self, began)?;
        let reading = self.state().join(self.seeds.len());
        let (reading, is_new) = reading.map_err(undialled)?;
        if is_new {
            self.read(reading.clone());
        }
        let Ok(read) = tokio::time::timeout(self.longest(), reading.wait()).await else {
            return Err(Error::unavailable(Reason::Connection));
        };
        let error = match (read, self.state().owner(slot)) {
            (Some(Err(error)), _) => undialled(error.clone()),
            (_, Some(node)) => {
                self.breaker().succeed();
                return Ok(node);
            }
            // The slot has no primary at present.
            (_, None) => Error::unavailable(Reason::Server),
        };
        if matches!(error, Error::Unavailable { .. }) && reading.counts() {
            waiting.fail();
        }
        Err(error)
    }

    /// Returns the longest time for which a call waits for a reading.
    fn longest(&self) -> Duration {
        let (timeout, silence) = self.options.deadlines();
        let has_read = self.has_read.load(Ordering::Acquire);
        if has_read { silence } else { timeout.max(REPLY_MAX) }
    }

    /// Returns the nodes that are known.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.state().nodes.values().cloned().collect()
    }

    /// Returns the number of open breakers: those of the nodes, and that of reading the slots.
    pub fn open_breakers(&self) -> usize {
        let open = self.nodes().iter().filter(|node| node.is_open()).count();
        open + usize::from(self.breaker().is_open(clock::now()))
    }

    /// Returns the node that a redirection names, and true if it needs `ASKING`.
    pub fn redirected(
        self: &Arc<Self>,
        from: &Arc<Node>,
        error: &Error,
    ) -> Option<(Arc<Node>, bool)> {
        let error = error.by_driver()?;
        let is_ask = match error.kind() {
            ErrorKind::Server(ServerErrorKind::Moved) => false,
            ErrorKind::Server(ServerErrorKind::Ask) => true,
            _ => return None,
        };
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        let mut state = self.state();
        let sender = state.nodes.iter().find(|(_, node)| Arc::ptr_eq(node, from));
        let address = Address::in_reply(host, port.parse().ok()?, sender.map(|(at, _)| at))?;
        let node = self.node(&mut state, &address).ok()?;
        drop(state);
        if !is_ask {
            self.read_again();
        }
        Some((node, is_ask))
    }

    /// Reads the slots again if the error says that they changed or that the node is a replica, or
    /// if a primary does not reply, because a replica may take over.
    pub fn failed(self: &Arc<Self>, error: &Error) {
        let Error::Unavailable { reason, source } = error else { return };
        let changed = matches!(
            source.as_ref().map(RedisError::kind),
            Some(ErrorKind::Server(
                ServerErrorKind::ClusterDown
                    | ServerErrorKind::Moved
                    | ServerErrorKind::ReadOnly
                    | ServerErrorKind::MasterDown
            ))
        );
        if changed || matches!(reason, Reason::Timeout | Reason::Connection) {
            self.read_again();
        }
    }

    fn read_again(self: &Arc<Self>) {
        // During the pause after a failed reading, the slots stay as they are.
        let reading = self.state().join(self.seeds.len());
        if let Ok((reading, true)) = reading {
            self.read(reading);
        }
    }

    /// Reads the slots in a task of its own.
    fn read(self: &Arc<Self>, attempt: Arc<Attempt>) {
        let reading = Reading { slots: self.clone(), attempt, ended: false };
        tokio::spawn(reading.run());
    }

    /// Returns the node at an address, whose connection stays if the node is known.
    fn node(&self, state: &mut State, address: &Address) -> Result<Arc<Node>, RedisError> {
        if let Some(node) = state.nodes.get(address) {
            return Ok(node.clone());
        }
        let node = Node::new((self.diallers)(address)?, &self.options);
        state.nodes.insert(address.clone(), node.clone());
        Ok(node)
    }

    /// Returns the nodes to query for the slots: those with a connection, then the others, then the
    /// addresses that the program has given.
    fn candidates(&self) -> Vec<(Address, Arc<Node>)> {
        let mut state = self.state();
        let mut known: Vec<_> =
            state.nodes.iter().map(|(at, node)| (at.clone(), node.clone())).collect();
        known.sort_by_key(|(_, node)| !node.is_up());
        for address in &self.seeds {
            if !state.nodes.contains_key(address)
                && let Ok(node) = self.node(&mut state, address)
            {
                known.push((address.clone(), node));
            }
        }
        known
    }

    async fn query(self: &Arc<Self>) -> Result<(), RedisError> {
        let mut failure = None;
        for (address, node) in self.candidates() {
            let command = Command::new(["CLUSTER".into(), "SLOTS".into()]);
            let budget = REPLY_MAX.min(self.options.deadlines().0);
            match node.command(&command, false, Some(budget)).await {
                Ok(reply) => {
                    let read = slots_of(&reply, &address);
                    if !read.is_empty() {
                        self.keep(&read);
                        return Ok(());
                    }
                    // The node knows no cluster, or not any more.
                    failure = Some(io::Error::other("the node names no slots").into());
                }
                Err(fault) => failure = fault.error.by_driver().cloned().or(failure),
            }
        }
        let late = || RedisError::from(io::Error::from(io::ErrorKind::TimedOut));
        Err(failure.unwrap_or_else(late))
    }

    /// Keeps the slots of a reply. Connections to nodes that are no primaries any more are closed.
    fn keep(&self, read: &[(SlotRange, Address)]) {
        let mut state = self.state();
        let found = read
            .iter()
            .map(|(range, address)| Some((range.clone(), self.node(&mut state, address).ok()?)));
        let slots: Vec<_> = found.flatten().collect();
        state.nodes.retain(|address, _| read.iter().any(|(_, owner)| owner == address));
        state.slots = slots;
    }
}

impl State {
    /// Joins the reading of the slots that is under way, or begins one. It queries one node after
    /// the other.
    fn join(&mut self, seeds: usize) -> Result<(Arc<Attempt>, bool), RedisError> {
        let nodes = u32::try_from(self.nodes.len() + seeds).unwrap_or(u32::MAX);
        // Each node is dialled and replies.
        self.readings.join(REPLY_MAX.saturating_mul(2 * nodes))
    }

    fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let found = self.slots.iter().find(|(range, _)| range.contains(&slot));
        found.map(|(_, node)| node.clone())
    }
}

/// A call that waits for a reading of the slots.
struct Waiting<'a> {
    slots: &'a Slots,
    is_probe: bool,
}

impl<'a> Waiting<'a> {
    /// Begins to wait, unless the circuit breaker is open or too many calls wait.
    fn begin(slots: &'a Slots, now: Instant) -> Result<Self, Error> {
        let Options { max_in_flight, max_waiting, .. } = slots.options;
        let mut breaker = slots.breaker();
        breaker.end_probe_before(now.checked_sub(slots.longest()));
        if breaker.is_open(now) {
            return Err(Error::unavailable(Reason::Circuit));
        }
        if slots.waiting.load(Ordering::Relaxed) >= max_in_flight + max_waiting {
            return Err(Error::unavailable(Reason::Overloaded));
        }
        slots.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(Self { slots, is_probe: breaker.enter(now) })
    }

    fn fail(&mut self) {
        let mut breaker = self.slots.breaker();
        match std::mem::take(&mut self.is_probe) {
            true => breaker.fail_probe(None),
            false => breaker.fail(clock::now()),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.slots.waiting.fetch_sub(1, Ordering::Relaxed);
        if self.is_probe {
            self.slots.breaker().end_probe();
        }
    }
}

/// A reading of the slots that is under way. Dropping it ends it for its waiters.
struct Reading {
    slots: Arc<Slots>,
    attempt: Arc<Attempt>,
    ended: bool,
}

impl Reading {
    async fn run(mut self) {
        let outcome = self.slots.query().await;
        self.end(outcome);
    }

    fn end(&mut self, outcome: Result<(), RedisError>) {
        self.ended = true;
        let Options { breaker_pause, jitter, .. } = self.slots.options;
        let pause = jittered(breaker_pause.min(DIAL_PAUSE_MAX), jitter);
        self.slots.has_read.store(true, Ordering::Release);
        self.slots.state().readings.end(&self.attempt, Some(outcome), pause);
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Err(io::Error::other("the runtime shut down").into()));
        }
    }
}

/// Returns the slot of a key: the CRC-16 (XMODEM) of its hash tag.
pub(crate) fn slot_of(key: &str) -> u16 {
    let open = key.find('{').map(|at| &key[at + 1..]);
    let tag = open.and_then(|rest| rest.find('}').map(|at| &rest[..at]));
    crc16::State::<crc16::XMODEM>::calculate(
        tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes(),
    ) % 16_384
}

/// Reads the rows of `CLUSTER SLOTS`: first slot, last slot, and the primary as host and port.
fn slots_of(reply: &Value, sender: &Address) -> Vec<(SlotRange, Address)> {
    let rows = if let Value::Array(rows) = reply { &rows[..] } else { &[] };
    let read = |row: &Value| {
        let Value::Array(row) = row else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &row[..] else {
            return None;
        };
        let host: Option<String> = redis::from_redis_value_ref(primary.first()?).ok()?;
        let port = redis::from_redis_value_ref(primary.get(1)?).ok()?;
        let address = Address::in_reply(&host.unwrap_or_default(), port, Some(sender))?;
        Some((u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?, address))
    };
    rows.iter().filter_map(read).collect()
}
