//! `RL.BLOCK`: until the ban ends, every call on the key is denied, whatever its rule and cost.

use redis::Value;

use support::several::{call, decision_of};
use support::statistics::{Stats, listed};
use support::uses::{RULES, decide, set};
use support::{BASE_US, Client, Reply, Server, WRONGTYPE, play, raw_error, text};

const NOT_A_STATE: &str = "WRONGTYPE the key does not hold a rate limiter's state";
const SECOND_US: i64 = 1_000_000;

/// Starts a server on a frozen clock, with `CL.THROTTLE`.
fn start() -> (Server, Client) {
    let server = Server::setup().line("rl.redis-cell yes").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    (server, client)
}

/// Returns the denial under a ban with `left_ms` left.
const fn denial(limit: i64, left_ms: i64) -> Reply {
    [0, limit, 0, left_ms, left_ms]
}

#[test]
fn banned_key_is_denied_by_every_command_until_the_ban_ends() {
    let (_server, mut client) = start();
    for (name, rule) in RULES.iter() {
        client.freeze(BASE_US);
        // The ban replaces the state of every algorithm.
        assert!(client.allows(&format!("RL.{name} k {rule}")));
        client.ok("RL.BLOCK k 10s");
        for (at_ms, left_ms) in [(0, 10_000), (4_000, 6_000), (9_999, 1)] {
            client.freeze(BASE_US + at_ms * 1_000);
            let before = client.snapshot("k");
            for line in [
                format!("RL.{name} k {rule}"),
                format!("RL.PEEK k {name} {rule}"),
                format!("RL.CHARGE k {name} {rule}"),
                format!("RL.REFUND k {name} {rule}"),
            ] {
                assert_eq!(client.decide(&line), denial(5, left_ms), "{line} at {at_ms} ms");
            }
            assert_eq!(client.snapshot("k"), before, "{name}");
        }
        // The ban is still stored, and counts as no state.
        client.freeze(BASE_US + 10_000_000);
        assert_eq!(client.integer("EXISTS k"), 1, "{name}");
        assert_eq!(client.run("RL.INSPECT k"), Value::Nil, "{name}");
        let fresh = client.decide(&format!("RL.{name} fresh {rule}"));
        assert_eq!(client.decide(&format!("RL.PEEK k {name} {rule}")), fresh, "{name}");
        assert_eq!(client.decide(&format!("RL.{name} k {rule}")), fresh, "{name}");
        assert_eq!(client.snapshot("k").0, client.snapshot("fresh").0, "{name}");
        client.run("DEL k fresh");
    }
}

#[test]
fn calls_under_a_ban_match_the_worked_table() {
    let (_server, mut client) = start();
    client.ok("RL.BLOCK k 10s");
    let never = [0, 5, 0, -1, 6_000];
    let rows = [
        (4_000, "RL.GCRA k 5 5 60 COST 0", denial(5, 6_000)),
        (4_000, "RL.GCRA k 5 5 60 COST 6", never),
        (4_000, "RL.FIXED k 5 60 COST 3 LEAVE 2", denial(5, 6_000)),
        (4_000, "RL.FIXED k 5 60 COST 3 LEAVE 3", never),
        (4_000, "RL.FIXED k 5 60 COST 9 PARTIAL", denial(5, 6_000)),
        (4_000, "RL.FIXED k 5 60 COST 9 PARTIAL LEAVE 100%", never),
        (4_000, "RL.RESERVE k job 30s FIXED 5 60 COST 5", denial(5, 6_000)),
        (4_000, "RL.RESERVE k job 30s FIXED 5 60 COST 6", never),
        (4_000, "RL.RESERVE k job 30s QUOTA 5 day COST 0", denial(5, 6_000)),
        (4_000, "RL.COMMIT k job FIXED 5 60 COST 9", denial(5, 6_000)),
        (4_000, "RL.CANCEL k job QUOTA 5 day", denial(5, 6_000)),
        (4_000, "RL.CHARGE k FIXED 5 60 COST 9", denial(5, 6_000)),
        (4_000, "RL.REFUND k FIXED 5 60 COST 0", denial(5, 6_000)),
        (4_000, "RL.LEASE k a 5 60s", denial(5, 6_000)),
        (4_000, "RL.LEASE k a 5 60s LEAVE 5", never),
        (4_000, "RL.PEEK k LEASE a 5 60s", denial(5, 6_000)),
        // redis-cell's seconds are rounded up.
        (4_000, "CL.THROTTLE k 4 10 60", [1, 5, 0, 6, 6]),
        (4_000, "CL.THROTTLE k 4 10 60 0", [1, 5, 0, 6, 6]),
        (4_000, "CL.THROTTLE k 4 10 60 6", [1, 5, 0, -1, 6]),
        (4_001, "CL.THROTTLE k 4 10 60", [1, 5, 0, 6, 6]),
        (9_999, "CL.THROTTLE k 4 10 60", [1, 5, 0, 1, 1]),
    ];
    play(&mut client, &rows);
    for call in ["RL.RENEW k a 60s", "RL.RELEASE k a"] {
        assert_eq!(client.integer(call), 0, "{call}");
    }
    // A later ban replaces an earlier one, also with a shorter one.
    client.ok("RL.BLOCK k 1h");
    assert_eq!(client.decide("RL.FIXED k 5 60"), denial(5, 3_600_000));
    client.ok("RL.BLOCK k 2ms");
    assert_eq!(client.decide("RL.FIXED k 5 60"), denial(5, 2));
    // DEL lifts a ban.
    assert_eq!(client.integer("DEL k"), 1);
    assert_eq!(client.decide("RL.FIXED k 5 60")[..3], [1, 5, 4]);
}

#[test]
fn ban_that_has_ended_counts_as_no_state_for_every_command() {
    let rows = [
        ("RL.LEASE k a 5 60s", [1, 5, 4, 0, 60_000]),
        ("RL.PEEK k LEASE a 5 60s", [1, 5, 4, 0, 60_000]),
        ("CL.THROTTLE k 4 10 60", [0, 5, 4, -1, 6]),
        ("RL.CHARGE k FIXED 5 60 COST 2", [1, 5, 3, 0, 60_000]),
        ("RL.REFUND k FIXED 5 60", [1, 5, 5, 0, 0]),
        ("RL.RESERVE k job 30s FIXED 5 60 COST 2", [1, 5, 3, 0, 30_000]),
        ("RL.COMMIT k job FIXED 5 60", [0, 5, 5, 0, 0]),
        ("RL.CANCEL k job FIXED 5 60", [0, 5, 5, 0, 0]),
    ];
    for (line, expected) in rows {
        let (_server, mut client) = start();
        client.ok("RL.BLOCK k 10s");
        client.advance_ms(10_000);
        assert_eq!(client.integer("EXISTS k"), 1);
        assert_eq!(client.decide(line), expected, "{line}");
        let (value, expiry) = client.snapshot("k");
        assert!(value == Value::Nil || expiry > 0, "{line}");
    }
    let (_server, mut client) = start();
    client.ok("RL.BLOCK k 10s");
    client.advance_ms(10_000);
    for line in ["RL.RENEW k a 60s", "RL.RELEASE k a"] {
        assert_eq!(client.integer(line), 0, "{line}");
    }
    set(&mut client, "p FIXED 5 60");
    assert_eq!(decide(&mut client, "RL.USE k p"), [1, 5, 4, 0, 60_000, 1, 0]);
}

#[test]
fn call_with_several_rules_is_denied_by_the_row_of_a_banned_key() {
    let (_server, mut client) = start();
    // A key of its own for the ban: the quota next to it is not forgotten.
    let pairs = [("{7}:month", "QUOTA 100 month"), ("{7}:ban", "FIXED 1000000 1s")];
    let month_ms = 16 * 86_400_000 + 16 * 3_600_000;
    let taken = decision_of(&client.call(&call("RL.ALL", &pairs))).expect("a decision");
    assert_eq!((taken.five, taken.rule), ([1, 100, 99, 0, month_ms], 1));
    assert_eq!(taken.rows[1], [1, 1_000_000, 999_999, 0, 1_000]);
    client.ok("RL.BLOCK {7}:ban 1h");
    let before = client.snapshot("{7}:month");
    for command in ["RL.ALL", "RL.PEEKALL"] {
        let denied = decision_of(&client.call(&call(command, &pairs))).expect("a decision");
        assert_eq!((denied.five, denied.rule), (denial(1_000_000, 3_600_000), 2), "{command}");
        assert_eq!(denied.rows[0], [1, 100, 99, 0, month_ms], "{command}");
        assert_eq!(denied.rows[1], denied.five, "{command}");
    }
    assert_eq!(client.snapshot("{7}:month"), before);
    client.advance_ms(3_600_000);
    let month_ms = month_ms - 3_600_000;
    let taken = decision_of(&client.call(&call("RL.ALL", &pairs))).expect("a decision");
    assert_eq!((taken.five, taken.rule), ([1, 100, 98, 0, month_ms], 1));
    // A lease and a policy in shadow mode deny, too.
    set(&mut client, "shade SHADOW GCRA 5 5 60");
    client.ok("RL.BLOCK {7}:held 1m");
    let held = [("{7}:u", "GCRA 5 5 60"), ("{7}:held", "LEASE a 3 60")];
    let denied = decision_of(&client.call(&call("RL.ALL", &held))).expect("a decision");
    assert_eq!((denied.five, denied.rule), (denial(3, 60_000), 2));
    assert_eq!(client.integer("EXISTS {7}:u"), 0);
    let named = [("{7}:u", "GCRA 5 5 60"), ("{7}:held", "USE shade")];
    let Value::Array(fields) = client.call(&call("RL.ALL", &named)) else { panic!("no array") };
    let head = [0, 5, 0, 60_000, 60_000, 2].map(Value::Int);
    assert_eq!(fields[..6], head);
    let row = [0, 5, 0, 60_000, 60_000, 0, 60_000].map(Value::Int);
    assert_eq!(fields[7], Value::Array(row.to_vec()));
    assert_eq!(client.integer("EXISTS {7}:u"), 0);
}

#[test]
fn ban_is_enforced_in_every_mode_of_a_policy_but_off() {
    let (_server, mut client) = start();
    for mode in ["", "SHADOW", "ENFORCE 0", "ENFORCE 100", "BLOCK", "OFF"] {
        let name = mode.to_lowercase().replace(' ', "-");
        set(&mut client, &format!("p{name} {mode} FIXED 5 60").replace("  ", " "));
        client.run("DEL k");
        client.ok("RL.BLOCK k 10s");
        let used = decide(&mut client, &format!("RL.USE k p{name}"));
        assert_eq!(decide(&mut client, &format!("RL.PEEK k USE p{name}")), used, "{mode}");
        let free = decide(&mut client, &format!("RL.USE k p{name} COST 0"));
        let dear = decide(&mut client, &format!("RL.USE k p{name} COST 6"));
        let settled = client.decide(&format!("RL.CHARGE k USE p{name}"));
        let refunded = client.decide(&format!("RL.REFUND k USE p{name}"));
        let expected = match mode {
            "OFF" => [1, 5, 4, 0, 60_000, 1, 0],
            // The policy decides first: it is blocked without an end.
            "BLOCK" => [0, 5, 0, -1, 0, 0, -1],
            _ => [0, 5, 0, 10_000, 10_000, 0, 10_000],
        };
        assert_eq!(used[..2], expected[..2], "{mode}");
        let stats = listed(&mut client, "RL.POLICY STATS");
        let (_, stats) = stats.iter().find(|(of, _)| *of == format!("p{name}")).expect(mode);
        let of_denials = Stats { last_denied_us: stats.last_denied_us, ..Stats::default() };
        match mode {
            "OFF" => assert_eq!(*stats, Stats { allowed: 2, ..of_denials }, "{mode}"),
            "BLOCK" => assert_eq!((used, stats.denied), (expected, 2), "{mode}"),
            _ => {
                assert_eq!((used, free), (expected, expected), "{mode}");
                assert_eq!(dear, [0, 5, 0, -1, 10_000, 0, -1], "{mode}");
                // Calls of cost 0 are not counted.
                assert_eq!(*stats, Stats { denied: 2, ..of_denials }, "{mode}");
                assert_eq!([settled, refunded], [denial(5, 10_000); 2], "{mode}");
            }
        }
    }
    // A policy of any algorithm finds the ban, and one with a default rule.
    client.ok("RL.BLOCK k 10s");
    for (name, rule) in RULES.iter() {
        let line = format!("RL.USE k unknown DEFAULT {name} {rule}");
        assert_eq!(decide(&mut client, &line), [0, 5, 0, 10_000, 10_000, 0, 10_000], "{line}");
    }
}

#[test]
fn clock_that_steps_back_lengthens_a_ban_by_at_most_its_duration() {
    let (_server, mut client) = start();
    let calls = [
        ("RL.GCRA k 5 5 60", denial(5, 10_000)),
        ("RL.LEASE k a 5 60s", denial(5, 10_000)),
        ("CL.THROTTLE k 4 10 60", [1, 5, 0, 10, 10]),
        ("RL.RESERVE k job 30s FIXED 5 60", denial(5, 10_000)),
        ("RL.QUOTA k 5 day COST 6", [0, 5, 0, -1, 10_000]),
        ("RL.USE k p", denial(5, 10_000)),
        ("RL.USE k shadow", denial(5, 10_000)),
        ("RL.USE k unknown DEFAULT GCRA 5 5 60", denial(5, 10_000)),
        ("RL.RESERVE k job 30s USE p", denial(5, 10_000)),
        ("RL.RESERVE k job 30s USE shadow", denial(5, 10_000)),
    ];
    client.ok("RL.POLICY SET p FIXED 5 60");
    client.ok("RL.POLICY SET shadow SHADOW FIXED 5 60");
    for (line, expected) in calls {
        client.freeze(BASE_US);
        client.ok("RL.BLOCK k 10s");
        client.freeze(BASE_US - 3_600 * SECOND_US);
        let before = client.snapshot("k");
        // These calls show the re-based ban, but do not store it.
        let quiet = [
            "RL.PEEK k GCRA 5 5 60",
            "RL.PEEK k LEASE a 5 60s",
            "RL.GCRA k 5 5 60 COST 0",
            "RL.CHARGE k GCRA 5 5 60",
            "RL.REFUND k GCRA 5 5 60",
            "RL.COMMIT k job FIXED 5 60",
        ];
        for quiet in quiet {
            assert_eq!(client.decide(quiet), denial(5, 10_000), "{quiet}");
        }
        for quiet in ["CL.THROTTLE k 4 10 60 0", "RL.RENEW k a 60s", "RL.RELEASE k a"] {
            assert!(raw_error(&client.run(quiet)).is_none(), "{quiet}");
        }
        assert_eq!(until_us(&mut client, "k"), BASE_US - 3_590 * SECOND_US);
        assert_eq!(client.snapshot("k"), before, "{line}");
        assert_eq!(first_five(&mut client, line), expected, "{line}");
        assert_ne!(client.snapshot("k").0, before.0, "{line}");
        client.advance_ms(4_000);
        assert_eq!(client.decide("RL.GCRA k 5 5 60"), denial(5, 6_000), "{line}");
        // A small step is not noticed: no more than the ban's length is left.
        let before = client.snapshot("k");
        client.advance_ms(-3_000);
        assert_eq!(client.decide("RL.GCRA k 5 5 60"), denial(5, 9_000), "{line}");
        assert_eq!(client.snapshot("k"), before, "{line}");
        client.advance_ms(9_000);
        assert!(client.allows("RL.GCRA k 5 5 60"), "{line}");
        client.run("DEL k");
    }
    // The row of one of several rules stores the re-based ban, even if another rule denies too.
    client.freeze(BASE_US);
    for key in ["k", "l", "u", "r"] {
        client.ok(&format!("RL.BLOCK {key} 10s"));
    }
    client.freeze(BASE_US - 3_600 * SECOND_US);
    let rules = [
        ("m", "GCRA 5 5 60"),
        ("k", "GCRA 5 5 60"),
        ("l", "LEASE a 5 60"),
        ("u", "USE p"),
        ("r", "RESERVE job 30s USE shadow"),
    ];
    client.call(&call("RL.ALL", &rules));
    client.freeze(BASE_US - 3_590 * SECOND_US);
    let taken = client.call(&call("RL.ALL", &rules));
    let Value::Array(taken) = taken else { panic!("{taken:?}") };
    assert_eq!(taken[0], Value::Int(1), "{taken:?}");
}

/// Returns the first five integers of a reply, which has seven under a policy.
fn first_five(client: &mut Client, line: &str) -> Reply {
    let Value::Array(integers) = client.run(line) else { panic!("{line}: no array") };
    let integer = |value: &Value| match value {
        Value::Int(integer) => *integer,
        other => panic!("{line}: {other:?}"),
    };
    let first: Vec<_> = integers.iter().take(5).map(integer).collect();
    first.try_into().expect("five integers")
}

/// Returns the end of a ban, as INSPECT shows it.
fn until_us(client: &mut Client, key: &str) -> i64 {
    let Value::Array(fields) = client.run(&format!("RL.INSPECT {key}")) else { panic!("no map") };
    let [name, algorithm, field, Value::Int(until_us)] = &fields[..] else { panic!("{fields:?}") };
    assert_eq!([text(name), text(algorithm), text(field)], ["algorithm", "BLOCKED", "until_us"]);
    *until_us
}

#[test]
fn inspect_shows_the_end_of_a_ban() {
    let (_server, mut client) = start();
    client.ok("RL.BLOCK k 1.5h");
    assert_eq!(until_us(&mut client, "k"), BASE_US + 5_400 * SECOND_US);
}

#[test]
fn ban_replaces_every_state_of_the_module_and_no_other_value() {
    let (_server, mut client) = start();
    let states = [
        "RL.FIXED k 5 60",
        "RL.SLIDING k 5 60",
        "RL.SLIDINGLOG k 5 60",
        "RL.TOKENBUCKET k 5 5 60",
        "RL.LEAKYBUCKET k 5 5 60",
        "RL.GCRA k 5 5 60",
        "RL.BACKOFF k 5 1s 8s 1h",
        "RL.QUOTA k 5 day",
        "RL.CHARGE k TOKENBUCKET 5 5 60 COST 9",
        "RL.CHARGE k LEAKYBUCKET 5 5 60 COST 9",
        "RL.RESERVE k job 30s FIXED 5 60",
        "RL.RESERVE k job 30s QUOTA 5 day",
        "RL.LEASE k a 5 60s",
        "RL.BLOCK k 10s",
        "CL.THROTTLE k 4 10 60",
    ];
    for state in states {
        assert!(raw_error(&client.run(state)).is_none(), "{state}");
        client.ok("RL.BLOCK k 1h");
        assert_eq!(client.decide("RL.FIXED k 5 60"), denial(5, 3_600_000), "{state}");
        // Nothing is remembered after the ban.
        client.advance_ms(3_600_000);
        assert_eq!(client.decide("RL.FIXED k 5 60"), [1, 5, 4, 0, 60_000], "{state}");
        client.freeze(BASE_US);
        client.run("DEL k");
    }
    // A state without an expiry is a state. Digits without an expiry are not.
    assert!(client.allows("RL.FIXED k 5 60"));
    client.run("PERSIST k");
    client.ok("RL.BLOCK k 1h");
    assert!(client.integer("PTTL k") > 0);
    client.ok("SET visits 42");
    client.ok("SET text word EX 60");
    client.ok("SET zero 007 EX 60");
    for line in ["RPUSH list a", "HSET hash field value", "SADD set a", "ZADD zset 1 a"] {
        assert!(raw_error(&client.run(line)).is_none(), "{line}");
    }
    // A forged list of reservations, whose second id is not above the first.
    let reserved =
        b"\x93\xf5\x92\x94\xc4\x01a\x00\xcd\x03\xe8\x01\x94\xc4\x01a\x00\xcd\x03\xe8\x01\
                     \xc4\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    client.call(&[&b"SET"[..], b"forged", reserved]);
    for key in ["visits", "text", "zero", "list", "hash", "set", "zset", "forged"] {
        let before = client.snapshot(key);
        let changes = client.changes();
        assert_eq!(client.error(&format!("RL.BLOCK {key} 1h")), NOT_A_STATE, "{key}");
        assert_eq!((client.snapshot(key), client.changes()), (before, changes), "{key}");
    }
    // Digits with an expiry are a state of CL.THROTTLE.
    client.ok("SET digits 1800000002000000000 EX 60");
    client.ok("RL.BLOCK digits 1h");
    let without = Server::start();
    let mut client = without.client();
    client.ok("SET digits 1800000002000000000 EX 60");
    assert_eq!(client.error("RL.BLOCK digits 1h"), NOT_A_STATE);
}

#[test]
fn invalid_arguments_are_errors_and_change_nothing() {
    let (_server, mut client) = start();
    let duration =
        "ERR invalid duration: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h";
    for word in ["0", "0.9ms", "367d", "-1", "1H", "x", "9999999999999999999999"] {
        assert_eq!(client.error(&format!("RL.BLOCK k {word}")), duration, "{word}");
    }
    for line in ["RL.BLOCK", "RL.BLOCK k", "RL.BLOCK k 1h 1h"] {
        let arity = "ERR wrong number of arguments for 'rl.block' command";
        assert_eq!(client.error(line), arity, "{line}");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
    for line in ["RL.BLOCK k 1ms", "RL.BLOCK k 366d", "RL.BLOCK k 0.5", "rl.block k 1.5h"] {
        client.ok(line);
    }
    // Commands whose rule has no such state still refuse other values.
    client.ok("SET other word");
    assert_eq!(client.error("RL.LEASE other a 5 60"), WRONGTYPE);
    assert_eq!(client.error("CL.THROTTLE other 4 10 60"), WRONGTYPE);
}
