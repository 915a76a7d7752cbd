//! `RL.POLICY STATS` as numbers.

use redis::Value;

use super::{Client, text};

/// The counters of a policy, in the order of the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub allowed: u64,
    pub denied: u64,
    pub shadow_denied: u64,
    pub near_limit: u64,
    pub created: u64,
    pub units: u64,
    pub errors: u64,
    pub last_denied_us: u64,
}

/// The names of the counters.
pub const FIELDS: [&str; 8] = [
    "allowed",
    "denied",
    "shadow_denied",
    "near_limit",
    "created",
    "units",
    "errors",
    "last_denied_us",
];

impl Stats {
    /// Reads the counters from an array of names and values.
    pub fn of(fields: &Value) -> Self {
        let Value::Array(fields) = fields else { panic!("no map: {fields:?}") };
        let (pairs, []) = fields.as_chunks() else { panic!("{fields:?}") };
        let names = pairs.iter().map(|[name, _]| text(name));
        assert_eq!(names.collect::<Vec<_>>(), FIELDS);
        let number = |pair: &[Value; 2]| match pair[1] {
            Value::Int(number) => u64::try_from(number).expect("no number is negative"),
            ref other => panic!("no number: {other:?}"),
        };
        let numbers: Vec<_> = pairs.iter().map(number).collect();
        let [allowed, denied, shadow_denied, near_limit, created, units, errors, last_denied_us] =
            numbers.try_into().expect("eight");
        Self { allowed, denied, shadow_denied, near_limit, created, units, errors, last_denied_us }
    }
}

/// Makes the call, and returns all policies and their counters in the reply, in order.
pub fn listed(client: &mut Client, call: &str) -> Vec<(String, Stats)> {
    let reply = client.run(call);
    let Value::Array(fields) = &reply else { panic!("no map: {reply:?}") };
    let (pairs, []) = fields.as_chunks() else { panic!("{fields:?}") };
    pairs.iter().map(|[name, fields]| (text(name), Stats::of(fields))).collect()
}
