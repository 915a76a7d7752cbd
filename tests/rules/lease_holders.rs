//! Many holders at once: the limit always holds, and the time of a call hardly grows with the
//! number of holders.
//!
//! `LEASE_SECONDS=60` sets the duration of the test with 64 connections.

use std::env;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use redis::Value;

use support::{BASE_US, Client, Random, Reply, Server};

/// Asserts that the number of holders is within the limit, counted by the server's own commands and
/// by INSPECT. Returns the server's count.
fn count_holders(client: &mut Client, limit: i64) -> i64 {
    let script = "local time = redis.call('TIME') \
                  return redis.call('ZCOUNT', KEYS[1], '(' .. time[1] .. string.format('%06d', \
                  time[2]), '+inf')";
    let Value::Int(counted) = client.call(&["EVAL", script, "1", "k"]) else { panic!("no count") };
    let (listed, _) = support::leases::inspected(client, "k");
    assert!(counted <= limit && listed <= limit, "{counted} and {listed} hold at once");
    counted
}

/// Takes, renews and releases leases until `stop` is set, and leaves some of them unreleased. Adds
/// the number of leases that the server granted to `granted`.
fn work(server: &Server, seed: u64, limit: i64, stop: &AtomicBool, granted: &AtomicU64) {
    let mut random = Random::new(seed);
    let mut given = 0;
    while !stop.load(Relaxed) {
        let mut client = server.client();
        let id = format!("{seed}-{}", random.number());
        for _ in 0..random.below(30) {
            let reply = client.decide(&format!("RL.LEASE k {id} {limit} 40ms"));
            if reply[0] == 0 {
                assert!(reply[2] == 0 && reply[3] > 0, "{reply:?}");
                continue;
            }
            given += 1;
            for _ in 0..random.below(4) {
                client.integer(&format!("RL.RENEW k {id} 40ms"));
            }
            // Otherwise the lease is not released: its holder disconnects, or takes the lease
            // again.
            if random.below(4) > 0 {
                client.integer(&format!("RL.RELEASE k {id}"));
            }
        }
    }
    granted.fetch_add(given, Relaxed);
}

#[test]
fn sixty_four_connections_that_come_and_go_never_exceed_the_limit() {
    const LIMIT: i64 = 7;
    let seconds = env::var("LEASE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let server = Server::start();
    let (stop, given) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut most = 0;
    thread::scope(|scope| {
        for seed in 0..64 {
            let (server, stop, given) = (&server, &stop, &given);
            scope.spawn(move || work(server, seed, LIMIT, stop, given));
        }
        let mut watcher = server.client();
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(seconds) {
            most = most.max(count_holders(&mut watcher, LIMIT));
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(most, LIMIT, "the limit was reached");
    assert!(given.load(Relaxed) > 100, "{given:?} leases");
    server.assert_alive();
    assert_eq!(server.client().info_number("rl", "rl_panics"), 0);
}

#[test]
fn concurrent_holders_get_exactly_the_limit() {
    let server = Server::start();
    let replies = thread::scope(|scope| {
        let callers = (0..64).map(|number| {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.client();
                let call = |n| format!("RL.LEASE k {number}-{n} 100 1h");
                (0..20).map(|n| client.decide(&call(n))).collect::<Vec<_>>()
            })
        });
        let callers = callers.collect::<Vec<_>>();
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<Vec<Reply>>()
    });
    let mut left = replies.iter().filter(|reply| reply[0] == 1).map(|reply| reply[2]);
    let mut left = left.by_ref().collect::<Vec<_>>();
    left.sort_unstable();
    assert!(left.into_iter().eq(0..100), "each saw another number of free permits");
}

/// Creates a key with `holders` leases. The first expires at `from_us`, each further one `step_us`
/// later.
fn fill(client: &mut Client, key: &str, holders: u64, from_us: i64, step_us: u64) {
    const BATCH: u64 = 5_000;
    client.call(&["ZADD", key, "0", ""]);
    client.call(&["PEXPIRE", key, "86400000000"]);
    for first in (0..holders).step_by(BATCH as usize) {
        let mut words = vec!["ZADD".to_owned(), key.to_owned()];
        for holder in first..(first + BATCH).min(holders) {
            words.push((from_us as u64 + holder * step_us).to_string());
            words.push(format!("h{holder}"));
        }
        client.call(&words);
    }
}

/// Returns the time inside the command, in us per call.
fn us_a_call(client: &mut Client, calls: &[String]) -> f64 {
    let name = calls[0].split(' ').next().unwrap().to_lowercase();
    // Takes the fastest of a few rounds, because other load on the machine only adds time.
    let rounds = (0..5).map(|_| {
        client.ok("CONFIG RESETSTAT");
        for call in calls {
            client.run(call);
        }
        let stats = client.info("commandstats");
        let stat = &stats[&format!("cmdstat_{name}")];
        let (_, rest) = stat.split_once("usec_per_call=").expect("a figure");
        rest.split(',').next().unwrap().parse::<f64>().expect("a number")
    });
    rounds.fold(f64::MAX, f64::min)
}

#[test]
fn time_of_a_call_does_not_grow_with_the_number_of_holders() {
    let server = Server::start();
    let mut client = server.client();
    // The same cases with few and with many holders. A call that visited every holder would take a
    // thousand times as long.
    let sizes = [40, 100_000];
    let repeated = |call: &str| vec![call.to_owned(); 100];
    let numbered =
        |call: &str| (0..100).map(|n| call.replace("ID", &format!("n{n}"))).collect::<Vec<_>>();
    let hour_us = 3_600_000_000;
    // Each case: its name, the instant of the calls, and the calls. The first lease of the set
    // expires after an hour.
    let cases: [(&str, i64, Vec<String>); 9] = [
        ("taken", 0, numbered("RL.LEASE KEY ID 1000000 1h")),
        ("renewed", 0, repeated("RL.RENEW KEY h20 2h")),
        ("released", 0, (1..=30).map(|n| format!("RL.RELEASE KEY h{n}")).collect()),
        ("denied by a full limit", 0, repeated("RL.LEASE KEY new SIZE 1h")),
        ("denied by the limit 1", 0, repeated("RL.LEASE KEY new 1 1h")),
        ("peeked at when all has expired", 2 * hour_us, repeated("RL.PEEK KEY LEASE new 1 1h")),
        ("taken when all has expired", 2 * hour_us, numbered("RL.LEASE KEY ID 1000000 1h")),
        // Half of the leases have expired. The retry time is when a lease deep inside the set
        // expires.
        ("denied when half has expired", hour_us + 1, repeated("RL.LEASE KEY new 2 1h")),
        ("inspected", 0, repeated("RL.INSPECT KEY")),
    ];
    for (name, later_us, calls) in cases {
        let times = sizes.map(|size| {
            client.ok("FLUSHALL");
            client.freeze(BASE_US);
            let is_halved = name == "denied when half has expired";
            let (before, step) = if is_halved { (size as i64 - 1, 2) } else { (0, 1) };
            fill(&mut client, "k", size, BASE_US + hour_us - before, step);
            client.freeze(BASE_US + later_us);
            let limit = (size / 2).to_string();
            let fit = |call: &String| call.replace("KEY", "k").replace("SIZE", &limit);
            us_a_call(&mut client, &calls.iter().map(fit).collect::<Vec<_>>())
        });
        eprintln!("{name}: {times:?} us");
        let [few, many] = times;
        assert!(many < 30.0 * few.max(1.0), "{name}: {many} us instead of {few}");
    }
}

#[test]
fn replies_are_exact_with_many_holders() {
    const HOLDERS: i64 = 100_000;
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // One lease expires per millisecond.
    fill(&mut client, "k", HOLDERS as u64, BASE_US + 1_000, 1_000);
    for (at_ms, limit) in
        [(0, 1), (0, 50_000), (0, 100_000), (20, 1), (50_000, 20_000), (99_999, 1)]
    {
        client.freeze(BASE_US + at_ms * 1_000);
        let live = HOLDERS - at_ms;
        let retry_after_ms = live - limit + 1;
        let expected = [0, limit, 0, retry_after_ms, live];
        assert_eq!(client.decide(&format!("RL.PEEK k LEASE new {limit} 1s")), expected);
        assert_eq!(support::leases::inspected(&mut client, "k").0, live);
        client.advance_ms(retry_after_ms - 1);
        assert_eq!(client.decide(&format!("RL.PEEK k LEASE new {limit} 1s"))[0], 0);
        client.advance_ms(1);
        assert_eq!(client.decide(&format!("RL.PEEK k LEASE new {limit} 1s"))[0], 1);
    }
    // All leases have expired at once. Each call removes eight.
    client.freeze(BASE_US + HOLDERS * 1_000);
    assert_eq!(client.decide("RL.LEASE k new 1 1h"), [1, 1, 0, 0, 3_600_000]);
    assert_eq!(client.integer("ZCARD k"), HOLDERS + 2 - 8);
    assert_eq!(client.decide("RL.LEASE k new 1 1h"), [1, 1, 0, 0, 3_600_000]);
    assert_eq!(client.integer("ZCARD k"), HOLDERS + 2 - 16);
}
