//! A cluster of three primaries, and a client that follows its redirections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use redis::Value;

use super::server::free_port;
use super::{Client, Server, eventually, integers, raw_error};

const SLOTS: i64 = 16_384;

/// Three primaries that share all slots evenly, then their replicas.
pub struct Cluster {
    pub nodes: Vec<Server>,
    pub met: Met,
}

/// Counts of the replies that only a cluster sends: redirections and refusals.
#[derive(Debug, Default)]
pub struct Met {
    pub moved: AtomicU64,
    pub ask: AtomicU64,
    /// Counts TRYAGAIN: the keys of one call were on both sides of a migration.
    pub put_off: AtomicU64,
}

impl Met {
    /// Waits until the count that `one` returns has grown.
    pub fn wait_for(&self, one: impl Fn(&Self) -> &AtomicU64) {
        let before = one(self).load(Relaxed);
        eventually("clients meet the migration", || {
            (one(self).load(Relaxed) > before).then_some(())
        });
    }
}

/// The target of a redirection.
pub struct Redirection {
    pub is_ask: bool,
    pub slot: i64,
    pub node: usize,
}

/// Starts a node in cluster mode that knows no other node yet.
fn lone_node() -> Server {
    // The default port of the cluster bus is this port + 10000, which may exceed the range.
    Server::setup()
        .with_tcp()
        .line("cluster-enabled yes")
        .line(&format!("cluster-port {}", free_port()))
        .line("cluster-announce-ip 127.0.0.1")
        // On a slow machine the timeout must not cause an election in the middle of a test.
        .line("cluster-node-timeout 60000")
        .line("cluster-allow-replica-migration no")
        .start()
}

impl Cluster {
    /// Starts three primaries and waits until each of them serves its third of the slots.
    pub fn start() -> Self {
        let nodes = (0..3).map(|_| lone_node()).collect();
        let cluster = Self { nodes, met: Met::default() };
        for (number, node) in cluster.nodes.iter().enumerate() {
            let third = |number: usize| SLOTS * number as i64 / 3;
            let mut client = node.client();
            let (first, last) = (third(number), third(number + 1) - 1);
            client.ok(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            client.ok(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
        }
        for number in 0..3 {
            (number + 1..3).for_each(|other| cluster.meet(number, other));
        }
        cluster.settle();
        cluster
    }

    fn meet(&self, number: usize, other: usize) {
        let mut client = self.nodes[other].client();
        let bus = eventually("a node knows its own ports", || {
            let Value::Array(setting) = client.run("CONFIG GET cluster-port") else { return None };
            setting.get(1).map(super::text)
        });
        let port = self.nodes[other].port();
        self.nodes[number].client().ok(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
    }

    /// Waits until every node lists all nodes and all slots, and no node is in handshake.
    fn settle(&self) {
        for node in &self.nodes {
            let mut client = node.client();
            eventually("every node sees the whole cluster", || {
                let info = super::text(&client.run("CLUSTER INFO"));
                let known = format!("cluster_known_nodes:{}\r", self.nodes.len());
                let all = ["cluster_state:ok", "cluster_slots_assigned:16384", &known];
                let nodes = super::text(&client.run("CLUSTER NODES"));
                let met = !nodes.contains("handshake") && !nodes.contains("disconnected");
                (met && all.iter().all(|line| info.contains(line))).then_some(())
            });
        }
    }

    /// Adds a replica of one of the primaries and waits until it is connected.
    pub fn add_replica(&mut self, primary: usize) -> usize {
        self.nodes.push(lone_node());
        let replica = self.nodes.len() - 1;
        (0..replica).for_each(|other| self.meet(other, replica));
        self.settle();
        let mut client = self.nodes[replica].client();
        let primary = self.id(primary);
        client.ok(&format!("CLUSTER REPLICATE {primary}"));
        eventually("the replica is in step", || {
            let info = client.info("replication");
            let up = info.get("master_link_status").is_some_and(|status| status == "up");
            up.then_some(())
        });
        // A replica cannot win an election until the primaries know it.
        for node in &self.nodes {
            let mut client = node.client();
            eventually("every node knows the replica as one", || {
                match client.run(&format!("CLUSTER REPLICAS {primary}")) {
                    Value::Array(replicas) => (!replicas.is_empty()).then_some(()),
                    other => panic!("no replicas: {other:?}"),
                }
            });
        }
        replica
    }

    /// Returns the id of a node in the cluster.
    pub fn id(&self, node: usize) -> String {
        super::text(&self.nodes[node].client().run("CLUSTER MYID"))
    }

    pub fn slot<A: AsRef<[u8]>>(&self, key: A) -> i64 {
        match self.nodes[0].client().call(&[&b"CLUSTER"[..], b"KEYSLOT", key.as_ref()]) {
            Value::Int(slot) => slot,
            other => panic!("no slot: {other:?}"),
        }
    }

    /// Returns the redirection in `reply`; `None` if it is not a redirection.
    pub fn redirection(&self, reply: &Value) -> Option<Redirection> {
        let text = raw_error(reply)?;
        let words = text.split(' ').collect::<Vec<_>>();
        let [kind @ ("MOVED" | "ASK"), slot, address] = words[..] else { return None };
        let port = address.strip_prefix("127.0.0.1:")?.parse::<u16>().ok()?;
        let node = self.nodes.iter().position(|node| node.port() == port)?;
        Some(Redirection { is_ask: kind == "ASK", slot: slot.parse().ok()?, node })
    }

    /// Returns each node's epoch and slots, as the node of this client sees them.
    fn view(client: &mut Client) -> Vec<String> {
        let nodes = super::text(&client.run("CLUSTER NODES"));
        let view = nodes.lines().map(|line| {
            let words = line.split(' ').collect::<Vec<_>>();
            // A moving slot is in brackets, and listed only by its source and its target.
            let slots = words[8..].iter().filter(|range| !range.starts_with('['));
            let slots = slots.copied().collect::<Vec<_>>().join(" ");
            format!("{} {} {slots}", words[0], words[6])
        });
        let mut sorted = view.collect::<Vec<_>>();
        sorted.sort();
        sorted
    }

    /// Returns the node that owns a key, once all nodes agree on the owner and on every epoch.
    /// Otherwise a late message about one move could undo the next.
    pub fn settled_owner(&self, key: &str) -> usize {
        let mut clients = self.nodes.iter().map(Server::client).collect::<Vec<_>>();
        eventually("all nodes agree on the owner of a slot", || {
            let owners = clients.iter_mut().map(|client| {
                let reply = client.run(&format!("EXISTS {key}"));
                self.redirection(&reply).map(|redirection| redirection.node)
            });
            let owners = owners.collect::<Vec<_>>();
            let owner = owners.iter().position(Option::is_none)?;
            let agreed = |(node, to): (usize, &Option<usize>)| match to {
                None => node == owner,
                Some(to) => *to == owner,
            };
            let mut views = clients.iter_mut().map(Self::view);
            let first = views.next()?;
            let same = views.all(|view| view == first);
            (same && owners.iter().enumerate().all(agreed)).then_some(owner)
        })
    }

    /// Marks a slot as moving, on its source and its target.
    pub fn open_slot(&self, slot: i64, source: usize, target: usize) {
        let (from, to) = (self.id(source), self.id(target));
        self.nodes[target].client().ok(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"));
        self.nodes[source].client().ok(&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"));
    }

    pub fn move_keys(&self, keys: &[String], source: usize, target: usize) {
        let port = self.nodes[target].port();
        let line = format!("MIGRATE 127.0.0.1 {port} \"\" 0 60000 KEYS");
        let mut call = line.split(' ').map(|word| word.trim_matches('"')).collect::<Vec<_>>();
        call.extend(keys.iter().map(String::as_str));
        assert_eq!(self.nodes[source].client().call(&call), Value::Okay);
    }

    /// Assigns a slot to the node that it has moved to.
    pub fn close_slot(&self, slot: i64, target: usize) {
        let to = self.id(target);
        // The new owner comes first: it must know of the slot before other nodes redirect clients
        // to it.
        let others = (0..self.nodes.len()).filter(|node| *node != target);
        for node in [target].into_iter().chain(others) {
            self.nodes[node].client().ok(&format!("CLUSTER SETSLOT {slot} NODE {to}"));
        }
    }

    /// Moves a slot, three keys at a time, as `redis-cli --cluster reshard` does.
    pub fn reshard(&self, slot: i64, source: usize, target: usize) {
        self.reshard_with_pauses(slot, source, target, |_| ());
    }

    /// Moves a slot like `reshard`. After each step, calls `pause` with the number of keys left.
    pub fn reshard_with_pauses(
        &self,
        slot: i64,
        source: usize,
        target: usize,
        pause: impl Fn(usize),
    ) {
        self.open_slot(slot, source, target);
        let mut client = self.nodes[source].client();
        let mut keys = || match client.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1000")) {
            Value::Array(keys) => keys.iter().map(super::text).collect::<Vec<_>>(),
            other => panic!("no keys: {other:?}"),
        };
        let mut left = keys();
        while !left.is_empty() {
            self.move_keys(&left[..left.len().min(3)], source, target);
            left = keys();
            pause(left.len());
        }
        self.close_slot(slot, target);
    }

    /// Returns true if the server has CLUSTER MIGRATESLOTS, even if it refuses this call.
    pub fn can_migrate_atomically(&self) -> bool {
        let error = self.nodes[0].client().error("CLUSTER MIGRATESLOTS");
        !error.starts_with("ERR unknown subcommand")
    }

    /// Moves the slot of a key atomically, and waits until all nodes know the new owner.
    pub fn migrate_atomically(&self, key: &str, source: usize, target: usize) {
        let mut client = self.nodes[source].client();
        let (slot, to) = (self.slot(key), self.id(target));
        client.ok(&format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {to}"));
        eventually("the slot has a new owner", || {
            let migrations = format!("{:?}", client.run("CLUSTER GETSLOTMIGRATIONS"));
            assert!(!migrations.contains("failed"), "{migrations}");
            (self.settled_owner(key) == target).then_some(())
        });
    }

    pub fn client(&self) -> ClusterClient<'_> {
        ClusterClient {
            cluster: self,
            clients: self.nodes.iter().map(Server::client).collect(),
            slots: HashMap::new(),
        }
    }
}

/// A client that follows redirections and remembers the owner of each slot.
pub struct ClusterClient<'cluster> {
    cluster: &'cluster Cluster,
    clients: Vec<Client>,
    /// The last known owner of each slot, learned from MOVED.
    slots: HashMap<i64, usize>,
}

impl ClusterClient<'_> {
    /// Makes a call, follows redirections, and repeats the call after TRYAGAIN. Returns the first
    /// reply of another kind.
    pub fn call(&mut self, slot: i64, words: &[&str]) -> Value {
        let mut redirected_to = None;
        eventually("a node replies", || {
            let owner = self.slots.get(&slot).copied().unwrap_or(0);
            let reply = match redirected_to.take() {
                Some(node) => {
                    let client: &mut Client = &mut self.clients[node];
                    client.ok("ASKING");
                    client.call(words)
                }
                None => self.clients[owner].call(words),
            };
            if let Some(redirection) = self.cluster.redirection(&reply) {
                assert_eq!(redirection.slot, slot, "{words:?}");
                if redirection.is_ask {
                    self.cluster.met.ask.fetch_add(1, Relaxed);
                    redirected_to = Some(redirection.node);
                } else {
                    self.cluster.met.moved.fetch_add(1, Relaxed);
                    self.slots.insert(slot, redirection.node);
                }
                return None;
            }
            let error = raw_error(&reply).unwrap_or_default();
            let put_off = error.starts_with("TRYAGAIN").into();
            self.cluster.met.put_off.fetch_add(put_off, Relaxed);
            let waits = ["TRYAGAIN", "CLUSTERDOWN"].iter().any(|word| error.starts_with(word));
            (!waits).then_some(reply)
        })
    }

    /// Returns the five integers of a call, whichever node replies.
    pub fn decide(&mut self, slot: i64, line: &str) -> super::Reply {
        let reply = self.call(slot, &line.split(' ').collect::<Vec<_>>());
        integers(&reply).unwrap_or_else(|| panic!("{line}: no decision: {reply:?}"))
    }
}
