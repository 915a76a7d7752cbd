//! The load: `redis-benchmark` on the other core, and what it and the server say of a run.

use crate::contestants::{Contestant, Expected};
use crate::node::Node;
use std::process::Command;

/// The core of the load. The servers have the other one.
const CORE: &str = "1";

/// Connections at a time.
const CONNECTIONS: &str = "32";

/// How a contestant is asked.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Calls in flight on each connection.
    pub pipeline: u32,
    /// Among how many keys each call picks one.
    pub keys: u64,
    /// Through TCP on the loopback rather than the unix socket.
    pub tcp: bool,
}

/// What came of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub calls_per_s: f64,
    /// CPU time of the server for one call.
    pub cpu_us: f64,
    /// The time inside the command alone, as the server reports it.
    pub usec_per_call: f64,
    /// Share of the time that the server was busy: far below 1, the load was too slow for it.
    pub busy: f64,
    /// Share of the calls that were decided as expected, 1 where nothing is decided.
    pub share: f64,
}

impl Shape {
    /// The shape of the figures: pipeline 32, 10,000 keys.
    pub const BASE: Self = Self { pipeline: 32, keys: 10_000, tcp: false };

    /// So many keys that hardly a call finds the one it picks. The load counts them in 31 bits.
    pub const NEW_KEYS: Self = Self { keys: 2_000_000_000, ..Self::BASE };

    /// The words of the load generator in front of the command's.
    fn words(self, node: &Node, calls: u64) -> Vec<String> {
        let place = match self.tcp {
            true => vec!["-p".into(), node.port.to_string()],
            false => vec!["-s".into(), node.socket().display().to_string()],
        };
        let [pipeline, keys] = [self.pipeline.to_string(), self.keys.to_string()];
        let load = ["-c", CONNECTIONS, "-P", &pipeline, "-r", &keys].map(str::to_owned);
        [place, load.to_vec(), vec!["-n".into(), calls.to_string(), "-q".into()]].concat()
    }

    /// The command line of a run, for the report.
    pub fn command_line(self, contestant: &Contestant, calls: u64) -> String {
        let place = if self.tcp { "-p PORT" } else { "-s socket" };
        let Self { pipeline, keys, .. } = self;
        let load = format!("-c {CONNECTIONS} -P {pipeline} -r {keys} -n {calls} -q");
        let words = contestant.words().join(" ");
        format!("taskset -c {CORE} redis-benchmark {place} {load} {words}")
    }
}

/// How logs of a limit are asked, and how many events they hold together: whatever the limit, they
/// have room for 100,000, and are as full as random picks allow without overflowing.
pub fn log_case(limit: u64) -> (Shape, u64) {
    let keys = 100_000 / limit;
    let share = (1.0 - 2.5 / (limit as f64).sqrt()).clamp(0.3, 0.9);
    (Shape { keys, ..Shape::BASE }, (100_000.0 * share) as u64)
}

/// Makes so many calls and measures them.
///
/// # Panics
///
/// When a call failed or was not decided as the contestant expects: the figure would mean nothing.
pub fn run(node: &Node, contestant: &Contestant, shape: Shape, calls: u64) -> Run {
    node.run(&["CONFIG", "RESETSTAT"]);
    let decided_before = decided(node, contestant);
    let cpu_before_us = node.cpu_us();
    let output = Command::new("taskset")
        .args(["-c", CORE, "redis-benchmark"])
        .args(shape.words(node, calls))
        .args(contestant.words())
        .output()
        .expect("taskset and redis-benchmark can be run");
    let cpu_us = node.cpu_us() - cpu_before_us;
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
    let rate_in = |line: &str| {
        let (before, _) = line.split_once(" requests per second")?;
        before.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let rate = text.lines().rev().find_map(rate_in);
    let calls_per_s = rate.unwrap_or_else(|| panic!("{}: {text}", contestant.name));
    let stats = node.info("commandstats");
    let stat = &stats[&format!("cmdstat_{}", contestant.command().to_lowercase())];
    let number = |name: &str| number(stat, name).unwrap_or(0.0);
    assert_eq!(number("failed_calls") + number("rejected_calls"), 0.0, "{}", contestant.name);
    // It may send some more than it was asked for, to fill its pipelines.
    let made = number("calls");
    assert!(made >= calls as f64, "{}: {made} of {calls} calls", contestant.name);
    let share = match (decided_before, decided(node, contestant)) {
        (Some(before), Some(after)) => (after - before) / made,
        _ => 1.0,
    };
    // A random pick leaves a key in a thousand untouched, whose first call differs.
    let is_right = share >= 0.999 || contestant.expected == Expected::MostlyAllowed;
    assert!(is_right, "{}: {share} decided as expected", contestant.name);
    let busy = (cpu_us / (made / calls_per_s * 1e6)).min(1.0);
    let usec_per_call = number("usec_per_call");
    Run { calls_per_s, cpu_us: cpu_us / made, usec_per_call, busy, share }
}

/// How many calls were decided as the contestant expects so far. The module counts them; for a
/// script the server counts the writes, of which an allowed call makes one for each of its keys and
/// a denied one none.
fn decided(node: &Node, contestant: &Contestant) -> Option<f64> {
    let outcome = match contestant.expected {
        Expected::Any => return None,
        Expected::Allowed | Expected::MostlyAllowed => "allowed",
        Expected::Denied => "denied",
    };
    let Some(name) = contestant.command().strip_prefix("RL.") else {
        let stats = node.info("commandstats");
        let names = ["set", "setrange", "incr", "zadd"];
        let writes = names.map(|name| stats.get(&format!("cmdstat_{name}")));
        let writes = writes.into_iter().flatten().filter_map(|stat| number(stat, "calls"));
        return Some(writes.sum::<f64>() / contestant.keys() as f64);
    };
    node.info("rl")[&format!("rl_{}_{outcome}", name.to_lowercase())].parse().ok()
}

/// A field of a line of `INFO commandstats`.
fn number(stat: &str, name: &str) -> Option<f64> {
    stat.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}
