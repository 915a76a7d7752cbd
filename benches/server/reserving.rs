//! The cost of a reservation and its settlement, compared with that of a plain call. No load
//! generator alternates two commands with unique ids, so this program makes the calls itself, in
//! pipelines on one connection.

use crate::load::Shape;
use crate::node::{Node, command_of};
use crate::rounds::median;
use redis::{Connection, Pipeline, Value};
use std::cell::Cell;

/// The number of open reservations on each key during the measurement.
const OPEN: u64 = 10;

/// A rule that denies nothing and whose window outlasts the measurement.
const RULE: [&str; 3] = ["FIXED", "1000000000000", "3600"];

/// The time for which a settled reservation is remembered: about one pass over the keys.
const TTL: &str = "100ms";

/// Makes the calls that `words` returns for each key, in pipelines. Returns the number of replies
/// whose first field is 1.
fn run(connection: &mut Connection, keys: u64, words: impl Fn(u64) -> Vec<Vec<String>>) -> u64 {
    let mut allowed = 0;
    let mut send = |pipeline: &mut Pipeline| {
        let replies: Vec<Value> = pipeline.query(connection).expect("replies");
        let is_one =
            |reply: &&Value| matches!(reply, Value::Array(fields) if fields[0] == Value::Int(1));
        allowed += replies.iter().filter(is_one).count() as u64;
        pipeline.clear();
    };
    let mut pipeline = redis::pipe();
    for key in 0..keys {
        for call in words(key) {
            pipeline.add_command(command_of(&call));
        }
        if pipeline.len() >= Shape::BASE.pipeline as usize {
            send(&mut pipeline);
        }
    }
    if !pipeline.is_empty() {
        send(&mut pipeline);
    }
    allowed
}

fn call(command: &str, key: u64, before_rule: &[&str], after_rule: &[&str]) -> Vec<String> {
    let rule = if command == "RL.FIXED" { &RULE[1..] } else { &RULE };
    let key = format!("held:{key:012}");
    let words = [&[command, &key], before_rule, rule, after_rule].concat();
    words.into_iter().map(str::to_owned).collect()
}

/// Returns a ratio of CPU times: that of a reservation and its settlement on a key with [`OPEN`]
/// open reservations, divided by that of a plain call on a key without reservations.
pub fn cpu_of_both(node: &Node, rounds: usize) -> f64 {
    let keys = Shape::BASE.keys;
    let mut connection = node.connect();
    let plain = |key: u64| vec![call("RL.FIXED", keys + key, &[], &[])];
    // A settled id is remembered for a while, so each round uses new ids.
    let sweep = Cell::new(0);
    let both = |key: u64| {
        let id = format!("new-{:08}", sweep.get());
        vec![
            call("RL.RESERVE", key, &[&id, TTL], &["COST", "5"]),
            call("RL.COMMIT", key, &[&id], &["COST", "3"]),
        ]
    };
    let open = |key: u64| {
        let id = |number: u64| format!("job-{number:08}");
        (0..OPEN).map(|number| call("RL.RESERVE", key, &[&id(number), "3600"], &[])).collect()
    };
    assert_eq!(run(&mut connection, keys, open), OPEN * keys, "all are open");
    run(&mut connection, keys, plain);
    run(&mut connection, keys, both);
    median((0..rounds).map(|_| {
        let mut cpu_us = |words: &dyn Fn(u64) -> Vec<Vec<String>>, calls: u64| {
            let before_us = node.cpu_us();
            let allowed = run(&mut connection, keys, words);
            assert!(allowed * 1_000 >= calls * 999, "{allowed} of {calls} were allowed");
            node.cpu_us() - before_us
        };
        let plain_us = cpu_us(&plain, keys);
        sweep.set(sweep.get() + 1);
        cpu_us(&both, 2 * keys) / plain_us
    }))
}
