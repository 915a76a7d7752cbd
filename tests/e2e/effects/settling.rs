//! The effects of `RL.CHARGE` and `RL.REFUND` on replicas, events, files and a full server.

use support::settling::settle;
use support::{ALGORITHMS, BASE_US, Server, replica_of, wait_for_offset};

#[test]
fn charges_and_refunds_have_effects_on_replicas_and_local_events() {
    let primary = Server::setup().with_tcp().line("notify-keyspace-events EA").start();
    let replica = replica_of(&primary);
    let mut client = primary.client();
    let mut listener = primary.client3();
    listener.subscribe("__keyevent@0__:*");
    let mut events = 0;
    for algorithm in ALGORITHMS {
        let key = algorithm.name;
        for (command, cost) in
            [("RL.CHARGE", 15), ("RL.REFUND", 2), ("RL.CHARGE", 4), ("RL.REFUND", 9)]
        {
            client.decide(&settle(command, algorithm, key, 10, cost));
            events += 1;
        }
        client.decide(&settle("RL.CHARGE", algorithm, key, 10, 0));
        client.decide(&settle("RL.REFUND", algorithm, key, 10, 0));
    }
    assert_eq!(listener.pushed().len(), events, "one event each, and none for cost 0");
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
        let charge = settle("RL.CHARGE", algorithm, &key, 10, 0);
        client.advance_ms(charged[3] - 1);
        assert_eq!(client.decide(&charge)[0], 0, "{charge}: {charged:?}");
        client.advance_ms(1);
        assert_eq!(client.decide(&charge)[0], 1, "{charge}: {charged:?}");
    }
}
