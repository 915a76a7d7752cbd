//! Replicas hold the same data as their primary, however they received it.

use redis::Value;

use support::replicas::replica_with;
use support::{
    ALGORITHMS, Algorithm, BASE_US, Client, Random, Server, algorithms, eventually, random_traffic,
    replica_of, wait_for_offset,
};

/// Starts a primary on a frozen clock, so that no key expires between two reads.
fn primary_with(lines: &[&str]) -> Server {
    let setup = lines.iter().fold(Server::setup().with_tcp(), |setup, line| setup.line(line));
    let primary = setup.start();
    primary.client().freeze(BASE_US);
    primary
}

/// Asserts that all servers of the chain hold the same data as the first one.
fn assert_equal(chain: &[&Server]) {
    for pair in chain.windows(2) {
        wait_for_offset(pair[0], pair[1]);
    }
    let expected = chain[0].client().contents();
    assert!(expected.len() > 20, "{} keys", expected.len());
    for follower in &chain[1..] {
        assert_eq!(follower.client().contents(), expected);
        let decided = follower.client().info("rl");
        assert!(ALGORITHMS.iter().all(|algorithm| {
            decided[&format!("rl_{}_allowed", algorithm.name.to_lowercase())] == "0"
        }));
    }
}

fn full_syncs(primary: &Server) -> i64 {
    primary.client().info_number("stats", "sync_full")
}

#[test]
fn random_traffic_leaves_a_replica_and_its_replica_equal_to_the_primary() {
    let primary = primary_with(&[]);
    let replica = replica_with(&primary, Server::setup().with_tcp());
    let sub_replica = replica_of(&replica);
    let (mut client, mut random) = (primary.client(), Random::new(11));
    for _ in 0..4 {
        assert!(random_traffic(&mut client, &mut random, 1_500) > 500);
        assert_equal(&[&primary, &replica, &sub_replica]);
    }
}

#[test]
fn replica_that_lost_its_connection_catches_up_from_the_backlog() {
    let primary = primary_with(&["repl-backlog-size 8mb"]);
    let replica = replica_of(&primary);
    let (mut client, mut random) = (primary.client(), Random::new(12));
    for lost in 1..=4 {
        random_traffic(&mut client, &mut random, 500);
        assert_eq!(client.integer("CLIENT KILL TYPE replica"), 1);
        random_traffic(&mut client, &mut random, 500);
        eventually("the replica reconnects", || {
            (client.info_number("stats", "sync_partial_ok") == lost).then_some(())
        });
    }
    assert_equal(&[&primary, &replica]);
    assert_eq!(full_syncs(&primary), 1, "the first, and no other");
}

/// Breaks the replica's link and writes more than the backlog holds, in one transaction.
fn outrun_the_backlog(client: &mut Client) {
    client.ok("MULTI");
    client.run("CLIENT KILL TYPE replica");
    let filler = "x".repeat(100_000);
    for _ in 0..20 {
        client.run(&format!("SET filler {filler}"));
    }
    assert!(matches!(client.run("EXEC"), Value::Array(_)));
}

#[test]
fn replica_serves_peek_during_a_full_resync_that_swaps_databases_and_ends_equal() {
    let primary = primary_with(&["repl-backlog-size 16kb", "repl-diskless-sync yes"]);
    let swapping = Server::setup()
        .line("repl-diskless-load swapdb")
        // The replica loads slowly enough to be observed, and serves calls meanwhile.
        .line("key-load-delay 1000")
        .line("loading-process-events-interval-bytes 1024");
    let replica = replica_with(&primary, swapping);
    let (mut client, mut random) = (primary.client(), Random::new(13));
    random_traffic(&mut client, &mut random, 2_000);
    for number in 0..500 {
        assert!(client.allows(&format!("RL.FIXED subject:{number} 5 366d COST 2")));
    }
    wait_for_offset(&primary, &replica);
    outrun_the_backlog(&mut client);
    random_traffic(&mut client, &mut random, 500);
    let mut reader = replica.client();
    let mut peeked = 0;
    eventually("the replica loads again", || {
        let state = reader.info("persistence");
        if state["async_loading"] == "1" {
            assert_eq!(reader.decide("RL.PEEK subject:7 FIXED 5 366d")[1], 5);
            let refused = reader.error("RL.FIXED subject:7 5 366d");
            assert!(refused.starts_with("READONLY"), "{refused}");
            peeked += 1;
        }
        (peeked > 0 && state["async_loading"] == "0").then_some(())
    });
    assert_equal(&[&primary, &replica]);
    assert_eq!(full_syncs(&primary), 2);
}

#[test]
fn server_drops_its_own_states_when_it_becomes_a_replica() {
    let primary = primary_with(&[]);
    random_traffic(&mut primary.client(), &mut Random::new(14), 2_000);
    let joining = Server::setup().with_tcp().start();
    let mut client = joining.client();
    client.freeze(BASE_US + 1_000_000);
    random_traffic(&mut client, &mut Random::new(15), 2_000);
    assert!(client.allows("RL.GCRA its:own 1 1 1h"));
    // From now on it must reply from the primary's states.
    client.ok(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
    eventually("it follows", || {
        (client.info("replication").get("master_link_status")? == "up").then_some(())
    });
    wait_for_offset(&primary, &joining);
    assert_eq!(client.contents(), primary.client().contents());
    assert_eq!(client.integer("EXISTS its:own"), 0);
}

#[test]
fn key_without_expiry_from_a_replica_gets_one_after_the_promotion() {
    let primary = Server::setup().with_tcp().start();
    let mut client = primary.client();
    let replica = replica_with(&primary, Server::setup().line("replica-ignore-maxmemory no"));
    let mut promoted = replica.client();
    let call = |algorithm: Algorithm| algorithm.call(algorithm.name, 100, "366d");
    for algorithm in ALGORITHMS {
        assert!(client.allows(&call(algorithm)));
    }
    wait_for_offset(&primary, &replica);
    // A replica that evicts keys itself, against the documented advice, loses states that later
    // effects change.
    promoted.ok("CONFIG SET maxmemory-policy allkeys-random");
    promoted.ok("CONFIG SET maxmemory 1");
    eventually("the replica evicts", || (promoted.integer("DBSIZE") == 0).then_some(()));
    promoted.ok("CONFIG SET maxmemory 0");
    for algorithm in ALGORITHMS {
        assert_eq!(client.decide(&call(algorithm))[..3], [1, 100, 98], "{}", algorithm.name);
    }
    wait_for_offset(&primary, &replica);
    promoted.ok("REPLICAOF NO ONE");
    for algorithm in ALGORITHMS {
        let (call, key) = (call(algorithm), algorithm.name);
        let expiry = format!("PTTL {key}");
        assert_eq!(promoted.integer(&expiry), -1, "{key}: it came without");
        if algorithm == algorithms::SLIDINGLOG {
            // Only the end of a log is left, which is not a valid state: the key is refused.
            assert!(promoted.error(&call).starts_with("WRONGTYPE"), "{call}");
            promoted.integer(&format!("DEL {key}"));
            assert_eq!(promoted.decide(&call)[..3], [1, 100, 99], "{call}");
        } else {
            // The other states were sent completely. The next call that writes sets the expiry.
            assert_eq!(promoted.decide(&call)[..3], [1, 100, 97], "{call}");
        }
        assert!(promoted.integer(&expiry) > 0, "{key}: it has none yet");
    }
}
