//! Calls for reservations under one rule.

use redis::Value;

use super::{Client, text};

pub const RULE: &str = "FIXED 10 60";

pub fn reserve(id: &str, ttl: &str, cost: u64) -> String {
    format!("RL.RESERVE k {id} {ttl} {RULE} COST {cost}")
}

pub fn commit(id: &str) -> String {
    format!("RL.COMMIT k {id} {RULE}")
}

pub fn cancel(id: &str) -> String {
    format!("RL.CANCEL k {id} {RULE}")
}

/// Returns the numbers that `RL.INSPECT` shows, in that order.
pub fn inspected(client: &mut Client, key: &str) -> Vec<i64> {
    let Value::Array(fields) = client.run(&format!("RL.INSPECT {key}")) else { panic!("no state") };
    assert_eq!(text(&fields[1]), "FIXED");
    let numbers = fields[2..].chunks(2).map(|pair| match pair[1] {
        Value::Int(number) => number,
        ref other => panic!("{other:?}"),
    });
    numbers.collect()
}
