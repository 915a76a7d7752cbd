//! Numbers of bytes: the memory of a key, and the traffic that a call causes to a replica.

use crate::contestants::{Contestant, FIXED_SIZE, Limiter, SLIDINGLOG};
use crate::load::{self, Shape};
use crate::node::{Binary, Node, command_of};
use redis::Cmd;
use std::path::Path;

/// The number of keys measured.
const KEYS: u64 = 200_000;

/// A window so long that no event expires during a measurement.
const HOUR_US: u64 = 3_600_000_000;

/// The memory of one limiter's keys, and of `SET` with values of the same length.
pub struct KeySize {
    pub name: &'static str,
    /// The length of the value after one call and after two calls.
    pub state_bytes: [u64; 2],
    pub bytes_per_key: [f64; 2],
    pub set_bytes_per_key: [f64; 2],
}

impl KeySize {
    /// Returns this limiter's bytes divided by those of `SET`, after one call or two.
    pub fn ratio(&self, calls: usize) -> f64 {
        self.bytes_per_key[calls - 1] / self.set_bytes_per_key[calls - 1]
    }
}

/// Measures bytes per key of one limiter, each figure on its own server.
pub fn key_size(binary: &Binary, module: &Path, limiter: Limiter) -> KeySize {
    let words = limiter.allowed().words().to_vec();
    let call = |key: &str, _| words.iter().map(|word| word.replace("__rand_int__", key)).collect();
    let node = Node::start(binary, module, &[], false);
    let mut state_bytes = [0; 2];
    let bytes_per_key = grow(&node, call, |node, round| {
        let key = words[1].replace("__rand_int__", &name_of(0));
        let len: u64 = Cmd::new().arg("STRLEN").arg(key).query(&mut node.connect()).unwrap();
        state_bytes[round] = len;
    });
    drop(node);
    let node = Node::start(binary, module, &[], false);
    let set = |key: &str, round: usize| {
        let value = "v".repeat(state_bytes[round] as usize);
        // This key's prefix is as long as that of the limiter's keys.
        let key = format!("set:{key}");
        ["SET", &key, &value, "PX", "3600000"].map(str::to_owned).to_vec()
    };
    let set_bytes_per_key = grow(&node, set, |_, _| {});
    KeySize { name: limiter.name, state_bytes, bytes_per_key, set_bytes_per_key }
}

/// Returns the bytes by which memory has grown per key: after one call on each key, and after a
/// second call on each key.
fn grow(
    node: &Node,
    call: impl Fn(&str, usize) -> Vec<String>,
    mut after: impl FnMut(&Node, usize),
) -> [f64; 2] {
    // Make the one-time allocations of a first connection and a first call before the measurement.
    node.run(&["PING"]);
    let before = node.used_memory();
    [0, 1].map(|round| {
        let mut connection = node.connect();
        for first in (0..KEYS).step_by(10_000) {
            let mut pipeline = redis::pipe();
            for index in first..first + 10_000 {
                pipeline.add_command(command_of(&call(&name_of(index), round))).ignore();
            }
            pipeline.query::<()>(&mut connection).expect("every call is accepted");
        }
        // The server resizes its table of keys in steps, and has two tables until the last step.
        // Each access to a key makes a step, so these calls complete the resize.
        for first in (0..KEYS).step_by(10_000) {
            let mut pipeline = redis::pipe();
            for index in first..first + 10_000 {
                let key = call(&name_of(index), round).swap_remove(1);
                pipeline.cmd("PTTL").arg(key).ignore();
            }
            pipeline.query::<()>(&mut connection).expect("every look gets a reply");
        }
        drop(connection);
        after(node, round);
        (node.used_memory() - before) as f64 / KEYS as f64
    })
}

/// Formats the number of a key in the form of the load generator, with 12 digits.
fn name_of(index: u64) -> String {
    format!("{index:012}")
}

/// Returns the bytes of a log with this number of entries, and those of the sorted set that the
/// log's script stores for the same calls.
pub fn log_size(binary: &Binary, module: &Path, entries: u64) -> [f64; 2] {
    let node = Node::start(binary, module, &[], false);
    let contestants =
        [SLIDINGLOG.steady(entries, entries), SLIDINGLOG.steady_evalsha(&node, entries, entries)];
    contestants.map(|contestant| contestant.with_window(HOUR_US)).map(|contestant| {
        let keys = 20;
        let before = node.used_memory();
        let mut connection = node.connect();
        for index in 0..keys * entries {
            let key = name_of(index % keys);
            let words: Vec<String> =
                contestant.words().iter().map(|word| word.replace("__rand_int__", &key)).collect();
            let reply: Vec<i64> = command_of(&words).query(&mut connection).expect("five integers");
            assert_eq!(reply[0], 1, "{}", contestant.name);
        }
        (node.used_memory() - before) as f64 / keys as f64
    })
}

/// Returns the bytes of one key after each of these numbers of consecutive calls under a rule with
/// `limit`, with one row per limiter.
pub fn after_traffic(binary: &Binary, module: &Path, calls: &[u64], limit: u64) -> Vec<Vec<u64>> {
    let node = Node::start(binary, module, &[], false);
    let mut connection = node.connect();
    let sizes_of = |limiter: Limiter| {
        let mut sent = 0;
        let words = limiter.steady(limit, limit).with_window(HOUR_US).words().to_vec();
        let sizes = calls.iter().map(|target| {
            while sent < *target {
                command_of(&words).query::<Vec<i64>>(&mut connection).expect("five integers");
                sent += 1;
            }
            let usage = command_of(&["MEMORY", "USAGE", &words[1], "SAMPLES", "0"]);
            usage.query(&mut connection).expect("a number")
        });
        sizes.collect()
    };
    FIXED_SIZE.into_iter().chain([SLIDINGLOG]).map(sizes_of).collect()
}

/// Returns the bytes that one call of each contestant sends to a replica.
pub fn replicated_bytes(binary: &Binary, module: &Path, contestants: &[Contestant]) -> Vec<f64> {
    let primary = Node::start(binary, module, &[], true);
    let address = format!("replicaof 127.0.0.1 {}", primary.port);
    let replica = Node::start(binary, module, &[&address], false);
    replica.wait_for("replication", "master_link_status", "up");
    let offset = || -> f64 { primary.info("replication")["master_repl_offset"].parse().unwrap() };
    let sent_by = |contestant: &Contestant| {
        // The first calls create the keys; only the later ones are measured.
        load::run(&primary, contestant, Shape::BASE, 200_000);
        let before = offset();
        let calls = 102_400;
        load::run(&primary, contestant, Shape::BASE, calls);
        (offset() - before) / calls as f64
    };
    contestants.iter().map(sent_by).collect()
}
