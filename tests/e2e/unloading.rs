//! The module stays once it has served: servers keep pointers to its commands, in queues of MULTI
//! and for calls that wait, and would follow them into memory that is gone.

use redis::Value;

use crate::support::{ALGORITHMS, BASE_US, Client, Server, eventually, integers, module};

/// The server's own words for an unload that the module refuses.
const REFUSED: &str = "ERR Error unloading module: operation not possible";

/// The start of our line in the log about it.
const TOLD: &str = "redis-throttle stays loaded";

fn assert_refused(server: &Server, client: &mut Client) {
    let refusals = |log: String| log.lines().filter(|line| line.contains(TOLD)).count();
    let before = refusals(server.log());
    let error = client.error("MODULE UNLOAD rl");
    assert!(error.starts_with(REFUSED), "{error}");
    let log = server.log();
    assert_eq!(refusals(log.clone()), before + 1, "{log}");
    let line = log.lines().rfind(|line| line.contains(TOLD)).expect("a line");
    assert!(
        line.contains("MULTI") && line.contains("restart"),
        "it says why and what to do: {line}"
    );
}

#[test]
fn an_unload_is_refused_from_the_first_cron_on() {
    let server = Server::start();
    let mut client = server.client();
    client.wait_for_cron();
    client.freeze(BASE_US);
    assert!(client.allows("RL.GCRA k 2 1 1h"));
    for round in 0..3 {
        assert_refused(&server, &mut client);
        // Everything is as it was: settings, counters, the stopped clock, the states.
        assert_eq!(client.integer("RL.DEBUG CLOCK FREEZE"), BASE_US);
        assert_eq!(client.info_number("rl", "rl_gcra_allowed"), 1);
        assert_eq!(client.decide("RL.PEEK k GCRA 2 1 1h")[..3], [1, 2, 0], "round {round}");
    }
    server.assert_alive();
}

#[test]
fn a_call_that_waits_in_multi_is_served_after_an_unload_was_asked_for() {
    let server = Server::start();
    let (mut queueing, mut unloading) = (server.client(), server.client());
    unloading.wait_for_cron();
    for algorithm in ALGORITHMS {
        queueing.ok("MULTI");
        let call = algorithm.call(algorithm.name, 5, "1h");
        assert_eq!(crate::support::text(&queueing.run(&call)), "QUEUED");
        assert_refused(&server, &mut unloading);
        // A load in between must not put another command in its place either.
        unloading.error(&format!("MODULE LOAD {}", module::path().display()));
        let Value::Array(replies) = queueing.run("EXEC") else { panic!("no replies") };
        assert_eq!(integers(&replies[0]).expect("a decision")[..3], [1, 5, 4], "{call}");
    }
    server.assert_alive();
}

#[test]
fn a_call_that_waits_under_a_pause_is_served_after_an_unload_was_asked_for() {
    let server = Server::start();
    let mut operator = server.client();
    operator.wait_for_cron();
    operator.ok("CLIENT PAUSE 60000 WRITE");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.client().decide("RL.FIXED k 5 1h"));
        eventually("the call waits", || {
            let clients = crate::support::text(&operator.run("CLIENT LIST"));
            clients.contains("cmd=rl.fixed").then_some(())
        });
        assert_refused(&server, &mut operator);
        operator.ok("CLIENT UNPAUSE");
        assert_eq!(waiting.join().expect("a reply")[..3], [1, 5, 4]);
    });
    server.assert_alive();
}

#[test]
fn a_load_with_an_unknown_option_leaves_no_module_behind() {
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
    assert!(!server.log().contains(TOLD), "the server took it back itself:\n{}", server.log());
    // And the server takes a right one after that.
    client.ok(&format!("MODULE LOADEX {path} CONFIG rl.sliding-log-slots 64"));
    assert!(client.allows("RL.GCRA k 1 1 1h"));
    client.wait_for_cron();
    assert_refused(&server, &mut client);
    server.assert_alive();
}

#[test]
fn where_the_server_tells_its_time_an_unload_is_refused_before_the_first_cron_too() {
    // One cron a second: the load, the queue and the unload all come before it.
    let server = Server::setup().without_module().line("hz 1").line("dynamic-hz no").start();
    let (mut queueing, mut operator) = (server.client(), server.client());
    operator.wait_for_cron();
    operator.ok(&format!("MODULE LOAD {}", module::path().display()));
    let tells = operator.info("rl")["rl_clock_source"] == "server";
    if !tells {
        // Redis 7.0: only the cron settles it, so that all one can say is what happens after.
        operator.wait_for_cron();
    }
    queueing.ok("MULTI");
    queueing.run("RL.FIXED k 5 1h");
    assert_refused(&server, &mut operator);
    let Value::Array(replies) = queueing.run("EXEC") else { panic!("no replies") };
    assert_eq!(integers(&replies[0]).expect("a decision")[..3], [1, 5, 4]);
    server.assert_alive();
}
