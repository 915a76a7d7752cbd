//! `make bench-full`: everything else one may want to know, a page for each server.

use crate::bars::{LOG_SHAPE, steady_log};
use crate::contestants::{Contestant, FIXED_SIZE, GCRA, Limiter, SLIDINGLOG};
use crate::load::{self, Shape};
use crate::node::{Binary, Node};
use crate::plot::{self, Labels, Series};
use crate::report::{self, Table};
use crate::rounds::{self, Figures};
use crate::{cluster, latency, memory};
use std::fs;
use std::path::Path;

/// Measures every server. The load generator of `valkey` can offer a fixed rate.
pub fn run(binaries: &[Binary], valkey: Option<&Binary>, module: &Path, rounds: usize, out: &Path) {
    for binary in binaries {
        let mut page = Page {
            binary,
            module,
            rounds,
            out,
            text: format!(
                "# {}\n\n`make bench-full` wrote this page. The ratio is to the first row.\n\n{}",
                binary.name,
                report::environment(std::slice::from_ref(binary), rounds)
            ),
            command_lines: Vec::new(),
        };
        page.pipelines();
        page.keys();
        page.new_keys();
        page.append_only();
        page.replica();
        page.memory();
        page.traffic();
        page.log_limits();
        page.latency(valkey);
        page.cluster();
        page.finish();
    }
}

struct Page<'a> {
    binary: &'a Binary,
    module: &'a Path,
    rounds: usize,
    out: &'a Path,
    text: String,
    command_lines: Vec<String>,
}

/// The six, allowed.
fn six() -> impl Iterator<Item = Contestant> {
    FIXED_SIZE.into_iter().chain([SLIDINGLOG]).map(Limiter::allowed)
}

/// Plain commands, and the limiters that decide in constant memory: a log that nothing ever leaves
/// grows, so it is measured in a steady state, by itself.
fn some() -> Vec<Contestant> {
    let plain = [Contestant::set(), Contestant::incr(), Contestant::noop()];
    plain.into_iter().chain(FIXED_SIZE.map(Limiter::allowed)).collect()
}

/// Everyone.
fn all(node: &Node) -> Vec<Contestant> {
    let mut all = some();
    all.insert(1, Contestant::ping());
    let six = || FIXED_SIZE.into_iter().chain([SLIDINGLOG]);
    all.extend(six().map(Limiter::denied));
    all.extend(FIXED_SIZE.map(Limiter::peeked));
    all.extend(FIXED_SIZE.map(|limiter| limiter.evalsha(node)));
    all.extend(FIXED_SIZE.map(|limiter| limiter.fcall(node)));
    all
}

fn cpu_us(figures: &[Figures], name: &str) -> f64 {
    figures.iter().find(|figures| figures.name == name).map_or(0.0, |found| found.median.cpu_us)
}

impl Page<'_> {
    fn node(&mut self, settings: &[&str], tcp: bool) -> Node {
        let node = Node::start(self.binary, self.module, settings, tcp);
        self.command_lines.push(node.command_line.clone());
        node
    }

    fn section(&mut self, title: &str, body: &str) {
        eprintln!("{}: {title}", self.binary.name);
        println!("\n{}: {title}\n\n{body}", self.binary.name);
        self.text += &format!("\n## {title}\n\n{body}");
    }

    fn rates(&mut self, title: &str, figures: &[Figures]) {
        self.command_lines.extend(figures.iter().map(|figures| figures.command_line.clone()));
        self.section(title, &report::rates(figures));
    }

    /// Where a picture of this server goes.
    fn picture(&mut self, name: &str) -> std::path::PathBuf {
        let file = format!("{}-{name}.svg", self.binary.name);
        self.text += &format!("\n![{name}]({file})\n");
        self.out.join(file)
    }

    fn pipelines(&mut self) {
        let node = self.node(&[], true);
        let contestants = all(&node);
        let shown = ["SET PX", "RL.GCRA", "RL.FIXED", "no-op", "GCRA EVALSHA", "GCRA FCALL"];
        let mut series = shown.map(|name| Series { name: name.into(), points: Vec::new() });
        for pipeline in [1, 16, 64] {
            let shape = Shape { pipeline, ..Shape::BASE };
            let figures = rounds::measure(&node, &contestants, shape, self.rounds);
            for series in &mut series {
                let found = figures.iter().find(|figures| figures.name == series.name);
                let rate = found.map_or(0.0, |found| found.median.calls_per_s);
                series.points.push((pipeline.into(), rate / 1_000.0));
            }
            self.rates(&format!("Pipeline {pipeline}, 10,000 keys"), &figures);
        }
        let few = [Contestant::set(), GCRA.allowed(), GCRA.evalsha(&node)];
        let shape = Shape { pipeline: 1, tcp: true, ..Shape::BASE };
        let figures = rounds::measure(&node, &few, shape, self.rounds);
        self.rates("Pipeline 1 over TCP, 10,000 keys", &figures);
        let path = self.picture("pipelines");
        let labels = Labels { title: "Calls by pipeline", x: "pipeline", y: "1,000 calls/s" };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn keys(&mut self) {
        let contestants = some();
        let shown = ["SET PX", "INCR", "RL.GCRA", "RL.FIXED", "RL.TOKENBUCKET", "RL.SLIDING"];
        let mut series = shown.map(|name| Series { name: name.into(), points: Vec::new() });
        for keys in [1, 10_000, 1_000_000] {
            let node = self.node(&[], false);
            let shape = Shape { keys, ..Shape::BASE };
            let figures = rounds::measure(&node, &contestants, shape, self.rounds);
            for series in &mut series {
                series.points.push((keys as f64, cpu_us(&figures, &series.name)));
            }
            let title = format!("{} keys, pipeline 32", report::thousands(keys as f64));
            self.rates(&title, &figures);
        }
        let path = self.picture("keys");
        let labels = Labels { title: "CPU time by number of keys", x: "keys", y: "us per call" };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn new_keys(&mut self) {
        let node = self.node(&[], false);
        // Twelve random digits are hardly ever those of an earlier call.
        let shape = Shape { keys: 999_999_999_999, ..Shape::BASE };
        let figures = rounds::measure(&node, &some(), shape, self.rounds);
        self.rates("New keys only, pipeline 32", &figures);
    }

    fn append_only(&mut self) {
        let node = self.node(&["appendonly yes", "appendfsync everysec"], false);
        let figures = rounds::measure(&node, &some(), Shape::BASE, self.rounds);
        self.rates("AOF everysec, 10,000 keys, pipeline 32", &figures);
    }

    fn replica(&mut self) {
        let primary = self.node(&[], true);
        let address = format!("replicaof 127.0.0.1 {}", primary.port);
        let replica = self.node(&[&address], false);
        replica.wait_for("replication", "master_link_status", "up");
        let mut table = Table::new(&["contestant", "CPU us, primary", "CPU us, replica"]);
        for contestant in some().iter().filter(|contestant| contestant.name != "no-op") {
            load::run(&primary, contestant, Shape::BASE, 102_400);
            self.catch_up(&primary, &replica);
            let before_us = replica.cpu_us();
            let calls = 204_800;
            let run = load::run(&primary, contestant, Shape::BASE, calls);
            self.catch_up(&primary, &replica);
            let replica_us = (replica.cpu_us() - before_us) / calls as f64;
            let cells = [format!("{:.2}", run.cpu_us), format!("{replica_us:.2}")];
            table.row([vec![contestant.name.clone()], cells.to_vec()].concat());
        }
        self.section("One replica on the same core: CPU time per call", &table.markdown());
        drop((primary, replica));

        let contestants: Vec<Contestant> = [Contestant::set()].into_iter().chain(six()).collect();
        let bytes = memory::replicated(self.binary, self.module, &contestants);
        let mut table = Table::new(&["contestant", "bytes"]);
        for (contestant, bytes) in contestants.iter().zip(bytes) {
            table.row(vec![contestant.name.clone(), format!("{bytes:.1}")]);
        }
        self.section("Bytes of replication per call", &table.markdown());
    }

    fn catch_up(&self, primary: &Node, replica: &Node) {
        let offset = primary.info("replication")["master_repl_offset"].clone();
        replica.wait_for_at_least("replication", "slave_repl_offset", offset.parse().unwrap());
    }

    fn memory(&mut self) {
        let heading =
            ["limiter", "state bytes", "new key", "SET", "ratio", "twice called", "SET", "ratio"];
        let mut table = Table::new(&heading);
        for limiter in FIXED_SIZE {
            let size = memory::key_size(self.binary, self.module, limiter);
            table.row(vec![
                size.name.into(),
                size.state_bytes[1].to_string(),
                format!("{:.1}", size.bytes_per_key[0]),
                format!("{:.1}", size.set_bytes_per_key[0]),
                format!("{:.3}", size.ratio(1)),
                format!("{:.1}", size.bytes_per_key[1]),
                format!("{:.1}", size.set_bytes_per_key[1]),
                format!("{:.3}", size.ratio(2)),
            ]);
        }
        let title = "Bytes per key over 200,000 keys, beside SET PX of a value as long";
        self.section(title, &table.markdown());
    }

    fn traffic(&mut self) {
        let calls = [1, 10, 100, 1_000, 10_000];
        let sizes = memory::after_traffic(self.binary, self.module, &calls, 1_000);
        let names: Vec<&str> =
            FIXED_SIZE.iter().chain([&SLIDINGLOG]).map(|limiter| limiter.name).collect();
        let mut table = Table::new(&["limiter", "1 call", "10", "100", "1,000", "10,000"]);
        for (name, sizes) in names.iter().zip(&sizes) {
            let cells = sizes.iter().map(u64::to_string).collect::<Vec<_>>();
            table.row([vec![(*name).to_owned()], cells].concat());
        }
        let title = "Bytes of one key by calls made on it, limit 1,000 (MEMORY USAGE)";
        self.section(title, &table.markdown());
        let points = |sizes: &Vec<u64>| {
            calls.iter().zip(sizes).map(|(calls, size)| (*calls as f64, *size as f64)).collect()
        };
        let series: Vec<Series> = names
            .iter()
            .zip(&sizes)
            .map(|(name, sizes)| Series { name: (*name).to_owned(), points: points(sizes) })
            .collect();
        let path = self.picture("traffic");
        let labels = Labels { title: "Memory of a key by calls on it", x: "calls", y: "bytes" };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn log_limits(&mut self) {
        let mut table = Table::new(&["limit", "CPU us", "Lua ZSET, CPU us", "calls/s by Lua"]);
        let mut series =
            ["RL.SLIDINGLOG", "Lua ZSET"].map(|name| Series { name: name.into(), points: vec![] });
        for limit in [10, 1_000, 100_000] {
            let node = self.node(&[], false);
            let mut group =
                vec![steady_log(&node, |window_us| SLIDINGLOG.steady(limit, window_us), limit)];
            if limit < 100_000 {
                // With a member for each event, the sorted sets of a larger limit take minutes.
                let script = |window_us| SLIDINGLOG.steady_evalsha(&node, limit, window_us);
                group.push(steady_log(&node, script, limit));
            }
            let figures = rounds::measure_for(&node, &group, LOG_SHAPE, self.rounds, 1.0);
            let mut cells = vec![report::thousands(limit as f64)];
            for (series, figures) in series.iter_mut().zip(&figures) {
                series.points.push((limit as f64, figures.median.cpu_us));
                cells.push(format!("{:.2}", figures.median.cpu_us));
            }
            cells.push(figures.get(1).map_or("-".into(), |lua| format!("{:.2}", 1.0 / lua.ratio)));
            cells.resize(4, "-".into());
            table.row(cells);
        }
        self.section("Sliding log in a steady state, by limit", &table.markdown());
        let path = self.picture("log-limit");
        let labels = Labels { title: "CPU time by limit of a log", x: "limit", y: "us per call" };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn latency(&mut self, valkey: Option<&Binary>) {
        let node = self.node(&[], true);
        let contestants = [Contestant::set(), GCRA.allowed(), GCRA.evalsha(&node)];
        match latency::measure(&node, &contestants, valkey) {
            Ok(table) => self.section("Latency at half load, pipeline 1, TCP", &table.markdown()),
            Err(why) => self.section("Latency at half load", &format!("Not measured: {why}.\n")),
        }
    }

    fn cluster(&mut self) {
        let mut table = Table::new(&["contestant", "1 node, CPU us", "3 nodes, CPU us", "ratio"]);
        for contestant in [Contestant::set(), GCRA.allowed()] {
            let [one, three] =
                [1, 3].map(|count| cluster::cpu_us(self.binary, self.module, count, &contestant));
            table.row(vec![
                contestant.name.clone(),
                format!("{one:.2}"),
                format!("{three:.2}"),
                format!("{:.2}", three / one),
            ]);
        }
        self.section("Cluster: CPU time per call, all nodes together", &table.markdown());
    }

    fn finish(self) {
        let lines = report::command_lines(&self.command_lines);
        let page = format!("{}\n## Command lines\n\n{lines}", self.text);
        let path = self.out.join(format!("{}.md", self.binary.name));
        fs::write(path, page).expect("the page can be written");
    }
}
