//! `RL.CHARGE`, `RL.REFUND`, `PARTIAL` and `RL.BACKOFF`: charging the actual cost afterwards,
//! partial grants, and growing delays.

use support::settling::settle;
use support::{ALGORITHMS, BASE_US, Client, Reply, Server, algorithms, integers, play, text};

fn bytes(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

#[test]
fn charge_takes_more_units_than_are_left_and_a_refund_returns_them() {
    let server = Server::start();
    let mut client = server.client();
    // The examples of the documentation, on new keys and at one instant.
    let mut rows: Vec<(i64, String, Reply)> = vec![
        (0, "RL.CHARGE f FIXED 10 60 COST 12".into(), [0, 10, 0, 60_000, 60_000]),
        (0, "RL.REFUND f FIXED 10 60 COST 5".into(), [1, 10, 3, 0, 60_000]),
    ];
    for algorithm in [algorithms::TOKENBUCKET, algorithms::LEAKYBUCKET, algorithms::GCRA] {
        let key = algorithm.name;
        rows.extend([
            (0, settle("RL.CHARGE", algorithm, key, 10, 12), [0, 10, 0, 12_000, 72_000]),
            // An ordinary call on a key in debt also waits for its own unit.
            (0, algorithm.call(key, 10, "60"), [0, 10, 0, 18_000, 72_000]),
            (18_000, algorithm.peek(key, 10, "60"), {
                // In a queue that is nearly full, an allowed call waits for its turn.
                let wait_ms = if key == "LEAKYBUCKET" { 54_000 } else { 0 };
                [1, 10, 0, wait_ms, 60_000]
            }),
            (0, settle("RL.REFUND", algorithm, key, 10, 1), [0, 10, 0, 6_000, 66_000]),
            (0, settle("RL.REFUND", algorithm, key, 10, 1), [1, 10, 0, 0, 60_000]),
            (0, settle("RL.CHARGE", algorithm, key, 10, 0), [1, 10, 0, 0, 60_000]),
        ]);
    }
    let rows = rows.iter().map(|(at, call, reply)| (*at, call.as_str(), *reply));
    play(&mut client, &rows.collect::<Vec<_>>());
}

#[test]
fn full_refund_leaves_the_key_as_if_it_had_never_been_called() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS {
        assert!(client.allows(&format!("{} COST 7", algorithm.call("k", 10, "60"))));
        let refund = settle("RL.REFUND", algorithm, "k", 10, 3);
        assert_eq!(client.decide(&refund)[..4], [1, 10, 6, 0], "{refund}");
        assert_eq!(client.decide(&algorithm.peek("k", 10, "60"))[..3], [1, 10, 5]);
        stream.effects(&mut client);
        // A refund of more than the used units returns only these and deletes the key, also on
        // replicas.
        let all = settle("RL.REFUND", algorithm, "k", 10, 99);
        assert_eq!(client.decide(&all), [1, 10, 10, 0, 0], "{all}");
        assert_eq!(client.integer("EXISTS k"), 0, "{all}");
        let effects = stream.effects(&mut client);
        let words =
            effects.iter().map(|effect| effect.iter().map(|w| bytes(w)).collect::<Vec<_>>());
        assert_eq!(words.collect::<Vec<_>>(), [["DEL", "k"]], "{all}");
        // On a missing key, a refund succeeds and writes nothing.
        assert_eq!(client.decide(&all), [1, 10, 10, 0, 0], "{all}");
        assert!(stream.effects(&mut client).is_empty(), "{all}");
    }
}

#[test]
fn charge_beyond_the_maximum_debt_is_refused_and_changes_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let most = 1_000_000_000_000_u64;
    for _ in 0..2 {
        client.decide(&format!("RL.CHARGE k FIXED 1 1h COST {most}"));
    }
    let before = client.snapshot("k");
    let error = client.error("RL.CHARGE k FIXED 1 1h");
    assert_eq!(error, "ERR invalid cost: the total of used units must not exceed 2000000000000");
    let error = client.error("RL.CHARGE slow GCRA 1 1 366d COST 101");
    assert_eq!(error, "ERR invalid cost: the time until the key is reset must not exceed 36525d");
    assert_eq!((client.snapshot("k"), client.integer("EXISTS slow")), (before, 0));
    // Foreign values and states of another algorithm are not changed.
    client.ok("SET text hello");
    for command in ["RL.CHARGE", "RL.REFUND"] {
        for (key, rule) in [("text", "FIXED 5 60"), ("k", "GCRA 5 5 60")] {
            assert!(client.error(&format!("{command} {key} {rule}")).starts_with("WRONGTYPE"));
        }
        let partial = client.error(&format!("{command} new FIXED 5 60 COST 2 PARTIAL"));
        assert!(partial.contains("PARTIAL"), "{partial}");
    }
    assert_eq!(client.bytes("GET text"), b"hello");
}

#[test]
fn partial_call_takes_the_units_left_and_reports_their_number() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.run("FLUSHALL");
        client.freeze(BASE_US);
        let call = algorithm.call("k", 10, "60");
        let peek = algorithm.peek("k", 10, "60");
        assert_eq!(client.decide(&format!("{call} COST 4 PARTIAL"))[..3], [4, 10, 6], "{call}");
        // A cost above the limit can be granted in part.
        assert_eq!(client.decide(&format!("{peek} PARTIAL COST 99"))[..3], [6, 10, 0], "{peek}");
        assert_eq!(client.decide(&format!("{call} COST 99 PARTIAL"))[..3], [6, 10, 0], "{call}");
        // Without any units left, the wait is that of a single unit.
        let denied = client.decide(&format!("{call} COST 5 PARTIAL"));
        assert_eq!(denied[..3], [0, 10, 0], "{call}");
        client.advance_ms(denied[3] - 1);
        assert_eq!(client.decide(&format!("{call} COST 5 PARTIAL"))[0], 0, "{call}: {denied:?}");
        client.advance_ms(1);
        assert!(client.decide(&format!("{call} COST 5 PARTIAL"))[0] >= 1, "{call}: {denied:?}");
        let error = client.error(&format!("{call} COST 0 PARTIAL"));
        assert!(error.starts_with("ERR invalid cost: with PARTIAL"), "{error}");
    }
    // The first granted unit waits for the units queued before it.
    client.run("FLUSHALL");
    client.freeze(BASE_US);
    assert!(client.allows("RL.LEAKYBUCKET k 4 2 1 COST 3"));
    assert_eq!(client.decide("RL.LEAKYBUCKET k 4 2 1 COST 3 PARTIAL")[..4], [1, 4, 0, 1_500]);
}

#[test]
fn backoff_delays_grow_from_base_to_max_and_attempts_are_forgotten() {
    let server = Server::start();
    let mut client = server.client();
    let call = "RL.BACKOFF k 3 1s 8s 1h";
    let hour = 3_600_000;
    let free = [2, 1, 0].map(|left| (0, call, [1, 3, left, 0, hour]));
    play(&mut client, &free);
    play(&mut client, &[(0, call, [0, 3, 0, 1_000, hour])]);
    // Attempts are allowed at 1, 3, 7, 15, 23 and 31 s, and denied 1 ms earlier.
    for at_ms in [1_000, 3_000, 7_000, 15_000, 23_000, 31_000] {
        client.freeze(BASE_US + (at_ms - 1) * 1_000);
        let denied = client.decide(call);
        assert_eq!((denied[0], denied[3]), (0, 1), "just before {at_ms}");
        client.freeze(BASE_US + at_ms * 1_000);
        assert_eq!(client.decide(call), [1, 3, 0, 0, hour], "at {at_ms}");
    }
    // After an hour without an allowed attempt, the attempts are forgotten.
    play(&mut client, &[(31_000 + hour - 1, "RL.PEEK k BACKOFF 3 1s 8s 1h", [1, 3, 0, 0, hour])]);
    play(&mut client, &[(31_000 + hour, call, [1, 3, 2, 0, hour])]);
}

#[test]
fn charge_punishes_repeated_attempts_and_a_denial_does_not() {
    let server = Server::start();
    let mut client = server.client();
    let rule = "3 1s 8s 1h";
    let call = format!("RL.BACKOFF k {rule}");
    client.freeze(BASE_US);
    for _ in 0..3 {
        assert!(client.allows(&call));
    }
    let before = client.snapshot("k");
    for _ in 0..10 {
        assert_eq!(client.decide(&call)[..4], [0, 3, 0, 1_000]);
    }
    assert_eq!(client.snapshot("k"), before, "a denial changes nothing");
    let charge = format!("RL.CHARGE k BACKOFF {rule}");
    assert_eq!(client.decide(&charge), [0, 3, 0, 2_000, 3_600_000]);
    client.advance_ms(500);
    // The charge counts as one more attempt and restarts the delay.
    assert_eq!(client.decide(&charge)[..4], [0, 3, 0, 4_000]);
    let refund = format!("RL.REFUND k BACKOFF {rule}");
    assert_eq!(client.decide(&refund)[..4], [0, 3, 0, 2_000]);
    let several = client.call(&["RL.ALL", "k", &format!("BACKOFF {rule}"), "other", "FIXED 5 60"]);
    assert_eq!(text_of_first(&several), 0);
    assert_eq!(client.integer("EXISTS other"), 0, "the other rule has lost nothing");
    for (wrong, expected) in [
        ("0 1s 8s 1h", "ERR invalid attempts: expected an integer from 1 to 1000000"),
        ("3 9s 8s 1h", "ERR invalid base: must not exceed max"),
        ("3 1s 1h 1h", "ERR invalid max: must be less than forget"),
        ("3 1s 8s 1h COST 2", "ERR invalid option: BACKOFF takes no options"),
    ] {
        assert_eq!(client.error(&format!("RL.BACKOFF k {wrong}")), expected, "{wrong}");
    }
    let fields = format!("{:?}", client.run("RL.INSPECT k"));
    assert!(fields.contains("BACKOFF"), "{fields}");
}

/// Returns the first integer of an array.
fn text_of_first(reply: &redis::Value) -> i64 {
    match reply {
        redis::Value::Array(fields) => match fields[0] {
            redis::Value::Int(first) => first,
            ref other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn corrupt_state_is_neither_charged_nor_refunded() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        corrupt(&mut client, &settle("RL.CHARGE", algorithm, "k", 10, 25));
        for command in ["RL.CHARGE", "RL.REFUND"] {
            let before = client.snapshot("k");
            let call = settle(command, algorithm, "k", 10, 1);
            assert!(client.error(&call).starts_with("WRONGTYPE"), "{call}");
            assert_eq!(client.snapshot("k"), before, "{call}");
        }
    }
    assert_eq!(integers(&client.run("RL.GCRA other 1 1 1")).map(|reply| reply[0]), Some(1));
    assert!(text(&client.run("PING")).contains("PONG"));
}

/// Creates a state and appends a byte to it, which makes it invalid.
fn corrupt(client: &mut Client, call: &str) {
    client.run("DEL k");
    client.decide(call);
    let mut bytes = client.bytes("GET k");
    bytes.push(0);
    client.call(&[b"SET".as_slice(), b"k", &bytes]);
}
