//! The memory that the module takes over a million calls and a million keys.

use redis::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use support::memory::{MEGABYTE, assert_within_the_limit, limit_memory, used_memory};
use support::{ALGORITHMS, BASE_US, Client, Pump, Random, Server, Tally};

#[test]
fn a_million_random_keys_fit_a_server_of_sixteen_megabytes() {
    const CALLS: usize = 1_000_000;
    let server = Server::setup().line("maxmemory-policy allkeys-lru").start();
    let mut client = server.client();
    limit_memory(&mut client, 16 * MEGABYTE);
    // A bijective scramble of the number: a million different keys in a random-looking order.
    let tally = Pump::new(&server).run(CALLS, |number, line| {
        let subject = (number as u32).wrapping_mul(2_654_435_761);
        let algorithm = ALGORITHMS[number % ALGORITHMS.len()];
        line.extend_from_slice(algorithm.command.as_bytes());
        let arguments = if algorithm.has_rate { "5 5 1h" } else { "5 1h" };
        write!(line, " subject:{subject:08x} {arguments}").expect("a buffer takes all");
    });
    assert_eq!(tally, Tally { allowed: CALLS, ..Tally::default() });
    let evicted = client.info_number("stats", "evicted_keys");
    assert_eq!(evicted + client.integer("DBSIZE"), CALLS as i64);
    assert!(evicted > CALLS as i64 / 2, "{evicted} evicted");
    assert_within_the_limit(&mut client);
    server.assert_alive();
}

/// Makes each call a million times, and asserts that the server's memory does not grow.
fn assert_flat<C: AsRef<str>>(server: &Server, calls: &[C]) {
    const CALLS: usize = 1_000_000;
    const WARM_UP: usize = 20_000;
    let (mut client, mut pump) = (server.client(), Pump::new(server));
    client.integer("RPUSH list a");
    let mut report = String::new();
    for call in calls.iter().map(AsRef::as_ref) {
        // Measures without the key itself, whose size changes by design.
        let settled = |client: &mut Client| {
            client.integer("DEL k");
            used_memory(client)
        };
        pump.repeat(WARM_UP, call);
        let before = settled(&mut client);
        let tally = pump.repeat(CALLS, call);
        let grown = settled(&mut client) - before;
        writeln!(report, "{call}: {grown} bytes, {tally:?}").expect("a string takes all");
        // This bound detects a leak of one byte in eight calls.
        assert!(grown < 128 * 1024, "{report}");
    }
    server.assert_alive();
}

#[test]
fn a_million_calls_of_each_deciding_command_leak_nothing() {
    // The rate is 400,000 per second: many calls are allowed and many denied, on states of every
    // age.
    let calls = ALGORITHMS.map(|algorithm| algorithm.call("k", 20_000, "50ms"));
    let server = Server::start();
    assert_flat(&server, &calls);
    let decided = server.client().info("rl");
    for algorithm in ALGORITHMS {
        let allowed = &decided[&format!("rl_{}_allowed", algorithm.name.to_lowercase())];
        assert!(allowed.parse::<u64>().expect("a number") > 100_000, "{algorithm:?}: {allowed}");
    }
}

#[test]
fn a_million_calls_of_every_other_command_and_of_an_invalid_one_leak_nothing() {
    let server = Server::start();
    assert!(server.client().allows("RL.SLIDINGLOG log 1000 1h COST 3"));
    // The first call with a zone loads the zone, which is not a leak.
    assert!(server.client().allows("RL.QUOTA day 1000000 day ZONE Europe/Berlin"));
    let calls = [
        "RL.PEEK log SLIDINGLOG 1000 1h",
        "RL.INSPECT log",
        "RL.DEBUG CLOCK RESUME",
        "RL.QUOTA day 1000000 day ZONE Europe/Berlin",
    ];
    let wrong =
        ["RL.GCRA list 5 5 1h", "RL.PEEK k GCRA 0 5 1h", "RL.QUOTA k 5 day ZONE Europe/Nowhere"];
    assert_flat(&server, &[&calls[..], &wrong].concat());
}

/// Returns the number of entries of a log, and the sizes of its state and of its key in memory.
fn size_of_log(client: &mut Client, key: &str) -> (i64, i64, i64) {
    let Value::Array(fields) = client.run(&format!("RL.INSPECT {key}")) else { panic!("no log") };
    let Value::Int(entries) = fields[3] else { panic!("{fields:?}") };
    let usage = client.integer(&format!("MEMORY USAGE {key}"));
    (entries, client.integer(&format!("STRLEN {key}")), usage)
}

#[test]
fn log_never_exceeds_its_slots_under_any_limit_and_traffic() {
    let mut random = Random::new(31);
    for slots in [16, 64, 1_024] {
        let server = Server::setup().line(&format!("rl.sliding-log-slots {slots}")).start();
        let mut client = server.client();
        client.freeze(BASE_US);
        // At most one live entry more than slots, and less than half as many expired entries.
        let most = (slots + 1) * 3 / 2 + 1;
        let mut largest = 0;
        for (key, limit) in [("exact", slots), ("rounded", 1_000_000_000_000)] {
            for _ in 0..40 {
                let batch = (0..100).flat_map(|_| {
                    let step_us = 1 + random.below(2 * 10_000_000 / slots);
                    let step = format!("{}.{:03}", step_us / 1_000, step_us % 1_000);
                    [
                        format!("RL.SLIDINGLOG {key} {limit} 10"),
                        format!("RL.DEBUG CLOCK ADVANCE {step}ms"),
                    ]
                });
                let words = |line: String| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
                client.pipeline(&batch.map(words).collect::<Vec<_>>());
                let (entries, length, usage) = size_of_log(&mut client, key);
                assert!(entries as u64 <= most, "{key} {slots}: {entries} entries");
                assert!(length as u64 <= 24 + 12 * most, "{key} {slots}: {length} bytes");
                assert!(usage as u64 <= 2 * (24 + 12 * most) + 256, "{key} {slots}: {usage} used");
                largest = largest.max(length);
            }
        }
        assert!(largest as u64 > 12 * slots / 2, "{slots}: no more than {largest} bytes");
    }
}

#[test]
fn log_with_refunds_never_exceeds_its_slots() {
    let mut random = Random::new(32);
    for slots in [16, 64, 1_024] {
        let server = Server::setup().line(&format!("rl.sliding-log-slots {slots}")).start();
        let mut client = server.client();
        client.freeze(BASE_US);
        let most = (slots + 1) * 9 / 4 + 3;
        for (key, limit) in [("exact", slots), ("rounded", 1_000_000)] {
            for _ in 0..30 {
                // The refunded part of a batch varies from none to almost all of it.
                let refunded = random.below(100);
                let step_us = 1_000 + random.below(2 * 10_000_000 / slots);
                let step = format!("{}.{:03}", step_us / 1_000, step_us % 1_000);
                let batch: Vec<_> = (0..100)
                    .flat_map(|_| {
                        let given_back = u64::from(random.below(100) < refunded);
                        [
                            format!("RL.SLIDINGLOG {key} {limit} 10"),
                            format!("RL.REFUND {key} SLIDINGLOG {limit} 10 COST {given_back}"),
                            format!("RL.DEBUG CLOCK ADVANCE {step}ms"),
                        ]
                    })
                    .chain([format!("RL.SLIDINGLOG {key} {limit} 10")])
                    .map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
                    .collect();
                client.pipeline(&batch);
                let (entries, length, _) = size_of_log(&mut client, key);
                assert!(entries as u64 <= most, "{key} {slots}: {entries} entries");
                assert!(length as u64 <= 24 + 12 * most, "{key} {slots}: {length} bytes");
            }
        }
    }
}
