//! Measures the cost of a decision inside a server, compared with plain commands and with scripts
//! that make the same decision.
//!
//! `make bench` measures the figures that have a bar, and `make bench-full` all others. Both write
//! pages and pictures under `docs/bench/`. With the argument `library`, the program measures and
//! prints only the library for servers without the module. Absolute figures of a shared machine
//! mean little. So runs are short, contestants take turns, and the measure is the ratio within a
//! round.
//!
//! The make targets set `RL_MODULE`, the module built with the feature `noop-command`, and
//! `SERVERS`, the list of `scripts/fetch-servers.sh`. `ROUNDS` sets the number of rounds, `ONLY`
//! selects servers.

mod bars;
mod cluster;
mod contestants;
mod full;
mod latency;
mod leases;
mod library;
mod load;
mod memory;
mod node;
mod plot;
mod report;
mod reserving;
mod rounds;
mod table;

use node::Binary;
use plot::{Labels, Series};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The servers that have bars.
const SERVERS: [&str; 3] = ["redis-7.0", "redis-8.0", "valkey-9.1"];

fn main() {
    let module = PathBuf::from(env::var_os("RL_MODULE").expect("RL_MODULE names the module"));
    let list = env::var_os("SERVERS").expect("SERVERS names a list of servers");
    let list = fs::read_to_string(list).expect("the list of servers can be read");
    let servers: Vec<Binary> = list
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, path)| SERVERS.contains(name) && *path != "-")
        .map(|(name, path)| Binary { name: name.into(), path: path.into() })
        .collect();
    let only = env::var("ONLY").ok().filter(|only| !only.is_empty());
    let is_selected = |binary: &&Binary| only.as_ref().is_none_or(|only| *only == binary.name);
    let binaries: Vec<Binary> = servers.iter().filter(is_selected).cloned().collect();
    assert!(!binaries.is_empty(), "no server to measure: ONLY is one of {SERVERS:?}");
    let rounds = |default| {
        let text = env::var("ROUNDS").unwrap_or_default();
        if text.is_empty() { default } else { text.parse().expect("ROUNDS is a number") }
    };
    let is_requested = |part: &str| env::args().any(|argument| argument == part);
    if is_requested("library") {
        let measure = |binary| bars::measure_library(binary, &module, rounds(9).max(1));
        let all: Vec<bars::Bars> = binaries.iter().map(measure).collect();
        println!("{}", report::bars(&all).markdown());
        return;
    }
    let is_full = is_requested("full");
    let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bench");
    fs::create_dir_all(&out).expect("docs/bench can be created");
    if is_full {
        let valkey = servers.iter().find(|binary| binary.name == "valkey-9.1");
        full::run(&binaries, valkey, &module, rounds(9).max(1), &out);
    } else {
        measure_bars(&binaries, &module, rounds(15).max(1), &out);
    }
}

fn measure_bars(binaries: &[Binary], module: &Path, rounds: usize, out: &Path) {
    let load_before = report::load_average();
    let all: Vec<bars::Bars> =
        binaries.iter().map(|binary| bars::measure(binary, module, rounds)).collect();
    let environment = report::environment(binaries, rounds, &load_before);
    let bars = report::bars(&all);
    let table = bars.markdown();
    let mut page = format!(
        "# Figures with a bar\n\n`make bench` wrote this page. A ratio is the median of the \
         ratios of calls per second within a round.\n\n{}\n{table}",
        environment.markdown()
    );
    let mut data = report::TSV_HEADING.to_owned();
    data += &environment.tsv("environment");
    data += &bars.tsv("bars");
    for bars in &all {
        let rates = report::rates(&bars.figures);
        let remark = report::remark(&bars.figures);
        page += &format!("\n## {}\n\n{}{remark}\n", bars.server, rates.markdown());
        data += &rates.tsv(&bars.server);
        page += &report::command_lines(&bars.command_lines);
    }
    fs::write(out.join("bars.md"), page).expect("the page can be written");
    fs::write(out.join("bars.tsv"), data).expect("the data can be written");
    let groups = bars::FOUR.map(|limiter| limiter.command.to_owned());
    let mut series = Vec::new();
    for bars in &all {
        for (kind, values) in ["", ", as a Lua script"].iter().zip(bars.by_set()) {
            let points = values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
            series.push(Series { name: format!("{}{kind}", bars.server), points });
        }
    }
    let labels = Labels {
        title: "Allowed calls per second, as a share of SET PX",
        at_one: Some("SET PX"),
        is_paired: true,
        ..Labels::default()
    };
    plot::bars(&out.join("bars.svg"), &labels, &groups, &series).expect("the plot can be drawn");
    println!("{table}");
    let missed = all.iter().flat_map(|bars| &bars.rows).filter(|row| !row.is_met()).count();
    println!("{missed} bars missed. Page and plot: docs/bench/bars.md, docs/bench/bars.svg");
}
