//! Latency under half the load that a server can carry, by a generator that offers a fixed rate.

use crate::contestants::Contestant;
use crate::load::{self, Shape};
use crate::node::{Binary, Node};
use crate::report::{Table, thousands};
use std::process::Command;

/// Percentiles at half of the calls per second that each contestant reached before.
///
/// # Errors
///
/// Why there is no load generator that offers a fixed rate.
pub fn measure(
    node: &Node,
    contestants: &[Contestant],
    valkey: Option<&Binary>,
) -> Result<Table, String> {
    let valkey = valkey.ok_or("it takes the valkey-benchmark of Valkey 9.1")?;
    let mut table = Table::new(&["contestant", "offered calls/s", "p50 ms", "p99 ms", "p99.9 ms"]);
    for contestant in contestants {
        let shape = Shape { pipeline: 1, tcp: true, ..Shape::BASE };
        let most = load::run(node, contestant, shape, 60_000).calls_per_s;
        let offered = (most / 2.0) as u64;
        let calls = (offered * 4).to_string();
        let output = Command::new("taskset")
            .env("TOOL", "valkey-benchmark")
            .args(["-c", "1"])
            .arg(&valkey.path)
            .args(["-p", &node.port.to_string(), "-c", "32", "-P", "1"])
            .args(["-r", "10000", "-n", &calls, "--rps", &offered.to_string()])
            .args(contestant.words())
            .output()
            .map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).replace('\r', "\n");
        let mut cells = vec![contestant.name.clone(), thousands(offered as f64)];
        for percentile in [50.0, 99.0, 99.9] {
            cells.push(format!("{:.2}", at(&text, percentile)?));
        }
        table.row(cells);
    }
    Ok(table)
}

/// The first line of the distribution at or above a percentile, in milliseconds:
/// `99.902% <= 1.231 milliseconds (cumulative count 59941)`.
fn at(text: &str, percentile: f64) -> Result<f64, String> {
    let lines = text.lines().filter_map(|line| {
        let (share, rest) = line.split_once("% <= ")?;
        let ms = rest.split(' ').next()?.parse::<f64>().ok()?;
        (share.trim().parse::<f64>().ok()? >= percentile).then_some(ms)
    });
    lines.into_iter().next().ok_or_else(|| format!("no percentile {percentile} in: {text}"))
}
