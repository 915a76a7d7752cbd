//! The effects and events of a ban, and the bans that replicas, files and other nodes hold.

use redis::PushKind;

use support::cluster::Cluster;
use support::replicas::replica_with;
use support::several::{call, decision_of};
use support::{ALGORITHMS, BASE_US, Client, Server, eventually, replica_of, text, wait_for_offset};

/// Returns the effects of all calls since the previous reading: the name and the words, of which
/// the bytes of a state are `<state>`.
fn sent(stream: &mut support::ReplicationStream, client: &mut Client) -> Vec<String> {
    let word = |word: &Vec<u8>| match word.as_slice() {
        b"" => "<empty>".to_owned(),
        state if state.len() > 1 && !state.is_ascii() => "<state>".to_owned(),
        word => String::from_utf8_lossy(word).into_owned(),
    };
    let line = |words: &Vec<Vec<u8>>| words.iter().map(word).collect::<Vec<_>>().join(" ");
    stream.effects(client).iter().map(line).collect()
}

#[test]
fn ban_is_replicated_as_its_effect_in_absolute_terms() {
    let server = Server::setup().line("rl.redis-cell yes").start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    let set =
        |client: &mut Client| format!("SET k <state> PXAT {}", client.integer("PEXPIRETIME k"));
    client.ok("RL.BLOCK k 1h");
    let expected = set(&mut client);
    assert_eq!(sent(&mut stream, &mut client), [expected], "a new key");
    client.ok("RL.BLOCK k 2h");
    let expected = set(&mut client);
    assert_eq!(sent(&mut stream, &mut client), [expected], "an earlier ban");
    for denied in [
        "RL.GCRA k 5 5 60",
        "RL.LEASE k a 5 60",
        "RL.CHARGE k GCRA 5 5 60",
        "RL.REFUND k GCRA 5 5 60",
        "RL.RESERVE k job 30s FIXED 5 60",
        "RL.COMMIT k job FIXED 5 60",
        "RL.RENEW k a 60",
        "RL.INSPECT k",
        "CL.THROTTLE k 4 10 60",
    ] {
        client.run(denied);
        assert_eq!(sent(&mut stream, &mut client), Vec::<String>::new(), "{denied}");
    }
    // A re-based ban is replicated, though the call is denied. Its expiry would be kept if this
    // were still the millisecond of the ban; the key has none, so a new one is sent.
    client.run("PERSIST k");
    sent(&mut stream, &mut client);
    client.advance_ms(-3_600_000);
    client.decide("RL.GCRA k 5 5 60");
    let expected = set(&mut client);
    assert_eq!(sent(&mut stream, &mut client), [expected], "re-based");
    // A set of leases is unlinked.
    client.run("DEL k");
    assert!(client.allows("RL.LEASE k a 5 60"));
    sent(&mut stream, &mut client);
    client.ok("RL.BLOCK k 1h");
    let expected = set(&mut client);
    assert_eq!(sent(&mut stream, &mut client), ["MULTI", "UNLINK k", &expected, "EXEC"]);
    // So is a ban that has ended, before a lease takes its place.
    client.advance_ms(3_600_000);
    assert!(client.allows("RL.LEASE k a 5 60"));
    let zadd = format!("ZADD k 0 <empty> {} a", BASE_US + 60_000_000);
    let expires = format!("PEXPIREAT k {}", client.integer("PEXPIRETIME k"));
    assert_eq!(sent(&mut stream, &mut client), ["MULTI", "UNLINK k", &zadd, &expires, "EXEC"]);
}

#[test]
fn events_of_a_ban_match_its_effects() {
    let primary = Server::setup().with_tcp().line("notify-keyspace-events KEA").start();
    let replica = replica_with(&primary, Server::setup().line("notify-keyspace-events KEA"));
    let mut client = primary.client();
    client.freeze(BASE_US);
    let (mut here, mut there) = (primary.client3(), replica.client3());
    for listener in [&mut here, &mut there] {
        listener.subscribe("__keyspace@0__:k");
    }
    let events = |listener: &mut Client| {
        let pushed = listener.pushed().into_iter();
        let messages = pushed.filter(|push| push.kind == PushKind::PMessage);
        let names = messages.map(|push| text(&push.data[2]));
        // Redis 8 also names what kind of change a SET was.
        let others = ["expire", "overwritten", "type_changed"];
        names.filter(|name| !others.contains(&name.as_str())).collect::<Vec<_>>()
    };
    let mut check = |client: &mut Client, call: &str, expected: &[&str]| {
        client.run(call);
        assert_eq!(events(&mut here), expected, "{call}");
        wait_for_offset(&primary, &replica);
        assert_eq!(events(&mut there), expected, "{call} on the replica");
    };
    check(&mut client, "RL.BLOCK k 10s", &["set"]);
    check(&mut client, "RL.BLOCK k 20s", &["set"]);
    check(&mut client, "RL.GCRA k 5 5 60", &[]);
    client.advance_ms(20_000);
    check(&mut client, "RL.LEASE k a 5 60", &["del", "zadd"]);
    check(&mut client, "RL.BLOCK k 20s", &["del", "set"]);
}

/// Bans a new key, and keys with a state of each algorithm and with leases. Returns the keys.
fn ban_keys(client: &mut Client) -> Vec<String> {
    client.ok("RL.BLOCK {t}:new 1h");
    let mut keys = vec!["{t}:new".to_owned()];
    for algorithm in ALGORITHMS {
        let key = format!("{{t}}:{}", algorithm.name);
        assert!(client.allows(&algorithm.call(&key, 5, "60")));
        client.ok(&format!("RL.BLOCK {key} 2h"));
        keys.push(key);
    }
    for holder in 0..20 {
        assert!(client.allows(&format!("RL.LEASE {{t}}:leases h{holder} 100 60")));
    }
    client.ok("RL.BLOCK {t}:leases 3h");
    keys.push("{t}:leases".to_owned());
    keys
}

/// Asserts that every key is banned, for `RL.PEEK` and for `RL.PEEKALL`. `before` readies a call.
fn assert_banned(client: &mut Client, keys: &[String], mut before: impl FnMut(&mut Client)) {
    for key in keys {
        before(client);
        let denied = client.decide(&format!("RL.PEEK {key} GCRA 5 5 60"));
        let left_ms = denied[3];
        assert_eq!(denied, [0, 5, 0, left_ms, left_ms], "{key}");
        assert!((3_500_000..=10_800_000).contains(&left_ms), "{key}: {left_ms} ms");
        before(client);
        let rules = [("{t}:other", "GCRA 5 5 60"), (key, "LEASE a 5 60")];
        let denied = decision_of(&client.call(&call("RL.PEEKALL", &rules))).expect("a decision");
        assert_eq!((denied.five[0], denied.rule), (0, 2), "{key}");
        before(client);
        let inspected = format!("{:?}", client.run(&format!("RL.INSPECT {key}")));
        assert!(
            inspected.contains("BLOCKED") || inspected.contains("66, 76, 79, 67, 75, 69, 68"),
            "{inspected}"
        );
    }
}

#[test]
fn replica_holds_the_bans_of_its_primary_and_enforces_them_after_its_promotion() {
    let primary = Server::setup().with_tcp().start();
    let mut client = primary.client();
    // Some bans are part of the first synchronization, and some follow it.
    client.ok("RL.BLOCK {t}:early 1h");
    let replica = replica_of(&primary);
    let mut keys = ban_keys(&mut client);
    keys.push("{t}:early".to_owned());
    wait_for_offset(&primary, &replica);
    let mut reader = replica.client();
    assert_eq!(reader.contents(), client.contents());
    assert_banned(&mut reader, &keys, |_| ());
    reader.ok("REPLICAOF NO ONE");
    for key in &keys {
        assert_eq!(reader.decide(&format!("RL.FIXED {key} 5 60"))[..3], [0, 5, 0], "{key}");
    }
    assert!(reader.allows("RL.FIXED {t}:free 5 60"));
}

#[test]
fn bans_survive_a_crash_with_the_append_only_file_and_a_restart_with_the_snapshot() {
    for (lines, save) in [
        (vec!["appendonly yes", "appendfsync always"], false),
        (vec!["appendonly yes", "appendfsync always", "aof-use-rdb-preamble no"], false),
        (vec![], true),
    ] {
        let mut server = lines.iter().fold(Server::setup(), |setup, line| setup.line(line)).start();
        let mut client = server.client();
        let keys = ban_keys(&mut client);
        if save {
            client.ok("SAVE");
        } else {
            client.run("BGREWRITEAOF");
            eventually("the append-only file is rewritten", || {
                let state = client.info("persistence");
                let busy = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
                busy.iter().all(|field| state[*field] == "0").then_some(())
            });
            client.ok("RL.BLOCK {t}:late 1h");
        }
        let before = client.contents();
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.contents(), before, "{lines:?}");
        assert_banned(&mut client, &keys, |_| ());
        assert_eq!(client.decide("RL.FIXED {t}:new 5 60")[..3], [0, 5, 0], "{lines:?}");
    }
}

#[test]
fn bans_move_with_their_slot_and_are_enforced_on_both_sides() {
    let cluster = Cluster::start();
    let source = cluster.settled_owner("{t}");
    let target = (source + 1) % 3;
    let slot = cluster.slot("{t}");
    let (mut at_source, mut at_target) =
        (cluster.nodes[source].client(), cluster.nodes[target].client());
    let keys = ban_keys(&mut at_source);
    assert_banned(&mut at_source, &keys, |_| ());
    cluster.open_slot(slot, source, target);
    for key in &keys {
        let before = at_source.snapshot(key);
        assert_eq!(at_source.decide(&format!("RL.FIXED {key} 5 60"))[..3], [0, 5, 0], "{key}");
        cluster.move_keys(std::slice::from_ref(key), source, target);
        at_target.ok("ASKING");
        assert_eq!(at_target.call(&["DUMP", key]), before.0, "{key}");
        at_target.ok("ASKING");
        let expiry = at_target.integer(&format!("PEXPIRETIME {key}"));
        assert!((expiry - before.1).abs() < 60_000, "{key}: {expiry} was {}", before.1);
        at_target.ok("ASKING");
        assert_eq!(at_target.decide(&format!("RL.FIXED {key} 5 60"))[..3], [0, 5, 0], "{key}");
    }
    // A ban of a key that is not at the source any more is redirected.
    let ask = format!("ASK {slot} 127.0.0.1:{}", cluster.nodes[target].port());
    assert_eq!(at_source.error("RL.BLOCK {t}:new 1h"), ask);
    at_target.ok("ASKING");
    at_target.ok("RL.BLOCK {t}:fresh 1h");
    cluster.close_slot(slot, target);
    assert_eq!(cluster.settled_owner("{t}"), target);
    assert_banned(&mut at_target, &keys, |_| ());
    // And back, as the server's own tool moves slots.
    cluster.reshard(slot, target, source);
    assert_eq!(cluster.settled_owner("{t}"), source);
    assert_banned(&mut at_source, &keys, |_| ());
    assert_eq!(at_source.decide("RL.FIXED {t}:fresh 5 60")[..3], [0, 5, 0]);
}

#[test]
fn bans_move_with_a_slot_that_migrates_atomically() {
    let cluster = Cluster::start();
    if !cluster.can_migrate_atomically() {
        eprintln!("this server has no CLUSTER MIGRATESLOTS");
        return;
    }
    let source = cluster.settled_owner("{t}");
    let target = (source + 1) % 3;
    let keys = ban_keys(&mut cluster.nodes[source].client());
    cluster.migrate_atomically("{t}", source, target);
    let mut client = cluster.nodes[target].client();
    assert_banned(&mut client, &keys, |_| ());
    for key in &keys {
        assert_eq!(client.decide(&format!("RL.FIXED {key} 5 60"))[..3], [0, 5, 0], "{key}");
    }
}
