//! In a cluster, the key in argument 1 selects the node. Calls on a slot are all counted while the
//! slot moves.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use redis::Value;

use support::cluster::{Cluster, ClusterClient};
use support::{ALGORITHMS, Algorithm, Reply, eventually, integers, raw_error};

/// The limit of the tests below. It refills so slowly that no unit returns during a test.
const LIMIT: u64 = 5_000;
const PERIOD: &str = "366d";

/// Returns a call of every command that takes a key, on this key.
fn calls_on(key: &str) -> Vec<String> {
    let deciding = ALGORITHMS.map(|algorithm| algorithm.call(key, LIMIT, PERIOD));
    let peeking = ALGORITHMS.map(|algorithm| algorithm.peek(key, LIMIT, PERIOD));
    let others = [
        format!("RL.INSPECT {key}"),
        format!("RL.QUOTA {key} 5 day"),
        format!("RL.RESERVE {key} {{other}} 1h QUOTA 5 day"),
        format!("RL.COMMIT {key} {{other}} QUOTA 5 day"),
        format!("RL.CANCEL {key} {{other}} QUOTA 5 day"),
        format!("RL.LEASE {key} {{other}} 5 60"),
        format!("RL.RENEW {key} {{other}} 60"),
        format!("RL.RELEASE {key} {{other}}"),
        format!("RL.BLOCK {key} 1h"),
    ];
    deciding.into_iter().chain(peeking).chain(others).collect()
}

#[test]
fn only_the_node_that_owns_the_key_executes_a_command() {
    let cluster = Cluster::start();
    let mut clients = cluster.nodes.iter().map(|node| node.client()).collect::<Vec<_>>();
    // Keys with a hash tag, and keys that only look as if they had one. The other arguments never
    // affect the slot.
    let keys = ["a", "user:1", "{user:1}:login", "x{user:1}y", "{}z", "{user:1", "\x01\u{fe}"];
    let mut calls_by_node = [0; 3];
    for key in keys {
        let slot = cluster.slot(key);
        let owner = cluster.settled_owner(key);
        let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.nodes[owner].port());
        for call in calls_on(key) {
            for (node, client) in clients.iter_mut().enumerate() {
                let reply = client.run(&call);
                if node == owner {
                    assert!(!raw_error(&reply).is_some_and(|e| e.starts_with("MOVED")), "{call}");
                } else {
                    assert_eq!(raw_error(&reply), Some(moved.clone()), "{call} at {node}");
                }
            }
            calls_by_node[owner] += 1;
            clients[owner].integer(&format!("DEL {key}"));
        }
    }
    assert!(
        calls_by_node.iter().all(|calls| *calls > 0),
        "every node has executed calls: {calls_by_node:?}"
    );
    assert_eq!(cluster.slot("user:1"), cluster.slot("x{user:1}y"));
    // Arguments that look like keys of other slots remain arguments.
    let owner = cluster.settled_owner("{a}");
    let error = clients[owner].error("RL.PEEK {a} {b} {c} {user:1}");
    assert!(error.starts_with("ERR invalid algorithm"), "{error}");
    let error = clients[owner].error("RL.GCRA {a} {b} {c} {user:1}");
    assert!(error.starts_with("ERR invalid burst"), "{error}");
    // Every node executes a command without a key.
    for client in &mut clients {
        assert!(client.integer("RL.DEBUG CLOCK FREEZE") > 0);
        assert_eq!(client.info_number("rl", "rl_panics"), 0);
    }
}

#[test]
fn transactions_and_scripts_use_several_keys_of_one_hash_tag() {
    let cluster = Cluster::start();
    let mut client = cluster.nodes[cluster.settled_owner("{a}")].client();
    client.ok("MULTI");
    for algorithm in ALGORITHMS {
        client.run(&algorithm.call(&format!("{{a}}:{}", algorithm.name), 1, PERIOD));
    }
    let Value::Array(replies) = client.run("EXEC") else { panic!("no EXEC") };
    assert!(replies.iter().all(|reply| integers(reply).is_some_and(|reply| reply[0] == 1)));
    let script = "local first = redis.call('RL.GCRA', KEYS[1], 1, 1, '1h') \
                  local second = redis.call('RL.FIXED', KEYS[2], 1, '1h') \
                  return {first[1], second[1]}";
    let both = client.call(&["EVAL", script, "2", "{a}:GCRA", "{a}:other"]);
    assert_eq!(both, Value::Array(vec![Value::Int(0), Value::Int(1)]));
    let apart = raw_error(&client.call(&["EVAL", script, "2", "{a}:GCRA", "{b}:other"]));
    assert!(apart.is_some_and(|error| error.starts_with("CROSSSLOT")));
}

#[test]
fn ask_redirections_during_a_slot_move_lead_to_the_node_that_has_or_will_have_the_key() {
    let cluster = Cluster::start();
    let source = cluster.settled_owner("{t}");
    let target = (source + 1) % 3;
    let slot = cluster.slot("{t}");
    let (mut at_source, mut at_target) =
        (cluster.nodes[source].client(), cluster.nodes[target].client());
    let ask = format!("ASK {slot} 127.0.0.1:{}", cluster.nodes[target].port());
    let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.nodes[source].port());
    for algorithm in ALGORITHMS {
        let call = algorithm.call(&format!("{{t}}:{}", algorithm.name), 5, PERIOD);
        assert_eq!(at_source.decide(&call)[..3], [1, 5, 4]);
    }
    cluster.open_slot(slot, source, target);
    for algorithm in ALGORITHMS {
        let key = format!("{{t}}:{}", algorithm.name);
        let call = algorithm.call(&key, 5, PERIOD);
        let peek = algorithm.peek(&key, 5, PERIOD);
        // The keys are still at the source, which decides the call. The target redirects it.
        assert_eq!(at_source.decide(&call)[..3], [1, 5, 3], "{call}");
        assert_eq!(at_target.error(&call), moved, "{call}");
        let before = at_source.snapshot(&key);
        cluster.move_keys(std::slice::from_ref(&key), source, target);
        for line in [&call, &peek, &format!("RL.INSPECT {key}")] {
            assert_eq!(at_source.error(line), ask, "{line}");
            assert_eq!(at_target.error(line), moved, "{line} without ASKING");
        }
        // State and expiry have moved too, and the target continues to count.
        at_target.ok("ASKING");
        let dump = at_target.call(&["DUMP", &key]);
        at_target.ok("ASKING");
        let expiry = at_target.integer(&format!("PEXPIRETIME {key}"));
        assert_eq!(dump, before.0, "{key}");
        // The expiry may change a little: MIGRATE sends the remaining time, and each node adds it
        // to the rounded time of its own clock.
        assert!((expiry - before.1).abs() < 60_000, "{key}: {expiry} was {}", before.1);
        for (line, remaining) in [(&peek, 2), (&call, 2), (&call, 1)] {
            at_target.ok("ASKING");
            assert_eq!(at_target.decide(line)[..3], [1, 5, remaining], "{line}");
        }
        // A new key is created at the target.
        let fresh = algorithm.call(&format!("{{t}}:new:{}", algorithm.name), 5, PERIOD);
        assert_eq!(at_source.error(&fresh), ask, "{fresh}");
        at_target.ok("ASKING");
        assert_eq!(at_target.decide(&fresh)[..3], [1, 5, 4], "{fresh}");
    }
    cluster.close_slot(slot, target);
    assert_eq!(cluster.settled_owner("{t}"), target);
    for algorithm in ALGORITHMS {
        let call = algorithm.call(&format!("{{t}}:{}", algorithm.name), 5, PERIOD);
        assert_eq!(at_target.decide(&call)[..3], [1, 5, 0], "{call}");
    }
}

fn hot_key(algorithm: Algorithm) -> String {
    format!("{{t}}:{}", algorithm.name)
}

/// Calls the limiters of one slot in turn, until `stop` is set and each limiter has denied a call.
fn caller(client: &mut ClusterClient<'_>, slot: i64, stop: &AtomicBool) -> Vec<(usize, Reply)> {
    let mut replies = Vec::new();
    let mut denials = [0; ALGORITHMS.len()];
    while !stop.load(Relaxed) || denials.contains(&0) {
        for (place, algorithm) in ALGORITHMS.into_iter().enumerate() {
            let reply = client.decide(slot, &algorithm.call(&hot_key(algorithm), LIMIT, PERIOD));
            denials[place] += 1 - reply[0];
            replies.push((place, reply));
        }
    }
    replies
}

/// Lets two clients call while `hop` moves the slot from node to node. Asserts that exactly the
/// limit of their calls was allowed, each with a different remainder.
fn assert_nothing_is_lost(cluster: &Cluster, hops: usize, hop: impl Fn(i64, usize, usize)) {
    let slot = cluster.slot("{t}");
    // More keys in the slot, which no client calls during the moves.
    let mut owner_client = cluster.nodes[cluster.settled_owner("{t}")].client();
    for number in 0..40 {
        let algorithm = ALGORITHMS[number % ALGORITHMS.len()];
        owner_client.decide(&algorithm.call(&format!("{{t}}:{number}"), 5, PERIOD));
    }
    let stop = AtomicBool::new(false);
    let replies = thread::scope(|scope| {
        let callers = [(); 2].map(|()| scope.spawn(|| caller(&mut cluster.client(), slot, &stop)));
        for _ in 0..hops {
            let source = cluster.settled_owner("{t}");
            hop(slot, source, (source + 1) % 3);
        }
        stop.store(true, Relaxed);
        let replies = callers.map(|caller| caller.join().expect("no caller fails"));
        replies.concat()
    });
    let mut remaining = HashMap::<usize, Vec<i64>>::new();
    let allowed = replies.iter().filter(|(_, reply)| reply[0] == 1);
    allowed.for_each(|(place, reply)| remaining.entry(*place).or_default().push(reply[2]));
    for (place, algorithm) in ALGORITHMS.iter().enumerate() {
        let mut seen = remaining.remove(&place).expect("some are allowed");
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..LIMIT as i64), "{}", algorithm.name);
    }
    let owner = cluster.settled_owner("{t}");
    let mut client = cluster.nodes[owner].client();
    for number in 0..40 {
        let call =
            ALGORITHMS[number % ALGORITHMS.len()].peek(&format!("{{t}}:{number}"), 5, PERIOD);
        assert_eq!(client.decide(&call)[..3], [1, 5, 3], "{call}");
    }
    for (number, node) in cluster.nodes.iter().enumerate() {
        let keys = node.client().integer(&format!("CLUSTER COUNTKEYSINSLOT {slot}"));
        let all = 40 + ALGORITHMS.len() as i64;
        assert_eq!(keys, if number == owner { all } else { 0 }, "node {number}");
        node.assert_alive();
        assert_eq!(node.client().info_number("rl", "rl_panics"), 0);
    }
    let redirected = cluster.met.moved.load(Relaxed) + cluster.met.ask.load(Relaxed);
    assert!(redirected > 2, "the clients have noticed: {redirected} redirections");
    eprintln!("{hops} migrations, {} calls, {redirected} redirections", replies.len());
}

#[test]
fn a_slot_resharded_with_migrate_under_load_allows_exactly_the_limit() {
    let cluster = Cluster::start();
    assert_nothing_is_lost(&cluster, 8, |slot, source, target| {
        cluster.reshard(slot, source, target);
    });
}

#[test]
fn a_slot_migrated_atomically_under_load_allows_exactly_the_limit() {
    let cluster = Cluster::start();
    if !cluster.can_migrate_atomically() {
        eprintln!("this server knows no atomic migration");
        return;
    }
    assert_nothing_is_lost(&cluster, 4, |_, source, target| {
        cluster.migrate_atomically("{t}", source, target);
    });
}

#[test]
fn a_replica_serves_peek_and_inspect_after_readonly() {
    let mut cluster = Cluster::start();
    let primary = cluster.settled_owner("{t}");
    let replica = cluster.add_replica(primary);
    let slot = cluster.slot("{t}");
    let mut at_primary = cluster.nodes[primary].client();
    let mut at_replica = cluster.nodes[replica].client();
    let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.nodes[primary].port());
    for algorithm in ALGORITHMS {
        let call = algorithm.call(&hot_key(algorithm), 5, PERIOD);
        assert_eq!(at_primary.decide(&call)[..3], [1, 5, 4], "{call}");
    }
    assert_eq!(at_primary.integer("WAIT 1 60000"), 1);
    for algorithm in ALGORITHMS {
        let key = hot_key(algorithm);
        let peek = algorithm.peek(&key, 5, PERIOD);
        let inspect = format!("RL.INSPECT {key}");
        let call = algorithm.call(&key, 5, PERIOD);
        // Without READONLY a replica redirects every client.
        for line in [&peek, &inspect, &call] {
            assert_eq!(at_replica.error(line), moved, "{line}");
        }
        at_replica.ok("READONLY");
        assert_eq!(at_replica.decide(&peek)[..3], [1, 5, 3], "{peek}");
        assert_eq!(at_replica.run(&inspect), at_primary.run(&inspect), "{inspect}");
        assert_eq!(at_replica.error(&call), moved, "a replica decides nothing");
        at_replica.ok("READWRITE");
    }
    // After its promotion the replica continues to count where the primary stopped.
    at_replica.ok("CLUSTER FAILOVER");
    eventually("the replica is promoted", || {
        (at_replica.info("replication")["role"] == "master").then_some(())
    });
    assert_eq!(cluster.settled_owner("{t}"), replica);
    for algorithm in ALGORITHMS {
        let call = algorithm.call(&hot_key(algorithm), 5, PERIOD);
        assert_eq!(at_replica.decide(&call)[..3], [1, 5, 3], "{call}");
    }
}

#[test]
fn call_with_several_rules_needs_keys_of_one_slot_and_stays_atomic_while_the_slot_moves() {
    let cluster = Cluster::start();
    let source = cluster.settled_owner("{t}");
    let target = (source + 1) % 3;
    let slot = cluster.slot("{t}");
    let (mut at_source, mut at_target) =
        (cluster.nodes[source].client(), cluster.nodes[target].client());
    let call = |command, second| [command, "{t}:a", "GCRA 5 5 366d", second, "FIXED 5 366d"];
    let remaining = |reply: &Value| match reply {
        Value::Array(fields) if fields.len() == 8 => integers(&fields[6]).expect("a row")[2],
        other => panic!("{other:?}"),
    };
    let error = |reply: Value| raw_error(&reply).unwrap_or_else(|| panic!("{reply:?}"));
    assert_eq!(remaining(&at_source.call(&call("RL.ALL", "{t}:b"))), 4);
    for command in ["RL.ALL", "RL.PEEKALL"] {
        // Keys of two slots are refused, even if the first key is local. The wrong node redirects.
        assert!(error(at_source.call(&call(command, "{u}:b"))).starts_with("CROSSSLOT"));
        let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.nodes[source].port());
        assert_eq!(error(at_target.call(&call(command, "{t}:b"))), moved);
    }
    cluster.open_slot(slot, source, target);
    assert_eq!(remaining(&at_source.call(&call("RL.ALL", "{t}:b"))), 3);
    let untouched = at_source.snapshot("{t}:a");
    cluster.move_keys(&["{t}:b".to_owned()], source, target);
    // With one key on each side, the call is not decided and takes nothing.
    assert!(error(at_source.call(&call("RL.ALL", "{t}:b"))).starts_with("TRYAGAIN"));
    at_target.ok("ASKING");
    assert!(error(at_target.call(&call("RL.ALL", "{t}:b"))).starts_with("TRYAGAIN"));
    assert_eq!(at_source.snapshot("{t}:a"), untouched);
    cluster.move_keys(&["{t}:a".to_owned()], source, target);
    let ask = format!("ASK {slot} 127.0.0.1:{}", cluster.nodes[target].port());
    assert_eq!(error(at_source.call(&call("RL.ALL", "{t}:b"))), ask);
    at_target.ok("ASKING");
    assert_eq!(remaining(&at_target.call(&call("RL.ALL", "{t}:b"))), 2);
    cluster.close_slot(slot, target);
    assert_eq!(cluster.settled_owner("{t}"), target);
    assert_eq!(remaining(&at_target.call(&call("RL.ALL", "{t}:b"))), 1);
}
