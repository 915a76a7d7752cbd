//! Compares the cost of a call on one of three cluster nodes with its cost on a single node. The
//! nodes share a core here, so only one of them gets load at a time, with keys of its own slots.
//! Three nodes on three machines can carry three times the load of one, if no node spends time on
//! the calls that another node receives.

use crate::contestants::Contestant;
use crate::load::{self, Shape};
use crate::node::{Binary, Node};
use crate::rounds::median;
use redis::Value;
use std::path::Path;

/// The number of hash slots in a cluster.
const SLOTS: usize = 16_384;

/// A node, and a hash tag that maps keys to one of its slots.
type Member = (Node, String);

/// Returns the CPU time per call of each contestant, in microseconds: on a single node, and as the
/// mean of three nodes.
pub fn cpu_us(
    binary: &Binary,
    module: &Path,
    contestants: &[Contestant],
    rounds: usize,
) -> Vec<[f64; 2]> {
    let clusters = [1, 3].map(|count| start(binary, module, count));
    let shape = Shape { tcp: true, ..Shape::BASE };
    let run = |contestant: &Contestant, (node, tag): &Member| {
        load::run(node, &contestant.tagged(tag), shape, 51_200).cpu_us
    };
    let mean = |contestant: &Contestant, members: &Vec<Member>| {
        members.iter().map(|member| run(contestant, member)).sum::<f64>() / members.len() as f64
    };
    let mut runs = vec![Vec::new(); contestants.len()];
    // The first round is a warm-up.
    for _ in 0..=rounds {
        for (contestant, runs) in contestants.iter().zip(&mut runs) {
            runs.push([0, 1].map(|index: usize| mean(contestant, &clusters[index])));
        }
    }
    let median_of =
        |runs: &Vec<[f64; 2]>, index: usize| median(runs.iter().skip(1).map(|run| run[index]));
    runs.iter().map(|runs| [0, 1].map(|index| median_of(runs, index))).collect()
}

fn start(binary: &Binary, module: &Path, count: usize) -> Vec<Member> {
    let settings = ["cluster-enabled yes"];
    let nodes: Vec<Node> =
        (0..count).map(|_| Node::start(binary, module, &settings, true)).collect();
    let first_of = |index: usize| SLOTS * index / count;
    for (index, node) in nodes.iter().enumerate() {
        let [first, end] = [index, index + 1].map(first_of);
        node.run(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(end - 1).to_string()]);
        nodes[0].run(&["CLUSTER", "MEET", "127.0.0.1", &node.port.to_string()]);
    }
    for node in &nodes {
        node.wait_for_cluster(count);
    }
    let tagged = |(index, node): (usize, Node)| {
        let own = first_of(index) as i64..first_of(index + 1) as i64;
        let is_own = |tag: &String| match node.run(&["CLUSTER", "KEYSLOT", tag]) {
            Value::Int(slot) => own.contains(&slot),
            other => panic!("no slot: {other:?}"),
        };
        let tag =
            (100..1_000).map(|tag| tag.to_string()).find(is_own).expect("a tag in each range");
        (node, tag)
    };
    nodes.into_iter().enumerate().map(tagged).collect()
}
