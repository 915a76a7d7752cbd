//! Reservations under a policy: `USE` in `RL.RESERVE`, `RL.COMMIT`, `RL.CANCEL`, and in `RESERVE`
//! of `RL.ALL`.

use redis::Value;

use support::several::call;
use support::statistics::{Stats, listed};
use support::uses::{Seven, decide, enforced, set, seven, shadowed};
use support::{BASE_US, Client, Random, Server, WRONGTYPE, integers, raw_error};

/// Returns the seven integers of a reservation, and asserts that its PEEK returns the same.
fn reserve(client: &mut Client, key: &str, words: &str) -> Seven {
    let before = client.snapshot(key);
    let peeked = decide(client, &format!("RL.PEEK {key} RESERVE {words}"));
    assert_eq!(client.snapshot(key), before, "{words} peeked");
    let reply = decide(client, &format!("RL.RESERVE {key} {words}"));
    assert_eq!(reply, peeked, "{words}");
    reply
}

fn stats(client: &mut Client, policy: &str) -> Stats {
    let all = listed(client, "RL.POLICY STATS");
    all.into_iter().find(|(name, _)| name == policy).map(|(_, stats)| stats).unwrap_or_default()
}

/// Returns the rows of a reply to several rules.
fn rows(value: &Value) -> Vec<Vec<i64>> {
    let Value::Array(fields) = value else { panic!("no decision: {value:?}") };
    let numbers = |row: &Value| match row {
        Value::Array(numbers) => numbers
            .iter()
            .map(|number| match number {
                Value::Int(number) => *number,
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    };
    fields[6..].iter().map(numbers).collect()
}

#[test]
fn enforced_policy_reserves_and_settles_as_its_rule_does() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(221);
    set(&mut client, "w FIXED 10 20");
    set(&mut client, "w@big FIXED 30 20");
    set(&mut client, "q QUOTA 10 day");
    let mut now_us = BASE_US;
    let (mut allowed, mut denied, mut refused) = (0, 0, 0);
    for _ in 0..3_000 {
        now_us += random.below(900_000) as i64;
        client.freeze(now_us);
        let (key, policy, rule) = *random.pick(&[
            ("w", "USE w FOR small", "FIXED 10 20"),
            ("w", "use w FOR none FOR big", "FIXED 30 20"),
            ("q", "USE q", "QUOTA 10 day"),
            ("d", "USE none DEFAULT QUOTA 9 week", "QUOTA 9 week"),
        ]);
        let id = random.below(9);
        let cost = random.below(12);
        let verb = *random.pick(&["RESERVE", "RESERVE", "COMMIT", "CANCEL"]);
        let ttl = if verb == "RESERVE" { format!(" {}s", 1 + random.below(30)) } else { "".into() };
        let options = match (verb, random.below(3)) {
            ("RESERVE", 0) => format!(" COST {cost} LEAVE {}", random.below(4)),
            (_, 1) => format!(" COST {cost}"),
            _ => String::new(),
        };
        let (name, default) = policy
            .split_once(" DEFAULT")
            .map_or((policy, String::new()), |(name, rule)| (name, format!(" DEFAULT{rule}")));
        let by_rule = client.run(&format!("RL.{verb} twin:{key} job-{id}{ttl} {rule}{options}"));
        let by_policy =
            client.run(&format!("RL.{verb} {key} job-{id}{ttl} {name}{options}{default}"));
        match (integers(&by_rule), verb) {
            (None, _) => {
                refused += 1;
                assert_eq!(by_policy, by_rule);
            }
            (Some(five), "RESERVE") => {
                assert_eq!(seven(&by_policy), Some(enforced(five)), "{policy}{options}");
                *(if five[0] == 1 { &mut allowed } else { &mut denied }) += 1;
            }
            (Some(_), _) => assert_eq!(by_policy, by_rule, "five integers: {verb} {policy}"),
        }
        let dump = |client: &mut Client, key: &str| client.call(&["DUMP", key]);
        let (ours, twins) = (dump(&mut client, key), dump(&mut client, &format!("twin:{key}")));
        assert_eq!(ours, twins, "{verb} {policy}{options}");
    }
    assert!(allowed > 300 && denied > 200 && refused > 50, "{allowed} {denied} {refused}");
}

#[test]
fn what_does_not_fit_is_held_as_0_units_in_shadow_mode_and_can_be_settled() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for definition in ["s SHADOW FIXED 10 60", "z ENFORCE 0 FIXED 10 60"] {
        set(&mut client, definition);
        let (key, _) = definition.split_once(' ').expect("a name");
        let words = |id: &str, rest: &str| format!("{id} 30s USE {key} {rest}");
        let mut hold = |id: &str, rest: &str| reserve(&mut client, key, &words(id, rest));
        assert_eq!(hold("a", "COST 6"), shadowed([1, 10, 4, 0, 30_000], 1));
        assert_eq!(hold("b", "COST 7"), shadowed([0, 10, 4, 30_000, 30_000], 1));
        assert_eq!(hold("c", "COST 11"), shadowed([0, 10, 4, -1, 30_000], 1));
        assert_eq!(hold("d", "COST 2 LEAVE 50%"), shadowed([0, 10, 4, 30_000, 30_000], 1));
        let mut settle = |verb: &str, id: &str, rest: &str| {
            client.decide(&format!("RL.{verb} {key} {id} USE {key} {rest}"))
        };
        assert_eq!(settle("COMMIT", "b", "COST 3"), [1, 10, 1, 0, 60_000]);
        assert_eq!(settle("COMMIT", "b", "COST 3"), [1, 10, 1, 0, 60_000]);
        assert_eq!(settle("CANCEL", "c", ""), [1, 10, 1, 0, 60_000]);
        assert_eq!(settle("COMMIT", "d", ""), [1, 10, 1, 0, 60_000]);
        assert_eq!(settle("COMMIT", "none", ""), [0, 10, 1, 0, 60_000]);
        // The commits used more than enforcement would have allowed.
        assert_eq!(settle("COMMIT", "a", "COST 9"), [1, 10, 0, 60_000, 60_000]);
    }
    // One counted at each reservation, units at each commit.
    let counted = stats(&mut client, "s");
    let expected =
        Stats { allowed: 1, shadow_denied: 3, units: 3 + 9, created: 1, ..Stats::default() };
    assert_eq!(counted, expected);
}

#[test]
fn shadow_reservation_of_a_call_that_another_rule_denies_is_not_stored() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "s SHADOW FIXED 10 60");
    reserve(&mut client, "k", "a 30s USE s COST 6");
    let before = client.contents();
    let (rule, never) = ("RESERVE b 30s USE s COST 7", ("n", "FIXED 1 60 COST 2"));
    for pairs in [[("k", rule), never], [never, ("k", rule)]] {
        let value = client.call(&call("RL.ALL", &pairs));
        let row = shadowed([0, 10, 4, 30_000, 30_000], 1).to_vec();
        assert!(rows(&value).contains(&row), "{value:?}");
        assert_eq!(client.contents(), before);
    }
    // Without that rule the call is allowed, and holds 0 units.
    let value = client.call(&["RL.ALL", "k", rule, "g", "GCRA 5 5 60"]);
    let Value::Array(fields) = &value else { panic!("{value:?}") };
    assert_eq!((&fields[0], &fields[5]), (&Value::Int(1), &Value::Int(2)), "{value:?}");
    assert_eq!(client.decide("RL.COMMIT k b USE s"), [1, 10, 4, 0, 30_000]);
}

#[test]
fn off_policy_stores_nothing_and_blocked_policy_denies() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "off OFF FIXED 10 60");
    set(&mut client, "shut BLOCK FIXED 10 60");
    set(&mut client, "minute BLOCK FIXED 10 60");
    set(&mut client, "minute EX 1m BLOCK FIXED 10 60");
    client.ok("SET text hello");
    for key in ["text", "missing"] {
        let hold = |client: &mut Client, words: &str| reserve(client, key, words);
        let off = shadowed([1, 10, 6, 0, 30_000], 1);
        assert_eq!(hold(&mut client, "a 30s USE off COST 4"), off);
        let never = shadowed([0, 10, 10, -1, 0], 1);
        assert_eq!(hold(&mut client, "a 30s USE off COST 11"), never);
        assert_eq!(hold(&mut client, "a 30s USE shut"), [0, 10, 0, -1, 0, 0, -1]);
        let minute = [0, 10, 0, 60_000, 60_000, 0, 60_000];
        assert_eq!(hold(&mut client, "a 30s USE minute COST 0"), minute);
        let pairs = [(key, "RESERVE a 30s USE off COST 4"), ("f", "FIXED 9 60 COST 0")];
        assert_eq!(rows(&client.call(&call("RL.ALL", &pairs)))[0], off.to_vec());
        let pairs = [(key, "RESERVE a 30s USE minute"), ("f", "FIXED 9 60")];
        assert_eq!(rows(&client.call(&call("RL.ALL", &pairs)))[0], minute.to_vec());
    }
    assert_eq!(client.integer("EXISTS missing f"), 0);
    // A commit and a cancellation act on the key in every mode: the mode may have changed since.
    for mode in ["OFF", "BLOCK"] {
        set(&mut client, "p FIXED 10 60");
        reserve(&mut client, mode, "a 30s USE p COST 4");
        reserve(&mut client, mode, "b 30s USE p COST 1");
        set(&mut client, &format!("p {mode}"));
        assert_eq!(client.decide(&format!("RL.CANCEL {mode} b USE p"))[..3], [1, 10, 6]);
        assert_eq!(client.decide(&format!("RL.COMMIT {mode} a USE p"))[..3], [1, 10, 6]);
        assert_eq!(client.error("RL.COMMIT text a USE p"), WRONGTYPE);
    }
}

#[test]
fn state_of_another_algorithm_counts_as_none_for_a_reservation_and_never_for_its_end() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "p QUOTA 10 day");
    client.decide("RL.FIXED k 10 60 COST 9");
    let before = client.contents();
    for call in ["RL.COMMIT k a USE p", "RL.CANCEL k a USE p"] {
        assert_eq!(client.error(call), WRONGTYPE, "{call}");
    }
    assert_eq!(client.contents(), before);
    assert_eq!(reserve(&mut client, "k", "a 30s USE p COST 4")[..3], [1, 10, 6]);
    assert_eq!(client.decide("RL.COMMIT k a USE p")[..3], [1, 10, 6]);
    // An open reservation keeps its key.
    client.decide("RL.RESERVE open a 30s FIXED 10 60");
    let before = client.snapshot("open");
    for call in [
        "RL.RESERVE open b 30s USE p",
        "RL.PEEK open RESERVE b 30s USE p",
        "RL.COMMIT open a USE p",
        "RL.CANCEL open a USE p",
        "RL.USE open p",
    ] {
        assert_eq!(client.error(call), WRONGTYPE, "{call}");
    }
    let several = raw_error(&client.call(&["RL.ALL", "open", "RESERVE b 30s USE p"]));
    assert_eq!(several, Some(WRONGTYPE.replace("WRONGTYPE", "WRONGTYPE rule 1:")));
    assert_eq!(client.snapshot("open"), before);
    assert!(client.allows("RL.COMMIT open a FIXED 10 60"));
    assert_eq!(reserve(&mut client, "open", "b 30s USE p")[..3], [1, 10, 9]);
}

#[test]
fn policy_whose_rule_has_no_reservations_is_an_error() {
    let server = Server::start();
    let mut client = server.client();
    set(&mut client, "g GCRA 5 5 60");
    set(&mut client, "b BACKOFF 3 1s 8s 1h");
    let expected =
        "ERR invalid policy: expected a rule of FIXED or QUOTA, which allow reservations";
    for policy in ["g", "b", "none DEFAULT SLIDING 5 60"] {
        for call in [
            format!("RL.RESERVE k a 30s USE {policy}"),
            format!("RL.COMMIT k a USE {policy}"),
            format!("RL.CANCEL k a USE {policy}"),
            format!("RL.PEEK k RESERVE a 30s USE {policy}"),
        ] {
            assert_eq!(client.error(&call), expected, "{call}");
        }
    }
    for (call, expected) in [
        ("RL.RESERVE k a 30s USE none", "NOPOLICY no such policy"),
        ("RL.COMMIT k a USE none", "NOPOLICY no such policy"),
        ("RL.RESERVE k a 30s USE g PARTIAL", "ERR invalid option: PARTIAL is for RL.PEEK"),
        ("RL.COMMIT k a USE g LEAVE 1", "ERR invalid option: LEAVE is for commands that decide"),
        ("RL.CANCEL k a USE g PARTIAL", "ERR invalid option: PARTIAL is for RL.PEEK"),
        ("RL.RESERVE k a 30s USE p@x", "ERR invalid policy: expected 1 to 64 characters"),
        ("RL.RESERVE k a 30s USE", "ERR wrong number of arguments for 'rl.reserve' command"),
        ("RL.COMMIT k a USE", "ERR wrong number of arguments for 'rl.commit' command"),
    ] {
        let error = client.error(call);
        assert!(error.starts_with(expected), "{call}: {error}");
    }
    assert_eq!(client.integer("EXISTS k"), 0);
    // The error of a reservation counts for its policy; a PEEK and an end count nothing.
    assert_eq!(stats(&mut client, "g").errors, 1);
    client.call(&["RL.ALL", "k", "RESERVE a 30s USE g", "x", "USE b"]);
    assert_eq!((stats(&mut client, "g").errors, stats(&mut client, "b").errors), (2, 1));
}

#[test]
fn statistics_count_the_decision_of_a_reservation_and_the_units_of_its_commit() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "p FIXED 10 60");
    let lines = [
        "RL.RESERVE k a 30s USE p COST 4",
        "RL.RESERVE k a 30s USE p COST 5",
        // Less than 20 % are left.
        "RL.RESERVE k b 30s USE p COST 4",
        "RL.RESERVE k c 30s USE p COST 2",
        "RL.RESERVE k z 30s USE p COST 0",
        "RL.PEEK k RESERVE c 30s USE p COST 2",
        "RL.COMMIT k a USE p",
        "RL.COMMIT k a USE p",
        "RL.COMMIT k b USE p COST 7",
        "RL.COMMIT k unknown USE p COST 7",
        "RL.RESERVE k d 30s USE p",
        "RL.CANCEL k z USE p",
    ];
    for line in lines {
        client.run(line);
    }
    let mut expected = Stats {
        allowed: 3,
        denied: 2,
        near_limit: 1,
        created: 1,
        units: 5 + 7,
        last_denied_us: BASE_US as u64,
        ..Stats::default()
    };
    assert_eq!(stats(&mut client, "p"), expected);
    // As one of several rules: an allowed call counts, a denied one only where it is denied.
    let rule = |id: &str, cost: u64| format!("RESERVE {id} 30s USE p COST {cost}");
    let never = ["n", "FIXED 1 60 COST 2"];
    for (key, rule, other) in [
        ("new", rule("a", 1), ["g", "GCRA 5 5 60"]),
        ("new", rule("b", 1), never),
        ("new", rule("b", 11), never),
        ("new", rule("b", 11), ["g", "GCRA 5 5 60"]),
    ] {
        client.call(&["RL.ALL", key, &rule, other[0], other[1]]);
    }
    let error = raw_error(&client.call(&["RL.ALL", "k", &rule("a", 1), "g", "GCRA 5 5 60"]));
    assert!(error.is_some_and(|text| text.starts_with("ERR rule 1: invalid id: already")));
    let error = client.error("RL.RESERVE k a 30s USE p");
    assert!(error.starts_with("ERR invalid id: already"));
    (expected.allowed, expected.created) = (4, 2);
    (expected.denied, expected.errors) = (4, 2);
    assert_eq!(stats(&mut client, "p"), expected);
}
