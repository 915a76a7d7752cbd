//! `LEAVE`: a call is allowed only if some units remain afterwards.

use redis::Value;

use support::several::{call, decision_of};
use support::uses::{decide, set};
use support::{ALGORITHMS, BASE_US, Client, Random, Server, raw_error};

/// Makes the calls of a table (time in ms, call, expected reply) on a frozen clock. Each is peeked
/// at first.
fn play(client: &mut Client, rows: &[(i64, &str, &str, [i64; 5])]) {
    for (at_ms, key, rule, expected) in rows {
        client.freeze(BASE_US + at_ms * 1_000);
        let (name, limits) = rule.split_once(' ').expect("a rule");
        assert_eq!(client.decide(&format!("RL.PEEK {key} {rule}")), *expected, "PEEK {rule}");
        assert_eq!(client.decide(&format!("RL.{name} {key} {limits}")), *expected, "{rule}");
    }
}

fn dump(client: &mut Client, key: &str) -> Value {
    client.call(&["DUMP", key])
}

#[test]
fn calls_that_leave_units_match_the_worked_table() {
    let server = Server::start();
    let rows = [
        (0, "k", "TOKENBUCKET 10 10 60 COST 7", [1, 10, 3, 0, 42_000]),
        (0, "k", "TOKENBUCKET 10 10 60 LEAVE 3", [0, 10, 3, 6_000, 42_000]),
        (0, "k", "TOKENBUCKET 10 10 60 leave 2", [1, 10, 2, 0, 48_000]),
        (0, "k", "TOKENBUCKET 10 10 60 COST 5 PARTIAL LEAVE 20%", [0, 10, 2, 6_000, 48_000]),
        (6_000, "k", "TOKENBUCKET 10 10 60 LEAVE 20% PARTIAL COST 5", [1, 10, 2, 0, 48_000]),
        (6_000, "k", "TOKENBUCKET 10 10 60 COST 0 LEAVE 3", [0, 10, 2, 6_000, 48_000]),
        (6_000, "k", "TOKENBUCKET 10 10 60 COST 9 LEAVE 2", [0, 10, 2, -1, 48_000]),
        (6_000, "k", "TOKENBUCKET 10 10 60 COST 5 PARTIAL LEAVE 10", [0, 10, 2, -1, 48_000]),
        (6_000, "k", "TOKENBUCKET 10 10 60 COST 2 LEAVE 0%", [1, 10, 0, 0, 60_000]),
        (6_000, "l", "LEASE a 3 60 LEAVE 1", [1, 3, 2, 0, 60_000]),
        (6_000, "l", "LEASE b 3 30 LEAVE 1", [1, 3, 1, 0, 60_000]),
        (6_000, "l", "LEASE c 3 60 LEAVE 34%", [0, 3, 1, 30_000, 60_000]),
        (6_000, "l", "LEASE c 3 60 LEAVE 3", [0, 3, 1, -1, 60_000]),
        // A renewal takes no permit, so it is allowed whatever it leaves.
        (6_000, "l", "LEASE a 3 40 LEAVE 3", [1, 3, 1, 0, 40_000]),
    ];
    play(&mut server.client(), &rows);
}

#[test]
fn call_that_leaves_units_equals_a_peek_of_both_and_then_the_call_alone() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(22);
    let mut now_us = BASE_US;
    let (mut allowed, mut denied) = (0, 0);
    for _ in 0..6_000 {
        now_us += random.below(400_000) as i64;
        client.freeze(now_us);
        let algorithm = random.pick(&ALGORITHMS);
        let (cost, leave) = (random.below(4), random.below(8));
        let percent = random.below(2) == 0;
        let leave_text = if percent { format!("{}%", leave * 10 + 3) } else { leave.to_string() };
        let rule = algorithm.call("KEY", 10, "20");
        let on = |key: &str, cost: u64| format!("{} COST {cost}", rule.replace("KEY", key));
        // A quota has a longer period than the others; its limit is the same.
        let peek = |key: &str, cost: u64| {
            let peek = algorithm.peek("KEY", 10, "20").replace("KEY", key);
            format!("{peek} COST {cost}")
        };
        let (ours, plain) =
            (format!("ours:{}", algorithm.name), format!("plain:{}", algorithm.name));
        let reply = client.decide(&format!("{} LEAVE {leave_text}", on(&ours, cost)));
        let both = client.decide(&peek(&plain, cost + leave));
        let expected = if both[0] == 1 { client.decide(&on(&plain, cost)) } else { both };
        assert_eq!(reply, expected, "{rule} COST {cost} LEAVE {leave_text}");
        let counter = if reply[0] == 1 { &mut allowed } else { &mut denied };
        *counter += 1;
        assert_eq!(dump(&mut client, &ours), dump(&mut client, &plain), "{rule}");
    }
    assert!(allowed > 1_000 && denied > 1_000, "{allowed} allowed, {denied} denied");
}

#[test]
fn call_of_cost_0_that_leaves_units_writes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 10, "20");
        assert_eq!(client.decide(&format!("{call} COST 0 LEAVE 10"))[0], 1, "{call}");
        assert_eq!(client.call(&["EXISTS", "k"]), Value::Int(0), "{call}");
        client.decide(&call);
        let before = dump(&mut client, "k");
        assert_eq!(client.decide(&format!("{call} COST 0 LEAVE 10"))[0], 0, "{call}");
        assert_eq!(dump(&mut client, "k"), before, "{call}");
        client.call(&["DEL", "k"]);
    }
}

#[test]
fn of_several_rules_the_one_with_the_fewest_calls_above_what_it_leaves_decides() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut all = |pairs: &[(&str, &str)]| {
        let reply = client.call(&call("RL.ALL", pairs));
        let decision = decision_of(&reply).unwrap_or_else(|| panic!("{reply:?}"));
        (decision.five, decision.rule)
    };
    // Three more calls of the first rule, two of the second.
    let pairs = [("a", "FIXED 4 60"), ("b", "FIXED 10 60 LEAVE 70%")];
    assert_eq!(all(&pairs), ([1, 10, 9, 0, 60_000], 2));
    // Each rule leaves at least nothing, however much it should leave.
    let pairs = [("a", "FIXED 4 60"), ("l", "LEASE me 5 1m LEAVE 4")];
    assert_eq!(all(&pairs), ([1, 5, 4, 0, 60_000], 2));
    let pairs = [("a", "FIXED 4 60"), ("b", "FIXED 10 60 COST 2 LEAVE 8")];
    assert_eq!(all(&pairs), ([0, 10, 9, 60_000, 60_000], 2));
    let pairs = [("a", "FIXED 4 60"), ("l", "LEASE you 5 1m LEAVE 4")];
    assert_eq!(all(&pairs), ([0, 5, 4, 60_000, 60_000], 2));
    // The denied calls took nothing.
    assert_eq!(all(&[("a", "FIXED 4 60 COST 0")]), ([1, 4, 2, 0, 60_000], 1));
}

#[test]
fn caller_of_a_policy_or_a_reservation_chooses_what_it_leaves() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "p GCRA 10 10 60");
    set(&mut client, "shade SHADOW GCRA 10 10 60");
    assert_eq!(decide(&mut client, "RL.USE u p COST 8 LEAVE 20%"), [1, 10, 2, 0, 48_000, 1, 0]);
    let denied = [0, 10, 2, 6_000, 48_000, 0, 6_000];
    assert_eq!(decide(&mut client, "RL.PEEK u USE p LEAVE 2"), denied);
    assert_eq!(decide(&mut client, "RL.USE u p LEAVE 2 FOR x DEFAULT GCRA 1 1 1"), denied);
    client.decide("RL.GCRA s 10 10 60 COST 10");
    assert_eq!(decide(&mut client, "RL.USE s shade LEAVE 1"), [1, 10, 0, 0, 60_000, 0, 12_000]);
    let rows = [
        ("RL.RESERVE r a 30s FIXED 10 60 COST 4 LEAVE 6", [1, 10, 6, 0, 30_000]),
        ("RL.RESERVE r b 30s FIXED 10 60 COST 4 LEAVE 3", [0, 10, 6, 30_000, 30_000]),
        // Its own four units do not count.
        ("RL.RESERVE r a 30s FIXED 10 60 COST 7 LEAVE 3", [1, 10, 3, 0, 30_000]),
        ("RL.RESERVE r b 30s FIXED 10 60 COST 0 LEAVE 4", [0, 10, 3, 30_000, 30_000]),
        ("RL.RESERVE r b 30s FIXED 10 60 COST 0 LEAVE 3", [1, 10, 3, 0, 30_000]),
        ("RL.RESERVE r c 30s QUOTA 10 day LEAVE 100%", [0, 10, 10, -1, 0]),
    ];
    for (line, expected) in &rows[..5] {
        assert_eq!(client.decide(line), *expected, "{line}");
    }
    client.call(&["DEL", "r"]);
    assert_eq!(client.decide(rows[5].0), rows[5].1);
}

#[test]
fn every_misplaced_or_invalid_leave_is_an_error_that_says_so() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET slow BACKOFF 3 1s 8s 1h");
    let lease_option = "ERR invalid option: expected LEAVE n, a holder has one permit";
    let no_start = "ERR invalid start: only week, month and year take START";
    let of_policy =
        "ERR invalid option: COST, PARTIAL and LEAVE belong to a call, not to a policy's rule";
    let of_backoff = "ERR invalid option: the policy's rule is BACKOFF, which takes no COST, \
         PARTIAL or LEAVE";
    let missing =
        "ERR missing leave: expected LEAVE followed by units or a percentage, such as 20%";
    let invalid = "ERR invalid leave: expected an integer from 0 to 1000000000000, or 0% to 100%";
    let repeated = "ERR repeated option: LEAVE may be given once";
    let not_here = "ERR invalid option: LEAVE is for commands that decide a call";
    let rows = [
        ("RL.GCRA k 5 1 60 LEAVE", missing),
        ("RL.GCRA k 5 1 60 LEAVE COST 1", invalid),
        ("RL.GCRA k 5 1 60 LEAVE -1", invalid),
        ("RL.GCRA k 5 1 60 LEAVE %", invalid),
        ("RL.GCRA k 5 1 60 LEAVE 101%", invalid),
        ("RL.GCRA k 5 1 60 LEAVE 5.5%", invalid),
        ("RL.GCRA k 5 1 60 LEAVE 5%%", invalid),
        ("RL.GCRA k 5 1 60 LEAVE 1000000000001", invalid),
        ("RL.QUOTA k 5 day LEAVE 1 START 2 LEAVE 1", no_start),
        ("RL.QUOTA k 5 day LEAVE 1 COST 2 LEAVE 1", repeated),
        ("RL.LEASE k me 5 60 LEAVE 1 LEAVE 1", repeated),
        ("RL.LEASE k me 5 60 COST 1", lease_option),
        ("RL.BACKOFF k 3 1s 8s 1h LEAVE 1", "ERR invalid option: BACKOFF takes no options"),
        ("RL.USE k slow LEAVE 0", of_backoff),
        ("RL.CHARGE k GCRA 5 1 60 LEAVE 0", not_here),
        ("RL.REFUND k FIXED 5 60 COST 1 LEAVE 1%", not_here),
        ("RL.CHARGE k USE p LEAVE 1", not_here),
        ("RL.COMMIT k id FIXED 5 60 LEAVE 1", not_here),
        ("RL.CANCEL k id FIXED 5 60 LEAVE 1", not_here),
        ("RL.POLICY SET p GCRA 5 1 60 LEAVE 1", of_policy),
        ("RL.USE k p DEFAULT GCRA 5 1 60 LEAVE 1", of_policy),
    ];
    for (line, expected) in rows {
        assert_eq!(client.error(line), expected, "{line}");
    }
    let reply = client.call(&["RL.ALL", "k", "FIXED 5 60 LEAVE 1 LEAVE 1"]);
    assert_eq!(raw_error(&reply), Some(repeated.replacen("ERR ", "ERR rule 1: ", 1)));
}
