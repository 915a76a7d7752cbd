//! The effects, events and expiry of a lease, and the leases left after a crash or a failover.

use redis::{PushKind, Value};

use support::{
    BASE_US, Client, FROZEN_MARGIN_MS, Random, Server, eventually, integers, replica_of, text,
    wait_for_offset,
};

/// Formats effects as lines. None of their words contains a space.
fn lines(effects: Vec<Vec<Vec<u8>>>) -> Vec<String> {
    let line = |words: Vec<Vec<u8>>| {
        let words = words.iter().map(|word| match word.as_slice() {
            b"" => "<empty>".to_owned(),
            word => String::from_utf8_lossy(word).into_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    };
    effects.into_iter().map(line).collect()
}

fn expiry(client: &mut Client) -> i64 {
    client.integer("PEXPIRETIME k")
}

#[test]
fn every_effect_is_absolute_and_effects_of_one_call_travel_together() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    let mut sent = |client: &mut Client| lines(stream.effects(client));
    let score = |ms: i64| BASE_US + ms * 1_000;

    assert!(client.allows("RL.LEASE k a 2 60s"));
    let expires = format!("PEXPIREAT k {}", expiry(&mut client));
    let zadd = format!("ZADD k 0 <empty> {} a", score(60_000));
    assert_eq!(sent(&mut client), ["MULTI", &zadd, &expires, "EXEC"]);
    // Shortly after, the expiry is still sufficient, so the next calls do not send it.
    client.advance_ms(1_000);
    assert!(client.allows("RL.LEASE k b 2 60s"));
    assert_eq!(sent(&mut client), [format!("ZADD k {} b", score(61_000))]);
    assert_eq!(client.integer("RL.RENEW k a 50s"), 1);
    assert_eq!(sent(&mut client), [format!("ZADD k {} a", score(51_000))]);
    // A call that is denied, peeks or finds no lease sends nothing.
    for quiet in ["RL.LEASE k c 2 60s", "RL.PEEK k LEASE a 2 60s", "RL.PEEK k LEASE c 3 60s"] {
        client.decide(quiet);
    }
    assert_eq!(client.integer("RL.RENEW k c 60s"), 0);
    assert_eq!(client.integer("RL.RELEASE k c"), 0);
    client.run("RL.INSPECT k");
    assert_eq!(sent(&mut client), Vec::<String>::new());
    assert_eq!(client.integer("RL.RELEASE k b"), 1);
    assert_eq!(sent(&mut client), ["ZREM k b"]);
    // The next allowed call removes the expired leases by name.
    client.advance_ms(60_000);
    assert!(client.allows("RL.LEASE k d 2 90s"));
    let expires = format!("PEXPIREAT k {}", expiry(&mut client));
    let zadd = format!("ZADD k {} d", score(151_000));
    assert_eq!(sent(&mut client), ["MULTI", "ZREM k a", &zadd, &expires, "EXEC"]);
    assert_eq!(client.integer("RL.RELEASE k d"), 1);
    assert_eq!(sent(&mut client), ["UNLINK k"]);
    // In a transaction and in a script, the effects become part of that transaction.
    client.ok("MULTI");
    client.run("RL.LEASE k a 2 60s");
    client.run("RL.RELEASE k a");
    client.run("EXEC");
    let sent_then = sent(&mut client);
    assert_eq!(sent_then.len(), 5, "{sent_then:?}");
    assert_eq!([&sent_then[0], &sent_then[3], &sent_then[4]], ["MULTI", "UNLINK k", "EXEC"]);
    client.run_in_script("RL.LEASE k a 2 60s");
    let sent_then = sent(&mut client);
    assert_eq!(sent_then.len(), 4, "{sent_then:?}");
    // The effects of several rules are one transaction.
    client.call(&["RL.ALL", "k", "LEASE b 2 60s", "other", "FIXED 5 60"]);
    let sent_then = sent(&mut client);
    assert_eq!(sent_then.len(), 4, "{sent_then:?}");
    assert!(sent_then[1].starts_with("ZADD k ") && sent_then[2].starts_with("SET other "));
}

#[test]
fn bytes_of_an_effect_do_not_grow_with_the_live_or_expired_holders() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    let mut most = 0;
    let mut size_of = |client: &mut Client| {
        let effects = stream.effects(client);
        effects.iter().flatten().map(|word| word.len() + 8).sum::<usize>()
    };
    for holder in 0..2_000 {
        client.decide(&format!("RL.LEASE k {holder:0>128} 1000000 {}s", 60 + holder % 7));
        if holder % 100 == 0 {
            size_of(&mut client);
            client.decide(&format!("RL.LEASE k {holder:0>128} 1000000 70s"));
            most = most.max(size_of(&mut client));
        }
    }
    assert!(most < 400, "{most} bytes");
    // All 2,000 leases expire at once. Each call removes eight of them.
    client.advance_ms(100_000);
    size_of(&mut client);
    client.decide("RL.LEASE k new 1 60s");
    let size = size_of(&mut client);
    assert!(size < 9 * 150 + 300, "{size} bytes");
    assert_eq!(client.integer("ZCARD k"), 2_002 - 8);
    for _ in 0..250 {
        assert!(client.allows("RL.LEASE k new 1 60s"));
    }
    assert_eq!(client.integer("ZCARD k"), 2, "the mark and the one");
}

#[test]
fn key_outlives_its_last_lease_and_its_expiry_is_seldom_moved() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(7);
    let ttls_ms: [i64; 5] = [1, 50, 1_000, 60_000, 86_400_000];
    client.freeze(BASE_US);
    let (mut moved, mut calls) = (0, 0);
    let mut before = -1;
    for _ in 0..3_000 {
        let step = random.below(40) as i64;
        calls += 1;
        client.advance_ms(step);
        let (id, ttl) = (random.below(12), *random.pick(&ttls_ms));
        match random.below(6) {
            0 => drop(client.integer(&format!("RL.RELEASE k {id}"))),
            1 => drop(client.integer(&format!("RL.RENEW k {id} {ttl}ms"))),
            _ => assert!(client.allows(&format!("RL.LEASE k {id} 100 {ttl}ms"))),
        }
        if random.below(50) == 0 {
            // The next write sets the expiry again.
            client.run("PERSIST k");
            let (known, _) = support::leases::inspected(&mut client, "k");
            let first = if known > 0 { leases_first(&mut client) } else { String::new() };
            match known > 0 && random.below(2) == 0 {
                true => assert_eq!(client.integer(&format!("RL.RELEASE k {first}")), 1),
                false => assert!(client.allows(&format!("RL.LEASE k {id} 100 {ttl}ms"))),
            }
        }
        let now = client.server_time_us() / 1_000;
        let (holders, leases) = support::leases::inspected(&mut client, "k");
        let Some(last) = leases.last().map(|(_, ms)| *ms) else { continue };
        assert!(holders <= 12);
        let expires = expiry(&mut client);
        assert!(expires >= now - 100 + last + FROZEN_MARGIN_MS, "{expires}: {last} left at {now}");
        moved += i64::from(expires != before);
        before = expires;
    }
    assert!(moved < calls / 2, "{moved} of {calls} calls moved the expiry");
}

/// Takes `count` leases of one second next to a long lease of `a`, and lets the short leases
/// expire.
fn expired_next_to_a(client: &mut Client, count: usize) {
    assert!(client.allows("RL.LEASE k a 1000000 366d"));
    for holder in 0..count {
        assert!(client.allows(&format!("RL.LEASE k h{holder} 1000000 1s")));
    }
    client.advance_ms(1_200);
}

#[test]
fn release_shortens_the_expiry_to_what_the_other_leases_need() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    expired_next_to_a(&mut client, 3);
    assert!(client.allows("RL.LEASE k b 1000000 80s"));
    assert!(client.allows("RL.LEASE k c 1000000 10s"));
    stream.effects(&mut client);
    // After the release, the key lives for the remaining time of the lease of `b` plus an eighth of
    // it, as after a renewal.
    let now = client.server_time_us() / 1_000;
    assert_eq!(client.integer("RL.RELEASE k a"), 1);
    let expires = expiry(&mut client);
    let left = expires - now - FROZEN_MARGIN_MS;
    assert!((90_000..100_000).contains(&left), "{left} ms");
    let effects = ["MULTI", "ZREM k a", &format!("PEXPIREAT k {expires}"), "EXEC"];
    assert_eq!(lines(stream.effects(&mut client)), effects);
    // An expiry that is still right is not sent again.
    assert_eq!(client.integer("RL.RELEASE k c"), 1);
    assert_eq!(lines(stream.effects(&mut client)), ["ZREM k c"]);
    assert_eq!(expiry(&mut client), expires);
}

#[test]
fn release_of_the_last_live_lease_unlinks_the_key_with_all_expired_holders() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    // Tests both encodings of a sorted set, and more holders than one call removes one by one.
    for expired in [1, 20, 2_000] {
        expired_next_to_a(&mut client, expired);
        stream.effects(&mut client);
        let lazy = client.info_number("memory", "lazyfree_pending_objects")
            + client.info_number("memory", "lazyfreed_objects");
        assert_eq!(client.integer("RL.RELEASE k a"), 1, "{expired}");
        assert_eq!(client.integer("EXISTS k"), 0, "{expired}");
        assert_eq!(lines(stream.effects(&mut client)), ["UNLINK k"], "{expired}");
        // A server stops counting an object as pending shortly before it counts the object as
        // freed.
        eventually("a large set alone is freed in the background", || {
            let freed = client.info_number("memory", "lazyfreed_objects");
            let pending = client.info_number("memory", "lazyfree_pending_objects");
            (pending == 0 && freed - lazy == i64::from(expired > 1_000)).then_some(())
        });
    }
}

/// Returns the id whose lease expires first.
fn leases_first(client: &mut Client) -> String {
    let (_, leases) = support::leases::inspected(client, "k");
    String::from_utf8(leases.first().expect("a holder").0.clone()).expect("a number")
}

#[test]
fn events_match_the_effects() {
    let primary = Server::setup().with_tcp().line("notify-keyspace-events KEA").start();
    let replica = Server::setup()
        .line("notify-keyspace-events KEA")
        .line(&format!("replicaof 127.0.0.1 {}", primary.port()))
        .start();
    wait_for_offset(&primary, &replica);
    let mut client = primary.client();
    client.freeze(BASE_US);
    replica.client().freeze(BASE_US);
    let (mut here, mut there) = (primary.client3(), replica.client3());
    for listener in [&mut here, &mut there] {
        listener.subscribe("__keyspace@0__:k");
    }
    let events = |listener: &mut Client| {
        let pushed = listener.pushed().into_iter();
        let messages = pushed.filter(|push| push.kind == PushKind::PMessage);
        messages.map(|push| text(&push.data[2])).collect::<Vec<_>>()
    };
    let mut check = |client: &mut Client, call: &str, expected: &[&str]| {
        client.run(call);
        assert_eq!(events(&mut here), expected, "{call}");
        wait_for_offset(&primary, &replica);
        assert_eq!(events(&mut there), expected, "{call} on the replica");
    };
    check(&mut client, "RL.LEASE k a 2 60s", &["zadd", "expire"]);
    check(&mut client, "RL.LEASE k b 2 59s", &["zadd"]);
    check(&mut client, "RL.LEASE k c 2 59s", &[]);
    check(&mut client, "RL.PEEK k LEASE a 2 59s", &[]);
    check(&mut client, "RL.RENEW k b 50s", &["zadd"]);
    check(&mut client, "RL.RELEASE k b", &["zrem"]);
    check(&mut client, "RL.RELEASE k b", &[]);
    client.advance_ms(60_000);
    check(&mut client, "RL.LEASE k c 2 90s", &["zrem", "zadd", "expire"]);
    check(&mut client, "RL.LEASE k d 3 80s", &["zadd"]);
    check(&mut client, "RL.RENEW k d 10s", &["zadd"]);
    check(&mut client, "RL.RELEASE k c", &["zrem", "expire"]);
    check(&mut client, "RL.RELEASE k d", &["del"]);
    check(&mut client, "RL.RENEW k c 60s", &[]);
}

#[test]
fn leases_survive_a_crash_with_the_append_only_file_and_a_restart_with_the_snapshot() {
    for (lines, save) in [
        (vec!["appendonly yes", "appendfsync always"], None),
        (vec!["appendonly yes", "appendfsync always", "aof-use-rdb-preamble no"], None),
        (vec![], Some("SAVE")),
    ] {
        let mut server = lines.iter().fold(Server::setup(), |setup, line| setup.line(line)).start();
        let mut client = server.client();
        client.freeze(BASE_US);
        for holder in 0..300 {
            assert!(client.allows(&format!("RL.LEASE k h{holder} 1000 {}s", 60 + holder)));
        }
        client.advance_ms(100_000);
        assert!(client.allows("RL.LEASE k last 1000 1h"));
        assert_eq!(client.integer("RL.RELEASE k h299"), 1);
        save.inspect(|save| client.ok(save));
        let before = (client.run("ZRANGE k 0 -1 WITHSCORES"), expiry(&mut client));
        server.start_again();
        let mut client = server.client();
        client.freeze(BASE_US + 100_000_000);
        assert_eq!((client.run("ZRANGE k 0 -1 WITHSCORES"), expiry(&mut client)), before);
        assert_eq!(client.integer("RL.RENEW k h298 60s"), 1);
        assert_eq!(client.integer("RL.RENEW k h299 60s"), 0);
        assert_eq!(client.integer("RL.RENEW k h40 60s"), 0);
    }
}

#[test]
fn leases_move_with_their_key_by_every_command_that_moves_keys() {
    let server = Server::setup().with_tcp().start();
    let other = Server::setup().with_tcp().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    other.client().freeze(BASE_US);
    for size in [3, 200] {
        client.ok("FLUSHALL");
        other.client().ok("FLUSHALL");
        for holder in 0..size {
            assert!(client.allows(&format!("RL.LEASE k h{holder} {size} 60s")));
        }
        let denied = format!("RL.LEASE KEY new {size} 60s");
        let check = |client: &mut Client, key: &str| {
            assert_eq!(client.decide(&denied.replace("KEY", key))[..3], [0, size, 0], "{key}");
            assert_eq!(client.integer(&format!("RL.RENEW {key} h0 60s")), 1, "{key}");
        };
        assert_eq!(client.integer("COPY k copy"), 1);
        check(&mut client, "copy");
        client.ok("RENAME copy renamed");
        check(&mut client, "renamed");
        let Value::BulkString(dump) = client.run("DUMP k") else { panic!("no dump") };
        client.call(&[&b"RESTORE"[..], b"restored", b"100000", &dump]);
        check(&mut client, "restored");
        client.ok(&format!("MIGRATE 127.0.0.1 {} renamed 0 5000", other.port()));
        check(&mut other.client(), "renamed");
        assert_eq!(client.integer("MOVE restored 1"), 1);
        client.ok("SELECT 1");
        check(&mut client, "restored");
        client.ok("SELECT 0");
        check(&mut client, "k");
    }
}

#[test]
fn replica_peeks_and_inspects_an_equal_copy() {
    let primary = Server::setup().with_tcp().start();
    let replica = replica_of(&primary);
    let (mut client, mut reader) = (primary.client(), replica.client());
    client.freeze(BASE_US);
    reader.freeze(BASE_US);
    let mut random = Random::new(11);
    for _ in 0..2_000 {
        let (id, ttl) = (random.below(30), 1 + random.below(20_000));
        client.advance_ms(random.below(200) as i64);
        match random.below(5) {
            0 => drop(client.run(&format!("RL.RELEASE k {id}"))),
            1 => drop(client.run(&format!("RL.RENEW k {id} {ttl}ms"))),
            _ => drop(client.run(&format!("RL.LEASE k {id} 20 {ttl}ms"))),
        }
    }
    wait_for_offset(&primary, &replica);
    reader.freeze(client.integer("RL.DEBUG CLOCK FREEZE"));
    for look in ["ZRANGE k 0 -1 WITHSCORES", "PEXPIRETIME k", "RL.INSPECT k"] {
        assert_eq!(reader.run(look), client.run(look), "{look}");
    }
    for limit in [1, 5, 20, 30] {
        let peek = format!("RL.PEEK k LEASE new {limit} 5s");
        assert_eq!(reader.decide(&peek), client.decide(&peek), "{peek}");
    }
    for write in ["RL.LEASE k a 9 9", "RL.RENEW k a 9", "RL.RELEASE k a"] {
        assert!(reader.error(write).starts_with("READONLY"), "{write}");
    }
}

#[test]
fn failover_exceeds_the_limit_only_by_leases_that_wait_has_not_confirmed() {
    const LIMIT: usize = 40;
    let mut random = Random::new(3);
    for round in 0..3 {
        let mut primary = Server::setup().with_tcp().start();
        let replica = replica_of(&primary);
        let (mut client, mut promoted) = (primary.client(), replica.client());
        let is_granted = |client: &mut Client, id: &str| {
            let reply = client.run(&format!("RL.LEASE k {id} {LIMIT} 1h"));
            integers(&reply).expect("a decision")[0] == 1
        };
        let received = 1 + random.below(20) as usize;
        assert!((0..received).all(|number| is_granted(&mut client, &format!("received-{number}"))));
        assert_eq!(client.integer("WAIT 1 60000"), 1);
        promoted.ok("REPLICAOF NO ONE");
        let lost = if round == 0 { 0 } else { 1 + random.below(15) as usize };
        assert!((0..lost).all(|number| is_granted(&mut client, &format!("lost-{number}"))));
        primary.crash();
        let granted =
            (0..2 * LIMIT).filter(|n| is_granted(&mut promoted, &format!("new-{n}"))).count();
        assert_eq!(received + granted, LIMIT, "what was received counts");
        // A holder whose lease was not replicated learns from RENEW that it has no lease.
        for number in 0..lost {
            assert_eq!(promoted.integer(&format!("RL.RENEW k lost-{number} 1h")), 0);
        }
        for number in 0..received {
            assert_eq!(promoted.integer(&format!("RL.RENEW k received-{number} 1h")), 1);
        }
    }
}

#[test]
fn lease_that_expires_on_the_real_clock_deletes_its_key() {
    let server = Server::start();
    let mut client = server.client();
    assert!(client.allows("RL.LEASE k a 1 2s"));
    assert!(!client.allows("RL.LEASE k b 1 2s"));
    let pttl = client.integer("PTTL k");
    assert!((0..=2_251).contains(&pttl), "{pttl}");
    eventually("the lease expires", || client.allows("RL.LEASE k b 1 100ms").then_some(()));
    assert_eq!(client.integer("RL.RENEW k a 1s"), 0);
    eventually("the key expires", || (client.integer("EXISTS k") == 0).then_some(()));
}
