//! `make bench`: the figures that decide if a version can be released. Each has a bar, the value
//! that it must reach.

use crate::contestants::{
    Contestant, FIXED, GCRA, Limiter, SLIDING, SLIDINGLOG, THREE, TOKENBUCKET,
};
use crate::leases;
use crate::library;
use crate::load::{Shape, log_case};
use crate::memory;
use crate::node::{Binary, Node};
use crate::reserving;
use crate::rounds::{self, Figures};
use std::path::Path;

/// The four limiters whose speed has a bar.
pub const FOUR: [Limiter; 4] = [GCRA, FIXED, TOKENBUCKET, SLIDING];

/// Settings with which the server appends every write to a file and never rewrites the file.
pub const AOF: [&str; 3] =
    ["appendonly yes", "appendfsync everysec", "auto-aof-rewrite-percentage 0"];

/// The figures of one server.
pub struct Bars {
    pub server: String,
    pub rows: Vec<Bar>,
    /// The figures of all contestants in the base case, those of `SET PX` first.
    pub figures: Vec<Figures>,
    pub command_lines: Vec<String>,
}

/// A figure and its bar.
pub struct Bar {
    pub figure: String,
    pub value: f64,
    /// `None` for a figure that is only for comparison.
    pub bar: Option<f64>,
    /// Whether the bar is a maximum. If not, it is a minimum.
    pub is_most: bool,
}

impl Bar {
    pub fn is_met(&self) -> bool {
        // Compare the value as printed, with two decimals.
        let rounded = (self.value * 100.0).round() / 100.0;
        self.bar.is_none_or(|bar| if self.is_most { rounded <= bar } else { rounded >= bar })
    }
}

/// The bars that differ between servers, because the module API costs more on some servers.
struct Held {
    allowed: f64,
    quiet: f64,
    second_call_bytes: f64,
}

impl Held {
    fn of(server: &str) -> Self {
        let (allowed, quiet) = match server {
            "redis-7.0" => (0.75, 0.60),
            "redis-8.0" => (0.70, 0.65),
            _ => (0.75, 0.75),
        };
        let second_call_bytes = if server.starts_with("valkey") { 1.25 } else { 1.01 };
        Self { allowed, quiet, second_call_bytes }
    }
}

/// Measures only the library of server functions.
pub fn measure_library(binary: &Binary, module: &Path, rounds: usize) -> Bars {
    let mut bars = Bars::of(binary);
    bars.measure_library(binary, module, rounds);
    bars
}

/// Measures one server.
pub fn measure(binary: &Binary, module: &Path, rounds: usize) -> Bars {
    let held = Held::of(&binary.name);
    let progress = |case: &str| eprintln!("{}: {case}", binary.name);
    let mut bars = Bars::of(binary);
    let set_and_four: Vec<Contestant> =
        [Contestant::set()].into_iter().chain(FOUR.map(Limiter::allowed)).collect();

    progress("allowed");
    let node = Node::start(binary, module, &[], false);
    bars.command_lines.push(node.command_line.clone());
    let allowed = rounds::measure(&node, &set_and_four, Shape::BASE, rounds);
    bars.add_ratios(&allowed[1..], "against SET PX", held.allowed);
    bars.figures.extend(allowed);

    progress("denied and peeked");
    let quiet: Vec<Contestant> = [Contestant::noop()]
        .into_iter()
        .chain(FOUR.map(Limiter::denied))
        .chain(FOUR.map(Limiter::peeked))
        .collect();
    let quiet = rounds::measure(&node, &quiet, Shape::BASE, rounds);
    bars.add_ratios(&quiet[1..], "against no-op", held.quiet);
    bars.figures.extend(quiet);

    progress("scripts");
    for limiter in FOUR {
        let pair = [limiter.evalsha(&node), limiter.allowed()];
        let mut pair = rounds::measure(&node, &pair, Shape::BASE, rounds.div_ceil(2));
        bars.add_ratios(&pair[1..], "against its Lua (EVALSHA)", 4.5);
        bars.figures.push(pair.swap_remove(0));
    }

    bars.measure_several(&node, rounds);
    bars.measure_settling(&node, rounds);
    bars.measure_quotas(&node, rounds);
    bars.measure_policies(&node, rounds);
    bars.measure_leases(&node, rounds);
    bars.measure_reserving(&node, rounds);
    drop(node);

    progress("AOF everysec");
    let node = Node::start(binary, module, &AOF, false);
    bars.command_lines.push(node.command_line.clone());
    let with_aof = rounds::measure(&node, &set_and_four, Shape::BASE, rounds);
    bars.add_ratios(&with_aof[1..], "against SET PX, AOF everysec", 0.80);
    drop(node);

    progress("the log");
    bars.measure_log(binary, module, rounds.div_ceil(3));
    bars.measure_library(binary, module, rounds.div_ceil(2));
    progress("memory");
    for limiter in FOUR {
        let size = memory::key_size(binary, module, limiter);
        bars.add_most(&size_figure(limiter, "new"), size.ratio(1), 1.01);
        bars.add_most(&size_figure(limiter, "twice called"), size.ratio(2), held.second_call_bytes);
    }
    bars
}

fn size_figure(limiter: Limiter, age: &str) -> String {
    format!("RL.{}, bytes of a {age} key, against SET PX", limiter.name)
}

impl Bars {
    fn of(binary: &Binary) -> Self {
        let server = binary.name.clone();
        Self { server, rows: Vec::new(), figures: Vec::new(), command_lines: Vec::new() }
    }

    /// Returns the calls per second of the four limiters, then of their scripts, divided by those
    /// of `SET PX`. A script was only compared with its limiter, so its value is the limiter's
    /// value divided by the ratio of limiter to script.
    pub fn by_set(&self) -> [[f64; 4]; 2] {
        let value = |limiter: Limiter, against: &str| {
            let figure = format!("{}, against {against}", limiter.command);
            let row = self.rows.iter().find(|row| row.figure == figure);
            row.unwrap_or_else(|| panic!("{figure} was not measured")).value
        };
        let own = FOUR.map(|limiter| value(limiter, "SET PX"));
        let script = |index: usize| own[index] / value(FOUR[index], "its Lua (EVALSHA)");
        [own, [0, 1, 2, 3].map(script)]
    }

    fn add_ratios(&mut self, figures: &[Figures], against: &str, bar: f64) {
        for figures in figures {
            let figure = format!("{}, {against}", figures.name);
            self.rows.push(Bar { figure, value: figures.ratio, bar: Some(bar), is_most: false });
            let figure = format!("{}, CPU {against}", figures.name);
            let value = 1.0 / figures.cpu_ratio;
            self.rows.push(Bar { figure, value, bar: None, is_most: true });
            self.command_lines.push(figures.command_line.clone());
        }
    }

    fn add_most(&mut self, figure: &str, value: f64, bar: f64) {
        let figure = figure.to_owned();
        self.rows.push(Bar { figure, value, bar: Some(bar), is_most: true });
    }

    /// Measures calls with several rules, against single calls with one of these rules each in the
    /// same round, and against an equivalent script.
    fn measure_several(&mut self, node: &Node, rounds: usize) {
        eprintln!("{}: several rules", self.server);
        let twice = FOUR.repeat(2);
        for (limiters, bar) in [(&FOUR[..1], None), (&THREE, Some(0.85)), (&twice, None)] {
            let singles = FOUR.iter().filter(|single| limiters.contains(single));
            let singles: Vec<Contestant> = singles.map(|single| single.allowed()).collect();
            let group = [&[Contestant::several(limiters)], &*singles].concat();
            let figures = rounds::measure(node, &group, Shape::BASE, rounds);
            let figure = format!("{}, CPU a rule, against single calls", figures[0].name);
            let value = rounds::cpu_a_rule(&figures[0], limiters.len(), &figures[1..]);
            self.rows.push(Bar { figure, value, bar, is_most: true });
            self.figures.extend(figures.into_iter().take(1));
        }
        let group = [Contestant::three_evalsha(node), Contestant::several(&THREE)];
        let mut pair = rounds::measure(node, &group, Shape::BASE, rounds.div_ceil(2));
        let figure = "One Lua of 3 rules (EVALSHA), CPU against RL.ALL".to_owned();
        let value = pair[1].cpu_ratio;
        self.rows.push(Bar { figure, value, bar: Some(4.5), is_most: false });
        self.figures.push(pair.swap_remove(0));
    }

    /// Measures charges and refunds, against allowed calls.
    fn measure_settling(&mut self, node: &Node, rounds: usize) {
        eprintln!("{}: charges and refunds", self.server);
        for limiter in FOUR {
            let group = [limiter.allowed(), limiter.charged(), limiter.refunded()];
            let figures = rounds::measure(node, &group, Shape::BASE, rounds);
            for settling in &figures[1..] {
                let figure = format!("{}, CPU against {}", settling.name, limiter.command);
                self.add_most(&figure, 1.0 / settling.cpu_ratio, 1.0);
            }
            self.figures.extend(figures.into_iter().skip(1));
        }
    }

    /// Measures calendar quotas, against fixed windows.
    fn measure_quotas(&mut self, node: &Node, rounds: usize) {
        eprintln!("{}: calendar quotas", self.server);
        let utc_day = Contestant::quota("d", &["day"]);
        let month_of_zone = Contestant::quota("m", &["month", "ZONE", "Europe/Berlin"]);
        let group = [FIXED.allowed(), utc_day, month_of_zone];
        let figures = rounds::measure(node, &group, Shape::BASE, rounds);
        for quota in &figures[1..] {
            let figure = format!("{}, CPU against {}", quota.name, FIXED.command);
            self.add_most(&figure, 1.0 / quota.cpu_ratio, 1.15);
        }
        self.figures.extend(figures.into_iter().skip(1));
    }

    /// Measures calls under a policy, enforced and in shadow mode, against calls under the same
    /// rule without a policy. Does so with few policies, and with the maximum number of policies.
    fn measure_policies(&mut self, node: &Node, rounds: usize) {
        let names =
            |limiter: Limiter| ["", "-shadow"].map(|kind| format!("{}{kind}", limiter.name));
        for limiter in FOUR {
            let [enforced, shadow] = names(limiter);
            limiter.set_policy(node, &enforced, &[]);
            limiter.set_policy(node, &shadow, &["SHADOW"]);
        }
        let mut set = 2 * FOUR.len();
        for policies in [10, 10_000] {
            eprintln!("{}: {policies} policies", self.server);
            for number in set..policies {
                GCRA.set_policy(node, &format!("other:{number}"), &["OFF"]);
            }
            set = policies;
            for limiter in FOUR {
                let [enforced, shadow] = names(limiter);
                let group = [limiter.allowed(), limiter.used(&enforced), limiter.used(&shadow)];
                let figures = rounds::measure(node, &group, Shape::BASE, rounds);
                for used in &figures[1..] {
                    let among = format!("{}, among {policies}", used.name);
                    let figure = format!("{among}, CPU against {}", limiter.command);
                    self.add_most(&figure, 1.0 / used.cpu_ratio, 1.15);
                }
                self.figures.extend(figures.into_iter().skip(1));
            }
        }
    }

    /// Measures taking and releasing leases, with few holders and with many.
    fn measure_leases(&mut self, node: &Node, rounds: usize) {
        eprintln!("{}: leases", self.server);
        for (holders, figures) in leases::HOLDERS.into_iter().zip(leases::measure(node, rounds)) {
            let of = format!("RL.LEASE and RL.RELEASE, {holders} holders");
            eprintln!("{of}: {:.2} us, Lua {:.2} us", figures.own_us, figures.script_us);
            let bar = (holders <= 1_000).then_some(3.0);
            let figure = format!("{of}, CPU of their Lua (EVALSHA)");
            self.rows.push(Bar { figure, value: figures.ratio, bar, is_most: false });
            if holders == 100_000 {
                self.add_most(&format!("{of}, CPU against 10 holders"), figures.growth, 2.0);
            }
        }
    }

    /// Measures a reservation and its settlement, against a plain call.
    fn measure_reserving(&mut self, node: &Node, rounds: usize) {
        eprintln!("{}: reservations", self.server);
        let value = reserving::cpu_of_both(node, rounds);
        self.add_most("RL.RESERVE and RL.COMMIT at 10 open, CPU against RL.FIXED", value, 3.0);
    }

    /// Measures the library, for servers without the module.
    fn measure_library(&mut self, binary: &Binary, module: &Path, rounds: usize) {
        let library = library::measure(binary, module, rounds);
        let rows = library.shares.into_iter().map(|share| {
            let library::Share { figure, value, bar } = share;
            Bar { figure, value, bar, is_most: true }
        });
        self.rows.extend(rows);
        self.figures.extend(library.figures);
        self.command_lines.extend(library.command_lines);
    }

    fn measure_log(&mut self, binary: &Binary, module: &Path, rounds: usize) {
        let limit = 1_000;
        let node = Node::start(binary, module, &[], false);
        let (shape, live) = log_case(limit);
        let script = SLIDINGLOG.steady_evalsha(&node, limit, live);
        let group = [script, SLIDINGLOG.steady(limit, live)];
        let mut figures = rounds::measure(&node, &group, shape, rounds);
        self.add_ratios(&figures[1..], "limit 1,000, against ZSET Lua", 4.0);
        for figures in &mut figures {
            figures.name += &format!(", {:.0} live", figures.live.min(limit as f64));
        }
        self.figures.extend(figures);
        let [own, sorted_set] = memory::log_size(binary, module, limit);
        self.add_most("RL.SLIDINGLOG, bytes of 1,000 events, against ZSET", own / sorted_set, 0.25);
    }
}
