//! The module refuses to be unloaded once it has been loaded. Servers keep pointers to its
//! commands, for queued and blocked calls, and would follow them into freed memory.

use redis::Value;

use support::{ALGORITHMS, BASE_US, Client, Server, eventually, integers, module};

/// The server's error if the module refuses to be unloaded.
const REFUSED: &str = "ERR Error unloading module: operation not possible";

/// The beginning of the module's log line for this refusal.
const LOGGED: &str = "redis-throttle stays loaded";

fn assert_refused(server: &Server, client: &mut Client) {
    let refusals = |log: String| log.lines().filter(|line| line.contains(LOGGED)).count();
    let before = refusals(server.log());
    let error = client.error("MODULE UNLOAD rl");
    assert!(error.starts_with(REFUSED), "{error}");
    let log = server.log();
    assert_eq!(refusals(log.clone()), before + 1, "{log}");
    let line = log.lines().rfind(|line| line.contains(LOGGED)).expect("a line");
    assert!(
        line.contains("MULTI") && line.contains("restart"),
        "it says why and what to do: {line}"
    );
}

#[test]
fn unload_is_refused_after_the_first_cron() {
    let server = Server::start();
    let mut client = server.client();
    client.wait_for_cron();
    client.freeze(BASE_US);
    assert!(client.allows("RL.GCRA k 2 1 1h"));
    for round in 0..3 {
        assert_refused(&server, &mut client);
        // Settings, counters, the frozen clock and the states are unchanged.
        assert_eq!(client.integer("RL.DEBUG CLOCK FREEZE"), BASE_US);
        assert_eq!(client.info_number("rl", "rl_gcra_allowed"), 1);
        assert_eq!(client.decide("RL.PEEK k GCRA 2 1 1h")[..3], [1, 2, 0], "round {round}");
    }
    server.assert_alive();
}

#[test]
fn call_queued_in_multi_is_served_after_a_refused_unload() {
    let server = Server::start();
    let (mut queueing, mut unloading) = (server.client(), server.client());
    unloading.wait_for_cron();
    for algorithm in ALGORITHMS {
        queueing.ok("MULTI");
        let call = algorithm.call(algorithm.name, 5, "1h");
        assert_eq!(support::text(&queueing.run(&call)), "QUEUED");
        assert_refused(&server, &mut unloading);
        // A load before EXEC must not replace the command either.
        unloading.error(&format!("MODULE LOAD {}", module::path().display()));
        let Value::Array(replies) = queueing.run("EXEC") else { panic!("no replies") };
        assert_eq!(integers(&replies[0]).expect("a decision")[..3], [1, 5, 4], "{call}");
    }
    server.assert_alive();
}

#[test]
fn call_that_waits_for_the_end_of_a_pause_is_served_after_a_refused_unload() {
    let server = Server::start();
    let mut operator = server.client();
    operator.wait_for_cron();
    operator.ok("CLIENT PAUSE 60000 WRITE");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.client().decide("RL.FIXED k 5 1h"));
        eventually("the call waits", || {
            let clients = support::text(&operator.run("CLIENT LIST"));
            clients.contains("cmd=rl.fixed").then_some(())
        });
        assert_refused(&server, &mut operator);
        operator.ok("CLIENT UNPAUSE");
        assert_eq!(waiting.join().expect("a reply")[..3], [1, 5, 4]);
    });
    server.assert_alive();
}

#[test]
fn load_with_an_unknown_option_leaves_no_module_loaded() {
    let server = Server::setup().without_module().start();
    let mut client = server.client();
    let path = module::path().display();
    for options in [
        "CONFIG rl.bogus 1",
        "CONFIG rl.sliding-log-slots 64 CONFIG rl.bogus 1",
        "CONFIG rl.sliding-log-slots 5",
    ] {
        for _ in 0..3 {
            client.error(&format!("MODULE LOADEX {path} {options}"));
            assert!(client.error("RL.GCRA k 1 1 1").contains("unknown command"), "{options}");
            let Value::Array(left) = client.run("CONFIG GET rl.*") else { panic!("no array") };
            assert!(left.is_empty(), "{options} left {left:?}");
            client.wait_for_cron();
        }
    }
    assert!(!server.log().contains(LOGGED), "the server took it back itself:\n{}", server.log());
    // Afterwards the server accepts a valid load.
    client.ok(&format!("MODULE LOADEX {path} CONFIG rl.sliding-log-slots 64"));
    assert!(client.allows("RL.GCRA k 1 1 1h"));
    client.wait_for_cron();
    assert_refused(&server, &mut client);
    server.assert_alive();
}

#[test]
fn unload_is_refused_before_the_first_cron() {
    // With one cron per second, the load, the queued call and the unload all come before the first.
    let server = Server::setup().without_module().line("hz 1").line("dynamic-hz no").start();
    let (mut queueing, mut operator) = (server.client(), server.client());
    operator.wait_for_cron();
    operator.ok(&format!("MODULE LOAD {}", module::path().display()));
    queueing.ok("MULTI");
    queueing.run("RL.FIXED k 5 1h");
    assert_refused(&server, &mut operator);
    let Value::Array(replies) = queueing.run("EXEC") else { panic!("no replies") };
    assert_eq!(integers(&replies[0]).expect("a decision")[..3], [1, 5, 4]);
    server.assert_alive();
}

#[test]
fn unload_in_the_pipeline_or_transaction_of_the_load_is_refused() {
    let path = module::path().display().to_string();
    let load = ["MODULE", "LOAD", &path];
    let calls: [&[&[&str]]; 3] = [
        &[&load, &["MODULE", "UNLOAD", "rl"]],
        &[&load, &["MULTI"], &["MODULE", "UNLOAD", "rl"], &["PING"], &["EXEC"]],
        &[&["MULTI"], &load, &["MODULE", "UNLOAD", "rl"], &["EXEC"]],
    ];
    for calls in calls {
        let server = Server::setup().without_module().line("hz 1").line("dynamic-hz no").start();
        let mut client = server.client();
        client.wait_for_cron();
        let calls = calls.iter().map(|call| call.to_vec()).collect::<Vec<_>>();
        let replies = format!("{:?}", client.pipeline(&calls));
        assert!(replies.contains("operation not possible"), "{calls:?}: {replies}");
        assert!(client.allows("RL.GCRA k 1 1 1h"));
        server.assert_alive();
    }
}

#[test]
fn orderly_shutdown_logs_no_error() {
    for end in [&["SHUTDOWN", "NOSAVE"][..], &["SHUTDOWN", "SAVE"]] {
        let mut server = Server::start();
        let mut client = server.client();
        client.wait_for_cron();
        assert!(client.allows("RL.GCRA k 1 1 1h"));
        assert!(client.try_call(end).is_err(), "the server is gone");
        assert!(server.wait_for_end().success(), "{end:?}:\n{}", server.log());
        let log = server.log();
        for alarm in [LOGGED, "OnUnload failed", "Failed to unload"] {
            assert!(!log.contains(alarm), "{end:?}: {alarm}\n{log}");
        }
    }
}

#[test]
fn after_a_failed_shutdown_the_module_still_refuses_to_be_unloaded() {
    let server = Server::setup().line("enable-protected-configs yes").start();
    let mut client = server.client();
    let gone = server.file("gone");
    std::fs::create_dir(&gone).expect("a folder");
    client.ok(&format!("CONFIG SET dir {}", gone.display()));
    std::fs::remove_dir(&gone).expect("an empty folder");
    client.wait_for_cron();
    assert!(client.error("SHUTDOWN SAVE").starts_with("ERR"));
    // The log file was in the folder that was removed, so only the reply is checked.
    assert!(client.error("MODULE UNLOAD rl").starts_with(REFUSED));
    assert!(client.allows("RL.GCRA k 1 1 1h"));
    server.assert_alive();
}
