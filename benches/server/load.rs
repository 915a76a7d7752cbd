//! The load: `redis-benchmark` on its own core. The figures of a run come from the output of
//! `redis-benchmark` and from the server.

use crate::contestants::{Contestant, Expected};
use crate::node::Node;
use std::process::Command;

/// The core of the load generator. The servers use the other core.
const CORE: &str = "1";

/// The number of connections.
const CONNECTIONS: &str = "32";

/// The shape of a load: its calls in flight, its keys and its transport.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of calls in flight on each connection.
    pub pipeline: u32,
    /// The number of keys from which each call picks at random.
    pub keys: u64,
    /// Whether to use TCP on the loopback address. If not, the unix socket is used.
    pub tcp: bool,
}

/// The figures of one run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub calls_per_s: f64,
    /// The CPU time of the server for one call, in microseconds.
    pub cpu_us: f64,
    /// The time inside the command alone, as the server reports it.
    pub usec_per_call: f64,
    /// The fraction of time during which the server was busy. If it is far below 1, the load
    /// generator was too slow.
    pub busy: f64,
    /// The fraction of calls decided as expected; 1 if the calls have no decision.
    pub share: f64,
}

impl Shape {
    /// The shape of most figures: pipeline 32, 10,000 keys.
    pub const BASE: Self = Self { pipeline: 32, keys: 10_000, tcp: false };

    /// A shape in which almost every call creates its key, because there are far more keys than
    /// calls. The load generator counts keys in 31 bits.
    pub const NEW_KEYS: Self = Self { keys: 2_000_000_000, ..Self::BASE };

    /// Returns the arguments of the load generator that come before the command.
    fn words(self, node: &Node, calls: u64) -> Vec<String> {
        let place = match self.tcp {
            true => vec!["-p".into(), node.port.to_string()],
            false => vec!["-s".into(), node.socket().display().to_string()],
        };
        let [pipeline, keys] = [self.pipeline.to_string(), self.keys.to_string()];
        let load = ["-c", CONNECTIONS, "-P", &pipeline, "-r", &keys].map(str::to_owned);
        [place, load.to_vec(), vec!["-n".into(), calls.to_string(), "-q".into()]].concat()
    }

    /// Returns the command line of a run, for the report.
    pub fn command_line(self, contestant: &Contestant, calls: u64) -> String {
        let place = if self.tcp { "-p PORT" } else { "-s socket" };
        let Self { pipeline, keys, .. } = self;
        let load = format!("-c {CONNECTIONS} -P {pipeline} -r {keys} -n {calls} -q");
        let words = contestant.words().join(" ");
        format!("taskset -c {CORE} redis-benchmark {place} {load} {words}")
    }
}

/// Returns the shape of calls on logs with this limit, and the number of events that all logs
/// together hold. All logs together have room for 100,000 events. They hold fewer, because random
/// picks fill some logs more than others and no log may overflow.
pub fn log_case(limit: u64) -> (Shape, u64) {
    let keys = 100_000 / limit;
    let share = (1.0 - 2.5 / (limit as f64).sqrt()).clamp(0.3, 0.9);
    (Shape { keys, ..Shape::BASE }, (100_000.0 * share) as u64)
}

/// Makes `calls` calls and measures them.
///
/// # Panics
///
/// If a call failed or was not decided as expected, because the figure would be meaningless.
pub fn run(node: &Node, contestant: &Contestant, shape: Shape, calls: u64) -> Run {
    node.run(&["CONFIG", "RESETSTAT"]);
    let decided_before = count_decided(node, contestant);
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
    // The load may send more calls than requested, to fill its pipelines.
    let sent = number("calls");
    assert!(sent >= calls as f64, "{}: {sent} of {calls} calls", contestant.name);
    let share = match (decided_before, count_decided(node, contestant)) {
        (Some(before), Some(after)) => (after - before) / sent,
        _ => 1.0,
    };
    // Random picks miss about one key in a thousand during the preparation. The first call on such
    // a key is decided differently.
    let is_right = share >= 0.999 || contestant.expected == Expected::MostlyAllowed;
    assert!(is_right, "{}: {share} decided as expected", contestant.name);
    let busy = (cpu_us / (sent / calls_per_s * 1e6)).min(1.0);
    let usec_per_call = number("usec_per_call");
    Run { calls_per_s, cpu_us: cpu_us / sent, usec_per_call, busy, share }
}

/// Returns the number of calls decided as expected so far; `None` if any decision is expected. The
/// module counts its decisions. For a script, the number is calculated from the server's count of
/// writes: an allowed call makes one write per key, and a denied call makes none.
fn count_decided(node: &Node, contestant: &Contestant) -> Option<f64> {
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

/// Returns a field of a line of `INFO commandstats`.
fn number(stat: &str, name: &str) -> Option<f64> {
    stat.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}
