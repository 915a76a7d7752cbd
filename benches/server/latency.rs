//! Latency under half the load that a server can carry. The load generator offers a fixed rate of
//! calls.

use crate::contestants::Contestant;
use crate::load::{self, Shape};
use crate::node::{Binary, Node};
use crate::rounds::median;
use std::process::Command;

/// The number of turns of each contestant, and the length of a turn in seconds.
const TURNS: usize = 3;
const TURN_S: u64 = 3;

/// One contestant's latency.
pub struct Latency {
    pub name: String,
    /// The calls per second that the load generator offers: half of the contestant's highest rate.
    pub offered: f64,
    /// The 50th, 99th and 99.9th percentile, each the median of the turns.
    pub percentiles_ms: [f64; 3],
    pub command_line: String,
}

/// Measures the latency of each contestant, with the load generator of `valkey`.
pub fn measure(node: &Node, contestants: &[Contestant], valkey: &Binary) -> Vec<Latency> {
    let shape = Shape { pipeline: 1, tcp: true, ..Shape::BASE };
    let half_of = |contestant: &Contestant| {
        load::run(node, &contestant.unchecked(), shape, 100_000);
        let rates = (0..TURNS).map(|_| load::run(node, contestant, shape, 20_000).calls_per_s);
        (median(rates) / 2.0) as u64
    };
    let offered: Vec<u64> = contestants.iter().map(half_of).collect();
    let mut turns = vec![Vec::new(); contestants.len()];
    for _ in 0..TURNS {
        for (index, contestant) in contestants.iter().enumerate() {
            turns[index].push(turn(node, contestant, valkey, offered[index]));
        }
    }
    let latency = |index: usize| Latency {
        name: contestants[index].name.clone(),
        offered: offered[index] as f64,
        percentiles_ms: [0, 1, 2].map(|rank| median(turns[index].iter().map(|turn| turn[rank]))),
        command_line: format!(
            "taskset -c 1 valkey-benchmark -p PORT -c 32 -P 1 -r {} -n {} --rps {} {}",
            Shape::BASE.keys,
            offered[index] * TURN_S,
            offered[index],
            contestants[index].words().join(" ")
        ),
    };
    (0..contestants.len()).map(latency).collect()
}

fn turn(node: &Node, contestant: &Contestant, valkey: &Binary, offered: u64) -> [f64; 3] {
    let output = Command::new("taskset")
        .env("TOOL", "valkey-benchmark")
        .args(["-c", "1"])
        .arg(&valkey.path)
        .args(["-p", &node.port.to_string(), "-c", "32", "-P", "1"])
        .args(["-r", &Shape::BASE.keys.to_string(), "-n", &(offered * TURN_S).to_string()])
        .args(["--rps", &offered.to_string()])
        .args(contestant.words())
        .output()
        .expect("taskset and valkey-benchmark can be run");
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
    [50.0, 99.0, 99.9].map(|percentile| at(&text, percentile))
}

/// Returns the latency at a percentile, in milliseconds. Reads the first line of the distribution
/// at or above that percentile, such as `99.902% <= 1.231 milliseconds (cumulative count 59941)`.
fn at(text: &str, percentile: f64) -> f64 {
    let lines = text.lines().filter_map(|line| {
        let (share, rest) = line.split_once("% <= ")?;
        let ms = rest.split(' ').next()?.parse::<f64>().ok()?;
        (share.trim().parse::<f64>().ok()? >= percentile).then_some(ms)
    });
    let first = lines.into_iter().next();
    first.unwrap_or_else(|| panic!("no percentile {percentile} in: {text}"))
}
