//! Scripted connections for the timelines: a server that replies to each command with the next item
//! of its script.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::RedisError;
use serde_json::{Value, json};
use tokio::sync::SetOnce;

use super::{error_reply, reply_of};
#[cfg(feature = "cluster")]
use crate::net::{
    cluster::{Address, Slots},
    server::Nodes,
};
use crate::{Command, Connection, Dial, Dialling, Reply, Server};

/// A server that follows a script, or a node of a cluster that does. Clones share one script.
#[derive(Clone, Default)]
pub(super) struct Script {
    state: Arc<Mutex<State>>,
    /// The name of the node; empty without a cluster.
    node: String,
}

#[derive(Default)]
pub(super) struct State {
    /// The commands that arrived.
    pub sent: Vec<String>,
    /// The number of attempts to connect.
    pub dials: usize,
    /// The number of the connection on which the last command arrived.
    pub generation: usize,
    /// The commands for which the script had no reply.
    pub unexpected: Vec<String>,
    opened: usize,
    items: VecDeque<Value>,
    by_key: HashMap<String, VecDeque<Value>>,
    open: Vec<Arc<SetOnce<()>>>,
    /// The nodes of a cluster: the name and the slot of each key.
    pub nodes: Vec<(u16, String)>,
}

impl Script {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns the server of a limiter, or its cluster if the script has nodes.
    pub fn server(&self) -> Server {
        #[cfg(feature = "cluster")]
        if !self.state().nodes.is_empty() {
            let script = self.clone();
            let seeds = script.state().nodes.iter().map(|(_, node)| address_of(node)).collect();
            let diallers = Box::new(move |at: &Address| {
                let node = format!("{}:{}", at.host, at.port);
                Ok(Box::new(Self { node, ..script.clone() }) as Box<dyn Dial>)
            });
            return Server(Box::new(|options| Nodes::Many(Slots::new(seeds, diallers, options))));
        }
        self.clone().into()
    }
}

#[cfg(feature = "cluster")]
fn address_of(node: &str) -> Address {
    let (host, port) = node.split_once(':').expect("a host and a port");
    Address { host: host.to_owned(), port: port.parse().unwrap() }
}

impl State {
    /// Adds replies, for the commands with this key if it is given.
    pub fn add(&mut self, replies: Vec<Value>, key: Option<&str>) {
        let queue = match key {
            Some(key) => self.by_key.entry(key.to_owned()).or_default(),
            None => &mut self.items,
        };
        queue.extend(replies);
    }

    /// Returns the replies that no command took, except `refuse`.
    pub fn left(&self) -> Vec<Value> {
        let all = self.items.iter().chain(self.by_key.values().flatten());
        all.filter(|item| **item != json!("refuse")).cloned().collect()
    }

    /// Closes all connections.
    pub fn disconnect(&mut self) {
        for closed in self.open.drain(..) {
            let _ = closed.set(());
        }
    }

    /// Returns the time that the next dial takes.
    fn dial_time(&mut self) -> Duration {
        self.dials += 1;
        let taken = self.items.front().and_then(|item| item.get("dial_ms")?.as_u64());
        if taken.is_some() {
            self.items.pop_front();
        }
        Duration::from_millis(taken.unwrap_or(0))
    }

    fn dial(&mut self) -> io::Result<(usize, Arc<SetOnce<()>>)> {
        if self.items.front() == Some(&json!("refuse")) {
            self.items.pop_front();
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        self.opened += 1;
        let closed = Arc::new(SetOnce::new());
        self.open.push(closed.clone());
        Ok((self.opened, closed))
    }

    /// Records a command to a node and returns the item for its reply. Readings of the slots are
    /// not recorded.
    fn take(&mut self, node: &str, generation: usize, command: &Command<'_>) -> Value {
        if command.words()[0] == "CLUSTER" {
            let row = |(slot, node): &(u16, String)| {
                let (host, port) = node.split_once(':').unwrap();
                json!([slot, slot, [host, port]])
            };
            return self.nodes.iter().map(row).collect();
        }
        let text = format!("{node} {}", command.words().join(" ")).trim_start().to_owned();
        self.generation = generation;
        self.sent.push(text.clone());
        let of_key = |word| self.by_key.get_mut(word)?.pop_front();
        let reply = command.words()[1..].iter().map(|word| &**word).find_map(of_key);
        reply.or_else(|| self.items.pop_front()).unwrap_or_else(|| {
            self.unexpected.push(text);
            json!("silent")
        })
    }
}

impl Dial for Script {
    fn dial(&self) -> Dialling<'_> {
        Box::pin(async {
            let time = self.state().dial_time();
            tokio::task::yield_now().await;
            if !time.is_zero() {
                tokio::time::sleep(time).await;
            }
            let (number, closed) = self.state().dial()?;
            let scripted = Scripted { script: self.clone(), number, closed };
            Ok(Box::new(scripted) as Box<dyn Connection>)
        })
    }
}

/// A connection to a scripted server. Replies may overtake each other.
struct Scripted {
    script: Script,
    number: usize,
    closed: Arc<SetOnce<()>>,
}

fn lost() -> RedisError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

impl Connection for Scripted {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            if self.is_closed() {
                return Err(lost());
            }
            let item = self.script.state().take(&self.script.node, self.number, command);
            let (delay_ms, item) = match item.get("delay_ms") {
                Some(delay_ms) => (delay_ms.as_u64().unwrap(), item["reply"].clone()),
                None => (0, item),
            };
            let delayed = async {
                if delay_ms > 0 {
                    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
                }
                // As over a socket, another task may run before the reply. The replies of one
                // instant keep their order, which a yield would reverse.
                let _ = tokio::spawn(async {}).await;
                match item.as_str() {
                    Some("silent") => std::future::pending().await,
                    Some("lost" | "close") => {
                        let _ = self.closed.set(());
                        Err(lost())
                    }
                    _ => match item["error"].as_str() {
                        Some(text) => Err(error_reply(text)),
                        None => Ok(reply_of(&item)),
                    },
                }
            };
            tokio::select! {
                biased;
                reply = delayed => reply,
                _ = self.closed.wait() => Err(lost()),
            }
        })
    }

    fn is_closed(&self) -> bool {
        self.closed.get().is_some()
    }
}
