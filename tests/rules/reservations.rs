//! `RL.RESERVE`, `RL.COMMIT` and `RL.CANCEL`: a reservation holds an estimated cost until the
//! actual cost is committed, or it is cancelled.

use redis::Value;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use support::reservations::{RULE, cancel, commit, inspected, reserve};
use support::{BASE_US, Client, Random, Server, WRONGTYPE, play};

#[test]
fn reservation_counts_for_all_callers_and_is_settled_once() {
    let server = Server::start();
    let mut client = server.client();
    play(
        &mut client,
        &[
            (0, "RL.RESERVE k a 90s FIXED 10 60 COST 4", [1, 10, 6, 0, 90_000]),
            (0, "RL.FIXED k 10 60", [1, 10, 5, 0, 90_000]),
            (0, "rl.reserve k b 30s fixed 10 60 cost 5", [1, 10, 0, 0, 90_000]),
            (0, "RL.FIXED k 10 60", [0, 10, 0, 30_000, 90_000]),
            (0, "RL.PEEK k FIXED 10 60 COST 6", [0, 10, 0, 60_000, 90_000]),
            (0, "RL.CHARGE k FIXED 10 60 COST 1", [0, 10, 0, 30_000, 90_000]),
            (0, "RL.REFUND k FIXED 10 60 COST 9", [1, 10, 1, 0, 90_000]),
            // A commit of less than the reserved cost. Repeating it changes nothing.
            (10_000, "RL.COMMIT k a FIXED 10 60 COST 1", [1, 10, 4, 0, 60_000]),
            (10_000, "RL.COMMIT k a FIXED 10 60 COST 1", [1, 10, 4, 0, 60_000]),
            (10_000, "RL.CANCEL k a FIXED 10 60", [0, 10, 4, 0, 60_000]),
            (10_000, "RL.CANCEL k b FIXED 10 60", [1, 10, 9, 0, 60_000]),
            (10_000, "RL.CANCEL k b FIXED 10 60", [0, 10, 9, 0, 60_000]),
            (10_000, "RL.COMMIT k b FIXED 10 60", [0, 10, 9, 0, 60_000]),
        ],
    );
    assert_eq!(
        client.error(&reserve("a", "1s", 1)),
        "ERR invalid id: already committed, use a new id for each job"
    );
    assert_eq!(inspected(&mut client, "k"), [BASE_US + 10_000_000, 1, 0, 0, 1]);
}

#[test]
fn commit_after_its_reservation_expired_returns_0_and_charges_nothing() {
    let server = Server::start();
    let mut client = server.client();
    play(
        &mut client,
        &[
            (0, "RL.RESERVE k a 20s FIXED 10 60 COST 4", [1, 10, 6, 0, 20_000]),
            (19_999, "RL.PEEK k FIXED 10 60 COST 7", [0, 10, 6, 1, 1]),
            (20_000, "RL.COMMIT k a FIXED 10 60 COST 9", [0, 10, 10, 0, 0]),
            (20_000, "RL.FIXED k 10 60 COST 10", [1, 10, 0, 0, 60_000]),
        ],
    );
}

#[test]
fn commit_repeated_after_the_end_of_its_reservation_charges_once() {
    let server = Server::start();
    let mut client = server.client();
    play(
        &mut client,
        &[
            (0, "RL.RESERVE k j 10s FIXED 1000 1d COST 300", [1, 1_000, 700, 0, 10_000]),
            (9_900, "RL.COMMIT k j FIXED 1000 1d", [1, 1_000, 700, 0, 86_400_000]),
            // The same commit is repeated after a lost reply, within one TTL of the first.
            (10_100, "RL.COMMIT k j FIXED 1000 1d", [1, 1_000, 700, 0, 86_399_800]),
            (19_899, "RL.COMMIT k j FIXED 1000 1d COST 999", [1, 1_000, 700, 0, 86_390_001]),
            (19_900, "RL.COMMIT k j FIXED 1000 1d", [0, 1_000, 700, 0, 86_390_000]),
            // A commit is remembered for at most 60 s, unless the reservation would have ended
            // later. COST 0 uses no units, so only the id keeps the key alive.
            (0, "RL.RESERVE none j 90s FIXED 1000 1s COST 300", [1, 1_000, 700, 0, 90_000]),
            (89_000, "RL.COMMIT none j FIXED 1000 1s COST 0", [1, 1_000, 1_000, 0, 0]),
            (148_999, "RL.COMMIT none j FIXED 1000 1s", [1, 1_000, 1_000, 0, 0]),
        ],
    );
    assert_eq!(inspected(&mut client, "none"), [0, 0, 0, 0, 1]);
    client.advance_ms(1);
    assert_eq!(client.decide("RL.COMMIT none j FIXED 1000 1s")[0], 0);
}

#[test]
fn reservation_across_midnight_counts_on_both_days_and_is_used_on_the_second() {
    let server = Server::start();
    let mut client = server.client();
    // The clock is frozen at 08:00: midnight is 16 hours away.
    play(
        &mut client,
        &[
            (0, "RL.FIXED k 10 1d ALIGNED COST 6", [1, 10, 4, 0, 57_600_000]),
            (57_000_000, "RL.RESERVE k a 1h FIXED 10 1d ALIGNED COST 4", [1, 10, 0, 0, 3_600_000]),
            (57_600_000, "RL.FIXED k 10 1d ALIGNED COST 7", [0, 10, 6, 3_000_000, 3_000_000]),
            (57_600_000, "RL.COMMIT k a FIXED 10 1d ALIGNED COST 3", [1, 10, 7, 0, 86_400_000]),
            (57_600_000, "RL.FIXED k 10 1d ALIGNED COST 7", [1, 10, 0, 0, 86_400_000]),
        ],
    );
}

#[test]
fn several_rules_respect_reservations_and_take_all_or_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.decide(&reserve("a", "30s", 8));
    let all = ["RL.ALL", "k", "FIXED 10 60 COST 3", "other", "GCRA 5 5 60"];
    let before = client.contents();
    let Value::Array(denied) = client.call(&all) else { panic!("a reply") };
    let expected = [0, 10, 2, 30_000, 30_000, 1].map(Value::Int);
    assert_eq!(denied[..6], expected);
    assert_eq!(client.contents(), before);
    client.advance_ms(30_000);
    let Value::Array(allowed) = client.call(&all) else { panic!("a reply") };
    assert_eq!(allowed[0], Value::Int(1));
}

#[test]
fn wrong_arguments_get_an_error_that_names_them_and_change_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.decide(&reserve("a", "1h", 1));
    let before = client.snapshot("k");
    let long = "i".repeat(65);
    let id = "ERR invalid id: expected 1 to 64 bytes";
    let ttl = "ERR invalid ttl: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h";
    let algorithm =
        "ERR invalid algorithm: expected FIXED or QUOTA, which allow reservations, or USE";
    let partial = "ERR invalid option: PARTIAL is for RL.PEEK and commands that decide by one rule";
    let rows: Vec<(Vec<&str>, &str)> = vec![
        (vec!["RL.RESERVE", "k", "", "1h", "FIXED", "10", "60"], id),
        (vec!["RL.COMMIT", "k", &long, "FIXED", "10", "60"], id),
        (vec!["RL.CANCEL", "k", "", "GCRA", "10", "1", "60"], id),
        (vec!["RL.RESERVE", "k", "b", "0ms", "FIXED", "10", "60"], ttl),
        (vec!["RL.RESERVE", "k", "b", "366.1d", "GCRA", "10", "60"], ttl),
        (vec!["RL.RESERVE", "k", "b", "1h", "GCRA", "10", "1", "60"], algorithm),
        (vec!["RL.COMMIT", "k", "b", "SLIDING", "10", "60"], algorithm),
        (vec!["RL.CANCEL", "k", "b", "nonsense", "10", "60"], algorithm),
        (vec!["RL.RESERVE", "k", "b", "1h", "FIXED", "10", "60", "PARTIAL"], partial),
        (vec!["RL.COMMIT", "k", "a", "FIXED", "10", "60", "COST", "2", "PARTIAL"], partial),
        (vec!["RL.CANCEL", "k", "a", "FIXED", "10", "60", "PARTIAL"], partial),
        (
            vec!["RL.RESERVE", "k", "b", "1h", "FIXED", "0", "60"],
            "ERR invalid limit: expected an integer from 1 to 1000000000000",
        ),
        (
            vec!["RL.RESERVE", "k", "b", "1h", "FIXED", "10"],
            "ERR wrong number of arguments for 'rl.reserve' command",
        ),
        (
            vec!["RL.COMMIT", "k", "b", "FIXED", "10"],
            "ERR wrong number of arguments for 'rl.commit' command",
        ),
    ];
    for (words, expected) in rows {
        let reply = client.call(&words);
        assert_eq!(support::raw_error(&reply).as_deref(), Some(expected), "{words:?}");
    }
    assert_eq!(client.snapshot("k"), before);
    // Values that are not a state, and states of other algorithms.
    client.ok("SET s text");
    client.run("LPUSH l 1");
    client.decide("RL.GCRA g 5 5 60");
    for key in ["s", "l", "g"] {
        for call in [
            format!("RL.RESERVE {key} a 1h {RULE}"),
            format!("RL.COMMIT {key} a {RULE}"),
            format!("RL.CANCEL {key} a {RULE}"),
        ] {
            assert_eq!(client.error(&call), WRONGTYPE, "{call}");
        }
    }
    for call in ["RL.SLIDING k 10 60", "RL.GCRA k 5 5 60", "RL.CHARGE k GCRA 5 5 60"] {
        assert_eq!(client.error(call), WRONGTYPE, "{call}");
    }
    assert_eq!(client.snapshot("k"), before);
}

#[test]
fn reservation_ids_may_have_any_bytes_and_a_key_remembers_1024_ids() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let step = |client: &mut Client, id: &[u8], ttl: &str| {
        let words: [&[u8]; 7] =
            [b"RL.RESERVE", b"k", id, ttl.as_bytes(), b"FIXED", b"1000000", b"60"];
        client.call(&words)
    };
    let first = |reply: &Value| match reply {
        Value::Array(fields) => fields[0].clone(),
        other => panic!("{other:?}"),
    };
    for number in 0..1_024_u16 {
        let id = [b"\0\xff ".as_slice(), &number.to_be_bytes()].concat();
        let ttl = if number == 500 { "30s" } else { "60s" };
        assert_eq!(first(&step(&mut client, &id, ttl)), Value::Int(1), "{number}");
    }
    let before = client.snapshot("k");
    let full = step(&mut client, b"one more", "60s");
    assert_eq!(
        support::raw_error(&full).as_deref(),
        Some("ERR too many reservations: a key remembers at most 1024 ids at a time")
    );
    assert_eq!(client.snapshot("k"), before);
    assert_eq!(inspected(&mut client, "k"), [0, 0, 1_024, 1_024, 0]);
    client.advance_ms(30_000);
    assert_eq!(first(&step(&mut client, b"one more", "60s")), Value::Int(1));
    assert_eq!(inspected(&mut client, "k")[2], 1_024);
    server.assert_alive();
}

/// Returns calls that must change nothing on a key with no units left.
fn traceless() -> Vec<String> {
    vec![
        reserve("b", "1h", 1),
        reserve("a", "2h", 11),
        format!("RL.COMMIT k unknown {RULE} COST 7"),
        format!("RL.CANCEL k unknown {RULE}"),
        commit("settled"),
        cancel("settled"),
        format!("RL.FIXED k 10 60"),
        format!("RL.REFUND k {RULE} COST 0"),
        format!("RL.PEEK k {RULE}"),
    ]
}

#[test]
fn call_that_is_denied_or_finds_no_reservation_changes_nothing() {
    let server = Server::setup().line("notify-keyspace-events EAm").start();
    let (mut client, mut watcher) = (server.client(), server.client());
    let mut listener = server.client3();
    client.freeze(BASE_US);
    // On a missing key, these calls create no key.
    client.decide(&format!("RL.COMMIT k a {RULE}"));
    client.decide(&format!("RL.CANCEL k a {RULE}"));
    client.decide(&reserve("a", "1h", 11));
    assert_eq!((client.integer("DBSIZE"), client.changes()), (0, 0));

    client.decide(&reserve("settled", "1h", 1));
    client.decide(&commit("settled"));
    client.decide(&reserve("a", "1h", 9));
    let mut stream = server.replication_stream();
    listener.subscribe("__keyevent@0__:*");
    let (before, changes) = (client.snapshot("k"), client.changes());
    watcher.ok("WATCH k");
    for call in traceless() {
        client.decide(&call);
        assert_eq!(client.snapshot("k"), before, "{call}");
    }
    client.error(&reserve("settled", "1h", 1));
    assert_eq!(client.changes(), changes);
    watcher.ok("MULTI");
    watcher.run("PING");
    assert_ne!(watcher.run("EXEC"), Value::Nil, "a denial broke a WATCH");
    assert!(listener.pushed().is_empty());
    assert!(stream.effects(&mut client).is_empty());

    // Each allowed call sends exactly one event.
    listener.pushed();
    for call in [reserve("a", "1h", 3), commit("a"), reserve("b", "1h", 3), cancel("b")] {
        assert_eq!(client.decide(&call)[0], 1, "{call}");
        assert_eq!(stream.effects(&mut client).len(), 1, "{call}");
    }
    let events = listener.pushed().len();
    // Each reading of the stream writes a mark, which is an event too.
    assert_eq!(events, 4 + 4, "one event each");
}

#[test]
fn damaged_state_with_reservations_is_refused_and_left_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.decide(&reserve("a", "1h", 4));
    client.decide(&reserve("b", "1h", 4));
    client.decide(&commit("b"));
    let whole = client.bytes("GET k");
    let mut states = 0;
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        client.call(&[&b"SET"[..], b"k", &damaged]);
        for call in ["RL.FIXED k 10 60", "RL.RESERVE k c 1h FIXED 10 60"] {
            let before = client.bytes("GET k");
            let reply = client.call(&call.split(' ').collect::<Vec<_>>());
            match support::raw_error(&reply) {
                Some(error) => {
                    // The flipped bit may turn one of the ids into `c`, and this id may be settled.
                    let is_settled = error.starts_with("ERR invalid id: already committed");
                    assert!(error == WRONGTYPE || is_settled, "bit {bit}: {error}");
                    assert_eq!(client.bytes("GET k"), before, "bit {bit}");
                }
                None => states += 1,
            }
        }
    }
    for len in 0..whole.len() {
        client.call(&[&b"SET"[..], b"k", &whole[..len]]);
        assert_eq!(client.error("RL.FIXED k 10 60"), WRONGTYPE, "cut to {len}");
        assert_eq!(client.error(&cancel("a")), WRONGTYPE, "cut to {len}");
    }
    assert!(states > 0, "another id or amount is a state too");
    server.assert_alive();
}

#[test]
fn reserving_settling_and_cancelling_on_64_connections_never_exceeds_the_limit() {
    const LIMIT: i64 = 40;
    let server = Server::start();
    let stop = AtomicBool::new(false);
    let rule = format!("FIXED {LIMIT} 366d");
    thread::scope(|scope| {
        let workers: Vec<_> = (0..64_u64)
            .map(|number| {
                let (server, rule) = (&server, &rule);
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut random = Random::new(number);
                    let mut used = 0;
                    for round in 0..40 {
                        let id = format!("{number}-{round}");
                        let cost = 1 + random.below(4) as i64;
                        let call = format!("RL.RESERVE k {id} 1h {rule} COST {cost}");
                        if !client.allows(&call) {
                            continue;
                        }
                        // The call is repeated, as after a lost reply.
                        assert!(client.allows(&call), "{call}");
                        if round % 8 == 7 {
                            let actual = cost.min(1);
                            let commit = format!("RL.COMMIT k {id} {rule} COST {actual}");
                            (0..2).for_each(|_| assert!(client.allows(&commit), "{commit}"));
                            used += actual;
                        } else {
                            assert!(client.allows(&format!("RL.CANCEL k {id} {rule}")));
                        }
                    }
                    used
                })
            })
            .collect();
        let watcher = scope.spawn(|| {
            let mut client = server.client();
            let mut most = 0;
            while !stop.load(Relaxed) {
                if client.run("RL.INSPECT k") == Value::Nil {
                    continue;
                }
                let numbers = inspected(&mut client, "k");
                let reserved = numbers.get(2).copied().unwrap_or(0);
                most = most.max(numbers[1] + reserved);
            }
            most
        });
        let used: i64 = workers.into_iter().map(|worker| worker.join().expect("no fault")).sum();
        stop.store(true, Relaxed);
        let most = watcher.join().expect("no fault");
        assert!(used > 0 && used <= LIMIT, "{used}");
        assert!(most <= LIMIT, "{most}");
        let left = server.client().decide(&format!("RL.PEEK k {rule} COST 0"))[2];
        assert_eq!(left, LIMIT - used);
    });
    server.assert_alive();
}
