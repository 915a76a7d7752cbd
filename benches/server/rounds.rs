//! Rounds: every contestant of a group runs once per round, shortly after the reference, so that
//! disturbances of a shared machine affect both. The measure is the ratio within the round.

use crate::contestants::{Contestant, Expected};
use crate::load::{self, Run, Shape};
use crate::node::Node;

/// The intended length of a run, in seconds. Short runs bring the runs of a round closer together:
/// on a shared machine many short rounds vary less than a few long ones.
const RUN_S: f64 = 0.1;

/// The figures of one contestant over all rounds.
#[derive(Clone, Debug)]
pub struct Figures {
    pub name: String,
    /// The medians of all rounds, one for each field of a run.
    pub median: Run,
    /// The run of each round.
    pub runs: Vec<Run>,
    /// The smallest and the largest number of calls per second in a round.
    pub spread: (f64, f64),
    /// The median of the calls per second divided by those of the reference in the same round.
    pub ratio: f64,
    /// The median of the reference's CPU time divided by the contestant's in the same round.
    pub cpu_ratio: f64,
    /// The number of events in each log, or 0 without logs: the events that arrive in one window.
    pub live: f64,
    /// The command line of the last run.
    pub command_line: String,
}

/// A contestant during the measurement: its calls per run, and the window of its logs.
struct Entrant {
    contestant: Contestant,
    calls: u64,
    window_us: u64,
    runs: Vec<Run>,
    /// The mean number of events in a log, for each run.
    live: Vec<f64>,
}

/// Runs every contestant of `group` in each round. The first contestant is the reference.
pub fn measure(node: &Node, group: &[Contestant], shape: Shape, rounds: usize) -> Vec<Figures> {
    let mut entrants: Vec<Entrant> =
        group.iter().map(|contestant| Entrant::warm(node, contestant, shape)).collect();
    for round in 0..rounds {
        for turn in 0..group.len() {
            entrants[(round + turn) % group.len()].run(node, shape);
        }
    }
    entrants.iter().map(|entrant| entrant.figures(&entrants[0].runs, shape)).collect()
}

impl Entrant {
    /// Touches every key, and determines the number of calls in a run.
    fn warm(node: &Node, contestant: &Contestant, shape: Shape) -> Self {
        let live = contestant.live;
        // With this window, a log holds the wanted number of events at a million calls per second.
        // Real speeds are lower, so the logs stay almost empty until `fill` adjusts the window.
        let window_us = live;
        let (contestant, calls) = (contestant.clone(), 20_000);
        let mut new = Self { contestant, calls, window_us, runs: Vec::new(), live: Vec::new() };
        if live > 0 {
            (0..3).for_each(|_| new.fill(node, shape));
        } else if shape.keys != Shape::NEW_KEYS.keys {
            // A key counts as denied only after its first call, which is allowed. With ten random
            // picks per key, only one of 20,000 keys is never picked.
            let picks = if new.contestant.expected == Expected::Denied { 10 } else { 2 };
            let touches = (shape.keys * picks).max(20_000);
            let shape = Shape { pipeline: 32, ..shape };
            if let Some(before) = new.contestant.before() {
                // With this many random picks, almost no key is left unprepared.
                load::run(node, &before, shape, 10 * touches);
            }
            load::run(node, &new.any(), shape, touches);
            new.call().check(node);
        }
        let run = load::run(node, &new.any(), shape, new.calls);
        // A run fills complete pipelines on all connections.
        let pipelines = u64::from(shape.pipeline) * 32;
        let calls = (run.calls_per_s * RUN_S) as u64;
        new.calls = calls.clamp(2_000, 400_000).div_ceil(pipelines) * pipelines;
        new
    }

    fn call(&self) -> Contestant {
        self.contestant.with_window(self.window_us)
    }

    fn any(&self) -> Contestant {
        self.call().unchecked()
    }

    /// Fills the logs, and adjusts their window to the current speed.
    fn fill(&mut self, node: &Node, shape: Shape) {
        let live = self.contestant.live;
        let run = load::run(node, &self.any(), shape, live.max(20_000));
        self.window_us = (live as f64 / run.calls_per_s * 1e6) as u64;
    }

    fn run(&mut self, node: &Node, shape: Shape) {
        if shape.keys == Shape::NEW_KEYS.keys {
            node.run(&["FLUSHALL"]);
        }
        let mut run = None;
        // If the machine becomes faster after the logs are filled, they overflow and calls are
        // denied.
        for _ in 0..10 {
            if self.contestant.live > 0 {
                self.fill(node, shape);
            }
            let tried = load::run(node, &self.call(), shape, self.calls);
            if tried.share >= 0.9 {
                run = Some(tried);
                break;
            }
        }
        let run = run.unwrap_or_else(|| panic!("{}: no steady state", self.contestant.name));
        if shape.keys == Shape::NEW_KEYS.keys {
            let created = node.count_keys();
            let is_new = created == 0 || created * 10 > self.calls * 9;
            assert!(is_new, "{}: {created} new keys in {} calls", self.contestant.name, self.calls);
        }
        let arrived = run.calls_per_s * run.share * self.window_us as f64 / 1e6;
        self.live.push(arrived / shape.keys as f64);
        self.runs.push(run);
    }

    fn figures(&self, reference: &[Run], shape: Shape) -> Figures {
        let own = &self.runs;
        let median_of = |field: fn(&Run) -> f64| median(own.iter().map(field));
        let rates = || own.iter().map(|run| run.calls_per_s);
        let pairs = || own.iter().zip(reference);
        Figures {
            name: self.contestant.name.clone(),
            median: Run {
                calls_per_s: median_of(|run| run.calls_per_s),
                cpu_us: median_of(|run| run.cpu_us),
                usec_per_call: median_of(|run| run.usec_per_call),
                busy: median_of(|run| run.busy),
                share: median_of(|run| run.share),
            },
            runs: own.clone(),
            spread: (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max)),
            ratio: median(pairs().map(|(own, reference)| own.calls_per_s / reference.calls_per_s)),
            cpu_ratio: median(pairs().map(|(own, reference)| reference.cpu_us / own.cpu_us)),
            live: median(self.live.iter().copied()),
            command_line: shape.command_line(&self.call(), self.calls),
        }
    }
}

/// Returns a median over all rounds: the CPU time per rule of a call with several rules, divided by
/// the CPU time of a single call in the same round.
pub fn cpu_a_rule(several: &Figures, rules: usize, singles: &[Figures]) -> f64 {
    median(several.runs.iter().enumerate().map(|(round, run)| {
        let of_singles = singles.iter().map(|single| single.runs[round].cpu_us).sum::<f64>();
        run.cpu_us / rules as f64 / (of_singles / singles.len() as f64)
    }))
}

/// Returns a median over all rounds: the CPU time of `own` divided by that of `other` in the same
/// round.
pub fn cpu_by(own: &Figures, other: &Figures) -> f64 {
    median(own.runs.iter().zip(&other.runs).map(|(own, other)| own.cpu_us / other.cpu_us))
}

/// Returns the median. For an even count, this is the larger of the two numbers in the middle.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
