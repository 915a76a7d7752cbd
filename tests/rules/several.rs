//! `RL.ALL` and `RL.PEEKALL`: several rules decide one call, which takes units under all of them or
//! under none.

use redis::Value;
use redis_throttle_engine::grammar::error::GrammarError;
use std::thread;
use support::several::{Decision, call};
use support::several::{all, borrowed, decide, error, one_of_each};
use support::{ALGORITHMS, BASE_US, Client, Random, Reply, Server, listing, text};

#[test]
fn denial_by_the_second_rule_takes_nothing_from_the_first() {
    let server = Server::start();
    for mut client in [server.client(), server.client3()] {
        client.run("FLUSHALL");
        client.freeze(BASE_US);
        let pairs = [("{7}:u", "GCRA 6 10 60"), ("{7}:t", "FIXED 8 60 COST 4")];
        // The example of the documentation: the same call three times at one instant.
        let table: [(Reply, i64, [Reply; 2]); 3] = [
            ([1, 8, 4, 0, 60_000], 2, [[1, 6, 5, 0, 6_000], [1, 8, 4, 0, 60_000]]),
            ([1, 8, 0, 0, 60_000], 2, [[1, 6, 4, 0, 12_000], [1, 8, 0, 0, 60_000]]),
            ([0, 8, 0, 60_000, 60_000], 2, [[1, 6, 4, 0, 12_000], [0, 8, 0, 60_000, 60_000]]),
        ];
        for (five, rule, rows) in table {
            let expected = Decision { five, rule, rows: rows.to_vec() };
            let peeked = decide(&mut client, "RL.PEEKALL", &pairs);
            assert_eq!(all(&mut client, &pairs), expected);
            assert_eq!(peeked, expected, "PEEKALL just before");
        }
        assert_eq!(client.decide("RL.PEEK {7}:u GCRA 6 10 60 COST 0")[..3], [1, 6, 4]);
    }
}

#[test]
fn reply_is_that_of_the_rule_that_runs_out_first_or_waits_longest() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // The second rule allows one more call of cost 4. Only the leaky bucket returns a wait when it
    // allows.
    let pairs =
        [("a", "TOKENBUCKET 6 6 60"), ("b", "FIXED 9 10 COST 4"), ("c", "LEAKYBUCKET 9 1 1")];
    let first = all(&mut client, &pairs);
    assert_eq!((first.five, first.rule), ([1, 9, 5, 0, 10_000], 2));
    let second = all(&mut client, &pairs);
    assert_eq!((second.five, second.rule), ([1, 9, 1, 1_000, 10_000], 2));
    assert_eq!(second.rows[2], [1, 9, 7, 1_000, 2_000]);
    // Only the second rule denies. The rows of the others show the units left and no wait.
    let denied = all(&mut client, &pairs);
    assert_eq!((denied.five, denied.rule), ([0, 9, 1, 10_000, 10_000], 2));
    let rows = [[1, 6, 4, 0, 20_000], [0, 9, 1, 10_000, 10_000], [1, 9, 7, 0, 2_000]];
    assert_eq!(denied.rows, rows);
    // "Never" (-1) counts as the longest wait. A rule with cost 0 never runs out.
    let never = all(&mut client, &[("b", "FIXED 9 10 COST 4"), ("a", "TOKENBUCKET 6 6 60 COST 7")]);
    assert_eq!((never.five, never.rule), ([0, 6, 4, -1, 20_000], 2));
    let other = all(&mut client, &[("b", "FIXED 9 10 COST 0"), ("a", "TOKENBUCKET 6 6 60")]);
    assert_eq!((other.five, other.rule), ([1, 6, 3, 0, 30_000], 2));
}

#[test]
fn one_call_may_have_sixteen_rules_and_not_seventeen() {
    let server = Server::start();
    let mut client = server.client();
    let keys = (1..=17).map(|number| format!("k{number}")).collect::<Vec<_>>();
    let pairs = keys.iter().map(|key| (key.as_str(), "GCRA 1 1 1h")).collect::<Vec<_>>();
    assert_eq!(all(&mut client, &pairs[..16]).rows.len(), 16);
    assert_eq!(client.integer("DBSIZE"), 16);
    for command in ["RL.ALL", "RL.PEEKALL"] {
        let expected = "ERR too many rules: expected 1 to 16 pairs of a key and a rule";
        assert_eq!(error(&mut client, &call(command, &pairs)), expected);
        let many = vec!["k"; 10_000];
        assert_eq!(error(&mut client, &[&[command], &many[..]].concat()), expected);
    }
}

#[test]
fn error_names_the_rule_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.allows("RL.GCRA gcra 5 5 1h"));
    client.ok("SET text hello");
    client.integer("LPUSH list 1");
    let good = ["a", "GCRA 5 5 1h"];
    let algorithms = listing(GrammarError::Algorithm).replace("ERR", "ERR rule 2:");
    let type_text = "WRONGTYPE rule 2: the key does not hold a state of this algorithm";
    let integer = "expected an integer from 1 to 1000000000000";
    let rows: [(&[&str], String); 12] = [
        (&["b", "GCRA 5 0 1h"], format!("ERR rule 2: invalid rate: {integer}")),
        (
            &["b", "GCRA 5 5"],
            "ERR rule 2: wrong number of arguments: expected GCRA burst rate period".into(),
        ),
        (
            &["b", "FIXED"],
            "ERR rule 2: wrong number of arguments: expected FIXED limit window".into(),
        ),
        (&["b", ""], algorithms.clone()),
        (&["b", "   "], algorithms.clone()),
        (&["b", "GCRA\t5 5 1h"], algorithms.clone()),
        (&["b", "\"GCRA 5 5 1h\""], algorithms.clone()),
        (&["a", "FIXED 5 1h"], "ERR rule 2: repeated key: each key may be given once".into()),
        (&["text", "GCRA 5 5 1h"], type_text.into()),
        (&["list", "GCRA 5 5 1h"], type_text.into()),
        (&["gcra", "FIXED 5 1h"], type_text.into()),
        (&["b"], "wrong number of arguments".into()),
    ];
    let before = client.contents();
    for (rest, expected) in &rows {
        for command in ["RL.ALL", "RL.PEEKALL"] {
            let text = error(&mut client, &[&[command], &good[..], rest].concat());
            assert!(text.contains(expected), "{rest:?}: {text}");
        }
        assert_eq!(client.contents(), before, "{rest:?}");
    }
    // Errors are reported in this order: an invalid argument, a key without a rule, a repeated key,
    // an invalid state.
    let order: [(&[&str], &str); 4] = [
        (&["text", "GCRA 5 5 1h", "text", "GCRA 5 x 1h", "odd"], "rule 2: invalid rate"),
        (&["text", "GCRA 5 5 1h", "text", "GCRA 5 5 1h", "odd"], "wrong number of arguments for"),
        (&["text", "GCRA 5 5 1h", "text", "GCRA 5 5 1h"], "rule 2: repeated key"),
        (&["text", "GCRA 5 5 1h", "list", "GCRA 5 5 1h"], "WRONGTYPE rule 1:"),
    ];
    for (words, expected) in order {
        let text = error(&mut client, &[&["RL.ALL"], words].concat());
        assert!(text.contains(expected), "{words:?}: {text}");
    }
    assert_eq!(client.contents(), before);
}

#[test]
fn call_with_several_rules_equals_the_single_calls_if_all_of_them_allow() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(91);
    client.freeze(BASE_US);
    let (mut allowed, mut denied) = (0, 0);
    for _ in 0..3_000 {
        let mut chosen = ALGORITHMS.to_vec();
        let count = 1 + random.below(6) as usize;
        while chosen.len() > count {
            chosen.remove(random.below(chosen.len() as u64) as usize);
        }
        let rules = chosen.iter().map(|algorithm| {
            let arguments = algorithm.arguments(1 + random.below(8), "10");
            let cost = random.below(4);
            (algorithm.name, format!("{} {arguments} COST {cost}", algorithm.name))
        });
        let rules = rules.collect::<Vec<_>>();
        // Each key has a twin on which only single calls run.
        let twin = |(key, rule): &(&str, String)| format!("RL.PEEK twin:{key} {rule}");
        let peeked = rules.iter().map(|rule| client.decide(&twin(rule))).collect::<Vec<_>>();
        let passes = peeked.iter().all(|reply| reply[0] == 1);
        let decision = all(&mut client, &borrowed(&rules));
        assert_eq!(decision.five[0] == 1, passes, "{rules:?}: {decision:?}, one by one {peeked:?}");
        if passes {
            allowed += 1;
            let called = rules.iter().map(|(key, rule)| {
                client.decide(&format!("RL.{}", rule.replacen(' ', &format!(" twin:{key} "), 1)))
            });
            assert_eq!(decision.rows, called.collect::<Vec<_>>(), "{rules:?}");
        } else {
            denied += 1;
            // A wait of -1, which means never, is longer than any time.
            let length = |retry_ms: i64| if retry_ms < 0 { i64::MAX } else { retry_ms };
            let denying = decision.rows.iter().filter(|row| row[0] == 0);
            let longest = denying.map(|row| length(row[3])).max();
            assert_eq!(Some(length(decision.five[3])), longest, "{rules:?}: {decision:?}");
        }
        for (key, _) in &rules {
            let value = |client: &mut Client, key: String| client.run(&format!("GET {key}"));
            let (ours, twins) =
                (value(&mut client, (*key).into()), value(&mut client, format!("twin:{key}")));
            assert_eq!(ours, twins, "{key} after {rules:?}");
        }
        if random.below(3) == 0 {
            client.advance_ms(random.below(4_000) as i64);
        }
    }
    assert!(allowed > 300 && denied > 300, "{allowed} allowed, {denied} denied");
}

#[test]
fn denied_call_is_allowed_exactly_at_its_retry_time() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(92);
    let mut promises = 0;
    for round in 0..400 {
        client.run("FLUSHALL");
        let start_us = BASE_US + random.below(20_000_000) as i64;
        client.freeze(start_us);
        let rules = ALGORITHMS.iter().map(|algorithm| {
            let arguments = algorithm.arguments(2 + random.below(6), "7");
            (algorithm.name, format!("{} {arguments} COST 2", algorithm.name))
        });
        let rules = rules.collect::<Vec<_>>();
        let pairs = borrowed(&rules);
        let denial = loop {
            let decision = all(&mut client, &pairs);
            if decision.five[0] == 0 {
                break decision;
            }
        };
        let retry_ms = denial.five[3];
        assert!(retry_ms > 0, "round {round}: {denial:?}");
        client.freeze(start_us + (retry_ms - 1) * 1_000);
        assert_eq!(decide(&mut client, "RL.PEEKALL", &pairs).five[0], 0, "{rules:?}: {denial:?}");
        client.freeze(start_us + retry_ms * 1_000);
        assert_eq!(all(&mut client, &pairs).five[0], 1, "{rules:?}: {denial:?}");
        promises += 1;
    }
    assert_eq!(promises, 400);
}

#[test]
fn connections_on_overlapping_keys_use_each_key_to_its_limit_and_lose_no_unit() {
    const CONNECTIONS: usize = 64;
    const LIMITS: [i64; 4] = [700, 500, 900, 300];
    let server = Server::start();
    let rules = LIMITS.map(|limit| format!("FIXED {limit} 366d"));
    let keys = ["k0", "k1", "k2", "k3"];
    let used = thread::scope(|scope| {
        let callers = (0..CONNECTIONS).map(|number| {
            let (server, rules) = (&server, &rules);
            scope.spawn(move || {
                let (mut client, mut random) = (server.client(), Random::new(number as u64));
                let mut used = [0_i64; 4];
                for _ in 0..120 {
                    let set = 1 + random.below(15);
                    let chosen = (0..4).filter(|at| set & (1 << at) != 0).collect::<Vec<_>>();
                    let pairs = chosen.iter().map(|at| (keys[*at], rules[*at].as_str()));
                    if all(&mut client, &pairs.collect::<Vec<_>>()).five[0] == 1 {
                        chosen.iter().for_each(|at| used[*at] += 1);
                    }
                }
                used
            })
        });
        let callers = callers.collect::<Vec<_>>();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .fold([0; 4], |sum, used| std::array::from_fn(|at| sum[at] + used[at]))
    });
    let mut client = server.client();
    for (at, limit) in LIMITS.into_iter().enumerate() {
        let left = client.decide(&format!("RL.PEEK {} {} COST 0", keys[at], rules[at]))[2];
        assert_eq!(used[at] + left, limit, "{}: {} granted, {left} left", keys[at], used[at]);
    }
    assert!(used.iter().zip(LIMITS).any(|(used, limit)| *used == limit), "{used:?}");
    server.assert_alive();
}

#[test]
fn corrupt_state_at_any_position_stops_the_call_and_changes_no_key() {
    let server = Server::start();
    let mut client = server.client();
    let rules = one_of_each(9);
    let pairs = borrowed(&rules);
    for (at, (key, _)) in pairs.iter().enumerate() {
        client.run("FLUSHALL");
        all(&mut client, &pairs);
        let mut bytes = client.bytes(&format!("GET {key}"));
        bytes.push(0);
        client.call(&[b"SET".as_slice(), key.as_bytes(), &bytes]);
        let before = client.contents();
        for command in ["RL.ALL", "RL.PEEKALL"] {
            let text = error(&mut client, &call(command, &pairs));
            assert!(text.starts_with(&format!("WRONGTYPE rule {}:", at + 1)), "{key}: {text}");
        }
        assert_eq!(client.contents(), before, "{key}");
    }
}

#[test]
fn every_rule_repairs_its_state_after_a_step_back_even_if_one_rule_denies() {
    let server = Server::start();
    let mut client = server.client();
    for deny in [false, true] {
        client.run("FLUSHALL");
        client.freeze(BASE_US);
        let rules = ALGORITHMS.map(|algorithm| {
            (algorithm.name, format!("{} {}", algorithm.name, algorithm.arguments(9, "10")))
        });
        let mut pairs = borrowed(&rules);
        all(&mut client, &pairs);
        client.advance_ms(-3_600_000);
        let before = client.contents();
        if deny {
            pairs.push(("never", "FIXED 1 1 COST 2"));
        } else {
            // The repair sets GCRA to its largest debt, so GCRA itself denies.
            pairs.retain(|(key, _)| *key != "GCRA");
        }
        let zero = rules.iter().map(|(key, rule)| (*key, format!("{rule} COST 0")));
        let zero = zero.chain([("never", "FIXED 1 1 COST 2".to_owned())]).collect::<Vec<_>>();
        assert_eq!(all(&mut client, &borrowed(&zero)).five[0], 0);
        assert_eq!(client.contents(), before, "cost 0 repairs nothing");
        let decision = all(&mut client, &pairs);
        assert_eq!(decision.five[0], i64::from(!deny), "{decision:?}");
        let after = client.contents();
        for ((key, state, _), (_, repaired, _)) in before.iter().zip(&after) {
            let is_called = pairs.iter().any(|(called, _)| called.as_bytes() == key.as_slice());
            let key = text(&Value::BulkString(key.clone()));
            assert_eq!(state != repaired, is_called, "{key}");
        }
        // Used units remain used, and a denial takes none.
        for row in &decision.rows[..5] {
            assert_eq!(row[2], if deny { 8 } else { 7 }, "{decision:?}");
        }
        assert!(!after.iter().any(|(key, ..)| key == b"never"));
    }
}
