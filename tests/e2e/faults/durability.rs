//! Faults while data is written to disk: kills, file rewrites, late replays and truncated files.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use redis::Value;

use support::server::Setup;
use support::{
    ALGORITHMS, Algorithm, BASE_US, Client, Random, Server, eventually, integers, module,
    random_traffic,
};

/// Units per key. One unit returns in almost nine hours, so every call that a test sees allowed
/// took one of these.
const BUDGET: u64 = 1_000;

fn call(algorithm: Algorithm) -> String {
    algorithm.call(algorithm.name, BUDGET, "366d")
}

/// Returns the units left on the key that is named after the algorithm.
fn remaining(client: &mut Client, algorithm: Algorithm) -> u64 {
    let peek = algorithm.peek(algorithm.name, BUDGET, "366d");
    client.decide(&format!("{peek} COST 0"))[2] as u64
}

/// Configures an append-only file that is synced before the reply to each call.
fn append_only(preamble: &str) -> Setup {
    let line = format!("aof-use-rdb-preamble {preamble}");
    Server::setup().line("appendonly yes").line("appendfsync always").line(&line)
}

/// Returns the number of calls that this server process has decided, from INFO.
fn decisions(client: &mut Client) -> i64 {
    let fields = client.info("rl");
    let decided =
        fields.iter().filter(|(name, _)| name.ends_with("_allowed") || name.ends_with("_denied"));
    let numbers = decided.map(|(_, number)| number.parse::<i64>().expect("a number"));
    let numbers = numbers.collect::<Vec<_>>();
    assert!(numbers.len() >= 14, "two for each of seven: {fields:?}");
    numbers.iter().sum()
}

fn wait_for_rewrite(client: &mut Client) {
    eventually("the append-only file is rewritten", || {
        let state = client.info("persistence");
        let busy = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"];
        busy.iter().all(|field| state[*field] == "0").then(|| {
            assert_eq!(state["aof_last_bgrewrite_status"], "ok");
        })
    });
}

#[test]
fn random_traffic_survives_a_crash_in_every_kind_of_file() {
    let snapshot = Server::setup();
    for (number, setup) in [snapshot, append_only("yes"), append_only("no")].into_iter().enumerate()
    {
        let mut server = setup.start();
        let mut client = server.client();
        client.freeze(BASE_US);
        let mut random = Random::new(number as u64 + 1);
        let mut allowed = random_traffic(&mut client, &mut random, 2_000);
        if number > 0 {
            client.run("BGREWRITEAOF");
            wait_for_rewrite(&mut client);
            allowed += random_traffic(&mut client, &mut random, 2_000);
        } else {
            client.ok("SAVE");
        }
        assert!(allowed > 800, "{allowed} calls were allowed");
        let before = client.contents();
        assert!(before.len() > 20, "{} keys", before.len());
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.contents(), before);
        assert_eq!(decisions(&mut client), 0, "loading decides nothing");
    }
}

#[test]
fn rewriting_the_file_under_load_loses_no_permit() {
    const CALLERS: u64 = 3;
    for preamble in ["yes", "no"] {
        let mut server = append_only(preamble).start();
        let allowed = ALGORITHMS.map(|_| AtomicU64::new(0));
        let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| {
                    let mut client = server.client();
                    while !stop.load(Relaxed) {
                        for (algorithm, allowed) in ALGORITHMS.into_iter().zip(&allowed) {
                            allowed.fetch_add(client.allows(&call(algorithm)).into(), Relaxed);
                            calls.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
            let mut client = server.client();
            for _ in 0..3 {
                // Callers also make calls while the server rewrites the file.
                let before = calls.load(Relaxed);
                client.run("BGREWRITEAOF");
                wait_for_rewrite(&mut client);
                eventually("the callers go on", || {
                    (calls.load(Relaxed) > before + 50).then_some(())
                });
            }
            stop.store(true, Relaxed);
        });
        let before = server.client().contents();
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.contents(), before, "preamble {preamble}");
        for (algorithm, allowed) in ALGORITHMS.into_iter().zip(&allowed) {
            let (used, allowed) =
                (BUDGET - remaining(&mut client, algorithm), allowed.load(Relaxed));
            assert_eq!(used, allowed, "{} preamble {preamble}", algorithm.name);
        }
    }
}

/// Makes calls until the server is killed, and counts every acknowledged permit.
fn call_until_it_breaks(
    mut client: Client,
    acknowledged: &[AtomicU64; ALGORITHMS.len()],
    seed: u64,
) {
    let mut random = Random::new(seed);
    loop {
        let index = random.below(ALGORITHMS.len() as u64) as usize;
        let line = call(ALGORITHMS[index]);
        match client.try_call(&line.split(' ').collect::<Vec<_>>()) {
            Ok(reply) => {
                let reply = integers(&reply).unwrap_or_else(|| panic!("{line}: {reply:?}"));
                acknowledged[index].fetch_add(reply[0] as u64, Relaxed);
            }
            Err(_) => return,
        }
    }
}

#[test]
fn kill_during_traffic_loses_no_acknowledged_permit_and_grants_none_twice() {
    const CALLERS: u64 = 4;
    const KILLS: u64 = 5;
    let mut server = append_only("yes").start();
    let acknowledged = ALGORITHMS.map(|_| AtomicU64::new(0));
    let total = || acknowledged.iter().map(|count| count.load(Relaxed)).sum::<u64>();
    for kill in 1..=KILLS {
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (client, acknowledged) = (server.client(), &acknowledged);
                let seed = kill * CALLERS + caller;
                scope.spawn(move || call_until_it_breaks(client, acknowledged, seed));
            }
            let enough = kill * 600;
            eventually("traffic runs", || (total() >= enough).then_some(()));
            server.crash();
        });
        server.start_again();
        let mut client = server.client();
        let mut unacknowledged = 0;
        for (algorithm, acknowledged) in ALGORITHMS.into_iter().zip(&acknowledged) {
            let used = BUDGET - remaining(&mut client, algorithm);
            let acknowledged = acknowledged.load(Relaxed);
            assert!(used >= acknowledged, "{}: {used} < {acknowledged}", algorithm.name);
            unacknowledged += used - acknowledged;
        }
        // Each caller may have one call without a reply at each kill.
        assert!(unacknowledged <= CALLERS * kill, "{unacknowledged} after kill {kill}");
    }
    // The server grants exactly the units left in the states, and no more than the limit in total.
    let mut client = server.client();
    for (algorithm, acknowledged) in ALGORITHMS.into_iter().zip(&acknowledged) {
        let left = remaining(&mut client, algorithm);
        let granted = (0..=left).filter(|_| client.allows(&call(algorithm))).count() as u64;
        assert_eq!(granted, left, "{}", algorithm.name);
        let in_all = acknowledged.load(Relaxed) + granted;
        assert!(in_all <= BUDGET, "{}: {in_all} permits", algorithm.name);
    }
}

#[test]
fn without_an_append_only_file_a_kill_loses_only_the_calls_since_the_snapshot() {
    let mut server = Server::start();
    let mut client = server.client();
    let use_up = |client: &mut Client, cost: u64| {
        for algorithm in ALGORITHMS {
            assert!(client.allows(&format!("{} COST {cost}", call(algorithm))));
        }
    };
    use_up(&mut client, 300);
    client.ok("SAVE");
    let saved = client.contents();
    use_up(&mut client, 500);
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.contents(), saved);
    for algorithm in ALGORITHMS {
        assert_eq!(remaining(&mut client, algorithm), BUDGET - 300, "{}", algorithm.name);
    }
}

#[test]
fn file_replayed_25_years_later_repeats_no_decision() {
    // A clock set to September 2001 writes the file; the real clock replays it.
    const LONG_AGO_US: i64 = 1_000_000_000_000_000;
    let mut server = append_only("no").start();
    let mut client = server.client();
    client.freeze(LONG_AGO_US);
    for algorithm in ALGORITHMS {
        for cost in [2, 2, 2] {
            client.decide(&format!("{} COST {cost}", algorithm.call(algorithm.name, 5, "1h")));
            client.advance_ms(1_000);
        }
    }
    let before = client.contents();
    let inspect = |client: &mut Client| {
        ALGORITHMS.map(|algorithm| client.run(&format!("RL.INSPECT {}", algorithm.name)))
    };
    let inspected = inspect(&mut client);
    server.start_again();
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    assert_eq!(inspect(&mut client), inspected);
    assert_eq!(decisions(&mut client), 0);
    // On the clock that wrote the file, the limits continue where they were.
    for algorithm in ALGORITHMS {
        client.freeze(LONG_AGO_US + 20_000_000);
        let call = algorithm.call(algorithm.name, 5, "1h");
        assert_eq!(client.decide(&format!("{call} COST 2"))[..3], [0, 5, 1], "{call}");
        assert!(client.allows(&call), "{call}");
    }
}

#[test]
fn keys_that_expire_while_the_server_is_down_are_gone_after_its_start() {
    let mut server = append_only("no").without_debug_commands().start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let brief = algorithm.call(&format!("brief:{}", algorithm.name), 1, "20ms");
        assert!(client.allows(&brief));
        assert!(client.allows(&algorithm.call(algorithm.name, 1, "366d")));
    }
    let expiries_ms =
        ALGORITHMS.map(|algorithm| client.integer(&format!("PEXPIRETIME {}", algorithm.name)));
    server.start_again();
    let mut client = server.client();
    for (algorithm, expiry_ms) in ALGORITHMS.into_iter().zip(expiries_ms) {
        let brief = format!("brief:{}", algorithm.name);
        eventually("what is brief expires", || {
            (client.integer(&format!("EXISTS {brief}")) == 0).then_some(())
        });
        assert!(client.allows(&algorithm.call(&brief, 1, "20ms")), "{brief}");
        // The unexpired key did not get a new window.
        assert!(!client.allows(&algorithm.call(algorithm.name, 1, "366d")), "{brief}");
        let after_ms = client.integer(&format!("PEXPIRETIME {}", algorithm.name));
        assert_eq!(after_ms, expiry_ms, "{}", algorithm.name);
    }
}

/// Returns the append-only file that the server is writing to.
fn incremental_file(server: &Server) -> PathBuf {
    let entries = fs::read_dir(server.file("appendonlydir")).expect("a directory");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut files =
        paths.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).collect::<Vec<_>>();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn file_truncated_at_its_end_holds_every_call_but_the_last() {
    for algorithm in ALGORITHMS {
        let mut server = append_only("no").start();
        let mut client = server.client();
        client.freeze(BASE_US);
        for _ in 0..7 {
            client.decide(&algorithm.call("k", 10, "1h"));
            client.advance_ms(1_000);
        }
        let before = client.snapshot("k");
        assert!(client.allows(&algorithm.call("k", 10, "1h")));
        assert_ne!(client.snapshot("k"), before);
        server.crash();
        let path = incremental_file(&server);
        let file = OpenOptions::new().write(true).open(&path).expect("the file");
        let length = file.metadata().expect("its length").len();
        file.set_len(length - 5).expect("the file is cut");
        server.start_again();
        let mut client = server.client();
        assert_eq!(client.snapshot("k"), before, "{}", algorithm.name);
    }
}

#[test]
fn server_without_the_module_reads_rewrites_and_deletes_the_modules_keys() {
    let mut server = append_only("no").start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        for kind in ["kept", "deleted"] {
            let call = algorithm.call(&format!("{}:{kind}", algorithm.name), 5, "366d");
            assert!(client.allows(&format!("{call} COST 3")) && client.allows(&call));
        }
    }
    let before = client.contents();
    server.start_again_as(Setup::without_module);
    let mut client = server.client();
    assert_eq!(client.contents(), before);
    for algorithm in ALGORITHMS {
        let key = |kind: &str| format!("{}:{kind}", algorithm.name);
        assert!(client.error(&algorithm.call(&key("kept"), 5, "366d")).contains("unknown command"));
        assert_eq!(
            client.run(&format!("TYPE {}", key("kept"))),
            Value::SimpleString("string".into())
        );
        // A short MessagePack array whose first element, a negative number, is the state's kind.
        let state = client.bytes(&format!("GET {}", key("kept")));
        assert!(matches!(state[..2], [0x90..=0x9f, 0xe0..=0xff]), "{state:x?}");
        assert_eq!(client.integer(&format!("DEL {}", key("deleted"))), 1);
    }
    client.run("BGREWRITEAOF");
    wait_for_rewrite(&mut client);
    let kept = client.contents();
    server.start_again_as(|setup| setup.module(module::path()));
    let mut client = server.client();
    assert_eq!(client.contents(), kept);
    for algorithm in ALGORITHMS {
        let mut next = |kind: &str| {
            client.decide(&algorithm.call(&format!("{}:{kind}", algorithm.name), 5, "366d"))
        };
        assert_eq!(next("kept")[..3], [1, 5, 0], "{}", algorithm.name);
        assert_eq!(next("deleted")[..3], [1, 5, 4], "{}", algorithm.name);
    }
}
