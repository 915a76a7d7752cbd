//! `make bench-full`: all measurements without a bar, on one page per server.

use crate::bars::AOF;
use crate::contestants::{Contestant, FIXED_SIZE, GCRA, Limiter, SLIDINGLOG};
use crate::load::{self, Shape, log_case};
use crate::node::{Binary, Node};
use crate::plot::{self, Labels, Series};
use crate::report::{self, Table};
use crate::rounds::{self, Figures, median};
use crate::{cluster, latency, memory};
use std::fs;
use std::path::Path;

/// The number of calls in a run that measures a replica, which applies the effects of these calls.
const REPLICATED: u64 = 51_200;

/// Measures every server. Latency is measured with the load generator of the server `valkey`,
/// because only that one can offer a fixed rate of calls.
pub fn run(binaries: &[Binary], valkey: Option<&Binary>, module: &Path, rounds: usize, out: &Path) {
    for binary in binaries {
        let mut page = Page {
            binary,
            module,
            rounds,
            out,
            load_before: report::load_average(),
            text: String::new(),
            data: String::new(),
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
    load_before: String,
    text: String,
    /// The same figures as tab-separated values.
    data: String,
    command_lines: Vec<String>,
}

fn six() -> impl Iterator<Item = Limiter> {
    FIXED_SIZE.into_iter().chain([SLIDINGLOG])
}

/// Returns plain commands and the limiters whose memory is constant. A log grows as long as its
/// events do not expire, so logs are measured separately, in a steady state.
fn some() -> Vec<Contestant> {
    let plain = [Contestant::set(), Contestant::incr(), Contestant::noop()];
    plain.into_iter().chain(FIXED_SIZE.map(Limiter::allowed)).collect()
}

/// Returns all contestants.
fn all(node: &Node) -> Vec<Contestant> {
    let mut all = some();
    all.insert(1, Contestant::ping());
    all.extend(six().map(Limiter::denied));
    // Fill the logs that the peeks read with ten events each, because no other contestant fills
    // them.
    load::run(node, &SLIDINGLOG.allowed(), Shape::BASE, 10 * Shape::BASE.keys);
    all.extend(six().map(Limiter::peeked));
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

    fn section(&mut self, title: &str, table: &Table, remark: &str) {
        let body = table.markdown() + remark;
        println!("\n{}: {title}\n\n{body}", self.binary.name);
        self.text += &format!("\n## {title}\n\n{body}");
        self.data += &table.tsv(title);
    }

    fn progress(&self, case: &str) {
        eprintln!("{}: {case}", self.binary.name);
    }

    /// Measures a case and adds it to the page.
    fn case(
        &mut self,
        title: &str,
        node: &Node,
        group: &[Contestant],
        shape: Shape,
    ) -> Vec<Figures> {
        self.progress(title);
        let figures = rounds::measure(node, group, shape, self.rounds);
        self.rates(title, &figures);
        figures
    }

    fn rates(&mut self, title: &str, figures: &[Figures]) {
        self.command_lines.extend(figures.iter().map(|figures| figures.command_line.clone()));
        self.section(title, &report::rates(figures), report::remark(figures));
    }

    /// Adds a picture to the page and returns its path.
    fn picture(&mut self, name: &str) -> std::path::PathBuf {
        let file = format!("{}-{name}.svg", self.binary.name);
        self.text += &format!("\n![{name}]({file})\n");
        self.out.join(file)
    }

    fn pipelines(&mut self) {
        let node = self.node(&[], true);
        let contestants = all(&node);
        let plotted = ["SET PX", "RL.GCRA", "RL.FIXED", "no-op", "GCRA EVALSHA", "GCRA FCALL"];
        let mut series = plotted.map(|name| Series { name: name.into(), points: Vec::new() });
        for pipeline in [1, 16, 32, 64] {
            let shape = Shape { pipeline, ..Shape::BASE };
            let title = format!("Pipeline {pipeline}, 10,000 keys");
            let figures = self.case(&title, &node, &contestants, shape);
            for series in &mut series {
                let found = figures.iter().find(|figures| figures.name == series.name);
                let rate = found.map_or(0.0, |found| found.median.calls_per_s);
                series.points.push((pipeline.into(), rate / 1_000.0));
            }
        }
        let few = [Contestant::set(), GCRA.allowed(), GCRA.evalsha(&node)];
        let shape = Shape { pipeline: 1, tcp: true, ..Shape::BASE };
        self.case("Pipeline 1 over TCP, 10,000 keys", &node, &few, shape);
        let path = self.picture("pipelines");
        let labels = Labels {
            title: "Calls by pipeline (1,000 calls/s)",
            x: "pipeline",
            y: "1,000 calls/s",
            ..Labels::default()
        };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn keys(&mut self) {
        let contestants = some();
        let plotted = ["SET PX", "INCR", "RL.GCRA", "RL.FIXED", "RL.TOKENBUCKET", "RL.SLIDING"];
        let mut series = plotted.map(|name| Series { name: name.into(), points: Vec::new() });
        for keys in [1, 100, 10_000, 100_000, 1_000_000] {
            let node = self.node(&[], false);
            let shape = Shape { keys, ..Shape::BASE };
            let title = format!("{} keys, pipeline 32", report::thousands(keys as f64));
            let figures = self.case(&title, &node, &contestants, shape);
            for series in &mut series {
                series.points.push((keys as f64, cpu_us(&figures, &series.name)));
            }
        }
        let path = self.picture("keys");
        let labels = Labels {
            title: "CPU time of the server by number of keys (us per call)",
            x: "keys",
            y: "us per call",
            ..Labels::default()
        };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn new_keys(&mut self) {
        let node = self.node(&[], false);
        self.case("New keys only, pipeline 32", &node, &some(), Shape::NEW_KEYS);
    }

    fn append_only(&mut self) {
        let node = self.node(&AOF, false);
        self.case("AOF everysec, 10,000 keys, pipeline 32", &node, &some(), Shape::BASE);
    }

    fn replica(&mut self) {
        self.progress("one replica");
        let primary = self.node(&[], true);
        let address = format!("replicaof 127.0.0.1 {}", primary.port);
        let replica = self.node(&[&address], false);
        replica.wait_for("replication", "master_link_status", "up");
        let contestants: Vec<Contestant> = [Contestant::set(), Contestant::incr()]
            .into_iter()
            .chain(FIXED_SIZE.map(Limiter::allowed))
            .collect();
        for contestant in &contestants {
            load::run(&primary, contestant, Shape::BASE, 100_000);
        }
        let mut runs = vec![Vec::new(); contestants.len()];
        for _ in 0..self.rounds {
            for (contestant, runs) in contestants.iter().zip(&mut runs) {
                self.catch_up(&primary, &replica);
                let before_us = replica.cpu_us();
                let run = load::run(&primary, contestant, Shape::BASE, REPLICATED);
                self.catch_up(&primary, &replica);
                runs.push((run.cpu_us, (replica.cpu_us() - before_us) / REPLICATED as f64));
            }
        }
        let mut table = Table::new(&["contestant", "CPU us, primary", "CPU us, replica"]);
        for (contestant, runs) in contestants.iter().zip(&runs) {
            let primary_us = median(runs.iter().map(|run| run.0));
            let replica_us = median(runs.iter().map(|run| run.1));
            let cells = [format!("{primary_us:.2}"), format!("{replica_us:.2}")];
            table.row([vec![contestant.name.clone()], cells.to_vec()].concat());
        }
        self.section("One replica on the same core: CPU time per call", &table, "");
        drop((primary, replica));

        let contestants: Vec<Contestant> =
            [Contestant::set()].into_iter().chain(six().map(Limiter::allowed)).collect();
        let bytes = memory::replicated_bytes(self.binary, self.module, &contestants);
        let mut table = Table::new(&["contestant", "bytes"]);
        for (contestant, bytes) in contestants.iter().zip(bytes) {
            table.row(vec![contestant.name.clone(), format!("{bytes:.1}")]);
        }
        self.section("Bytes of replication per call", &table, "");
    }

    fn catch_up(&self, primary: &Node, replica: &Node) {
        let offset = primary.info("replication")["master_repl_offset"].clone();
        replica.wait_for_at_least("replication", "slave_repl_offset", offset.parse().unwrap());
    }

    fn memory(&mut self) {
        let heading =
            ["limiter", "state bytes", "new key", "SET", "ratio", "twice called", "SET", "ratio"];
        let mut table = Table::new(&heading);
        for limiter in six() {
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
        let title = "Bytes per key over 200,000 keys, compared with SET PX of equal length";
        self.section(title, &table, "");
    }

    fn traffic(&mut self) {
        self.progress("memory by traffic");
        let calls = [1, 10, 100, 1_000, 10_000];
        let sizes = memory::after_traffic(self.binary, self.module, &calls, 1_000);
        let names: Vec<&str> = six().map(|limiter| limiter.name).collect();
        let mut table = Table::new(&["limiter", "1 call", "10", "100", "1,000", "10,000"]);
        for (name, sizes) in names.iter().zip(&sizes) {
            let cells = sizes.iter().map(u64::to_string).collect::<Vec<_>>();
            table.row([vec![(*name).to_owned()], cells].concat());
        }
        let title = "Bytes of one key by calls made on it, limit 1,000 (MEMORY USAGE)";
        self.section(title, &table, "");
        let points = |sizes: &Vec<u64>| {
            calls.iter().zip(sizes).map(|(calls, size)| (*calls as f64, *size as f64)).collect()
        };
        let series: Vec<Series> = names
            .iter()
            .zip(&sizes)
            .map(|(name, sizes)| Series { name: (*name).to_owned(), points: points(sizes) })
            .collect();
        let path = self.picture("memory-traffic");
        let title = "Memory of a key by calls on it, limit 1,000 (bytes)";
        let labels = Labels { title, x: "calls", y: "bytes", is_log: true, ..Labels::default() };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn log_limits(&mut self) {
        let heading = ["limit", "live", "CPU us", "EVALSHA", "FCALL", "calls/s by EVALSHA"];
        let mut table = Table::new(&heading);
        let names = ["RL.SLIDINGLOG", "ZSET in Lua, EVALSHA", "ZSET in Lua, FCALL"];
        let mut series = names.map(|name| Series { name: name.into(), points: vec![] });
        for limit in [10, 100, 1_000, 10_000, 100_000] {
            self.progress(&format!("a log of {}", report::thousands(limit as f64)));
            let node = self.node(&[], false);
            let (shape, live) = log_case(limit);
            let group = [
                SLIDINGLOG.steady_evalsha(&node, limit, live),
                SLIDINGLOG.steady(limit, live),
                SLIDINGLOG.steady_fcall(&node, limit, live),
            ];
            let figures = rounds::measure(&node, &group, shape, self.rounds.div_ceil(3));
            self.command_lines.extend(figures.iter().map(|figures| figures.command_line.clone()));
            let [script, own, function] = [0, 1, 2].map(|index: usize| &figures[index]);
            let in_order = [own, script, function].map(|figures| figures.median.cpu_us);
            for (series, cpu_us) in series.iter_mut().zip(in_order) {
                series.points.push((limit as f64, cpu_us));
            }
            let cells = in_order.map(|cpu_us| format!("{cpu_us:.2}"));
            let mut row = vec![
                report::thousands(limit as f64),
                report::thousands(own.live.min(limit as f64)),
            ];
            row.extend(cells);
            row.push(format!("{:.2}", own.ratio));
            table.row(row);
        }
        let title = "Sliding log in a steady state, by limit: CPU time per call, pipeline 32";
        self.section(title, &table, "");
        let path = self.picture("log-limit");
        let title = "CPU time of the server by limit of a log (us per call)";
        let labels = Labels { title, x: "limit", y: "us per call", ..Labels::default() };
        plot::lines(&path, &labels, &series).expect("the plot can be drawn");
    }

    fn latency(&mut self, valkey: Option<&Binary>) {
        let title = "Latency at half load, pipeline 1, TCP";
        self.progress(title);
        let Some(valkey) = valkey else {
            let why = "Not measured: this needs the valkey-benchmark of Valkey 9.1.\n";
            self.text += &format!("\n## {title}\n\n{why}");
            return;
        };
        let node = self.node(&[], true);
        let contestants = [Contestant::set(), GCRA.allowed(), GCRA.evalsha(&node)];
        let found = latency::measure(&node, &contestants, valkey);
        let mut table =
            Table::new(&["contestant", "offered calls/s", "p50 ms", "p99 ms", "p99.9 ms"]);
        for latency in &found {
            let mut row = vec![latency.name.clone(), report::thousands(latency.offered)];
            row.extend(latency.percentiles_ms.map(|ms| format!("{ms:.2}")));
            table.row(row);
        }
        self.command_lines.extend(found.iter().map(|latency| latency.command_line.clone()));
        self.section(title, &table, "");
        let series = found.iter().map(|latency| Series {
            name: latency.name.clone(),
            points: (0..3).map(|x| (x as f64, latency.percentiles_ms[x])).collect(),
        });
        let path = self.picture("latency");
        let title = "Latency at half load, pipeline 1 over TCP (ms)";
        let labels = Labels { title, x: "", y: "ms", ..Labels::default() };
        let groups = ["p50", "p99", "p99.9"].map(str::to_owned);
        plot::bars(&path, &labels, &groups, &series.collect::<Vec<_>>())
            .expect("the plot can be drawn");
    }

    fn cluster(&mut self) {
        self.progress("cluster");
        let contestants = [Contestant::set(), GCRA.allowed()];
        let found = cluster::cpu_us(self.binary, self.module, &contestants, self.rounds);
        let heading = ["contestant", "a single node, CPU us", "one of three, CPU us", "ratio"];
        let mut table = Table::new(&heading);
        for (contestant, [single, of_three]) in contestants.iter().zip(&found) {
            let [single_us, three_us] = [single, of_three].map(|us| format!("{us:.2}"));
            let ratio = format!("{:.2}", of_three / single);
            table.row(vec![contestant.name.clone(), single_us, three_us, ratio]);
        }
        let title = "Cluster: CPU time per call, pipeline 32 over TCP";
        self.section(title, &table, "");
        let groups: Vec<String> =
            contestants.iter().map(|contestant| contestant.name.clone()).collect();
        let series =
            ["a single node", "one of three"].iter().enumerate().map(|(index, name)| Series {
                name: (*name).to_owned(),
                points: found.iter().enumerate().map(|(x, us)| (x as f64, us[index])).collect(),
            });
        let path = self.picture("cluster");
        let title = "CPU time of a node of a cluster (us per call)";
        let labels = Labels { title, x: "", y: "us per call", ..Labels::default() };
        plot::bars(&path, &labels, &groups, &series.collect::<Vec<_>>())
            .expect("the plot can be drawn");
    }

    fn finish(self) {
        let lines = report::command_lines(&self.command_lines);
        let server = std::slice::from_ref(self.binary);
        let environment = report::environment(server, self.rounds, &self.load_before);
        let page = format!(
            "# {}\n\n`make bench-full` wrote this page. The ratio is to the first row.\n\n{}{}\n## \
             Command lines\n\n{lines}",
            self.binary.name,
            environment.markdown(),
            self.text
        );
        let data = report::TSV_HEADING.to_owned() + &environment.tsv("environment") + &self.data;
        for (ending, text) in [("md", page), ("tsv", data)] {
            let path = self.out.join(format!("{}.{ending}", self.binary.name));
            fs::write(path, text).expect("the page and its data can be written");
        }
    }
}
