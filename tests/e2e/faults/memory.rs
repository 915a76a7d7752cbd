//! The module under memory pressure, and with every command that moves keys.

use redis::Value;
use std::io::Write as _;
use support::algorithms::SLIDINGLOG;
use support::memory::{MEGABYTE, assert_within_the_limit, limit_memory, used_memory};
use support::{
    ALGORITHMS, Algorithm, BASE_US, Client, Pump, Random, Reply, Server, Tally, eventually,
    integers, raw_error,
};

/// Writes the call with this number: the algorithms in turn, each number on another key.
fn of_every_algorithm(number: usize, line: &mut Vec<u8>) {
    let algorithm = ALGORITHMS[number % ALGORITHMS.len()];
    let (name, arguments) = (algorithm.name, algorithm.arguments(5, "1h"));
    write!(line, "{} {name}:{number} {arguments}", algorithm.command).expect("a buffer");
}

#[test]
fn every_call_is_decided_under_every_eviction_policy() {
    const CALLS: usize = 18_000;
    let server = Server::start();
    let mut client = server.client();
    let policies = [
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        // These four policies can evict the module's keys only because each of them has an expiry.
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ];
    for policy in policies {
        client.ok("FLUSHALL SYNC");
        client.ok("CONFIG RESETSTAT");
        client.ok(&format!("CONFIG SET maxmemory-policy {policy}"));
        limit_memory(&mut client, MEGABYTE);
        let tally = Pump::new(&server).run(CALLS, of_every_algorithm);
        assert_eq!(tally, Tally { allowed: CALLS, ..Tally::default() }, "{policy}");
        let evicted = client.info_number("stats", "evicted_keys");
        let kept = client.integer("DBSIZE");
        assert!(evicted > 1_000 && kept > 100, "{policy}: {evicted} evicted, {kept} kept");
        assert_eq!(evicted + kept, CALLS as i64, "{policy}: nothing else removes a key");
        assert_within_the_limit(&mut client);
        // A call on an evicted key is decided as on a new key, so no call is denied.
        let again = Pump::new(&server).run(600, of_every_algorithm);
        assert_eq!(again.allowed, 600, "{policy}");
        client.ok("CONFIG SET maxmemory 0");
    }
    server.assert_alive();
}

#[test]
fn full_server_without_eviction_decides_no_call_until_memory_is_freed() {
    const CALLS: usize = 30_000;
    let server = Server::setup().line("maxmemory-policy noeviction").start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        assert!(client.allows(&format!("{} COST 4", algorithm.call(algorithm.name, 5, "366d"))));
    }
    limit_memory(&mut client, MEGABYTE);
    let tally = Pump::new(&server).run(CALLS, of_every_algorithm);
    assert!(tally.allowed > 1_000 && tally.out_of_memory > 1_000, "{tally:?}");
    assert_eq!(tally.allowed + tally.out_of_memory, CALLS, "{tally:?}");
    let keys = tally.allowed + ALGORITHMS.len();
    assert_eq!(client.integer("DBSIZE"), keys as i64, "OOM leaves no key");
    for algorithm in ALGORITHMS {
        let call = algorithm.call(algorithm.name, 5, "366d");
        let before = client.snapshot(algorithm.name);
        assert!(client.error(&call).starts_with("OOM"), "{call}");
        let peek = algorithm.peek(algorithm.name, 5, "366d");
        assert_eq!(client.decide(&peek)[..3], [1, 5, 0], "{peek}");
        assert!(matches!(client.run(&format!("RL.INSPECT {}", algorithm.name)), Value::Array(_)));
        let refused = raw_error(&client.run_in_script(&call));
        assert!(refused.is_some_and(|error| error.contains("OOM")), "{call} in a script");
        assert_eq!(client.snapshot(algorithm.name), before, "{call}");
    }
    // Deleting keys frees memory. The states of the other keys are unchanged.
    let forgotten = (0..CALLS).map(|number| {
        let algorithm = ALGORITHMS[number % ALGORITHMS.len()];
        vec!["UNLINK".to_owned(), format!("{}:{number}", algorithm.name)]
    });
    client.pipeline(&forgotten.collect::<Vec<_>>());
    eventually("there is room", || {
        let call = ALGORITHMS[0].call("another", 5, "366d");
        integers(&client.run(&call)).map(|reply| assert_eq!(reply[0], 1))
    });
    for algorithm in ALGORITHMS {
        let call = algorithm.call(algorithm.name, 5, "366d");
        assert_eq!(client.decide(&call)[..3], [1, 5, 0], "{call}");
        assert_eq!(client.decide(&call)[0], 0, "{call}");
    }
}

/// Takes four of a key's five units.
fn use_four(client: &mut Client, algorithm: Algorithm, key: &str) {
    assert!(client.allows(&format!("{} COST 4", algorithm.call(key, 5, "366d"))));
}

/// Asserts that a key has exactly one unit left.
fn assert_one_is_left(client: &mut Client, algorithm: Algorithm, key: &str) {
    let call = algorithm.call(key, 5, "366d");
    assert_eq!(client.decide(&call)[..3], [1, 5, 0], "{call}");
    assert_eq!(client.decide(&call)[..3], [0, 5, 0], "{call}");
    assert!(client.integer(&format!("PTTL {key}")) > 0, "{call}: no expiry");
}

#[test]
fn state_keeps_its_expiry_and_usage_when_its_key_moves_to_another_database_or_name() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        for key in ["swapped", "moved", "copied", "renamed", "unlinked"] {
            use_four(&mut client, algorithm, key);
        }
        let before = client.snapshot("moved");
        assert_eq!(client.integer("MOVE moved 1"), 1);
        assert_eq!(client.integer("COPY copied copy DB 1"), 1);
        client.ok("RENAME renamed name");
        assert_eq!(client.integer("UNLINK unlinked"), 1);
        assert!(client.allows(&algorithm.call("unlinked", 5, "366d")), "a new subject");
        assert!(client.allows(&algorithm.call("renamed", 5, "366d")), "a new subject");
        assert_one_is_left(&mut client, algorithm, "name");
        assert_one_is_left(&mut client, algorithm, "copied");
        client.ok("SELECT 1");
        assert_eq!(client.snapshot("moved"), before, "{}", algorithm.name);
        assert_one_is_left(&mut client, algorithm, "moved");
        assert_one_is_left(&mut client, algorithm, "copy");
        // SWAPDB takes effect while the client is connected.
        client.ok("SWAPDB 0 1");
        assert_one_is_left(&mut client, algorithm, "swapped");
        client.ok("SELECT 0");
        assert_eq!(client.decide(&algorithm.call("moved", 5, "366d"))[0], 0);
        client.ok("FLUSHALL ASYNC");
        assert_eq!(client.decide(&algorithm.call("moved", 5, "366d"))[..3], [1, 5, 4]);
        client.ok("FLUSHALL");
    }
}

#[test]
fn memory_is_freed_when_keys_are_dropped_in_the_background() {
    let server = Server::setup().line("rl.sliding-log-slots 65536").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut pump = Pump::new(&server);
    for drop_all in ["FLUSHALL ASYNC", "FLUSHDB ASYNC", "UNLINK"] {
        client.ok("FLUSHALL SYNC");
        let before = used_memory(&mut client);
        pump.run(12_000, of_every_algorithm);
        // Four large values of 5,000 entries each, which the server frees in a background thread.
        for key in 0..4 {
            pump.run(10_000, |number, line| {
                let call = if number % 2 == 0 {
                    format!("RL.SLIDINGLOG large:{key} 60000 1h")
                } else {
                    "RL.DEBUG CLOCK ADVANCE 1ms".to_owned()
                };
                line.extend_from_slice(call.as_bytes());
            });
            assert_eq!(client.integer(&format!("STRLEN large:{key}")), 12 + 12 * 5_000);
        }
        assert!(used_memory(&mut client) > before + MEGABYTE);
        if drop_all == "UNLINK" {
            let Value::Array(keys) = client.run("KEYS *") else { panic!("no keys") };
            let keys = keys.into_iter().map(|key| match key {
                Value::BulkString(key) => vec![b"UNLINK".to_vec(), key],
                other => panic!("{other:?}"),
            });
            client.pipeline(&keys.collect::<Vec<_>>());
        } else {
            client.ok(drop_all);
        }
        // Calls are decided while memory is being freed.
        assert!(client.allows("RL.GCRA meanwhile 1 1 1h"));
        eventually("the memory is given back", || {
            (used_memory(&mut client) < before + MEGABYTE / 2).then_some(())
        });
    }
}

/// A key of the test below, and its remaining units.
struct Subject {
    algorithm: Algorithm,
    key: String,
    left: i64,
}

impl Subject {
    const LIMIT: u64 = 1_000;

    fn peek(&self) -> String {
        format!("{} COST 0", self.algorithm.peek(&self.key, Self::LIMIT, "366d"))
    }

    fn call(&self) -> String {
        self.algorithm.call(&self.key, Self::LIMIT, "366d")
    }
}

/// Stores keys of every algorithm and long logs, then deletes keys between them to fragment memory.
fn scattered_subjects(server: &Server, client: &mut Client) -> Vec<Subject> {
    const OF_EACH: usize = 800;
    const LOGS: usize = 80;
    const ENTRIES: usize = 560;
    let mut subjects = Vec::new();
    for number in 0..OF_EACH {
        for algorithm in ALGORITHMS {
            let (key, used) = (format!("{}:{number}", algorithm.name), 1 + number as i64);
            let subject = Subject { algorithm, key, left: Subject::LIMIT as i64 - used };
            assert!(client.allows(&format!("{} COST {used}", subject.call())));
            subjects.push(subject);
        }
    }
    let logs = (0..LOGS).map(|number| Subject {
        algorithm: SLIDINGLOG,
        key: format!("log:{number}"),
        left: (Subject::LIMIT as usize - ENTRIES) as i64,
    });
    let mut logs = logs.collect::<Vec<_>>();
    // Adds one entry to each log in turn, then advances the clock by a millisecond.
    let tally = Pump::new(server).run(ENTRIES * (LOGS + 1), |number, line| {
        let call = match logs.get(number % (LOGS + 1)) {
            Some(log) => log.call(),
            None => "RL.DEBUG CLOCK ADVANCE 1ms".to_owned(),
        };
        line.extend_from_slice(call.as_bytes());
    });
    assert_eq!(tally.allowed, ENTRIES * LOGS, "{tally:?}");
    // The first read reallocates each value as a plain string, so it must come before the
    // deletions.
    replies_to(client, subjects.iter().chain(&logs).map(Subject::peek));
    thin_out(client, &mut subjects);
    thin_out(client, &mut logs);
    subjects.extend(logs);
    subjects
}

/// Deletes three quarters of the second half of the subjects at random, and keeps the first half.
/// Defragmentation moves values only in memory that is emptier than average.
fn thin_out(client: &mut Client, subjects: &mut Vec<Subject>) {
    let mut random = Random::new(82);
    let half = subjects.len() / 2;
    let thin = subjects.split_off(half).into_iter();
    let (kept, dropped): (Vec<_>, Vec<_>) = thin.partition(|_| random.below(4) == 0);
    let drops = dropped.into_iter().map(|subject| vec!["DEL".to_owned(), subject.key]);
    let replies = client.pipeline(&drops.collect::<Vec<_>>());
    assert!(replies.iter().all(|reply| *reply == Value::Int(1)));
    subjects.extend(kept);
}

/// Makes the calls and returns their replies.
fn replies_to(client: &mut Client, calls: impl Iterator<Item = String>) -> Vec<Reply> {
    let words = |call: String| call.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let replies = client.pipeline(&calls.map(words).collect::<Vec<_>>());
    replies.iter().map(|reply| integers(reply).expect("a decision")).collect()
}

/// Takes one unit of a new key for each algorithm, and peeks at six of the other keys.
fn call_meanwhile(client: &mut Client, subjects: &[Subject], round: usize) {
    const LIMIT: i64 = 1_000_000;
    for (at, algorithm) in ALGORITHMS.into_iter().enumerate() {
        let call = algorithm.call(&format!("busy:{}", algorithm.name), LIMIT as u64, "366d");
        assert_eq!(client.decide(&call)[..3], [1, LIMIT, LIMIT - 1 - round as i64], "{call}");
        let subject = &subjects[(round * 6 + at) % subjects.len()];
        assert_eq!(client.decide(&subject.peek())[2], subject.left, "{}", subject.key);
    }
}

#[test]
fn states_are_unchanged_by_defragmentation() {
    let server = Server::start();
    let (mut client, mut caller) = (server.client(), server.client());
    client.freeze(BASE_US);
    let subjects = scattered_subjects(&server, &mut client);
    let peeks = || subjects.iter().map(Subject::peek);
    let replies = replies_to(&mut client, peeks());
    for (subject, reply) in subjects.iter().zip(&replies) {
        assert_eq!(reply[..3], [1, 1_000, subject.left], "{}", subject.key);
    }
    let before = client.contents();
    // Defragmentation starts at once, takes up to 75 % of the time, and fills the smallest hole.
    for setting in ["ignore-bytes 1", "threshold-lower 0", "cycle-min 50", "cycle-max 75"] {
        client.ok(&format!("CONFIG SET active-defrag-{setting}"));
    }
    let reply = client.run("CONFIG SET activedefrag yes");
    let defragments = reply == Value::Okay;
    if !defragments {
        // A server without its own allocator refuses the setting, and nothing is moved.
        let refusal = raw_error(&reply).expect("an error");
        assert!(refusal.contains("defragmentation cannot be enabled"), "{refusal}");
    }
    let mut round = 0;
    eventually("hundreds of values are moved", || {
        call_meanwhile(&mut caller, &subjects, round);
        round += 1;
        let moved = client.info_number("stats", "active_defrag_key_hits");
        let enough = if defragments { 400 } else { 0 };
        (moved >= enough && round > 20).then_some(())
    });
    let moved = client.info_number("stats", "active_defrag_hits");
    assert_eq!(moved > 0, defragments, "{moved} moved");
    let mut after = client.contents();
    after.retain(|(key, ..)| !key.starts_with(b"busy:"));
    assert!(after == before, "a state has changed");
    assert_eq!(replies_to(&mut client, peeks()), replies);
    // Each key allows exactly its remaining units.
    let last = subjects.iter().map(|subject| format!("{} COST {}", subject.call(), subject.left));
    assert!(replies_to(&mut client, last).iter().all(|reply| reply[..3] == [1, 1_000, 0]));
    let more = subjects.iter().map(Subject::call);
    assert!(replies_to(&mut client, more).iter().all(|reply| reply[..3] == [0, 1_000, 0]));
    server.assert_alive();
}

#[test]
fn state_that_grows_takes_no_more_memory_than_it_needs() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // The state grows from 17 bytes to 21 with the fraction of a token.
    assert!(client.allows("RL.TOKENBUCKET a 10000000 1 180"));
    let new = client.integer("STRLEN a");
    client.advance_ms(1_000);
    assert!(client.allows("RL.TOKENBUCKET a 10000000 1 180"));
    assert!(client.integer("STRLEN a") > new);
    // The copy was never shorter, so it has no spare room. The read makes it a plain string, like
    // `a`.
    assert_eq!(client.integer("COPY a b"), 1);
    client.run("RL.PEEK b TOKENBUCKET 10000000 1 180");
    assert_eq!(client.integer("MEMORY USAGE a"), client.integer("MEMORY USAGE b"));
}
