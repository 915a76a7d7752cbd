//! `RL.ALL` and `RL.PEEKALL`: several rules decide one call, which takes units under all of them or
//! under none.

use std::thread;

use redis::Value;
use redis_throttle_engine::grammar::error::GrammarError;

use crate::support::several::{Answer, answer, call};
use crate::support::{
    ALGORITHMS, BASE_US, Client, Random, ReplicationStream, Reply, Server, listing, raw_error,
    replica_of, text,
};

fn ask(client: &mut Client, command: &str, pairs: &[(&str, &str)]) -> Answer {
    let value = client.call(&call(command, pairs));
    answer(&value).unwrap_or_else(|| panic!("{command} {pairs:?}: no answer: {value:?}"))
}

fn all(client: &mut Client, pairs: &[(&str, &str)]) -> Answer {
    ask(client, "RL.ALL", pairs)
}

fn error(client: &mut Client, words: &[&str]) -> String {
    let value = client.call(words);
    raw_error(&value).unwrap_or_else(|| panic!("{words:?}: no error: {value:?}"))
}

/// Returns a rule of each algorithm, `limit` per 366 days, for a key that is named after the
/// algorithm.
fn one_of_each(limit: u64) -> Vec<(&'static str, String)> {
    let rule = |algorithm: &crate::support::Algorithm| {
        format!("{} {}", algorithm.name, algorithm.arguments(limit, "366d"))
    };
    ALGORITHMS.iter().map(|algorithm| (algorithm.name, rule(algorithm))).collect()
}

fn borrowed<'a>(pairs: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    pairs.iter().map(|(key, rule)| (*key, rule.as_str())).collect()
}

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
            let expected = Answer { five, rule, rows: rows.to_vec() };
            let asked = ask(&mut client, "RL.PEEKALL", &pairs);
            assert_eq!(all(&mut client, &pairs), expected);
            assert_eq!(asked, expected, "PEEKALL just before");
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
    let asked = all(&mut client, &[("b", "FIXED 9 10 COST 0"), ("a", "TOKENBUCKET 6 6 60")]);
    assert_eq!((asked.five, asked.rule), ([1, 6, 3, 0, 30_000], 2));
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
            let told = error(&mut client, &[&[command], &good[..], rest].concat());
            assert!(told.contains(expected), "{rest:?}: {told}");
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
        let told = error(&mut client, &[&["RL.ALL"], words].concat());
        assert!(told.contains(expected), "{words:?}: {told}");
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
        // Each key has a twin on which only single calls are made.
        let twin = |(key, rule): &(&str, String)| format!("RL.PEEK twin:{key} {rule}");
        let peeked = rules.iter().map(|rule| client.decide(&twin(rule))).collect::<Vec<_>>();
        let passes = peeked.iter().all(|reply| reply[0] == 1);
        let answer = all(&mut client, &borrowed(&rules));
        assert_eq!(answer.five[0] == 1, passes, "{rules:?}: {answer:?}, one by one {peeked:?}");
        if passes {
            allowed += 1;
            let called = rules.iter().map(|(key, rule)| {
                client.decide(&format!("RL.{}", rule.replacen(' ', &format!(" twin:{key} "), 1)))
            });
            assert_eq!(answer.rows, called.collect::<Vec<_>>(), "{rules:?}");
        } else {
            denied += 1;
            // A wait of -1, which means never, is longer than any time.
            let length = |retry_ms: i64| if retry_ms < 0 { i64::MAX } else { retry_ms };
            let denying = answer.rows.iter().filter(|row| row[0] == 0);
            let longest = denying.map(|row| length(row[3])).max();
            assert_eq!(Some(length(answer.five[3])), longest, "{rules:?}: {answer:?}");
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
            let answer = all(&mut client, &pairs);
            if answer.five[0] == 0 {
                break answer;
            }
        };
        let retry_ms = denial.five[3];
        assert!(retry_ms > 0, "round {round}: {denial:?}");
        client.freeze(start_us + (retry_ms - 1) * 1_000);
        assert_eq!(ask(&mut client, "RL.PEEKALL", &pairs).five[0], 0, "{rules:?}: {denial:?}");
        client.freeze(start_us + retry_ms * 1_000);
        assert_eq!(all(&mut client, &pairs).five[0], 1, "{rules:?}: {denial:?}");
        promises += 1;
    }
    assert_eq!(promises, 400);
}

#[test]
fn denial_changes_none_of_its_keys() {
    let server = Server::setup().line("notify-keyspace-events EAm").start();
    let mut client = server.client();
    let (mut watcher, mut tracker) = (server.client(), server.client3());
    tracker.ok("CLIENT TRACKING ON BCAST");
    tracker.subscribe("__keyevent@0__:*");
    let mut stream = server.replication_stream();
    let open = one_of_each(5);
    for (key, rule) in &open {
        // Each rule in turn denies: as the first, in the middle and as the last.
        let scarce = rule.replace(" 5", " 1");
        let pairs = open.iter().map(|(other, rule)| {
            (*other, if other == key { scarce.as_str() } else { rule.as_str() })
        });
        let pairs = pairs.collect::<Vec<_>>();
        client.run("FLUSHALL");
        assert_eq!(all(&mut client, &pairs).five[0], 1, "{pairs:?}");
        let before = client.contents();
        assert_eq!(before.len(), ALGORITHMS.len());
        stream.effects(&mut client);
        tracker.pushed();
        let keys = pairs.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(" ");
        watcher.ok(&format!("WATCH {keys}"));
        for _ in 0..5 {
            let answer = all(&mut client, &pairs);
            assert_eq!((answer.five[0], answer.five[1]), (0, 1), "{answer:?}");
            ask(&mut client, "RL.PEEKALL", &pairs);
        }
        assert!(tracker.pushed().is_empty(), "{key}: events or invalidations");
        assert!(stream.effects(&mut client).is_empty(), "{key}: replicated");
        let unmarked = client.contents().into_iter().filter(|(key, ..)| !key.starts_with(b"mark:"));
        assert_eq!(unmarked.collect::<Vec<_>>(), before, "{key}");
        watcher.ok("MULTI");
        watcher.run("PING");
        assert_ne!(watcher.run("EXEC"), Value::Nil, "{key}: the watch broke");
        stream.effects(&mut client);
    }
}

#[test]
fn allowed_call_sends_an_event_for_each_of_its_keys() {
    let server = Server::setup().line("notify-keyspace-events EA").start();
    let mut client = server.client();
    let mut listener = server.client3();
    listener.ok("CLIENT TRACKING ON BCAST");
    listener.subscribe("__keyevent@0__:*");
    let rules = one_of_each(5);
    all(&mut client, &borrowed(&rules));
    let pushed = format!("{:?}", listener.pushed());
    for (key, _) in &rules {
        assert!(pushed.matches(&format!("{key:?}")).count() >= 1, "{key}: {pushed}");
    }
    assert_eq!(pushed.matches("keyevent@0__:set").count(), ALGORITHMS.len(), "{pushed}");
}

/// Returns the names and keys of the effects.
fn shown(stream: &mut ReplicationStream, client: &mut Client) -> Vec<String> {
    let word = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
    let effects = stream.effects(client);
    effects
        .iter()
        .map(|effect| effect.iter().take(2).map(word).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn effects_of_one_call_travel_together() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut stream = server.replication_stream();
    let pairs = [("a", "GCRA 9 9 60"), ("b", "FIXED 9 60"), ("c", "SLIDINGLOG 9 60 COST 0")];
    all(&mut client, &pairs);
    // A rule with cost 0 writes nothing. Two effects are sent as one transaction.
    assert_eq!(shown(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "EXEC"]);
    all(&mut client, &pairs[..1]);
    assert_eq!(shown(&mut stream, &mut client), ["SET a"]);
    // In a transaction and in a script, the effects become part of that transaction.
    client.ok("MULTI");
    client.ok_queued(&call("RL.ALL", &pairs));
    client.ok_queued(&["SET", "d", "1"]);
    assert!(matches!(client.run("EXEC"), Value::Array(_)));
    assert_eq!(shown(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "SET d", "EXEC"]);
    let script = "return redis.call('RL.ALL', KEYS[1], ARGV[1], KEYS[2], ARGV[2])";
    let reply = client.call(&["EVAL", script, "2", "a", "b", pairs[0].1, pairs[1].1]);
    assert_eq!(answer(&reply).expect("an answer").rows.len(), 2);
    assert_eq!(shown(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "EXEC"]);
    let library = "#!lua name=l\nredis.register_function('both', function(keys, args) \
                   return redis.call('RL.ALL', keys[1], args[1], keys[2], args[2]) end)";
    client.call(&["FUNCTION", "LOAD", library]);
    stream.effects(&mut client);
    let reply = client.call(&["FCALL", "both", "2", "a", "b", pairs[0].1, pairs[1].1]);
    assert_eq!(answer(&reply).expect("an answer").five[0], 1);
    assert_eq!(shown(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "EXEC"]);
}

#[test]
fn replica_and_killed_server_hold_all_keys_of_a_call_or_none() {
    let mut server =
        Server::setup().with_tcp().line("appendonly yes").line("appendfsync always").start();
    let replica = replica_of(&server);
    let rules = [
        ("a", "FIXED 100000 366d"),
        ("b", "FIXED 100000 366d COST 2"),
        ("c", "SLIDINGLOG 100000 366d"),
    ];
    let used = |client: &mut Client, key: &str| match client.run(&format!("RL.INSPECT {key}")) {
        Value::Array(fields) => {
            let at = fields
                .iter()
                .position(|field| matches!(field, Value::BulkString(name) if name == b"used"));
            match fields[at.expect("used") + 1] {
                Value::Int(used) => used,
                ref other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    };
    // The stream of commands starts once the replica has acknowledged its snapshot.
    let mut first = server.client();
    all(&mut first, &rules);
    assert_eq!(first.integer("WAIT 1 60000"), 1);
    let acknowledged = thread::scope(|scope| {
        let callers = (0..4).map(|_| {
            scope.spawn(|| {
                let mut client = server.client();
                let words = call("RL.ALL", &rules);
                (0..)
                    .take_while(|_| {
                        client.try_call(&words).is_ok_and(|reply| answer(&reply).is_some())
                    })
                    .count() as i64
            })
        });
        let callers = callers.collect::<Vec<_>>();
        let mut client = server.client();
        crate::support::eventually("traffic", || {
            (client.info_number("rl", "rl_all_allowed") > 300).then_some(())
        });
        let pid: i32 = client.info("server")["process_id"].parse().expect("a pid");
        assert!(
            std::process::Command::new("kill")
                .args(["-9", &pid.to_string()])
                .status()
                .unwrap()
                .success()
        );
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<i64>()
    });
    let mut of_replica = replica.client();
    // A replica that has noticed the loss of its primary has applied everything it received.
    crate::support::eventually("the replica knows", || {
        (of_replica.info("replication")["master_link_status"] == "down").then_some(())
    });
    let held = used(&mut of_replica, "a");
    assert_eq!(
        (used(&mut of_replica, "b"), used(&mut of_replica, "c")),
        (2 * held, held),
        "the replica"
    );
    server.start_again();
    let mut client = server.client();
    let held = used(&mut client, "a");
    assert_eq!(
        (used(&mut client, "b"), used(&mut client, "c")),
        (2 * held, held),
        "after the kill"
    );
    // The first call, the acknowledged calls, and at most one unanswered call of each of four
    // callers.
    assert!((1..=5).contains(&(held - acknowledged)), "{held} of {acknowledged}");
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
fn user_needs_access_to_every_key_of_the_call() {
    let server = Server::start();
    let mut admin = server.client();
    admin.ok("ACL SETUSER app on >secret ~app:* %R~shared:* +rl.all +rl.peekall +auth");
    let mut app = server.client();
    app.ok("AUTH app secret");
    let rule = "GCRA 5 5 1h";
    assert_eq!(all(&mut app, &[("app:1", rule), ("app:2", rule)]).five[0], 1);
    let before = admin.contents();
    for other in ["other", "shared:1"] {
        for pairs in [[("app:1", rule), (other, rule)], [(other, rule), ("app:1", rule)]] {
            assert!(error(&mut app, &call("RL.ALL", &pairs)).starts_with("NOPERM"), "{pairs:?}");
        }
    }
    assert_eq!(admin.contents(), before);
    // Read access is sufficient for PEEKALL.
    assert_eq!(ask(&mut app, "RL.PEEKALL", &[("app:1", rule), ("shared:1", rule)]).rows.len(), 2);
    let refused = call("RL.PEEKALL", &[("app:1", rule), ("other", rule)]);
    assert!(error(&mut app, &refused).starts_with("NOPERM"));
}

#[test]
fn full_server_and_replica_refuse_to_decide_and_still_peek() {
    let primary = Server::setup().with_tcp().start();
    let mut client = primary.client();
    let pairs = [("a", "GCRA 5 5 1h"), ("b", "FIXED 5 1h")];
    all(&mut client, &pairs);
    let replica = replica_of(&primary);
    let mut follower = replica.client();
    assert!(error(&mut follower, &call("RL.ALL", &pairs)).starts_with("READONLY"));
    assert_eq!(ask(&mut follower, "RL.PEEKALL", &pairs).rows[1][2], 3);
    client.ok("CONFIG SET maxmemory 1");
    let before = client.contents();
    assert!(error(&mut client, &call("RL.ALL", &pairs)).starts_with("OOM"));
    assert_eq!(ask(&mut client, "RL.PEEKALL", &pairs).five[0], 1);
    assert_eq!(client.contents(), before);
}

#[test]
fn panic_at_any_point_leaves_every_key_unchanged() {
    let server = Server::setup().module(crate::support::module::path_with_faults()).start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let rules = one_of_each(9);
    let pairs = borrowed(&rules);
    all(&mut client, &pairs[..4]);
    let mut panics = 0;
    for point in ["parse", "decide", "reply", "store"] {
        let (before, changes) = (client.contents(), client.changes());
        client.ok(&format!("RL.DEBUG PANIC {point}"));
        assert!(error(&mut client, &call("RL.ALL", &pairs)).starts_with("ERR internal error"));
        panics += 1;
        assert_eq!((client.contents(), client.changes()), (before, changes), "{point}");
        assert_eq!(client.info_number("rl", "rl_panics"), panics);
    }
    assert_eq!(all(&mut client, &pairs).five[0], 1);
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
            let told = error(&mut client, &call(command, &pairs));
            assert!(told.starts_with(&format!("WRONGTYPE rule {}:", at + 1)), "{key}: {told}");
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
        let answer = all(&mut client, &pairs);
        assert_eq!(answer.five[0], i64::from(!deny), "{answer:?}");
        let after = client.contents();
        for ((key, state, _), (_, repaired, _)) in before.iter().zip(&after) {
            let is_asked = pairs.iter().any(|(asked, _)| asked.as_bytes() == key.as_slice());
            let key = text(&Value::BulkString(key.clone()));
            assert_eq!(state != repaired, is_asked, "{key}");
        }
        // Used units remain used, and a denial takes none.
        for row in &answer.rows[..5] {
            assert_eq!(row[2], if deny { 8 } else { 7 }, "{answer:?}");
        }
        assert!(!after.iter().any(|(key, ..)| key == b"never"));
    }
}
