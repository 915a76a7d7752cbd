//! Calls that name a policy: their seven integers, and all rules that a policy can have.

use std::sync::LazyLock;

use redis::Value;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::oracle;

use super::{Client, Reply};

/// The five integers of a reply, then the verdict and the wait that the enforced rule would give.
pub type Seven = [i64; 7];

/// A rule of each algorithm that a policy can have: its name, and 5 units per hour or day.
pub static RULES: LazyLock<[(&str, &str); Algorithm::ALL.len()]> = LazyLock::new(|| {
    Algorithm::ALL.map(|algorithm| (algorithm.name(), &*oracle::example(algorithm).leak()))
});

/// Returns the seven integers of a reply; `None` if it is anything but an array of seven integers.
pub fn seven(value: &Value) -> Option<Seven> {
    let Value::Array(fields) = value else { return None };
    let numbers = fields.iter().map(|field| match field {
        Value::Int(number) => Some(*number),
        _ => None,
    });
    numbers.collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// Returns the seven integers of a call with a policy; any other reply fails the test.
pub fn decide(client: &mut Client, line: &str) -> Seven {
    let value = client.run(line);
    seven(&value).unwrap_or_else(|| panic!("{line}: no seven integers: {value:?}"))
}

/// Sets a policy, given the words after `RL.POLICY SET`.
pub fn set(client: &mut Client, definition: &str) {
    client.ok(&format!("RL.POLICY SET {definition}"));
}

/// Returns the seven integers of a call with an enforced policy whose rule alone returns these
/// five.
pub const fn enforced([allowed, limit, remaining, retry_ms, reset_ms]: Reply) -> Seven {
    [allowed, limit, remaining, retry_ms, reset_ms, allowed, retry_ms]
}

/// Returns the seven integers of a call with a policy in shadow mode whose rule alone returns these
/// five. An allowed call in shadow mode grants `full_units` units.
pub const fn shadowed(
    [allowed, limit, remaining, retry_ms, reset_ms]: Reply,
    full_units: i64,
) -> Seven {
    [full_units, limit, remaining, 0, reset_ms, allowed, retry_ms]
}
