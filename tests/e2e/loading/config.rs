//! The `rl.*` settings in CONFIG GET, SET and REWRITE, and in the configuration file.

use std::fs;

use redis::Value;

use support::{BASE_US, Client, Server, text};

fn get(client: &mut Client, name: &str) -> String {
    match client.run(&format!("CONFIG GET {name}")) {
        Value::Array(pair) if pair.len() == 2 => text(&pair[1]),
        other => panic!("CONFIG GET {name}: {other:?}"),
    }
}

#[test]
fn defaults_are_the_documented_values() {
    let server = Server::setup().without_debug_commands().start();
    let mut client = server.client();
    assert_eq!(get(&mut client, "rl.debug-commands"), "no");
    assert_eq!(get(&mut client, "rl.sliding-log-slots"), "1024");
    assert_eq!(get(&mut client, "rl.near-limit-percent"), "20");
    assert_eq!(get(&mut client, "rl.policy-file"), "");
    assert_eq!(get(&mut client, "rl.redis-cell"), "no");
    assert_eq!(get(&mut client, "rl.gcra"), "no");
    assert_eq!(get(&mut client, "rl.top-slots"), "512");
    assert_eq!(get(&mut client, "rl.top-half-life"), "10m");
    let Value::Array(all) = client.run("CONFIG GET rl.*") else { panic!("no array") };
    assert_eq!(all.len(), 16, "eight options and nothing else: {all:?}");
}

#[test]
fn configuration_file_sets_debug_commands_and_sliding_log_slots() {
    let server = Server::setup().line("rl.sliding-log-slots 64").start();
    let mut client = server.client();
    assert_eq!(get(&mut client, "rl.debug-commands"), "yes");
    assert_eq!(get(&mut client, "rl.sliding-log-slots"), "64");
}

#[test]
fn sliding_log_slots_outside_their_bounds_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    for accepted in ["16", "65536", "17", "1024"] {
        client.ok(&format!("CONFIG SET rl.sliding-log-slots {accepted}"));
        assert_eq!(get(&mut client, "rl.sliding-log-slots"), accepted);
    }
    for refused in ["15", "65537", "0", "-16", "many", "16.5", "1e3", "99999999999999999999"] {
        let error = client.error(&format!("CONFIG SET rl.sliding-log-slots {refused}"));
        assert!(error.contains("rl.sliding-log-slots"), "{refused}: {error}");
        assert_eq!(get(&mut client, "rl.sliding-log-slots"), "1024", "{refused}");
    }
}

#[test]
fn near_limit_percent_must_be_an_integer_from_0_to_100() {
    let server = Server::setup().line("rl.near-limit-percent 100").start();
    let mut client = server.client();
    for accepted in ["100", "0", "1", "20"] {
        if accepted != "100" {
            client.ok(&format!("CONFIG SET rl.near-limit-percent {accepted}"));
        }
        assert_eq!(get(&mut client, "rl.near-limit-percent"), accepted);
    }
    for refused in ["-1", "101", "256", "half", "0.5", "1e1", "99999999999999999999"] {
        let error = client.error(&format!("CONFIG SET rl.near-limit-percent {refused}"));
        assert!(error.contains("rl.near-limit-percent"), "{refused}: {error}");
        assert_eq!(get(&mut client, "rl.near-limit-percent"), "20", "{refused}");
    }
}

#[test]
fn debug_commands_cannot_be_changed_while_the_server_runs() {
    let server = Server::start();
    let mut client = server.client();
    for value in ["no", "yes"] {
        let error = client.error(&format!("CONFIG SET rl.debug-commands {value}"));
        assert!(error.contains("immutable"), "{error}");
    }
    assert_eq!(get(&mut client, "rl.debug-commands"), "yes");
}

#[test]
fn sliding_log_is_exact_with_a_slot_per_unit_and_rounds_times_up_with_fewer_slots() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US + 300_000);
    // The log is exact: the units return ten seconds after they were used.
    client.ok("CONFIG SET rl.sliding-log-slots 20");
    assert_eq!(client.decide("RL.SLIDINGLOG exact 20 10 COST 20"), [1, 20, 0, 0, 10_000]);
    assert_eq!(client.decide("RL.SLIDINGLOG exact 20 10"), [0, 20, 0, 10_000, 10_000]);
    // With sixteen slots of 625 ms, units used at 0.3 s count as used at the end of their slot.
    client.ok("CONFIG SET rl.sliding-log-slots 16");
    assert_eq!(client.decide("RL.SLIDINGLOG rounded 20 10 COST 20"), [1, 20, 0, 0, 10_325]);
    assert_eq!(client.decide("RL.SLIDINGLOG rounded 20 10"), [0, 20, 0, 10_325, 10_325]);
    // With at most as many units as slots the log is still exact.
    assert_eq!(client.decide("RL.SLIDINGLOG few 16 10 COST 16"), [1, 16, 0, 0, 10_000]);
}

#[test]
fn rewritten_configuration_starts_the_same_server_again() {
    let mut server = Server::start();
    let mut client = server.client();
    client.ok("CONFIG SET rl.sliding-log-slots 512");
    client.ok("CONFIG REWRITE");
    let written = fs::read_to_string(server.file("conf")).expect("a configuration");
    assert!(written.contains("rl.sliding-log-slots 512"), "{written}");
    assert!(written.contains("rl.debug-commands yes"), "{written}");
    assert_eq!(written.matches("loadmodule ").count(), 1, "{written}");
    server.start_again_as_written();
    let mut client = server.client();
    assert_eq!(get(&mut client, "rl.sliding-log-slots"), "512");
    assert_eq!(get(&mut client, "rl.debug-commands"), "yes");
}
