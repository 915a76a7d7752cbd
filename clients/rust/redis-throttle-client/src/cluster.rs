//! Redis Cluster: each call goes to the primary of its key's slot, and is sent once.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use redis::cluster::{ClusterClientBuilder, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, Slot, SlotAddr};
use redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};

use crate::connection::{Command, Connection, Reply, answered};

const TOPOLOGY_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection to a cluster.
///
/// It uses the options of the given builder, but never retries, because a repeated call would count
/// again. It follows one redirection per call: a node that redirects has not counted the call.
#[derive(Clone)]
pub struct Cluster {
    connection: ClusterConnection,
    topology: Arc<Topology>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Cluster").finish_non_exhaustive()
    }
}

/// The node of each slot, to give each node its own circuit breaker.
#[derive(Debug, Default)]
struct Topology {
    slots: RwLock<Vec<(SlotRange, Arc<str>)>>,
    asking: AtomicBool,
    /// By slot, the node to which the version check was redirected. The library is then loaded on
    /// the same node, because the server does not redirect a load.
    redirected: Mutex<HashMap<u16, Address>>,
}

type Address = (String, u16);

type SlotRange = std::ops::RangeInclusive<u16>;

impl Cluster {
    /// Opens the connections in the background. An unavailable cluster is not an error here. Must
    /// be called within a tokio runtime.
    ///
    /// # Errors
    /// The driver's error if it rejects the options of the builder.
    pub fn new(builder: ClusterClientBuilder) -> Result<Self, RedisError> {
        let client = builder.retries(0).build()?;
        let connection = client.get_pending_async_connection_with_config(ClusterConfig::new());
        let cluster = Self { connection, topology: Arc::default() };
        cluster.learn();
        Ok(cluster)
    }

    /// Fetches the node of each slot in the background, unless such a fetch is already running.
    fn learn(&self) {
        let (mut connection, topology) = (self.connection.clone(), self.topology.clone());
        if topology.asking.swap(true, Ordering::AcqRel) {
            return;
        }
        tokio::spawn(async move {
            let mut command = redis::cmd("CLUSTER");
            command.arg("SLOTS");
            let any = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
            let asked = connection.route_command(command, any);
            if let Ok(Ok(reply)) = tokio::time::timeout(TOPOLOGY_TIMEOUT, asked).await {
                let slots = slots_of(&reply);
                *topology.slots.write().unwrap_or_else(PoisonError::into_inner) = slots;
            }
            topology.asking.store(false, Ordering::Release);
        });
    }

    /// Sends the command once more, to the node that the error names.
    async fn follow(&self, command: &Command<'_>, error: RedisError) -> Result<Value, RedisError> {
        let node = error.redirect_node().and_then(|(address, _)| address.rsplit_once(':'));
        let node = node.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        let Some((host, port)) = node.filter(|(host, _)| !host.is_empty()) else {
            return Err(error);
        };
        let mut connection = self.connection.clone();
        let there = SingleNodeRoutingInfo::ByAddress { host: host.clone(), port };
        let reply = if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
            let mut both = Pipeline::new();
            both.cmd("ASKING").add_command(command.to_cmd());
            let replies = connection.route_pipeline(both, 1, 1, there).await;
            replies.and_then(|mut replies| answered(replies.pop().ok_or(error)))
        } else {
            let there = RoutingInfo::SingleNode(there);
            answered(connection.route_command(command.to_cmd(), there).await)
        };
        if asks_version(command) {
            self.redirected().insert(slot_of(command.key()), (host, port));
        }
        reply
    }

    fn redirected(&self) -> MutexGuard<'_, HashMap<u16, Address>> {
        self.topology.redirected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Routes a command to the primary of its key. The driver's own table of commands is not used.
    fn route(&self, command: &Command<'_>) -> SingleNodeRoutingInfo {
        if asks_version(command) {
            self.redirected().remove(&slot_of(command.key()));
        } else if command.words()[0] == "FUNCTION"
            && let Some((host, port)) = self.redirected().remove(&slot_of(command.key()))
        {
            return SingleNodeRoutingInfo::ByAddress { host, port };
        }
        let primary = Route::with_slot(Slot::for_key(command.key()), SlotAddr::Master);
        SingleNodeRoutingInfo::SpecificNode(primary)
    }
}

impl Connection for Cluster {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            let routing = RoutingInfo::SingleNode(self.route(command));
            let mut connection = self.connection.clone();
            let reply = answered(connection.route_command(command.to_cmd(), routing).await);
            let Err(error) = reply else { return reply };
            match error.kind() {
                ErrorKind::Server(ServerErrorKind::Moved) => self.learn(),
                ErrorKind::Server(ServerErrorKind::Ask) => {}
                ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => {
                    self.learn();
                    return Err(error);
                }
                _ => return Err(error),
            }
            self.follow(command, error).await
        })
    }

    /// Returns the id of the key's node. `None` if the slot is unassigned or its node is not known
    /// yet. Keys without an id share one circuit breaker.
    fn node(&self, key: &str) -> Option<Arc<str>> {
        let slot = slot_of(key);
        let slots = self.topology.slots.read().unwrap_or_else(PoisonError::into_inner);
        let found = slots.iter().find(|(range, _)| range.contains(&slot));
        found.map(|(_, node)| node.clone())
    }
}

fn asks_version(command: &Command<'_>) -> bool {
    command.words()[1] == "rl_version"
}

/// Returns the slot of a key: the CRC-16 (XMODEM) of its hash tag.
fn slot_of(key: &str) -> u16 {
    let open = key.find('{').map(|at| &key[at + 1..]);
    let tag = open.and_then(|rest| rest.find('}').map(|at| &rest[..at]));
    crc16::State::<crc16::XMODEM>::calculate(
        tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes(),
    ) % 16_384
}

/// Reads the rows of `CLUSTER SLOTS`: first slot, last slot, and the primary as address, port and
/// id.
fn slots_of(reply: &Value) -> Vec<(SlotRange, Arc<str>)> {
    let rows = if let Value::Array(rows) = reply { &rows[..] } else { &[] };
    let read = |row: &Value| {
        let Value::Array(row) = row else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &row[..] else {
            return None;
        };
        let id: String = redis::from_redis_value(primary.get(2)?.clone()).ok()?;
        Some((u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?, Arc::from(id)))
    };
    rows.iter().filter_map(read).collect()
}
