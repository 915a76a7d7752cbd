//! `RL.INSPECT` of leases.

use redis::Value;

use super::{Client, text};

/// Returns the leases that INSPECT shows: their number, and the ids and remaining ms of the first
/// ones.
pub fn inspected(client: &mut Client, key: &str) -> (i64, Vec<(Vec<u8>, i64)>) {
    let Value::Array(fields) = client.run(&format!("RL.INSPECT {key}")) else {
        return (0, Vec::new());
    };
    let [algorithm, name, holders, count, first, leases] = &fields[..] else {
        panic!("{fields:?}")
    };
    let names = [algorithm, name, holders, first].map(text);
    assert_eq!(names, ["algorithm", "LEASE", "holders", "lapse_after_ms"]);
    let (Value::Int(count), Value::Array(leases)) = (count, leases) else { panic!("{fields:?}") };
    let leases = leases.chunks(2).map(|pair| match pair {
        [Value::BulkString(id), Value::Int(ms)] => (id.clone(), *ms),
        other => panic!("{other:?}"),
    });
    (*count, leases.collect())
}
