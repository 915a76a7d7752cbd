//! The effects of `RL.CHARGE` and `RL.REFUND` on replicas, events, files and a full server.

use support::settling::settle;
use support::{ALGORITHMS, BASE_US, Server, module, raw_error, replica_of, wait_for_offset};

#[test]
fn charges_and_refunds_have_effects_on_replicas_and_local_events() {
    let primary = Server::setup().with_tcp().line("notify-keyspace-events EA").start();
    let replica = replica_of(&primary);
    let mut client = primary.client();
    let mut listener = primary.client3();
    listener.subscribe("__keyevent@0__:*");
    let mut told = 0;
    for algorithm in ALGORITHMS {
        let key = algorithm.name;
        for (command, cost) in
            [("RL.CHARGE", 15), ("RL.REFUND", 2), ("RL.CHARGE", 4), ("RL.REFUND", 9)]
        {
            client.decide(&settle(command, algorithm, key, 10, cost));
            told += 1;
        }
        client.decide(&settle("RL.CHARGE", algorithm, key, 10, 0));
        client.decide(&settle("RL.REFUND", algorithm, key, 10, 0));
    }
    assert_eq!(listener.pushed().len(), told, "one event each, and none for cost 0");
    for call in ["RL.BACKOFF b 3 1s 8s 1h", "RL.CHARGE b BACKOFF 3 1s 8s 1h"] {
        client.decide(call);
    }
    wait_for_offset(&primary, &replica);
    let expected = client.contents();
    assert_eq!(expected.len(), ALGORITHMS.len() + 1);
    assert_eq!(replica.client().contents(), expected);
    for (_, _, expiry_ms) in expected {
        assert!(expiry_ms > 0, "every key has a TTL, in debt too");
    }
}

#[test]
fn debt_survives_a_restart_and_ends_exactly_at_the_retry_time_of_the_reply() {
    let mut server = Server::setup().line("appendonly yes").line("appendfsync always").start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let charged = client.decide(&format!(
            "RL.CHARGE {} {} {} COST 25",
            algorithm.name,
            algorithm.name,
            algorithm.arguments(10, "1h")
        ));
        assert_eq!(charged[..3], [0, 10, 0], "{}", algorithm.name);
    }
    let before = client.contents();
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    // On a frozen clock, the debt ends exactly at the retry time of the reply.
    for algorithm in ALGORITHMS {
        client.freeze(BASE_US + 123_456);
        let key = format!("frozen:{}", algorithm.name);
        let charged = client.decide(&settle("RL.CHARGE", algorithm, &key, 10, 14));
        let ask = settle("RL.CHARGE", algorithm, &key, 10, 0);
        client.advance_ms(charged[3] - 1);
        assert_eq!(client.decide(&ask)[0], 0, "{ask}: {charged:?}");
        client.advance_ms(1);
        assert_eq!(client.decide(&ask)[0], 1, "{ask}: {charged:?}");
    }
}

#[test]
fn full_server_refunds_but_does_not_charge_and_category_rl_permits_neither() {
    let primary = Server::setup().with_tcp().start();
    let mut client = primary.client();
    assert!(client.allows("RL.FIXED k 10 1h COST 7"));
    let replica = replica_of(&primary);
    for command in ["RL.CHARGE", "RL.REFUND"] {
        let error = replica.client().error(&format!("{command} k FIXED 10 1h"));
        assert!(error.starts_with("READONLY"), "{error}");
    }
    client.ok("CONFIG SET maxmemory 1");
    assert!(client.error("RL.CHARGE k FIXED 10 1h").starts_with("OOM"));
    assert_eq!(client.decide("RL.REFUND k FIXED 10 1h COST 2")[..3], [1, 10, 5]);
    client.ok("CONFIG SET maxmemory 0");
    // Runs only if the server has categories for commands of modules.
    if raw_error(&client.run("ACL SETUSER app on nopass ~* +@rl")).is_none() {
        let mut app = primary.client();
        app.ok("AUTH app any");
        assert!(app.allows("RL.FIXED k 10 1h"));
        for command in ["RL.CHARGE", "RL.REFUND"] {
            let error = app.error(&format!("{command} k FIXED 10 1h"));
            assert!(error.starts_with("NOPERM"), "{error}");
        }
    }
}

#[test]
fn panic_in_a_charge_or_a_refund_leaves_the_key_unchanged() {
    let server = Server::setup().module(module::path_with_faults()).start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        assert!(client.allows(&algorithm.call("k", 10, "60")));
        for command in ["RL.CHARGE", "RL.REFUND"] {
            for point in ["parse", "decide", "reply", "store"] {
                let before = client.snapshot("k");
                client.ok(&format!("RL.DEBUG PANIC {point}"));
                let call = settle(command, algorithm, "k", 10, 1);
                assert!(client.error(&call).starts_with("ERR internal error"), "{call} at {point}");
                assert_eq!(client.snapshot("k"), before, "{call} at {point}");
            }
        }
        client.integer("DEL k");
    }
    server.assert_alive();
}
