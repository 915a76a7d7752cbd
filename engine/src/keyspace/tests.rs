//! Tests of commands that no client sends, and of the memory of keys.

use super::{Keyspace, Reply};
use crate::time::Instant;

const START: Instant = Instant::from_us(1_704_067_200_000_000);

/// Runs a command `second` seconds after the start of the clock. Quoted words are one argument.
fn at(keys: &mut Keyspace, second: u64, line: &str) -> Result<Reply, String> {
    let words: Vec<_> = line
        .split('\'')
        .enumerate()
        .flat_map(|(part, text)| match part % 2 {
            0 => text.split_whitespace().collect(),
            _ => vec![text],
        })
        .collect();
    let now = Instant::from_us(START.as_us() + second * 1_000_000);
    let words: Vec<_> = words.into_iter().map(str::as_bytes).collect();
    keys.run(now, &words)
}

fn row(integers: &[i64]) -> Reply {
    Reply::Array(integers.iter().copied().map(Reply::Integer).collect())
}

#[test]
fn lease_expires_at_its_ttl_and_frees_its_permit() {
    let keys = &mut Keyspace::default();
    assert_eq!(at(keys, 0, "RL.LEASE jobs a 1 60"), Ok(row(&[1, 1, 0, 0, 60_000])));
    assert_eq!(at(keys, 10, "RL.LEASE jobs b 1 60"), Ok(row(&[0, 1, 0, 50_000, 50_000])));
    assert_eq!(at(keys, 20, "RL.RENEW jobs a 60"), Ok(Reply::Integer(1)));
    assert_eq!(at(keys, 79, "RL.PEEK jobs LEASE b 1 60"), Ok(row(&[0, 1, 0, 1_000, 1_000])));
    assert_eq!(at(keys, 80, "RL.RENEW jobs a 60"), Ok(Reply::Integer(0)));
    assert_eq!(at(keys, 80, "RL.LEASE jobs b 1 60"), Ok(row(&[1, 1, 0, 0, 60_000])));
    assert_eq!(at(keys, 80, "RL.RELEASE jobs a"), Ok(Reply::Integer(0)));
    assert_eq!(at(keys, 80, "RL.RELEASE jobs b"), Ok(Reply::Integer(1)));
    assert_eq!(at(keys, 80, "DEL jobs"), Ok(Reply::Integer(0)));
}

#[test]
fn command_is_refused_on_a_key_of_another_type_until_the_key_expires() {
    let wrong_type = "WRONGTYPE the key does not hold a state of this algorithm";
    let refused = |error: &str| Err(error.to_owned());
    let keys = &mut Keyspace::default();
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
    let keys = &mut Keyspace::default();
    let refused = |error: &str| Err(error.to_owned());
    let all = |keys: &mut Keyspace, line| at(keys, 0, line);
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
    assert_eq!(
        all(keys, "GET a"),
        refused("ERR unknown command 'GET', with args beginning with: 'a' ")
    );
    assert_eq!(all(keys, "DEL a"), Ok(Reply::Integer(0)), "a refused call stored a state");
}

#[test]
fn peek_of_several_rules_stores_nothing() {
    let keys = &mut Keyspace::default();
    let reply = |keys: &mut Keyspace, line| at(keys, 0, line);
    let rows = |left, head: [i64; 6]| {
        let rows = [row(&[1, 2, left, 0, 60_000]), row(&[1, 9, left + 7, 0, 60_000])];
        Ok(Reply::Array(head.into_iter().map(Reply::Integer).chain(rows).collect()))
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

#[test]
fn deleted_and_expired_keys_occupy_nothing() {
    let fill = |keys: &mut Keyspace| {
        for line in [
            "RL.FIXED a 2 60",
            "RL.SLIDINGLOG b 9 60",
            "RL.SLIDINGLOG b 9 60",
            "RL.LEASE c one 2 60",
            "RL.LEASE c other 2 30",
            "RL.RELEASE c one",
            "RL.FIXED d 2 60",
            "RL.BLOCK d 60",
        ] {
            at(keys, 0, line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    };
    let keys = &mut Keyspace::default();
    fill(keys);
    assert!(keys.bytes() > 400, "{}", keys.bytes());
    assert_eq!(at(keys, 0, "DEL a b c d"), Ok(Reply::Integer(4)));
    assert_eq!(keys.bytes(), 0);
    fill(keys);
    keys.sweep(Instant::from_us(START.as_us() + 3_600_000_000));
    assert_eq!(keys.bytes(), 0);
    fill(keys);
    assert_eq!((at(keys, 0, "FLUSHALL"), keys.bytes()), (Ok(Reply::Okay), 0));
}
