//! The replication stream: every allowed call and every repair sends its effect with absolute
//! values.

use redis::Value;

use support::algorithms::{GCRA, SLIDINGLOG};
use support::replication::Effect;
use support::{
    ALGORITHMS, BASE_US, Client, ReplicationStream, Server, replica_of, wait_for_offset,
};

/// Returns the effect, and asserts that the stream has exactly one.
fn only_effect(stream: &mut ReplicationStream, client: &mut Client) -> Effect {
    let mut effects = stream.effects(client);
    assert_eq!(effects.len(), 1, "one effect: {effects:?}");
    effects.remove(0)
}

/// Returns `SET key state PXAT ms` with the primary's state and expiry.
fn whole_state(client: &mut Client) -> Effect {
    let expiry_ms = client.integer("PEXPIRETIME k").to_string();
    vec![b"SET".into(), b"k".into(), client.bytes("GET k"), b"PXAT".into(), expiry_ms.into()]
}

#[test]
fn allowed_call_sends_its_state_and_an_absolute_expiry() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 5, "1h");
        assert!(client.allows(&call));
        let mut sent = only_effect(&mut stream, &mut client);
        sent[3].make_ascii_uppercase();
        assert_eq!(sent, whole_state(&mut client), "{call}");
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}

#[test]
fn sufficient_expiry_is_neither_moved_nor_sent_again() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS.into_iter().filter(|algorithm| *algorithm != SLIDINGLOG) {
        let call = algorithm.call("k", 100, "10d");
        assert!(client.allows(&format!("{call} COST 50")));
        let expiry_ms = client.integer("PEXPIRETIME k");
        stream.effects(&mut client);
        // The call prolongs the state by a hundredth of its span. A key may outlive its state by an
        // eighth of the span.
        assert!(client.allows(&call));
        let kept = vec![b"SET".to_vec(), b"k".into(), client.bytes("GET k"), b"KEEPTTL".into()];
        assert_eq!(only_effect(&mut stream, &mut client), kept, "{call}");
        assert_eq!(client.integer("PEXPIRETIME k"), expiry_ms, "{call}");
        // The call prolongs the state by half of its span, so the expiry moves, unless the end of
        // the state is fixed.
        let left_ms = client.integer("PTTL k");
        let [allowed, _, _, _, reset_ms] = client.decide(&format!("{call} COST 49"));
        assert_eq!(allowed, 1, "{call}");
        let sent = only_effect(&mut stream, &mut client);
        let moved = client.integer("PEXPIRETIME k") > expiry_ms;
        assert_eq!(moved, reset_ms > left_ms + 1_000, "{call}");
        assert_eq!(sent == whole_state(&mut client), moved, "{call}: {sent:?}");
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}

/// Returns the offset and the bytes of the one entry that the effects write at the end of a log.
fn patch(effects: &[Effect]) -> (usize, Vec<u8>) {
    let patches = effects.iter().filter(|effect| effect[0] == b"SETRANGE").collect::<Vec<_>>();
    assert_eq!(patches.len(), 1, "{effects:?}");
    let offset = String::from_utf8_lossy(&patches[0][2]).parse().expect("an offset");
    (offset, patches[0][3].clone())
}

#[test]
fn log_sends_one_entry_per_call() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    assert!(client.allows("RL.SLIDINGLOG k 1000 80"));
    stream.effects(&mut client);
    // No entry expires within forty seconds, so each call only appends.
    for _ in 0..400 {
        client.advance_ms(100);
        let length = client.integer("STRLEN k") as usize;
        assert!(client.allows("RL.SLIDINGLOG k 1000 80"));
        let effects = stream.effects(&mut client);
        assert_eq!(effects.len(), 1, "{effects:?}");
        let (offset, entry) = patch(&effects);
        assert_eq!((offset, entry.len()), (length, 12));
        assert!(client.bytes("GET k").ends_with(&entry));
    }
    // A second event in the same microsecond rewrites the entry of the first.
    let length = client.integer("STRLEN k") as usize;
    assert!(client.allows("RL.SLIDINGLOG k 1000 80"));
    let (offset, entry) = patch(&stream.effects(&mut client));
    assert_eq!((offset, entry.len()), (length - 12, 12));
}

#[test]
fn log_moves_its_expiry_only_after_an_eighth_of_the_window() {
    let server = Server::setup().line("rl.sliding-log-slots 65536").start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    let started_us = client.server_time_us();
    assert!(client.allows("RL.SLIDINGLOG k 60000 2"));
    let mut expiries_ms = vec![client.integer("PEXPIRETIME k")];
    stream.effects(&mut client);
    // By the real clock, at full speed: an eighth of the window of two seconds is 250 ms.
    let mut calls = 0;
    while expiries_ms.len() < 3 && calls < 59_000 {
        assert!(client.allows("RL.SLIDINGLOG k 60000 2"));
        calls += 1;
        let effects = stream.effects(&mut client);
        patch(&effects);
        for effect in effects.iter().filter(|effect| effect[0] == b"PEXPIREAT") {
            let expiry_ms = client.integer("PEXPIRETIME k");
            assert_eq!(effect[2], expiry_ms.to_string().into_bytes());
            expiries_ms.push(expiry_ms);
        }
    }
    let passed_ms = (client.server_time_us() - started_us) / 1_000;
    assert_eq!(expiries_ms.len(), 3, "{calls} calls in {passed_ms} ms");
    let moved_by = expiries_ms.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(moved_by.clone().all(|ms| ms >= 250), "{expiries_ms:?}");
}

#[test]
fn bytes_per_call_do_not_grow_with_the_log() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    let mut sent_in_round = Vec::new();
    // The log has 500 live entries after the second round, and no more afterwards.
    for _ in 0..8 {
        let mut sent = 0;
        for _ in 0..250 {
            client.advance_ms(20);
            assert!(client.allows("RL.SLIDINGLOG k 1000 10"));
            let effects = stream.effects(&mut client);
            sent += effects.iter().flatten().map(Vec::len).sum::<usize>();
        }
        sent_in_round.push(sent);
    }
    // A whole log of 500 entries is 6,000 bytes, and 250 of them would be 1.5 million bytes.
    let worst = sent_in_round.iter().max().unwrap();
    assert!(*worst <= 250 * 120, "bytes per 250 calls: {sent_in_round:?}");
}

#[test]
fn bytes_per_refund_do_not_grow_with_the_log() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    for filled in [50, 900] {
        let call = format!("RL.SLIDINGLOG {filled} 1000 1h");
        let refund = format!("RL.REFUND {filled} SLIDINGLOG 1000 1h");
        for _ in 0..filled {
            client.advance_ms(1);
            assert!(client.allows(&call));
        }
        stream.effects(&mut client);
        let mut sent = 0;
        for _ in 0..400 {
            client.advance_ms(1);
            assert!(client.allows(&call));
            assert!(client.allows(&refund));
            let effects = stream.effects(&mut client);
            sent += effects.iter().flatten().map(Vec::len).sum::<usize>();
        }
        // Two SETRANGE of one entry each, and now and then the whole log without its unused
        // entries.
        assert!(sent <= 400 * 160, "{sent} bytes for 400 calls and refunds on {filled} entries");
    }
}

#[test]
fn denied_call_sends_nothing_and_a_repair_sends_the_whole_state() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS {
        client.freeze(BASE_US);
        let call = algorithm.call("k", 3, "10");
        assert!(client.allows(&format!("{call} COST 3")));
        stream.effects(&mut client);
        for quiet in [call.clone(), format!("{call} COST 0"), algorithm.peek("k", 3, "10")] {
            client.decide(&quiet);
            client.run("RL.INSPECT k");
            assert!(stream.effects(&mut client).is_empty(), "{quiet}");
        }
        client.advance_ms(-3_600_000);
        client.decide(&algorithm.peek("k", 3, "10"));
        assert!(stream.effects(&mut client).is_empty(), "{call}: PEEK repairs nothing");
        let expiry_ms = client.integer("PEXPIRETIME k");
        assert!(!client.allows(&call));
        let sent = only_effect(&mut stream, &mut client);
        let mut repaired = whole_state(&mut client);
        if client.integer("PEXPIRETIME k") == expiry_ms {
            // Within one millisecond of the real clock the expiry is the same, and is not sent.
            repaired.splice(3.., [b"KEEPTTL".to_vec()]);
        }
        assert_eq!(sent, repaired, "{call}: the repair");
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}

#[test]
fn calls_of_a_transaction_and_of_a_script_send_their_effects() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    client.ok("MULTI");
    for key in ["a", "b", "a"] {
        client.run(&GCRA.call(key, 1, "1h"));
    }
    client.run("EXEC");
    let names = |effects: &[Effect]| {
        let names = effects.iter().map(|effect| String::from_utf8_lossy(&effect[0]).into_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&stream.effects(&mut client)), ["MULTI", "SET", "SET", "EXEC"]);
    let script = "redis.call('RL.GCRA', KEYS[1], 1, 1, '1h') \
                  return redis.call('RL.GCRA', KEYS[1], 1, 1, '1h')";
    client.call(&["EVAL", script, "1", "c"]);
    let effects = stream.effects(&mut client);
    let effects = names(&effects).into_iter().filter(|name| name != "MULTI" && name != "EXEC");
    assert_eq!(effects.collect::<Vec<_>>(), ["SET"]);
}

#[test]
fn replica_holds_equal_states_serves_peek_and_refuses_to_decide() {
    let primary = Server::setup().with_tcp().start();
    let replica = replica_of(&primary);
    let (mut writer, mut reader) = (primary.client(), replica.client());
    for algorithm in ALGORITHMS {
        for _ in 0..3 {
            assert!(writer.allows(&algorithm.call(algorithm.name, 5, "366d")));
        }
    }
    wait_for_offset(&primary, &replica);
    for algorithm in ALGORITHMS {
        let key = algorithm.name;
        assert_eq!(reader.snapshot(key), writer.snapshot(key), "{key}");
        let peek = algorithm.peek(key, 5, "366d");
        assert_eq!(reader.decide(&peek)[..3], [1, 5, 1], "{peek}");
        assert!(matches!(reader.run(&format!("RL.INSPECT {key}")), Value::Array(_)), "{key}");
        let refused = reader.error(&algorithm.call(key, 5, "366d"));
        assert!(refused.starts_with("READONLY"), "{refused}");
    }
    // After its promotion the replica continues where the primary was.
    reader.ok("REPLICAOF NO ONE");
    for algorithm in ALGORITHMS {
        let call = algorithm.call(algorithm.name, 5, "366d");
        for expected in [[1, 5, 1], [1, 5, 0], [0, 5, 0]] {
            assert_eq!(reader.decide(&call)[..3], expected, "{call}");
        }
    }
}
