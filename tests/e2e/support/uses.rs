//! Calls that name a policy: their seven integers, and the rules that a policy can have.

use std::sync::LazyLock;

use redis::Value;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::oracle;

use super::{Client, Reply};

/// The five integers of any decision, then the first and fourth as they would be when enforced.
pub type Seven = [i64; 7];

/// A rule of every algorithm that a policy can have: its name, and 5 units an hour or a day.
pub static RULES: LazyLock<[(&str, &str); Algorithm::ALL.len()]> = LazyLock::new(|| {
    Algorithm::ALL.map(|algorithm| (algorithm.name(), &*oracle::example(algorithm).leak()))
});

/// The seven integers of a reply that is an array of exactly seven integers.
pub fn seven(value: &Value) -> Option<Seven> {
    let Value::Array(fields) = value else { return None };
    let numbers = fields.iter().map(|field| match field {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// Returns the answer of a call by a policy; anything else fails the test.
pub fn ask(client: &mut Client, line: &str) -> Seven {
    let value = client.run(line);
    seven(&value).unwrap_or_else(|| panic!("{line}: no seven integers: {value:?}"))
}

/// Sets a policy, with the words after `RL.POLICY SET`.
pub fn set(client: &mut Client, definition: &str) {
    client.ok(&format!("RL.POLICY SET {definition}"));
}

/// Returns the answer of an enforced rule with these five integers.
pub const fn enforced([allowed, limit, remaining, retry_ms, reset_ms]: Reply) -> Seven {
    [allowed, limit, remaining, retry_ms, reset_ms, allowed, retry_ms]
}

/// Returns the answer in shadow mode to a call that is granted `granted`.
pub const fn shadowed(
    [allowed, limit, remaining, retry_ms, reset_ms]: Reply,
    full_units: i64,
) -> Seven {
    [full_units, limit, remaining, 0, reset_ms, allowed, retry_ms]
}
