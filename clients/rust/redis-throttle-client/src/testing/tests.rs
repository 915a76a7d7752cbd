//! Tests of commands to the fake server that a limiter never sends.

use redis::Value;
use redis_throttle_engine::time::Instant;

use super::START;
use super::commands::run;
use super::keys::Keys;

/// Runs a command `second` seconds after the start of the clock. Quoted words are one argument.
fn at(keys: &mut Keys, second: u64, line: &str) -> Result<Value, String> {
    let words: Vec<&str> = line
        .split('\'')
        .enumerate()
        .flat_map(|(part, text)| match part % 2 {
            0 => text.split_whitespace().collect(),
            _ => vec![text],
        })
        .collect();
    let now = Instant::from_us(START.as_us() + second * 1_000_000);
    run(keys, now, &words).map_err(|refused| refused.text(words[0]))
}

fn row(integers: &[i64]) -> Value {
    Value::Array(integers.iter().copied().map(Value::Int).collect())
}

#[test]
fn lease_expires_at_its_ttl_and_frees_its_permit() {
    let keys = &mut Keys::default();
    assert_eq!(at(keys, 0, "RL.LEASE jobs a 1 60"), Ok(row(&[1, 1, 0, 0, 60_000])));
    assert_eq!(at(keys, 10, "RL.LEASE jobs b 1 60"), Ok(row(&[0, 1, 0, 50_000, 50_000])));
    assert_eq!(at(keys, 20, "RL.RENEW jobs a 60"), Ok(Value::Int(1)));
    assert_eq!(at(keys, 79, "RL.PEEK jobs LEASE b 1 60"), Ok(row(&[0, 1, 0, 1_000, 1_000])));
    assert_eq!(at(keys, 80, "RL.RENEW jobs a 60"), Ok(Value::Int(0)));
    assert_eq!(at(keys, 80, "RL.LEASE jobs b 1 60"), Ok(row(&[1, 1, 0, 0, 60_000])));
    assert_eq!(at(keys, 80, "RL.RELEASE jobs a"), Ok(Value::Int(0)));
    assert_eq!(at(keys, 80, "RL.RELEASE jobs b"), Ok(Value::Int(1)));
    assert_eq!(at(keys, 80, "DEL jobs"), Ok(Value::Int(0)));
}

#[test]
fn command_is_refused_on_a_key_of_another_type_until_the_key_expires() {
    let wrong_type = "WRONGTYPE the key does not hold a state of this algorithm";
    let refused = |error: &str| Err(error.to_owned());
    let keys = &mut Keys::default();
    assert_eq!(at(keys, 0, "RL.FIXED k 2 60"), Ok(row(&[1, 2, 1, 0, 60_000])));
    assert_eq!(at(keys, 59, "RL.LEASE k a 1 60"), refused(wrong_type));
    assert_eq!(at(keys, 59, "RL.GCRA k 2 1 1"), refused(wrong_type));
    assert_eq!(at(keys, 61, "RL.LEASE k a 1 8"), Ok(row(&[1, 1, 0, 0, 8_000])));
    assert_eq!(at(keys, 61, "RL.FIXED k 2 60"), refused(wrong_type));
    // The key of a lease expires an eighth of the ttl after the lease.
    assert_eq!(at(keys, 70, "RL.FIXED k 2 60"), refused(wrong_type));
    assert_eq!(at(keys, 71, "RL.FIXED k 2 60"), Ok(row(&[1, 2, 1, 0, 60_000])));
}

#[test]
fn error_in_one_of_several_rules_names_that_rule() {
    let keys = &mut Keys::default();
    let refused = |error: &str| Err(error.to_owned());
    let all = |keys: &mut Keys, line| at(keys, 0, line);
    assert_eq!(
        all(keys, "RL.ALL a 'FIXED 1 60' b 'USE none'"),
        refused("NOPOLICY rule 2: no such policy")
    );
    assert_eq!(
        all(keys, "RL.ALL a 'FIXED 1 60' a 'FIXED 1 60'"),
        refused("ERR rule 2: repeated key: each key may be given once")
    );
    assert_eq!(
        all(keys, "RL.ALL a"),
        refused("ERR wrong number of arguments for 'rl.all' command")
    );
    assert_eq!(
        all(keys, "RL.FIXED a"),
        refused("ERR wrong number of arguments for 'rl.fixed' command")
    );
    assert_eq!(all(keys, "GET a"), refused("ERR unknown command 'GET'"));
    assert_eq!(all(keys, "DEL a"), Ok(Value::Int(0)), "a refused call stored a state");
}

#[test]
fn peek_of_several_rules_stores_nothing() {
    let keys = &mut Keys::default();
    let reply = |keys: &mut Keys, line| at(keys, 0, line);
    let rows = |left, head: [i64; 6]| {
        let rows = [row(&[1, 2, left, 0, 60_000]), row(&[1, 9, left + 7, 0, 60_000])];
        Ok(Value::Array(head.into_iter().map(Value::Int).chain(rows).collect()))
    };
    for _ in 0..2 {
        let peek = reply(keys, "RL.PEEKALL a 'FIXED 2 60' b 'FIXED 9 60'");
        assert_eq!(peek, rows(1, [1, 2, 1, 0, 60_000, 1]));
    }
    let taken = reply(keys, "RL.ALL a 'FIXED 2 60' b 'FIXED 9 60'");
    assert_eq!(taken, rows(1, [1, 2, 1, 0, 60_000, 1]));
    let taken = reply(keys, "RL.ALL a 'FIXED 2 60' b 'FIXED 9 60'");
    assert_eq!(taken, rows(0, [1, 2, 0, 0, 60_000, 1]));
}
