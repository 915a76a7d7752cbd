//! Tests `RL.DEBUG CLOCK`: its actions, and that it works only where the configuration enables it.

use redis::Value;

use support::{ALGORITHMS, BASE_US, Client, Server, raw_error};

/// The last instant to which the clock can be set: the year 2200.
const LAST_US: i64 = 7_258_118_400_000_000;

const DISABLED: &str = "ERR RL.DEBUG is disabled: set rl.debug-commands yes in the server's \
     configuration and restart";
const SUBCOMMAND: &str = "ERR invalid subcommand: expected CLOCK";
const ACTION: &str =
    "ERR invalid clock action: expected FREEZE [unix-us], ADVANCE duration or RESUME";
const UNIX_US: &str = "ERR invalid unix-us: expected an integer from 0 to 7258118400000000";
const DURATION: &str = "ERR invalid duration: expected a duration from 1ms to 366d, such as 60, \
     0.5, 500ms or 1h, with a leading - to move back";
const RANGE: &str = "ERR invalid duration: the clock must stay between the years 1970 and 2200";

/// Half a minute: more than a busy machine needs between two calls.
const SLACK_US: i64 = 30_000_000;

fn frozen(client: &mut Client) -> i64 {
    client.info_number("rl", "rl_clock_frozen")
}

#[test]
fn debug_clock_works_only_if_the_configuration_enables_it() {
    let server = Server::setup().without_debug_commands().start();
    let mut client = server.client();
    let actions = ["FREEZE", "FREEZE 0", "ADVANCE 1h", "ADVANCE -1h", "RESUME"];
    for action in actions {
        let call = format!("RL.DEBUG CLOCK {action}");
        assert_eq!(client.error(&call), DISABLED, "{call}");
        client.ok("MULTI");
        client.run(&call);
        let reply = client.run("EXEC");
        let Value::Array(replies) = &reply else { panic!("{call}: {reply:?}") };
        assert_eq!(raw_error(&replies[0]).as_deref(), Some(DISABLED), "{call}");
        let script = format!("return redis.call('RL.DEBUG', 'CLOCK', '{}')", action);
        assert!(raw_error(&client.call(&["EVAL", script.as_str(), "0"])).is_some(), "{call}");
    }
    client.error("CONFIG SET rl.debug-commands yes");
    assert_eq!(client.error("RL.DEBUG CLOCK FREEZE"), DISABLED);
    assert_eq!(frozen(&mut client), 0);
}

#[test]
fn every_action_returns_the_modules_time_in_microseconds() {
    let server = Server::start();
    let mut client = server.client();
    let rows = [
        // A frozen clock stays at the instant it was set to.
        ("FREEZE 1000000", 1_000_000),
        ("FREEZE", 1_000_000),
        // ADVANCE moves it by durations in every unit, forwards and backwards.
        ("ADVANCE 1ms", 1_001_000),
        ("advance 0.5", 1_501_000),
        ("ADVANCE 1.5ms", 1_502_500),
        ("ADVANCE -1s", 502_500),
        ("ADVANCE 366d", 31_622_400_502_500),
        ("ADVANCE -366d", 502_500),
        ("ADVANCE -502.5ms", 0),
        // The first and the last instant of its range.
        ("freeze 7258118400000000", LAST_US),
        ("FREEZE 0", 0),
        ("FREEZE 007", 7),
    ];
    for (row, (action, expected)) in rows.into_iter().enumerate() {
        let reply = client.integer(&format!("rl.debug clock {action}"));
        assert_eq!(reply, expected, "row {row}: {action}");
    }
}

#[test]
fn clock_shows_the_real_time_until_it_is_frozen_or_moved() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(frozen(&mut client), 0);
    let real_us = client.server_time_us();
    let stopped_us = client.integer("RL.DEBUG CLOCK FREEZE");
    assert!((real_us - 1_000_000..real_us + SLACK_US).contains(&stopped_us));
    assert_eq!(frozen(&mut client), 1);
    assert_eq!(client.integer("RL.DEBUG CLOCK FREEZE"), stopped_us, "it stands still");

    let real_us = client.server_time_us();
    let resumed_us = client.integer("RL.DEBUG CLOCK RESUME");
    assert!((real_us - 1_000_000..real_us + SLACK_US).contains(&resumed_us));
    assert_eq!(frozen(&mut client), 0);

    // Moving a running clock stops it first.
    let moved_us = client.integer("RL.DEBUG CLOCK ADVANCE -1h");
    assert!((real_us..real_us + SLACK_US).contains(&(moved_us + 3_600_000_000)));
    assert_eq!(frozen(&mut client), 1);
    assert_eq!(client.integer("RL.DEBUG CLOCK ADVANCE 1h"), moved_us + 3_600_000_000);
    client.integer("RL.DEBUG CLOCK RESUME");
    assert_eq!(frozen(&mut client), 0);
}

#[test]
fn all_connections_share_one_clock() {
    let server = Server::start();
    let (mut traveller, mut caller) = (server.client(), server.client());
    traveller.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        let call = algorithm.call(algorithm.name, 1, "10");
        let first = caller.decide(&call);
        assert_eq!(first[0], 1, "{call}");
        assert_eq!(caller.decide(&call)[0], 0, "{call}: nothing comes back by itself");
        traveller.advance_ms(first[4]);
        assert_eq!(caller.decide(&call)[0], 1, "{call}: all comes back by travelling");
    }
}

#[test]
fn real_time_applies_again_after_resume() {
    let server = Server::start();
    let mut client = server.client();
    for algorithm in ALGORITHMS {
        let call = algorithm.call(algorithm.name, 1, "1h");
        // Uses units at a time that is a year ago. By the real time, they have long returned.
        let year_ago_us = client.server_time_us() - 365 * 86_400_000_000;
        client.freeze(year_ago_us);
        assert!(client.allows(&call), "{call}");
        assert!(!client.allows(&call), "{call}");
        client.integer("RL.DEBUG CLOCK RESUME");
        assert!(client.allows(&call), "{call}");
        assert!(!client.allows(&call), "{call}");
    }
}

#[test]
fn restart_forgets_a_frozen_clock() {
    let mut server = Server::start();
    server.client().freeze(BASE_US);
    server.start_again();
    assert_eq!(frozen(&mut server.client()), 0);
}

#[test]
fn invalid_debug_calls_get_an_error_that_says_what_is_expected_and_do_not_move_the_clock() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let rows = [
        ("WRONG FREEZE", SUBCOMMAND),
        ("CLOCKS FREEZE", SUBCOMMAND),
        // PANIC exists only in the build for tests of panics, not in the released module.
        ("PANIC parse", SUBCOMMAND),
        ("CLOCK WRONG", ACTION),
        ("CLOCK FREEZED", ACTION),
        ("CLOCK 0", ACTION),
        ("CLOCK FREEZE -1", UNIX_US),
        ("CLOCK FREEZE 7258118400000001", UNIX_US),
        ("CLOCK FREEZE 1e3", UNIX_US),
        ("CLOCK FREEZE now", UNIX_US),
        ("CLOCK FREEZE 99999999999999999999999", UNIX_US),
        ("CLOCK ADVANCE 0", DURATION),
        ("CLOCK ADVANCE -0", DURATION),
        ("CLOCK ADVANCE +1", DURATION),
        ("CLOCK ADVANCE --1", DURATION),
        ("CLOCK ADVANCE -", DURATION),
        ("CLOCK ADVANCE 367d", DURATION),
        ("CLOCK ADVANCE 1S", DURATION),
        ("CLOCK ADVANCE soon", DURATION),
    ];
    for (words, expected) in rows {
        assert_eq!(client.error(&format!("RL.DEBUG {words}")), expected, "{words}");
        assert_eq!(client.integer("RL.DEBUG CLOCK FREEZE"), BASE_US, "{words} moved the clock");
    }
}

#[test]
fn clock_cannot_leave_its_range() {
    let server = Server::start();
    let mut client = server.client();
    for (at_us, step) in [(0, "-1ms"), (999, "-1ms"), (LAST_US, "1ms"), (LAST_US - 999, "1ms")] {
        client.freeze(at_us);
        assert_eq!(client.error(&format!("RL.DEBUG CLOCK ADVANCE {step}")), RANGE, "{at_us}");
        assert_eq!(client.integer("RL.DEBUG CLOCK FREEZE"), at_us);
    }
    // A refused ADVANCE does not stop a running clock.
    client.integer("RL.DEBUG CLOCK RESUME");
    client.error("RL.DEBUG CLOCK ADVANCE soon");
    assert_eq!(frozen(&mut client), 0);
}

#[test]
fn every_algorithm_works_at_the_first_and_the_last_instant() {
    let server = Server::start();
    let mut client = server.client();
    for at_us in [0, 1, LAST_US - 1, LAST_US] {
        for algorithm in ALGORITHMS {
            client.freeze(at_us);
            for period in ["1ms", "60", "366d"] {
                let call = algorithm.call("k", 3, period);
                for expected in [[1, 3, 2], [1, 3, 1], [1, 3, 0], [0, 3, 0]] {
                    assert_eq!(client.decide(&call)[..3], expected, "{call} at {at_us}");
                }
                client.integer("DEL k");
            }
        }
    }
    server.assert_alive();
}
