//! A denied call has no side effect, and an allowed call has only its documented ones.
//!
//! Every test checks both on the same connection. The clock runs, and the limits refill so slowly
//! that a denied call stays denied during a test.

use redis::{PushInfo, PushKind, Value};

use support::{ALGORITHMS, Algorithm, BASE_US, Client, Server, text};

/// The number of times a denied call is repeated.
const HAMMERING: usize = 25;

/// Takes two of three units per year: a call of cost 1 is then allowed, and one of cost 2 denied.
fn use_two(client: &mut Client, algorithm: Algorithm, key: &str) {
    let call = format!("{} COST 2", algorithm.call(key, 3, "366d"));
    assert!(client.allows(&call), "{call}");
}

/// Takes the last unit.
fn use_the_last(client: &mut Client, algorithm: Algorithm, key: &str) {
    let call = algorithm.call(key, 3, "366d");
    assert!(client.allows(&call), "{call}");
}

/// Repeats denied calls, and every other call that must not have a side effect.
fn hammer(client: &mut Client, algorithm: Algorithm, key: &str) {
    let call = algorithm.call(key, 3, "366d");
    let peek = algorithm.peek(key, 3, "366d");
    for _ in 0..HAMMERING {
        let denied = client.decide(&format!("{call} COST 2"));
        assert_eq!((denied[0], denied[2]), (0, 1), "{call}: {denied:?}");
        assert_eq!(client.decide(&format!("{call} COST 4"))[3], -1, "{call}");
        for asked in [format!("{call} COST 0"), peek.clone(), format!("{peek} COST 2")] {
            client.decide(&asked);
        }
        client.error(&format!("{call} COST x"));
        client.run(&format!("RL.INSPECT {key}"));
    }
}

#[test]
fn denied_call_changes_neither_value_nor_expiry_nor_change_counter() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let before = client.changes();
        use_two(&mut client, algorithm, "k");
        assert!(client.changes() > before, "{}: an allowed call counts", algorithm.name);
        let state = client.snapshot("k");
        let changes = client.changes();
        hammer(&mut client, algorithm, "k");
        assert_eq!(client.snapshot("k"), state, "{}", algorithm.name);
        assert_eq!(client.changes(), changes, "{}", algorithm.name);
        client.integer("DEL k");
    }
}

#[test]
fn denied_call_on_a_missing_key_creates_no_key() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call("unknown", 1, "366d");
        let peek = algorithm.peek("unknown", 1, "366d");
        assert_eq!(client.decide(&format!("{call} COST 2")), [0, 1, 1, -1, 0], "{call}");
        client.decide(&format!("{call} COST 0"));
        client.decide(&peek);
        client.error(&format!("{call} COST x"));
        client.run("RL.INSPECT unknown");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
    assert_eq!(client.changes(), 0);
}

#[test]
fn denied_call_does_not_break_a_watch() {
    let server = Server::start();
    let (mut watcher, mut caller) = (server.client(), server.client());
    for algorithm in ALGORITHMS {
        use_two(&mut caller, algorithm, "k");
        watcher.ok("WATCH k");
        hammer(&mut caller, algorithm, "k");
        watcher.ok("MULTI");
        watcher.run("PING");
        assert_ne!(watcher.run("EXEC"), Value::Nil, "{}: a denial broke it", algorithm.name);

        watcher.ok("WATCH k");
        use_the_last(&mut caller, algorithm, "k");
        watcher.ok("MULTI");
        watcher.run("PING");
        assert_eq!(watcher.run("EXEC"), Value::Nil, "{}: it went unnoticed", algorithm.name);
        caller.integer("DEL k");
    }
}

fn invalidations(pushes: &[PushInfo]) -> Vec<String> {
    let told = pushes.iter().filter(|push| push.kind == PushKind::Invalidate);
    let keys = told.flat_map(|push| match push.data.first() {
        Some(Value::Array(keys)) => keys.iter().map(text).collect(),
        _ => vec!["everything".to_owned()],
    });
    keys.collect()
}

#[test]
fn denied_call_invalidates_nothing_for_tracking_clients() {
    let server = Server::start();
    let mut caller = server.client();
    let mut tracker = server.client3();
    tracker.ok("CLIENT TRACKING ON");
    let mut broadcast = server.client3();
    broadcast.ok("CLIENT TRACKING ON BCAST");
    for algorithm in ALGORITHMS {
        use_two(&mut caller, algorithm, "k");
        broadcast.pushed();
        tracker.pushed();
        // PEEK reads the key, so the server tracks the key for this client.
        tracker.decide(&algorithm.peek("k", 1, "366d"));
        hammer(&mut caller, algorithm, "k");
        assert!(invalidations(&tracker.pushed()).is_empty(), "{}", algorithm.name);
        assert!(invalidations(&broadcast.pushed()).is_empty(), "{}", algorithm.name);

        use_the_last(&mut caller, algorithm, "k");
        assert_eq!(invalidations(&tracker.pushed()), ["k"], "{}", algorithm.name);
        assert_eq!(invalidations(&broadcast.pushed()), ["k"], "{}", algorithm.name);
        caller.integer("DEL k");
    }
}

/// Returns the keyspace events that a subscriber received, as `event key`.
fn events(subscriber: &mut Client) -> Vec<String> {
    let pushes = subscriber.pushed();
    let messages = pushes.iter().filter(|push| push.kind == PushKind::PMessage);
    let shown = messages.map(|push| {
        let channel = text(&push.data[1]);
        let event = channel.strip_prefix("__keyevent@0__:").expect("a key event").to_owned();
        format!("{event} {}", text(&push.data[2]))
    });
    shown.collect()
}

#[test]
fn denied_call_causes_no_keyspace_event_and_an_allowed_call_causes_set() {
    // All classes of events, including misses of keys.
    let server = Server::setup().line("notify-keyspace-events EAm").start();
    let mut caller = server.client();
    let mut subscriber = server.client3();
    subscriber.subscribe("__keyevent@0__:*");
    for algorithm in ALGORITHMS {
        // The first call on a missing key causes only one event, and no event of a miss.
        use_two(&mut caller, algorithm, "k");
        assert_eq!(events(&mut subscriber), ["set k"], "{}: a new key", algorithm.name);
        hammer(&mut caller, algorithm, "k");
        assert!(events(&mut subscriber).is_empty(), "{}: a denial", algorithm.name);
        use_the_last(&mut caller, algorithm, "k");
        assert_eq!(events(&mut subscriber), ["set k"], "{}: a known key", algorithm.name);
        // Calls on a missing key. Commands that decide open it for writing, which is not a miss.
        let absent = algorithm.call("absent", 1, "366d");
        caller.decide(&format!("{absent} COST 2"));
        caller.decide(&format!("{absent} COST 0"));
        assert!(events(&mut subscriber).is_empty(), "{}: an absent key", algorithm.name);
        caller.integer("DEL k");
        assert_eq!(events(&mut subscriber), ["del k"]);
    }
}

#[test]
fn denied_call_sends_nothing_to_replicas() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS {
        use_two(&mut client, algorithm, "k");
        assert!(!stream.effects(&mut client).is_empty(), "{}: allowed", algorithm.name);
        let offset = client.info_number("replication", "master_repl_offset");
        hammer(&mut client, algorithm, "k");
        let sent = client.info_number("replication", "master_repl_offset") - offset;
        assert!(stream.effects(&mut client).is_empty(), "{}: denied", algorithm.name);
        // Only the server's own PING (14 bytes) may be sent meanwhile.
        assert_eq!(sent % 14, 0, "{}: {sent} bytes", algorithm.name);
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}

#[test]
fn repeating_a_denied_call_never_extends_its_wait() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        client.freeze(BASE_US);
        let call = algorithm.call("k", 4, "10");
        let mut denied = client.decide(&format!("{call} COST 4"));
        while denied[0] == 1 {
            denied = client.decide(&call);
        }
        let retry_ms = denied[3];
        for left_ms in (1..=retry_ms).rev().step_by(97) {
            client.freeze(BASE_US + (retry_ms - left_ms) * 1_000);
            assert_eq!(client.decide(&call)[3], left_ms, "{call}");
        }
        client.freeze(BASE_US + retry_ms * 1_000);
        assert!(client.allows(&call), "{call}");
        client.integer("DEL k");
    }
}
