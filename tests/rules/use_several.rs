//! Policies and other rules in one `RL.ALL`: a policy in shadow mode does not decide, but takes
//! units.

use redis::Value;

use support::several::call;
use support::uses::{RULES, Seven, enforced, set, shadowed};
use support::{BASE_US, Client, Random, Reply, Server, integers, raw_error};

/// The reply to several rules: five integers, the number of the rule that decides, and the rows.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    five: Reply,
    rule: i64,
    rows: Vec<Vec<i64>>,
}

fn numbers(value: &Value) -> Option<Vec<i64>> {
    let Value::Array(fields) = value else { return None };
    let number = |field: &Value| match field {
        Value::Int(number) => Some(*number),
        _ => None,
    };
    fields.iter().map(number).collect()
}

fn decide(client: &mut Client, command: &str, pairs: &[(&str, &str)]) -> Decision {
    let value = client.call(&call(command, pairs));
    let Value::Array(fields) = &value else { panic!("{pairs:?}: {value:?}") };
    let head = numbers(&Value::Array(fields[..6].to_vec())).expect("six integers");
    let five = head[..5].try_into().expect("five");
    let rows = fields[6..].iter().map(|row| numbers(row).expect("a row")).collect();
    Decision { five, rule: head[5], rows }
}

/// Asserts that RL.PEEKALL and then RL.ALL return this decision.
fn assert_decision(
    client: &mut Client,
    pairs: &[(&str, &str)],
    five: Reply,
    rule: i64,
    rows: &[&[i64]],
) {
    let expected = Decision { five, rule, rows: rows.iter().map(|row| row.to_vec()).collect() };
    assert_eq!(decide(client, "RL.PEEKALL", pairs), expected, "{pairs:?} peeked");
    assert_eq!(decide(client, "RL.ALL", pairs), expected, "{pairs:?}");
}

#[test]
fn enforced_policy_has_a_row_of_seven_and_decides_like_its_rule() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "p GCRA 2 1 60");
    set(&mut client, "p@plan:gold GCRA 9 1 60");
    let pairs = [("u", "USE p"), ("t", "FIXED 8 60 COST 4"), ("g", "USE p COST 3 FOR plan:gold")];
    assert_decision(
        &mut client,
        &pairs,
        [1, 2, 1, 0, 60_000],
        1,
        &[&[1, 2, 1, 0, 60_000, 1, 0], &[1, 8, 4, 0, 60_000], &[1, 9, 6, 0, 180_000, 1, 0]],
    );
    assert_decision(
        &mut client,
        &pairs,
        [1, 2, 0, 0, 120_000],
        1,
        &[&[1, 2, 0, 0, 120_000, 1, 0], &[1, 8, 0, 0, 60_000], &[1, 9, 3, 0, 360_000, 1, 0]],
    );
    // Two rules deny with the same wait. A rule that would allow shows the units left and no wait.
    assert_decision(
        &mut client,
        &pairs,
        [0, 2, 0, 60_000, 120_000],
        1,
        &[
            &[0, 2, 0, 60_000, 120_000, 0, 60_000],
            &[0, 8, 0, 60_000, 60_000],
            &[1, 9, 3, 0, 360_000, 1, 0],
        ],
    );
    // A DEFAULT gives the same replies.
    let by_default =
        [("n", "USE none COST 2 DEFAULT FIXED 5 60"), ("m", "use  p  default FIXED 1 1")];
    let decision = decide(&mut client, "RL.ALL", &by_default);
    assert_eq!(decision.rows, [[1, 5, 3, 0, 60_000, 1, 0], [1, 2, 1, 0, 60_000, 1, 0]]);
}

#[test]
fn policy_in_shadow_mode_does_not_deny_decide_or_delay_the_call() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "queue SHADOW LEAKYBUCKET 2 1 10");
    let pairs = [("q", "USE queue"), ("f", "FIXED 9 60")];
    let fixed = |left: i64| vec![1, 9, left, 0, 60_000];
    for (step, row) in [
        [1, 2, 1, 0, 10_000, 1, 0],
        [1, 2, 0, 0, 20_000, 1, 10_000],
        [1, 2, 0, 0, 20_000, 0, 10_000],
    ]
    .iter()
    .enumerate()
    {
        let left = 8 - step as i64;
        assert_decision(&mut client, &pairs, [1, 9, left, 0, 60_000], 2, &[row, &fixed(left)]);
    }
    // If another rule denies, the policy takes nothing. Its own verdict is in its last two fields.
    client.run("DEL q");
    let denied = [("q", "USE queue"), ("never", "FIXED 1 60 COST 2"), ("f", "FIXED 9 60")];
    let never = [0, 1, 1, -1, 0];
    let rows: [&[i64]; 3] = [&[1, 2, 2, 0, 0, 1, 0], &never, &[1, 9, 6, 0, 60_000]];
    assert_decision(&mut client, &denied, never, 2, &rows);
    assert_eq!(client.integer("EXISTS q never"), 0);
    client.decide("RL.LEAKYBUCKET q 2 1 10");
    client.decide("RL.LEAKYBUCKET q 2 1 10 COST 0");
    // The queue would have made the call wait, but no row of a denied call has a wait.
    let rows: [&[i64]; 3] = [&[1, 2, 1, 0, 10_000, 1, 0], &never, &[1, 9, 6, 0, 60_000]];
    assert_decision(&mut client, &denied, never, 2, &rows);
    client.decide("RL.LEAKYBUCKET q 2 1 10");
    let rows: [&[i64]; 3] = [&[1, 2, 0, 0, 20_000, 0, 10_000], &never, &[1, 9, 6, 0, 60_000]];
    assert_decision(&mut client, &denied, never, 2, &rows);
    // If all rules are in shadow mode, the row of one of them gives the first five integers.
    assert_decision(
        &mut client,
        &[("q", "USE queue"), ("r", "USE queue")],
        [1, 2, 0, 0, 20_000],
        1,
        &[&[1, 2, 0, 0, 20_000, 0, 10_000], &[1, 2, 1, 0, 10_000, 1, 0]],
    );
    // A rule with cost 0 never runs out, and still precedes a policy in shadow mode.
    let decision = decide(&mut client, "RL.ALL", &[("q", "USE queue"), ("f", "FIXED 9 60 COST 0")]);
    assert_eq!((decision.five, decision.rule), ([1, 9, 6, 0, 60_000], 2));
}

#[test]
fn off_policy_does_not_affect_the_call_and_blocked_policy_denies_it() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "off OFF FIXED 3 60");
    set(&mut client, "block BLOCK FIXED 3 60");
    set(&mut client, "minute BLOCK FIXED 3 60");
    set(&mut client, "minute EX 1m BLOCK FIXED 3 60");
    client.ok("SET text hello");
    // The row of an OFF policy is that of a new key, whatever the key holds.
    let off = [1, 3, 2, 0, 60_000, 1, 0];
    let pairs = [("text", "USE off"), ("f", "FIXED 9 60")];
    assert_decision(&mut client, &pairs, [1, 9, 8, 0, 60_000], 2, &[&off, &[1, 9, 8, 0, 60_000]]);
    let over = [("text", "USE off COST 4"), ("f", "FIXED 9 60")];
    let never = [1, 3, 3, 0, 0, 0, -1];
    assert_decision(&mut client, &over, [1, 9, 7, 0, 60_000], 2, &[&never, &[1, 9, 7, 0, 60_000]]);
    let before = client.contents();
    let minute = [0, 3, 0, 60_000, 60_000, 0, 60_000];
    let untaken = [1, 9, 7, 0, 60_000];
    assert_decision(
        &mut client,
        &[("f", "FIXED 9 60"), ("text", "USE minute COST 0"), ("a", "USE off")],
        [0, 3, 0, 60_000, 60_000],
        2,
        &[&untaken, &minute, &[1, 3, 3, 0, 0, 1, 0]],
    );
    // "For ever" (-1) is the longest wait.
    let blocked = [0, 3, 0, -1, 0, 0, -1];
    assert_decision(
        &mut client,
        &[("f", "FIXED 9 60"), ("text", "USE minute"), ("a", "USE block")],
        [0, 3, 0, -1, 0],
        3,
        &[&untaken, &minute, &blocked],
    );
    assert_eq!(client.contents(), before);
    // If all policies are OFF, the first of them gives the first five integers.
    let pairs = [("text", "USE off"), ("b", "USE off COST 2")];
    let rows: [&[i64]; 2] = [&off, &[1, 3, 1, 0, 60_000, 1, 0]];
    assert_decision(&mut client, &pairs, [1, 3, 2, 0, 60_000], 1, &rows);
}

/// Returns the row of a policy whose rule alone returns `five`. Mode 0 is enforced, and every other
/// mode is shadow mode.
fn row_of(mode: usize, five: Reply) -> Seven {
    if mode == 0 { enforced(five) } else { shadowed(five, 1) }
}

#[test]
fn call_with_shadow_policies_equals_the_call_without_them() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(111);
    client.freeze(BASE_US);
    for (algorithm, limits) in *RULES {
        for (name, mode) in [("e", ""), ("s", "SHADOW"), ("z", "ENFORCE 0")] {
            set(&mut client, &format!("{name}:{algorithm} {mode} {algorithm} {limits}"));
        }
    }
    let (mut allowed, mut denied, mut shadows) = (0, 0, 0);
    for _ in 0..1_500 {
        let chosen: Vec<_> = RULES.into_iter().filter(|_| random.below(3) > 0).collect();
        if chosen.is_empty() {
            continue;
        }
        let modes: Vec<_> = chosen.iter().map(|_| random.below(4) as usize % 3).collect();
        let costs = chosen.iter().map(|(algorithm, _)| match *algorithm {
            "BACKOFF" => String::new(),
            _ => format!(" COST {}", random.below(4)),
        });
        let costs: Vec<_> = costs.collect();
        let rules = chosen.iter().zip(&modes).zip(&costs).map(|(((algorithm, _), mode), cost)| {
            (*algorithm, format!("USE {}:{algorithm}{cost}", ["e", "s", "z"][*mode]))
        });
        let rules: Vec<_> = rules.collect();
        let pairs: Vec<_> = rules.iter().map(|(key, rule)| (*key, rule.as_str())).collect();
        // Each key has a twin, on which only single calls with the plain rules run.
        let alone = chosen.iter().zip(&costs).map(|((algorithm, limits), cost)| {
            client.decide(&format!("RL.PEEK twin:{algorithm} {algorithm} {limits}{cost}"))
        });
        let alone: Vec<_> = alone.collect();
        let is_enforced = |at: usize| modes[at] == 0;
        let passes = (0..alone.len()).all(|at| !is_enforced(at) || alone[at][0] == 1);
        let decision = decide(&mut client, "RL.ALL", &pairs);
        assert_eq!(decision.five[0] == 1, passes, "{pairs:?}: {decision:?}, alone {alone:?}");
        let enforced: Vec<_> = (0..alone.len()).filter(|at| is_enforced(*at)).collect();
        assert!(
            enforced.is_empty() || is_enforced(decision.rule as usize - 1),
            "{pairs:?}: {decision:?}"
        );
        if passes {
            allowed += 1;
            let rows =
                chosen.iter().zip(&costs).zip(&modes).map(|(((algorithm, limits), cost), mode)| {
                    let five =
                        client.decide(&format!("RL.{algorithm} twin:{algorithm} {limits}{cost}"));
                    shadows += usize::from(*mode != 0 && five[0] == 0);
                    row_of(*mode, five).to_vec()
                });
            assert_eq!(decision.rows, rows.collect::<Vec<_>>(), "{pairs:?}");
            let waits = enforced.iter().map(|at| alone[*at][3]).max().unwrap_or(0);
            assert_eq!(decision.five[3], waits, "{pairs:?}: {decision:?}");
        } else {
            denied += 1;
            for (at, row) in decision.rows.iter().enumerate() {
                assert_eq!(
                    (row[5], row[1]),
                    (alone[at][0], alone[at][1]),
                    "{pairs:?}: {decision:?}"
                );
                assert_eq!(
                    row[0],
                    if is_enforced(at) { row[5] } else { 1 },
                    "{pairs:?}: {decision:?}"
                );
                let retry_ms = if alone[at][0] == 1 { 0 } else { alone[at][3] };
                assert_eq!(row[6], retry_ms, "{pairs:?}: {decision:?}");
                assert_eq!(
                    row[3],
                    if is_enforced(at) { retry_ms } else { 0 },
                    "{pairs:?}: {decision:?}"
                );
            }
        }
        for (algorithm, _) in *RULES {
            let (ours, twins) = (
                client.run(&format!("GET {algorithm}")),
                client.run(&format!("GET twin:{algorithm}")),
            );
            assert_eq!(ours, twins, "{algorithm} after {pairs:?}: {decision:?}");
        }
        if random.below(2) == 0 {
            client.advance_ms(random.below(1_500_000) as i64);
        }
    }
    assert!(allowed > 200 && denied > 200 && shadows > 100, "{allowed} {denied} {shadows}");
}

#[test]
fn error_names_the_rule_and_takes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    set(&mut client, "p GCRA 5 5 1h");
    set(&mut client, "shadow SHADOW GCRA 5 5 1h");
    set(&mut client, "off OFF FIXED 5 1h");
    set(&mut client, "slow BACKOFF 3 1s 8s 1h");
    client.ok("SET text hello");
    let names = "expected 1 to 64 characters of A-Z a-z 0-9 . _ : / -";
    let rows = [
        ("b", "USE", "ERR rule 2: wrong number of arguments: expected USE policy".to_owned()),
        ("b", "USE p@gold", format!("ERR rule 2: invalid policy: {names}")),
        ("b", "USE p FOR", "ERR rule 2: missing variant: expected FOR".to_owned()),
        ("b", "USE p FOR \u{e4}", format!("ERR rule 2: invalid variant: {names}")),
        ("b", "USE p PARTIAL", "ERR rule 2: invalid option: PARTIAL is for RL.PEEK".to_owned()),
        (
            "b",
            "USE p DEFAULT GCRA 1",
            "ERR rule 2: wrong number of arguments: expected GCRA".to_owned(),
        ),
        ("b", "USE none", "NOPOLICY rule 2: no such policy".to_owned()),
        ("b", "USE none FOR a FOR b", "NOPOLICY rule 2: no such policy".to_owned()),
        (
            "b",
            "USE slow COST 1",
            "ERR rule 2: invalid option: the policy's rule is BACKOFF".to_owned(),
        ),
        ("text", "USE p", "WRONGTYPE rule 2: the key does not hold".to_owned()),
        ("text", "USE shadow", "WRONGTYPE rule 2: the key does not hold".to_owned()),
        ("a", "USE off", "ERR rule 2: repeated key: each key may be given once".to_owned()),
    ];
    let before = client.contents();
    for (key, rule, expected) in rows {
        for command in ["RL.ALL", "RL.PEEKALL"] {
            for first in ["USE p", "USE shadow", "FIXED 1 1"] {
                let reply = client.call(&[command, "a", first, key, rule]);
                let error = raw_error(&reply).unwrap_or_else(|| panic!("{key} {rule}: {reply:?}"));
                assert!(error.starts_with(&expected), "{key} {rule}: {error}");
            }
        }
    }
    assert_eq!(client.contents(), before);
    // A call may have sixteen policies.
    let keys: Vec<_> = (0..16).map(|number| format!("k{number}")).collect();
    let longest = "USE p COST 5 FOR tenant:acme FOR plan:gold \
                   DEFAULT QUOTA 9 week ZONE Europe/Berlin START mon";
    let pairs: Vec<_> = keys.iter().map(|key| (key.as_str(), longest)).collect();
    let decision = decide(&mut client, "RL.ALL", &pairs);
    assert!(decision.rows.iter().all(|row| row[..3] == [1, 5, 0]), "{decision:?}");
    assert!(integers(&client.run("RL.PEEK k15 GCRA 5 5 1h")).is_some());
}
