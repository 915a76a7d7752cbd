//! Rounds: every contestant of a group runs once in each, next to its reference, so that what a
//! shared machine does to one it does to the other. What counts is the ratio within the round.

use crate::contestants::{Contestant, Expected};
use crate::load::{self, Run, Shape};
use crate::node::Node;

/// How long one run is meant to last, in seconds: the shorter, the nearer the runs of a round. On
/// a shared machine many short rounds vary less than a few long ones.
const RUN_S: f64 = 0.1;

/// What came of all rounds for one contestant.
#[derive(Clone, Debug)]
pub struct Figures {
    pub name: String,
    /// Medians of the rounds.
    pub median: Run,
    /// Round by round.
    pub runs: Vec<Run>,
    /// Smallest and largest calls per second.
    pub spread: (f64, f64),
    /// Median of calls per second by those of the reference in the same round.
    pub ratio: f64,
    /// Median of the reference's CPU time by that of this one, in the same round.
    pub cpu_ratio: f64,
    /// Events in each log, where there are logs: those of its window at its speed.
    pub live: f64,
    /// The command line of its last run.
    pub command_line: String,
}

/// One that takes part: how many calls make a run, and the window of its logs.
struct Entrant {
    contestant: Contestant,
    calls: u64,
    window_us: u64,
    runs: Vec<Run>,
    /// Events in each log, run by run.
    live: Vec<f64>,
}

/// Runs all of `group` in each of `rounds`. The first is the reference of the others.
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
    /// Touches every key, and learns how many calls make a run.
    fn warm(node: &Node, contestant: &Contestant, shape: Shape) -> Self {
        let live = contestant.live;
        // At a million calls per second this is the window; at any real speed the logs stay empty.
        let window_us = live;
        let (contestant, calls) = (contestant.clone(), 20_000);
        let mut new = Self { contestant, calls, window_us, runs: Vec::new(), live: Vec::new() };
        if live > 0 {
            (0..3).for_each(|_| new.fill(node, shape));
        } else if shape.keys != Shape::NEW_KEYS.keys {
            // Ten random picks a key leave one of 20,000 untouched, whose first call is allowed.
            let picks = if new.contestant.expected == Expected::Denied { 10 } else { 2 };
            let touches = (shape.keys * picks).max(20_000);
            let shape = Shape { pipeline: 32, ..shape };
            if let Some(before) = new.contestant.before() {
                // Many a key comes twice, and hardly one not at all.
                load::run(node, &before, shape, 10 * touches);
            }
            load::run(node, &new.any(), shape, touches);
            new.call().check(node);
        }
        let run = load::run(node, &new.any(), shape, new.calls);
        // Whole pipelines on all connections.
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

    /// Fills the logs, and adjusts their window to the speed of this very moment.
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
        // When the machine quickens after the logs were filled, they overflow and calls are denied.
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
            let made = node.count_keys();
            let is_new = made == 0 || made * 10 > self.calls * 9;
            assert!(is_new, "{}: {made} new keys in {} calls", self.contestant.name, self.calls);
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

/// Median of the CPU time of one rule of a call that has several, by that of a call of one rule in
/// the same round.
pub fn cpu_a_rule(several: &Figures, rules: usize, singles: &[Figures]) -> f64 {
    median(several.runs.iter().enumerate().map(|(round, run)| {
        let of_singles = singles.iter().map(|single| single.runs[round].cpu_us).sum::<f64>();
        run.cpu_us / rules as f64 / (of_singles / singles.len() as f64)
    }))
}

/// Median of the CPU time of one by that of another in the same round.
pub fn cpu_by(own: &Figures, other: &Figures) -> f64 {
    median(own.runs.iter().zip(&other.runs).map(|(own, other)| own.cpu_us / other.cpu_us))
}

/// The median; of an even number the upper one.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
