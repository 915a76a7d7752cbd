//! Rounds: every contestant of a group runs once in each, next to its reference, so that what a
//! shared machine does to one it does to the other. What counts is the ratio within the round.

use crate::contestants::{Contestant, Expected};
use crate::load::{self, Run, Shape};
use crate::node::Node;

/// How long one run is meant to last, in seconds: the shorter, the nearer the runs of a round.
const RUN_S: f64 = 0.1;

/// What came of all rounds for one contestant.
#[derive(Clone, Debug)]
pub struct Figures {
    pub name: String,
    /// Medians of the rounds.
    pub median: Run,
    /// Smallest and largest calls per second.
    pub spread: (f64, f64),
    /// Median of calls per second by those of the reference in the same round.
    pub ratio: f64,
    /// Median of the reference's CPU time by that of this one, in the same round.
    pub cpu_ratio: f64,
    /// The command line of its last run.
    pub command_line: String,
}

/// Runs all of `group` in each of `rounds`. The first is the reference of the others.
pub fn measure(node: &Node, group: &[Contestant], shape: Shape, rounds: usize) -> Vec<Figures> {
    measure_for(node, group, shape, rounds, RUN_S)
}

/// The same with runs of another length.
pub fn measure_for(
    node: &Node,
    group: &[Contestant],
    shape: Shape,
    rounds: usize,
    run_s: f64,
) -> Vec<Figures> {
    let calls: Vec<u64> =
        group.iter().map(|contestant| warm(node, contestant, shape, run_s)).collect();
    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); group.len()];
    for round in 0..rounds {
        for turn in 0..group.len() {
            let index = (round + turn) % group.len();
            runs[index].push(load::run(node, &group[index], shape, calls[index]));
        }
    }
    let figures = |index: usize| {
        let (own, reference) = (&runs[index], &runs[0]);
        let median_of = |field: fn(&Run) -> f64| median(own.iter().map(field));
        let rates = || own.iter().map(|run| run.calls_per_s);
        let pairs = || own.iter().zip(reference);
        Figures {
            name: group[index].name.clone(),
            median: Run {
                calls_per_s: median_of(|run| run.calls_per_s),
                cpu_us: median_of(|run| run.cpu_us),
                usec_per_call: median_of(|run| run.usec_per_call),
                busy: median_of(|run| run.busy),
            },
            spread: (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max)),
            ratio: median(pairs().map(|(own, reference)| own.calls_per_s / reference.calls_per_s)),
            cpu_ratio: median(pairs().map(|(own, reference)| reference.cpu_us / own.cpu_us)),
            command_line: shape.command_line(&group[index], calls[index]),
        }
    };
    (0..group.len()).map(figures).collect()
}

/// Touches every key, and tells how many calls make a run.
fn warm(node: &Node, contestant: &Contestant, shape: Shape, run_s: f64) -> u64 {
    let any = contestant.unchecked();
    // Ten random picks a key leave one of 20,000 untouched, whose first call cannot be denied.
    let picks = if contestant.expected == Expected::Denied { 10 } else { 2 };
    let touches = if shape.keys > 1_000_000 { 0 } else { shape.keys * picks };
    load::run(node, &any, Shape { pipeline: 32, ..shape }, touches.max(20_000));
    let run = load::run(node, &any, shape, 20_000);
    // Whole pipelines on all connections.
    let pipelines = u64::from(shape.pipeline) * 32;
    let calls = (run.calls_per_s * run_s) as u64;
    calls.clamp(2_000, 400_000).div_ceil(pipelines) * pipelines
}

/// The median; of an even number the upper one.
pub fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
