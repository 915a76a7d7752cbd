//! Nodes of a cluster: does a call cost as much on three as on one?

use crate::contestants::Contestant;
use crate::load::{self, Shape};
use crate::node::{Binary, Node};
use std::path::Path;

/// CPU time of all nodes together for one call, in microseconds.
pub fn cpu_us(binary: &Binary, module: &Path, count: usize, contestant: &Contestant) -> f64 {
    let settings = ["cluster-enabled yes"];
    let nodes: Vec<Node> =
        (0..count).map(|_| Node::start(binary, module, &settings, true)).collect();
    for (index, node) in nodes.iter().enumerate() {
        let first = 16_384 * index / count;
        let last = 16_384 * (index + 1) / count - 1;
        node.run(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        nodes[0].run(&["CLUSTER", "MEET", "127.0.0.1", &node.port.to_string()]);
    }
    for node in &nodes {
        node.wait_for_cluster(count);
    }
    let calls = 102_400;
    load::run_on_cluster(&nodes, contestant, Shape::BASE, calls);
    let busy_us = || nodes.iter().map(Node::cpu_us).sum::<f64>();
    let before_us = busy_us();
    let made = load::run_on_cluster(&nodes, contestant, Shape::BASE, calls);
    (busy_us() - before_us) / made
}
