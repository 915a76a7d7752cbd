//! Tests every error text word for word, and that an error changes nothing.

use support::{ALGORITHMS, BASE_US, Client, Server, raw_error};

const COST: &str = "ERR invalid cost: expected an integer from 0 to 1000000000000";
const MISSING_COST: &str =
    "ERR missing cost: expected COST followed by an integer from 0 to 1000000000000";
const OPTION: &str = "ERR invalid option: expected COST n, PARTIAL or LEAVE n";
const FIXED_OPTION: &str = "ERR invalid option: expected COST n, PARTIAL, LEAVE n or ALIGNED";
const LOG_OPTION: &str = "ERR invalid option: expected COST n, PARTIAL, LEAVE n or SLOTS n";
const REPEATED_COST: &str = "ERR repeated option: COST may be given once";
const REPEATED_ALIGNED: &str = "ERR repeated option: ALIGNED may be given once";
const RATE_BOUND: &str = "ERR invalid rate: rate / period must not exceed 1000000000 per second";
const ALGORITHM: &str = "ERR invalid algorithm: expected FIXED, SLIDING, SLIDINGLOG, \
     TOKENBUCKET, LEAKYBUCKET, GCRA, BACKOFF, QUOTA, LEASE, RESERVE or USE";

fn invalid_integer(name: &str) -> String {
    format!("ERR invalid {name}: expected an integer from 1 to 1000000000000")
}

fn invalid_duration(name: &str) -> String {
    format!(
        "ERR invalid {name}: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h"
    )
}

fn too_long_to_refill(name: &str) -> String {
    format!(
        "ERR invalid {name}: {name} x period / rate, the time to refill from empty, \
         must not exceed 36525d"
    )
}

/// Asserts the error of a call and of its PEEK, and that the server holds no key afterwards.
fn assert_errors(client: &mut Client, command: &str, rows: &[(&str, &str)]) {
    let name = command.strip_prefix("RL.").expect("one of our commands");
    for (arguments, expected) in rows {
        let call = format!("{command} k {arguments}");
        assert_eq!(client.error(&call), *expected, "{call}");
        let peek = format!("RL.PEEK k {name} {arguments}");
        assert_eq!(client.error(&peek), *expected, "{peek}");
    }
    assert_eq!(client.integer("DBSIZE"), 0, "{command}: an error has written");
}

#[test]
fn every_wrong_argument_of_the_window_algorithms_has_its_own_text() {
    let server = Server::start();
    let mut client = server.client();
    let (limit, window) = (invalid_integer("limit"), invalid_duration("window"));
    let (limit, window) = (limit.as_str(), window.as_str());
    for command in ["RL.FIXED", "RL.SLIDING", "RL.SLIDINGLOG"] {
        let option = match command {
            "RL.FIXED" => FIXED_OPTION,
            "RL.SLIDINGLOG" => LOG_OPTION,
            _ => OPTION,
        };
        let rows = [
            // The error names the leftmost wrong argument.
            ("0 60", limit),
            ("x x COST x", limit),
            ("5 x COST x", window),
            ("5 0 WRONG", window),
            ("5 60 COST x", COST),
            ("5 60 COST", MISSING_COST),
            // The word after COST is its value, even if it is COST.
            ("5 60 COST COST", COST),
            ("5 60 COST 1 COST 1", REPEATED_COST),
            ("5 60 COST 1 cost", REPEATED_COST),
            ("5 60 WRONG", option),
            ("5 60 1", option),
            ("5 60 COST 1 WRONG", option),
            ("5 60 WRONG COST x", option),
            ("5 60 COSTS 1", option),
            ("5 60 COS 1", option),
        ];
        assert_errors(&mut client, command, &rows);
    }
}

#[test]
fn every_wrong_argument_of_the_rate_algorithms_has_its_own_text() {
    let server = Server::start();
    let mut client = server.client();
    let (rate, period) = (invalid_integer("rate"), invalid_duration("period"));
    let (rate, period) = (rate.as_str(), period.as_str());
    for command in ["RL.TOKENBUCKET", "RL.LEAKYBUCKET", "RL.GCRA"] {
        let name = if command == "RL.GCRA" { "burst" } else { "capacity" };
        let (first, refill) = (invalid_integer(name), too_long_to_refill(name));
        let (first, refill) = (first.as_str(), refill.as_str());
        let rows = [
            ("0 1 60", first),
            ("x x x", first),
            ("5 0 x", rate),
            ("5 1 x COST x", period),
            // One more than 1,000,000,000 per second, in two spellings.
            ("5 1000000001 1", RATE_BOUND),
            ("5 1000001 1ms", RATE_BOUND),
            ("5 1000000001 1 WRONG", RATE_BOUND),
            // The refill takes a second longer than a hundred years. The rate is checked first.
            ("3155760001 1 1", refill),
            ("100 1 366d", refill),
            ("1000000000000 1 366d COST x", refill),
            ("5 1 60 COST -1", COST),
            ("5 1 60 COST", MISSING_COST),
            ("5 1 60 COST 1 COST 1", REPEATED_COST),
            ("5 1 60 ALIGNED", OPTION),
            ("5 1 60 WRONG", OPTION),
        ];
        assert_errors(&mut client, command, &rows);
    }
}

#[test]
fn aligned_is_accepted_once_and_only_by_the_fixed_window() {
    let server = Server::start();
    let mut client = server.client();
    let rows = [
        ("5 60 ALIGNED ALIGNED", REPEATED_ALIGNED),
        ("5 60 ALIGNED COST 1 aligned", REPEATED_ALIGNED),
        ("5 60 ALIGNED COST 1 COST 1", REPEATED_COST),
        ("5 60 COST ALIGNED", COST),
        ("5 60 ALIGNED COST", MISSING_COST),
        ("5 60 ALIGN", FIXED_OPTION),
    ];
    assert_errors(&mut client, "RL.FIXED", &rows);
    assert_errors(&mut client, "RL.SLIDING", &[("5 60 ALIGNED", OPTION)]);
    assert_errors(&mut client, "RL.SLIDINGLOG", &[("5 60 ALIGNED", LOG_OPTION)]);
}

#[test]
fn only_the_sliding_log_takes_slots() {
    let server = Server::start();
    let mut client = server.client();
    let slots = "ERR invalid slots: expected an integer from 16 to 65536";
    let missing = "ERR missing slots: expected SLOTS followed by an integer from 16 to 65536";
    let repeated = "ERR repeated option: SLOTS may be given once";
    let rows = [
        ("5 60 SLOTS", missing),
        ("5 60 COST 1 slots", missing),
        ("5 60 SLOTS 15", slots),
        ("5 60 SLOTS 65537", slots),
        ("5 60 SLOTS -16", slots),
        ("5 60 SLOTS SLOTS 16", slots),
        ("5 60 SLOTS COST 1", slots),
        ("5 60 SLOTS 16 SLOTS 16", repeated),
        ("5 60 SLOTS 16 COST 1 slots 17", repeated),
        ("5 60 SLOTS 16 COST x", COST),
        ("5 60 SLOTS 16 16", LOG_OPTION),
    ];
    assert_errors(&mut client, "RL.SLIDINGLOG", &rows);
    assert_errors(&mut client, "RL.FIXED", &[("5 60 SLOTS 16", FIXED_OPTION)]);
    assert_errors(&mut client, "RL.SLIDING", &[("5 60 SLOTS 16", OPTION)]);
    assert_errors(&mut client, "RL.GCRA", &[("5 1 60 SLOTS 16", OPTION)]);
    let of_policy = "ERR invalid option: a policy's rule takes only ALIGNED after FIXED, SLOTS \
         after SLIDINGLOG, ZONE and START after QUOTA";
    let rows = [
        ("RL.CHARGE k SLIDINGLOG 5 60 SLOTS 15", slots),
        ("RL.REFUND k SLIDINGLOG 5 60 SLOTS", missing),
        ("RL.USE k p DEFAULT SLIDINGLOG 5 60 SLOTS 15", slots),
        ("RL.POLICY SET p SLIDINGLOG 5 60 SLOTS 65537", slots),
        ("RL.POLICY SET p SLIDING 5 60 SLOTS 16", of_policy),
        // The slots belong to the rule, so a call of a policy has none.
        (
            "RL.USE k p SLOTS 16",
            "ERR invalid option: expected COST n, PARTIAL, LEAVE n, FOR variant or DEFAULT rule",
        ),
    ];
    for (call, expected) in rows {
        assert_eq!(client.error(call), expected, "{call}");
    }
    let reply = client.call(&["RL.ALL", "k", "SLIDINGLOG 5 60 SLOTS 16 SLOTS 16"]);
    let expected = repeated.replacen("ERR ", "ERR rule 1: ", 1);
    assert_eq!(raw_error(&reply), Some(expected));
}

#[test]
fn peek_error_names_every_algorithm() {
    let server = Server::start();
    let mut client = server.client();
    for word in ["WRONG", "RL.GCRA", "GCRA2", "FIX", "*", "0"] {
        assert_eq!(client.error(&format!("RL.PEEK k {word} 5 1 60")), ALGORITHM, "{word}");
    }
    assert_eq!(raw_error(&client.call(&["RL.PEEK", "k", "", "5", "60"])).unwrap(), ALGORITHM);
}

#[test]
fn error_lists_every_algorithm_or_option_that_is_valid_there() {
    let server = Server::start();
    let mut client = server.client();
    client.ok("RL.POLICY SET slow BACKOFF 3 1s 8s 1h");
    let of_policy =
        "ERR invalid option: COST, PARTIAL and LEAVE belong to a call, not to a policy's rule";
    let rows = [
        (
            "RL.USE k p DEFAULT USE p",
            "ERR invalid algorithm: expected FIXED, SLIDING, SLIDINGLOG, TOKENBUCKET, LEAKYBUCKET, \
             GCRA, BACKOFF or QUOTA after DEFAULT",
        ),
        (
            "RL.POLICY SET p LEASE me 5 60",
            "ERR invalid rule: expected FIXED, SLIDING, SLIDINGLOG, TOKENBUCKET, LEAKYBUCKET, \
             GCRA, BACKOFF or QUOTA, optionally after SHADOW, OFF, BLOCK, ENFORCE percent or EX \
             duration",
        ),
        (
            "RL.USE k p WRONG",
            "ERR invalid option: expected COST n, PARTIAL, LEAVE n, FOR variant or DEFAULT rule",
        ),
        (
            "RL.USE k slow COST 1",
            "ERR invalid option: the policy's rule is BACKOFF, which takes no COST, PARTIAL or \
             LEAVE",
        ),
        (
            "RL.QUOTA k 5 day WRONG",
            "ERR invalid option: expected ZONE name, START n, COST n, PARTIAL or LEAVE n",
        ),
        ("RL.USE k p DEFAULT GCRA 5 5 1h COST 1", of_policy),
        ("RL.POLICY SET p GCRA 6 10 60 PARTIAL", of_policy),
    ];
    for (call, expected) in rows {
        assert_eq!(client.error(call), expected, "{call}");
    }
}

#[test]
fn error_of_rl_all_for_an_incomplete_rule_lists_the_arguments_that_the_rule_takes() {
    let server = Server::start();
    let mut client = server.client();
    #[rustfmt::skip]
    let rules = [
        "FIXED limit window", "SLIDING limit window", "SLIDINGLOG limit window",
        "TOKENBUCKET capacity rate period", "LEAKYBUCKET capacity rate period",
        "GCRA burst rate period", "BACKOFF attempts base max forget", "QUOTA limit unit",
    ];
    for rule in rules {
        let (name, _) = rule.split_once(' ').expect("a name and arguments");
        let error = raw_error(&client.call(&["RL.ALL", "k", name]));
        let expected = format!("ERR rule 1: wrong number of arguments: expected {rule}");
        assert_eq!(error, Some(expected), "{name}");
    }
}

#[test]
fn integers_may_contain_only_digits() {
    #[rustfmt::skip]
    let wrong = [
        "0", "00", "-1", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "1,000", "", "-",
        "1000000000001", "9223372036854775808", "18446744073709551617", "١", "1\0", "\n1",
        "340282366920938463463374607431768211457", "nan", "∞", "1k",
    ];
    let server = Server::start();
    let mut client = server.client();
    for word in wrong {
        let reply = client.call(&["RL.FIXED", "k", word, "60"]);
        assert_eq!(raw_error(&reply), Some(invalid_integer("limit")), "limit {word:?}");
        let reply = client.call(&["RL.GCRA", "k", "1", word, "60"]);
        assert_eq!(raw_error(&reply), Some(invalid_integer("rate")), "rate {word:?}");
        if !matches!(word, "0" | "00") {
            let reply = client.call(&["RL.GCRA", "k", "1", "1", "60", "COST", word]);
            assert_eq!(raw_error(&reply).as_deref(), Some(COST), "cost {word:?}");
        }
    }
    // The bounds of integers are accepted, and so are leading zeros.
    let largest = "1000000000000";
    let zeros = format!("{}1", "0".repeat(60));
    for word in ["1", largest, &zeros] {
        assert!(client.allows(&format!("RL.FIXED {word} {word} 60 COST 1")), "{word}");
    }
    assert_eq!(client.decide(&format!("RL.FIXED c {largest} 60 COST {largest}"))[2], 0);
}

#[test]
fn durations_are_decimal_numbers_from_one_millisecond_to_366_days() {
    #[rustfmt::skip]
    let wrong = [
        "0", "0ms", "0.0", "0.9ms", "0.000999", "0.9999ms", "366.000001d", "367d", "31622401",
        "8785h", "1e3", "+1", "-1", "-1s", " 1", "1 ", "1 s", "1.", ".5", ".", "", "s", "ms",
        "1..5", "1.5.5", "1,5", "1S", "1MS", "1M", "1H", "1D", "1us", "1ns", "1w", "1y", "1sec",
        "1min", "1h30m", "0x10", "1_0", "0.0000001", "1.0000000", "1.0000005s", "1.0005ms",
        "1.000001ms", "nan", "inf", "1m s", "60\0", "99999999999999999999999999d",
    ];
    let server = Server::start();
    let mut client = server.client();
    for word in wrong {
        let reply = client.call(&["RL.FIXED", "k", "5", word]);
        assert_eq!(raw_error(&reply), Some(invalid_duration("window")), "window {word:?}");
        let reply = client.call(&["RL.GCRA", "k", "5", "1", word]);
        assert_eq!(raw_error(&reply), Some(invalid_duration("period")), "period {word:?}");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn largest_arguments_that_fit_together_are_accepted() {
    let server = Server::start();
    let mut client = server.client();
    let accepted = [
        // 1,000,000,000 per second, in two spellings.
        "5 1000000000 1",
        "5 1000000 1ms",
        // A refill of a hundred years, in two spellings.
        "3155760000 1 1",
        "99 1 366d",
        "1000000000000 1000000000000 1000",
    ];
    for command in ["RL.TOKENBUCKET", "RL.LEAKYBUCKET", "RL.GCRA"] {
        for (row, arguments) in accepted.iter().enumerate() {
            let reply = client.decide(&format!("{command} {command}:{row} {arguments}"));
            assert_eq!(reply[0], 1, "{command} {arguments}: {reply:?}");
        }
    }
    for command in ["RL.FIXED", "RL.SLIDING", "RL.SLIDINGLOG"] {
        let call = format!("{command} {command} 1000000000000 366d COST 1000000000000");
        assert_eq!(client.decide(&call)[..3], [1, 1_000_000_000_000, 0], "{command}");
    }
}

#[test]
fn wrong_number_of_arguments_gets_the_servers_own_text() {
    let server = Server::start();
    let mut client = server.client();
    #[rustfmt::skip]
    let calls = [
        "RL.FIXED", "RL.FIXED k", "RL.FIXED k 5", "RL.SLIDING k 5", "RL.SLIDINGLOG k 5",
        "RL.TOKENBUCKET k 5 1", "RL.LEAKYBUCKET k 5 1", "RL.GCRA", "RL.GCRA k 5 1", "RL.PEEK",
        "RL.PEEK k", "RL.PEEK k FIXED 5", "RL.PEEK k GCRA 5 1", "RL.PEEK k TOKENBUCKET 5 1",
        "RL.INSPECT", "RL.INSPECT k k", "RL.DEBUG", "RL.DEBUG CLOCK ADVANCE",
        "RL.DEBUG CLOCK ADVANCE 1s 1s", "RL.DEBUG CLOCK FREEZE 1 1", "RL.DEBUG CLOCK RESUME 1",
    ];
    for call in calls {
        let command = call.split(' ').next().unwrap().to_lowercase();
        let expected = format!("err wrong number of arguments for '{command}' command");
        assert_eq!(client.error(call).to_lowercase(), expected, "{call}");
    }
}

#[test]
fn error_leaves_an_existing_state_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for algorithm in ALGORITHMS {
        let call = algorithm.call("k", 5, "1h");
        assert!(client.allows(&call));
        let before = client.snapshot("k");
        let changes = client.changes();
        let wrong = ["COST x", "COST", "COST 1 COST 1", "WRONG", "COST 99999999999999999999"];
        for option in wrong {
            client.error(&format!("{call} {option}"));
            assert_eq!(client.snapshot("k"), before, "{call} {option}");
        }
        assert_eq!(client.changes(), changes, "{call}");
        client.integer("DEL k");
    }
}

#[test]
fn error_never_repeats_the_clients_bytes() {
    let server = Server::start();
    let mut client = server.client();
    // Format directives, a line break that would forge a reply, invalid UTF-8, and a NUL byte.
    let secrets: [&[u8]; 4] = [b"%s%n%x-s3cret", b"s3cret\r\n+OK", b"s3cret\xff\xfe", b"s3cret\0"];
    for secret in secrets {
        let calls: [&[&[u8]]; 6] = [
            &[b"RL.FIXED", secret, secret, b"60"],
            &[b"RL.FIXED", secret, b"5", secret],
            &[b"RL.FIXED", secret, b"5", b"60", secret],
            &[b"RL.PEEK", secret, secret, b"5", b"60"],
            &[b"RL.DEBUG", secret, secret, secret],
            &[b"RL.DEBUG", b"CLOCK", secret],
        ];
        for call in calls {
            let error = raw_error(&client.call(call)).expect("an error");
            assert!(!error.contains("s3cret"), "{error}");
            assert!(error.is_ascii(), "{error}");
        }
    }
    assert!(!server.log().contains("s3cret"), "the log repeats what a client sent");
    server.assert_alive();
}
