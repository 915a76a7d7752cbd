//! The effects of `RL.ALL`: on its keys, their events, replicas and files, and for users without
//! rights. `tests/rules/several.rs` has its decisions.

use redis::Value;
use std::thread;
use support::server::send_signal;
use support::several::{all, borrowed, decide, one_of_each};
use support::several::{call, decision_of};
use support::{ALGORITHMS, BASE_US, Client, ReplicationStream, Server, replica_of};

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
            let decision = all(&mut client, &pairs);
            assert_eq!((decision.five[0], decision.five[1]), (0, 1), "{decision:?}");
            decide(&mut client, "RL.PEEKALL", &pairs);
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
fn names(stream: &mut ReplicationStream, client: &mut Client) -> Vec<String> {
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
    assert_eq!(names(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "EXEC"]);
    all(&mut client, &pairs[..1]);
    assert_eq!(names(&mut stream, &mut client), ["SET a"]);
    // In a transaction and in a script, the effects become part of that transaction.
    client.ok("MULTI");
    client.ok_queued(&call("RL.ALL", &pairs));
    client.ok_queued(&["SET", "d", "1"]);
    assert!(matches!(client.run("EXEC"), Value::Array(_)));
    assert_eq!(names(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "SET d", "EXEC"]);
    let script = "return redis.call('RL.ALL', KEYS[1], ARGV[1], KEYS[2], ARGV[2])";
    let reply = client.call(&["EVAL", script, "2", "a", "b", pairs[0].1, pairs[1].1]);
    assert_eq!(decision_of(&reply).expect("a decision").rows.len(), 2);
    assert_eq!(names(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "EXEC"]);
    let library = "#!lua name=l\nredis.register_function('both', function(keys, args) \
                   return redis.call('RL.ALL', keys[1], args[1], keys[2], args[2]) end)";
    client.call(&["FUNCTION", "LOAD", library]);
    stream.effects(&mut client);
    let reply = client.call(&["FCALL", "both", "2", "a", "b", pairs[0].1, pairs[1].1]);
    assert_eq!(decision_of(&reply).expect("a decision").five[0], 1);
    assert_eq!(names(&mut stream, &mut client), ["MULTI", "SET a", "SET b", "EXEC"]);
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
                        client.try_call(&words).is_ok_and(|reply| decision_of(&reply).is_some())
                    })
                    .count() as i64
            })
        });
        let callers = callers.collect::<Vec<_>>();
        let mut client = server.client();
        support::eventually("traffic", || {
            (client.info_number("rl", "rl_all_allowed") > 300).then_some(())
        });
        assert!(send_signal("-9", &client.info("server")["process_id"]));
        callers.into_iter().map(|caller| caller.join().unwrap()).sum::<i64>()
    });
    let mut of_replica = replica.client();
    // A replica that has noticed the loss of its primary has applied everything it received.
    support::eventually("the replica knows", || {
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
    // The first call, the acknowledged calls, and at most one call without a reply of each of four
    // callers.
    assert!((1..=5).contains(&(held - acknowledged)), "{held} of {acknowledged}");
}
