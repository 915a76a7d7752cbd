//! Panics inside the module, forced by `RL.DEBUG PANIC` in a build for tests. The caller gets an
//! error, the key is unchanged, and the server continues.

use redis::Value;

use support::{ALGORITHMS, BASE_US, Client, Server, integers, module, raw_error};

const PANICKED: &str = "ERR internal error: the call was stopped and the key left as it was, \
     see the server's log";

fn start() -> Server {
    Server::setup().module(module::path_with_faults()).start()
}

/// Makes the next command that reaches this point panic, once.
fn plant(client: &mut Client, point: &str) {
    client.ok(&format!("RL.DEBUG PANIC {point}"));
}

#[test]
fn panic_at_any_point_of_a_call_is_an_error_reply_and_changes_nothing() {
    let server = start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut panics = 0;
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 5, "1h");
        assert!(client.allows(&call));
        for point in ["parse", "decide", "store", "reply"] {
            let (before, changes) = (client.snapshot("k"), client.changes());
            plant(&mut client, point);
            assert_eq!(client.error(&call), PANICKED, "{call} at {point}");
            panics += 1;
            assert_eq!(client.snapshot("k"), before, "{call} at {point}: the key has changed");
            assert_eq!(client.changes(), changes, "{call} at {point}: something was written");
            assert_eq!(client.info_number("rl", "rl_panics"), panics, "{call} at {point}");
        }
        // Each plant panics once. Then the call works as before.
        assert_eq!(client.decide(&call)[..3], [1, 5, 3], "{call}");
        client.integer("DEL k");
    }
    server.assert_alive();
    let log = server.log();
    let told = log.lines().filter(|line| line.contains("panicked")).count();
    assert_eq!(told as i64, panics, "one line each:\n{log}");
}

#[test]
fn panic_of_a_call_on_a_missing_key_creates_no_key() {
    let server = start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        for point in ["parse", "decide", "store", "reply"] {
            plant(&mut client, point);
            assert_eq!(client.error(&algorithm.call("k", 5, "1h")), PANICKED, "{point}");
            assert_eq!(client.integer("DBSIZE"), 0, "{} at {point}", algorithm.name);
        }
    }
}

#[test]
fn panic_is_invisible_to_replicas_and_watchers() {
    let server = start();
    let mut client = server.client();
    let mut watcher = server.client();
    let mut stream = server.replication_stream();
    for algorithm in ALGORITHMS {
        assert!(client.allows(&algorithm.call("k", 5, "366d")));
        stream.effects(&mut client);
        for point in ["parse", "decide", "store", "reply"] {
            watcher.ok("WATCH k");
            plant(&mut client, point);
            assert_eq!(client.error(&algorithm.call("k", 5, "366d")), PANICKED);
            assert!(stream.effects(&mut client).is_empty(), "{} at {point}", algorithm.name);
            watcher.ok("MULTI");
            watcher.run("PING");
            assert_ne!(watcher.run("EXEC"), Value::Nil, "{} at {point}", algorithm.name);
        }
        client.integer("DEL k");
        stream.effects(&mut client);
    }
}

#[test]
fn peek_inspect_and_info_work_after_a_panic() {
    let server = start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        assert!(client.allows(&algorithm.call("k", 5, "366d")));
        let before = client.snapshot("k");
        let peek = algorithm.peek("k", 5, "366d");
        for point in ["parse", "decide", "reply"] {
            plant(&mut client, point);
            assert_eq!(client.error(&peek), PANICKED, "{peek} at {point}");
            assert_eq!(client.decide(&peek)[..3], [1, 5, 3], "{peek} after {point}");
        }
        plant(&mut client, "reply");
        assert_eq!(client.error("RL.INSPECT k"), PANICKED);
        assert!(matches!(client.run("RL.INSPECT k"), Value::Array(_)));
        assert_eq!(client.snapshot("k"), before);
        client.integer("DEL k");
    }
    let panics = client.info_number("rl", "rl_panics");
    plant(&mut client, "info");
    // With a panic, INFO shows less of the module's section. The server's own part is complete.
    client.run("INFO rl");
    assert!(client.info("everything").contains_key("redis_version"));
    assert_eq!(client.info_number("rl", "rl_panics"), panics + 1);
    server.assert_alive();
}

#[test]
fn panic_in_a_transaction_or_a_script_stops_one_call() {
    let server = start();
    let mut client = server.client();
    client.freeze(BASE_US);
    plant(&mut client, "store");
    client.ok("MULTI");
    for _ in 0..3 {
        client.run("RL.GCRA k 5 5 1h");
    }
    let Value::Array(replies) = client.run("EXEC") else { panic!("no EXEC") };
    assert_eq!(raw_error(&replies[0]).as_deref(), Some(PANICKED));
    assert_eq!(integers(&replies[1]).expect("a decision")[..3], [1, 5, 4]);
    assert_eq!(integers(&replies[2]).expect("a decision")[..3], [1, 5, 3]);

    plant(&mut client, "decide");
    let script = "local failed = redis.pcall('RL.GCRA', KEYS[1], 5, 5, '1h') \
                  local passed = redis.call('RL.GCRA', KEYS[1], 5, 5, '1h') \
                  return {failed['err'], passed[3]}";
    let Value::Array(replies) = client.call(&["EVAL", script, "1", "k"]) else {
        panic!("no array")
    };
    assert_eq!(support::text(&replies[0]), PANICKED);
    assert_eq!(replies[1], Value::Int(2));
    server.assert_alive();
}
