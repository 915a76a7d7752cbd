//! The module next to other modules, other threads, renamed commands, and users with few rights.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use redis::Value;

use redis_throttle_engine::algorithms::Algorithm as Row;

use support::{ALGORITHMS, Algorithm, Client, Server, eventually, integers, module, text};

/// Units per key. One unit returns in almost nine hours.
const BUDGET: u64 = 1_000;

fn call(algorithm: Algorithm) -> String {
    algorithm.call(algorithm.name, BUDGET, "366d")
}

/// Asserts that exactly `allowed` units were taken of the key that is named after the algorithm.
fn assert_used(client: &mut Client, algorithm: Algorithm, allowed: u64) {
    let peek = algorithm.peek(algorithm.name, BUDGET, "366d");
    let left = client.decide(&format!("{peek} COST 0"))[2] as u64;
    assert_eq!(BUDGET - left, allowed, "{}", algorithm.name);
}

/// Returns the names of the server's modules, sorted.
fn modules(client: &mut Client) -> Vec<String> {
    let Value::Array(modules) = client.run("MODULE LIST") else { panic!("no list") };
    let mut names = modules
        .iter()
        .map(|module| match module {
            Value::Array(fields) => text(&fields[1]),
            other => panic!("{other:?}"),
        })
        .collect::<Vec<_>>();
    names.sort();
    names
}

/// Asserts that the log shows no crash. A reply proves nothing, because some servers still reply
/// for a while after a crash.
fn assert_no_crash(log: &str) {
    for sign in ["BUG REPORT", "panicked", "Guru Meditation", "ASSERTION FAILED"] {
        assert!(!log.contains(sign), "{log}");
    }
}

#[test]
fn second_copy_of_the_module_file_is_refused_with_a_message() {
    let server = Server::start();
    let copy = server.file("another.so");
    fs::copy(module::path(), &copy).expect("a copy");
    let mut client = server.client();
    let before = modules(&mut client);
    assert!(client.allows("RL.GCRA k 2 1 1h"));
    for _ in 0..3 {
        client.error(&format!("MODULE LOAD {}", copy.display()));
        assert_eq!(modules(&mut client), before);
    }
    let log = server.log();
    let is_logged = log.lines().any(|line| line.contains("another.so") && line.contains("failed"));
    assert!(is_logged, "{log}");
    assert_eq!(client.decide("RL.GCRA k 2 1 1h")[..3], [1, 2, 0]);
    assert_eq!(text(&second(client.run("CONFIG GET rl.debug-commands"))), "yes");
    server.assert_alive();
    assert_no_crash(&server.log());
}

/// Returns the value of a reply that has one name and one value.
fn second(value: Value) -> Value {
    match value {
        Value::Array(mut pair) if pair.len() == 2 => pair.remove(1),
        other => panic!("no pair: {other:?}"),
    }
}

#[test]
fn configuration_that_loads_the_module_twice_stops_the_start_with_a_log_line() {
    let again = format!("loadmodule {}", module::path().display());
    let log = Server::setup().line(&again).try_start().err().expect("two loads");
    let path = module::path().display().to_string();
    let is_logged =
        log.lines().any(|line| line.contains(&path) && line.contains("Can't load module"));
    assert!(is_logged, "{log}");
    assert_no_crash(&log);
}

#[test]
fn load_is_refused_if_a_command_name_is_taken_and_registers_nothing() {
    // ECHO is renamed to each of the module's command names in turn.
    let names = Row::ALL.map(Row::command);
    let others = [
        "RL.PEEK",
        "RL.CHARGE",
        "RL.REFUND",
        "RL.RESERVE",
        "RL.COMMIT",
        "RL.CANCEL",
        "RL.ALL",
        "RL.PEEKALL",
        "RL.LEASE",
        "RL.RENEW",
        "RL.RELEASE",
        "RL.USE",
        "RL.POLICY",
        "RL.METRICS",
        "RL.INSPECT",
        "RL.DEBUG",
    ];
    for taken in names.into_iter().chain(others) {
        let line = format!("rename-command ECHO {taken}");
        let server = Server::setup().without_module().line(&line).start();
        let mut client = server.client();
        let before = modules(&mut client);
        for _ in 0..2 {
            client.error(&format!("MODULE LOAD {}", module::path().display()));
            assert_eq!(modules(&mut client), before, "{taken}");
        }
        let log = server.log();
        let named = format!("could not register {}", taken.to_lowercase());
        let is_logged = log.lines().any(|line| line.to_lowercase().contains(&named));
        assert!(is_logged, "{taken}: {log}");
        // The renamed ECHO keeps the name, and none of the module's other commands is registered.
        assert_eq!(text(&client.run(&format!("{taken} hello"))), "hello");
        for ours in names.iter().filter(|name| **name != taken) {
            assert!(client.error(&format!("{ours} k 1 1 1")).contains("unknown command"), "{ours}");
        }
        let Value::Array(settings) = client.run("CONFIG GET rl.*") else { panic!("no list") };
        assert!(settings.is_empty(), "{taken}: {settings:?}");
        server.assert_alive();
        assert_no_crash(&server.log());
    }
}

#[test]
fn taken_command_name_at_the_start_is_logged_and_ends_the_server_without_a_crash() {
    let setup = Server::setup().line("rename-command ECHO RL.GCRA");
    let log = setup.try_start().err().expect("the name is taken");
    assert!(log.to_lowercase().contains("could not register rl.gcra"), "{log}");
    assert_no_crash(&log);
}

#[test]
fn modules_that_come_with_the_server_remain_and_work() {
    let plain = Server::setup().without_module().start();
    let theirs = modules(&mut plain.client());
    let server = Server::start();
    let mut client = server.client();
    let mut all = theirs.clone();
    all.push("rl".to_owned());
    all.sort();
    assert_eq!(modules(&mut client), all);
    // Redis 8 includes vector sets. The module refuses their keys, and both kinds of keys coexist.
    if theirs.iter().any(|name| name == "vectorset") {
        assert_eq!(client.integer("VADD vectors VALUES 2 1 0 one"), 1);
        for algorithm in ALGORITHMS {
            let call = algorithm.call("vectors", 5, "1h");
            assert!(client.error(&call).starts_with("WRONGTYPE"), "{call}");
        }
        assert_eq!(client.integer("VCARD vectors"), 1);
    }
    // Valkey 9 runs Lua as a module: a script's call passes through two modules.
    let script = "return redis.call('RL.FIXED', KEYS[1], 2, '1h')";
    for expected in [[1, 2, 1], [1, 2, 0], [0, 2, 0]] {
        let reply = client.call(&["EVAL", script, "1", "k"]);
        assert_eq!(integers(&reply).expect("a decision")[..3], expected);
    }
}

/// Asserts that every command of the module decides correctly on keys with this prefix.
fn assert_ours_works(client: &mut Client, name: &str) {
    for algorithm in ALGORITHMS {
        let call = algorithm.call(&format!("{name}:{}", algorithm.name), 2, "366d");
        let first_three = [1, 1, 0].map(|_| client.decide(&call)[..3].to_vec());
        assert_eq!(first_three, [[1, 2, 1], [1, 2, 0], [0, 2, 0]], "{call}");
    }
}

/// Asserts that the graph module works, and that its data and the module's are separate.
fn assert_graph_works(client: &mut Client, name: &str) {
    client.call(&["GRAPH.QUERY", name, "CREATE (:Subject {calls: 42})"]);
    let reply = client.call(&["GRAPH.QUERY", name, "MATCH (s:Subject) RETURN s.calls"]);
    let Value::Array(parts) = reply else { panic!("no result: {reply:?}") };
    assert_eq!(parts[1], Value::Array(vec![Value::Array(vec![Value::Int(42)])]));
    for algorithm in ALGORITHMS {
        let call = algorithm.call(name, 2, "366d");
        assert!(client.error(&call).starts_with("WRONGTYPE"), "{call}");
    }
}

#[test]
fn another_module_works_when_loaded_before_or_after_this_one() {
    let ours = module::path().display().to_string();
    let mut orders = vec![vec![ours.clone()]];
    if let Some(graph) = module::neighbour() {
        let graph = graph.display().to_string();
        orders = vec![vec![ours.clone(), graph.clone()], vec![graph, ours.clone()]];
    }
    for order in orders {
        // Loads the modules once by configuration, and once into a running server.
        let mut setup = Server::setup().without_module();
        for path in &order {
            setup = setup.line(&format!("loadmodule {path}"));
        }
        let (configured, running) = (setup.start(), Server::setup().without_module().start());
        for path in &order {
            running.client().ok(&format!("MODULE LOAD {path}"));
        }
        for server in [configured, running] {
            let mut client = server.client();
            assert_ours_works(&mut client, "a");
            if order.len() > 1 {
                assert_graph_works(&mut client, "graph");
                assert_ours_works(&mut client, "b");
            }
            let before = modules(&mut client);
            let loaded = before.iter().filter(|name| ["rl", "graph"].contains(&name.as_str()));
            assert_eq!(loaded.count(), order.len(), "{before:?}");
            // A file that is not a module is refused, and the loaded modules continue to work.
            client.error(&format!("MODULE LOAD {}", server.file("conf").display()));
            assert_eq!(modules(&mut client), before);
            assert_ours_works(&mut client, "c");
            server.assert_alive();
            assert_no_crash(&server.log());
        }
    }
}

#[test]
fn repeated_unloads_under_traffic_are_refused_and_lose_no_permit() {
    const ROUNDS: usize = 20;
    let server = Server::start();
    let allowed = ALGORITHMS.map(|_| AtomicU64::new(0));
    let (stop, decided) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = server.client();
                while !stop.load(Relaxed) {
                    for (algorithm, allowed) in ALGORITHMS.into_iter().zip(&allowed) {
                        let reply = client.decide(&call(algorithm));
                        allowed.fetch_add(reply[0] as u64, Relaxed);
                        decided.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        let mut client = server.client();
        let more = || {
            let before = decided.load(Relaxed);
            eventually("traffic goes on", || (decided.load(Relaxed) > before + 10).then_some(()));
        };
        // Waits for the first cron, which runs up to a tenth of a second after the start.
        client.wait_for_cron();
        for _ in 0..ROUNDS {
            more();
            let error = client.error("MODULE UNLOAD rl");
            assert!(error.contains("operation not possible"), "{error}");
            client.error(&format!("MODULE LOAD {}", module::path().display()));
        }
        more();
        stop.store(true, Relaxed);
    });
    let mut client = server.client();
    for (algorithm, allowed) in ALGORITHMS.into_iter().zip(&allowed) {
        assert_used(&mut client, algorithm, allowed.load(Relaxed));
    }
    server.assert_alive();
    assert_no_crash(&server.log());
}

#[test]
fn limit_of_a_thousand_holds_with_io_threads() {
    const CONNECTIONS: usize = 16;
    const CALLS: usize = 1_250;
    let mut setup = Server::setup().line("io-threads 4");
    let plain = Server::start();
    // Some servers have this setting, and others ignore it or no longer have it.
    let Value::Array(reads) = plain.client().run("CONFIG GET io-threads-do-reads") else {
        panic!("no list")
    };
    if !reads.is_empty() {
        setup = setup.line("io-threads-do-reads yes");
    }
    let server = setup.start();
    assert_eq!(text(&second(server.client().run("CONFIG GET io-threads"))), "4");
    for algorithm in ALGORITHMS {
        let line = call(algorithm);
        let words = line.split(' ').collect::<Vec<_>>();
        let allowed = thread::scope(|scope| {
            let callers = (0..CONNECTIONS).map(|_| {
                scope.spawn(|| {
                    let replies = server.client().pipeline(&vec![words.clone(); CALLS]);
                    let decided = replies.iter().map(|reply| integers(reply).expect("a decision"));
                    decided.filter(|reply| reply[0] == 1).count() as u64
                })
            });
            let callers = callers.collect::<Vec<_>>();
            callers.into_iter().map(|caller| caller.join().unwrap()).sum::<u64>()
        });
        assert_eq!(allowed, BUDGET, "{line}");
        assert_used(&mut server.client(), algorithm, BUDGET);
    }
    server.assert_alive();
    assert_no_crash(&server.log());
}
