//! `CL.THROTTLE`, the command of redis-cell. Clients of redis-cell get the same replies, the module
//! and redis-cell can use the same keys, and inputs that crash a server with redis-cell get a
//! reply.

use redis::{ConnectionAddr, IntoConnectionInfo as _, Value};
use redis_cell_rs::{Cmd, Key, Policy, Verdict};

use support::server::Setup;
use support::{BASE_US, Client, Reply, Server, WRONGTYPE, integers, play, raw_error, text};

/// Configures a server that offers the command of redis-cell.
pub fn setup() -> Setup {
    Server::setup().line("rl.redis-cell yes")
}

const BASE_NS: i64 = BASE_US * 1_000;
const SECOND_NS: i64 = 1_000_000_000;

/// Returns the arrival time stored under a key, parsed as redis-cell does.
pub fn arrival_ns(client: &mut Client, key: &str) -> i64 {
    let digits = String::from_utf8(client.bytes(&format!("GET {key}"))).expect("digits");
    let arrival = digits.parse::<i64>().expect("a number that redis-cell reads");
    assert_eq!(arrival.to_string(), digits, "as redis-cell would write it");
    arrival
}

#[test]
fn replies_equal_those_of_redis_cell() {
    let server = setup().start();
    let mut client = server.client();
    let table: Vec<(i64, &str, Reply)> = vec![
        (0, "CL.THROTTLE user:1 15 30 60", [0, 16, 15, -1, 2]),
        (0, "CL.THROTTLE never 4 1 1 6", [1, 5, 5, -1, 0]),
        (0, "CL.THROTTLE week 6 7 60", [0, 7, 6, -1, 9]),
        (0, "CL.THROTTLE week 6 7 60 1", [0, 7, 5, -1, 18]),
        (0, "cl.throttle week 6 7 60", [0, 7, 4, -1, 26]),
        (0, "CL.THROTTLE week 6 7 60", [0, 7, 3, -1, 35]),
        (0, "CL.THROTTLE week 6 7 60", [0, 7, 2, -1, 43]),
        (0, "CL.THROTTLE week 6 7 60", [0, 7, 1, -1, 52]),
        (0, "CL.THROTTLE week 6 7 60", [0, 7, 0, -1, 60]),
        (0, "CL.THROTTLE week 6 7 60", [1, 7, 0, 9, 60]),
        // A unit returns after 8,571.4 ms: the first call is just before, the second just after.
        (8_571, "CL.THROTTLE week 6 7 60", [1, 7, 0, 1, 52]),
        (8_572, "CL.THROTTLE week 6 7 60", [0, 7, 0, -1, 60]),
        // Two of sixteen units return in four seconds, and the call takes one.
        (1_000, "CL.THROTTLE user:1 15 30 60 3", [0, 16, 12, -1, 7]),
        (5_000, "CL.THROTTLE user:1 15 30 60", [0, 16, 13, -1, 5]),
        (5_000, "CL.THROTTLE user:1 15 30 60 14", [1, 16, 13, 1, 5]),
        (5_000, "CL.THROTTLE user:1 15 30 60 17", [1, 16, 13, -1, 5]),
    ];
    play(&mut client, &table);
}

/// Returns a connection of the client library on which the crate `redis-cell-rs` builds.
fn connection(server: &Server) -> redis::Connection {
    let information = ConnectionAddr::Unix(server.file("socket")).into_connection_info();
    let client = redis::Client::open(information.expect("an address")).expect("a client");
    client.get_connection().expect("a connection")
}

#[test]
fn crate_redis_cell_rs_understands_every_reply() {
    let server = setup().start();
    server.client().freeze(BASE_US);
    let mut connection = connection(&server);
    let minute = std::time::Duration::from_secs(60);
    let policy = Policy::from_tokens_per_period(30, minute).max_burst(1).name("login");
    let mut decide = |key: &Key<'_>, policy: &Policy| -> Verdict {
        redis::Cmd::from(Cmd::new(key, policy)).query(&mut connection).expect("a verdict")
    };
    for key in [Key::pair("user:1", "/login"), "plain".into(), Key::from(7_usize)] {
        for (remaining, reset) in [(1, 2), (0, 4)] {
            let Verdict::Allowed(details) = decide(&key, &policy) else {
                panic!("{key:?} is blocked")
            };
            assert_eq!(
                (details.total, details.remaining, details.reset_after),
                (2, remaining, reset)
            );
        }
        let Verdict::Blocked(details) = decide(&key, &policy) else { panic!("{key:?} is allowed") };
        let reply = (details.total, details.remaining, details.reset_after, details.retry_after);
        assert_eq!(reply, (2, 0, 4, 2), "{key:?}");
    }
    // A policy whose calls cost four tokens.
    let dear = Policy::from_tokens_per_minute(60).max_burst(9).apply_tokens(4);
    for remaining in [6, 2] {
        let Verdict::Allowed(details) = decide(&"dear".into(), &dear) else { panic!("blocked") };
        assert_eq!((details.total, details.remaining), (10, remaining));
    }
    let Verdict::Blocked(details) = decide(&"dear".into(), &dear) else { panic!("allowed") };
    assert_eq!((details.remaining, details.retry_after, details.reset_after), (2, 2, 8));
}

#[test]
fn raw_calls_of_other_clients_get_a_reply() {
    let server = setup().start();
    server.client().freeze(BASE_US);
    // Calls as two other clients send them: text arguments and always a quantity, with RESP2 and
    // RESP3.
    for (key, mut client) in [("mta", server.client()), ("rueidis", server.client3())] {
        let call = ["CL.THROTTLE", key, "1", "10", "60", "1"];
        let replies = [[0, 2, 1, -1, 6], [0, 2, 0, -1, 12], [1, 2, 0, 6, 12]];
        for expected in replies {
            assert_eq!(integers(&client.call(&call)), Some(expected), "{key}");
        }
        // Without a quantity, the call takes one unit.
        assert_eq!(integers(&client.call(&call[..5])), Some(replies[2]), "{key}");
    }
}

/// Returns true if the server has `CL.THROTTLE`. Mail servers check it in this way at their start.
fn is_offered(client: &mut Client) -> bool {
    match client.run("COMMAND INFO CL.THROTTLE") {
        Value::Array(commands) => commands.iter().any(|command| *command != Value::Nil),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cl_throttle_exists_only_if_the_configuration_enables_it() {
    for (line, expected) in
        [(None, false), (Some("rl.redis-cell no"), false), (Some("rl.redis-cell yes"), true)]
    {
        let setup = line.into_iter().fold(Server::setup(), |setup, line| setup.line(line));
        let server = setup.start();
        let mut client = server.client();
        assert_eq!(is_offered(&mut client), expected, "{line:?}");
        let Value::Array(listed) = client.run("COMMAND LIST FILTERBY MODULE rl") else {
            panic!("no list")
        };
        assert_eq!(listed.iter().any(|name| text(name) == "cl.throttle"), expected);
        let counted = client.info("rl").contains_key("rl_throttle_allowed");
        assert_eq!(counted, expected, "{line:?}");
        let reply = client.run("CL.THROTTLE k 15 30 60");
        if expected {
            assert_eq!(integers(&reply).expect("a decision")[..3], [0, 16, 15]);
        } else {
            let error = raw_error(&reply).expect("an error");
            assert!(error.starts_with("ERR unknown command"), "{error}");
        }
    }
}

#[test]
fn redis_cell_setting_is_fixed_when_the_module_loads_and_survives_config_rewrite() {
    let mut server = setup().start();
    let mut client = server.client();
    for value in ["no", "yes"] {
        let error = client.error(&format!("CONFIG SET rl.redis-cell {value}"));
        assert!(error.contains("immutable"), "{error}");
    }
    client.ok("CONFIG REWRITE");
    server.start_again_as_written();
    assert!(is_offered(&mut server.client()));
    assert!(Server::setup().line("rl.redis-cell maybe").try_start().is_err());
}

#[test]
fn load_is_refused_if_redis_cell_has_the_command_name_unless_the_setting_is_off() {
    // Another command has the name, as if redis-cell had been loaded first.
    let taken = "rename-command ECHO CL.THROTTLE";
    let log = setup().line(taken).try_start().err().expect("the name is taken");
    let line = log.lines().find(|line| line.contains("could not register cl.throttle"));
    let line = line.unwrap_or_else(|| panic!("the module says nothing:\n{log}"));
    assert!(line.contains("redis-cell") && line.contains("rl.redis-cell yes"), "{line}");

    let server = Server::setup().without_module().line(taken).start();
    let mut client = server.client();
    let path = support::module::path().display().to_string();
    for _ in 0..2 {
        client.error(&format!("MODULE LOADEX {path} CONFIG rl.redis-cell yes"));
        assert!(client.error("RL.GCRA k 1 1 1").contains("unknown command"));
        client.wait_for_cron();
    }
    client.ok(&format!("MODULE LOAD {path}"));
    assert!(client.allows("RL.GCRA k 1 1 1h"));
    assert_eq!(text(&client.run("CL.THROTTLE theirs")), "theirs");
    server.assert_alive();
}

#[test]
fn module_can_be_loaded_with_the_setting_into_a_running_server() {
    let server = Server::setup().without_module().start();
    let mut client = server.client();
    let path = support::module::path().display().to_string();
    client.ok(&format!("MODULE LOADEX {path} CONFIG rl.redis-cell yes"));
    assert_eq!(client.decide("CL.THROTTLE k 15 30 60")[..3], [0, 16, 15]);
}

/// Writes an arrival time in one of the forms that servers store: as modules write it, or as it is
/// after `SET`, a snapshot or the replay of an append-only file.
fn write_digits(client: &mut Client, key: &str, digits: i64, form: usize) {
    client.integer(&format!("DEL {key}"));
    match form {
        0 => client.ok(&format!("SET {key} {digits} PX 60000")),
        1 => {
            client.integer(&format!("APPEND {key} {digits}"));
            client.integer(&format!("PEXPIRE {key} 60000"));
        }
        _ => client.ok(&format!("SET {key} {digits}")),
    }
}

#[test]
fn states_of_redis_cell_are_understood() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for form in 0..3 {
        // Ten of sixteen units are used, at two seconds each. The second state is a nanosecond
        // less.
        for (before_ns, expected) in [(0, [0, 16, 5, -1, 22]), (1, [0, 16, 5, -1, 22])] {
            write_digits(&mut client, "k", BASE_NS + 20 * SECOND_NS - before_ns, form);
            assert_eq!(client.decide("CL.THROTTLE k 15 30 60"), expected, "form {form}");
            assert_eq!(arrival_ns(&mut client, "k"), BASE_NS + 22 * SECOND_NS - before_ns);
            // The call sets an expiry on a key that has none.
            assert!(client.integer("PEXPIRETIME k") > 0, "form {form}");
        }
        // Denied, because redis-cell allowed all sixteen units before.
        write_digits(&mut client, "k", BASE_NS + 32 * SECOND_NS, form);
        assert_eq!(client.decide("CL.THROTTLE k 15 30 60"), [1, 16, 0, 2, 32], "form {form}");
        // With an arrival time in the past, all units are left.
        for past in [0, 7, BASE_NS - 1, BASE_NS] {
            write_digits(&mut client, "k", past, form);
            assert_eq!(client.decide("CL.THROTTLE k 15 30 60"), [0, 16, 15, -1, 2], "{past}");
        }
        // With an arrival time far in the future, up to the largest, no unit is left.
        write_digits(&mut client, "k", i64::MAX, form);
        assert_eq!(client.decide("CL.THROTTLE k 15 30 60")[..3], [1, 16, 0], "form {form}");
        write_digits(&mut client, "k", i64::MAX, form);
        assert_eq!(arrival_ns(&mut client, "k"), i64::MAX);
    }
}

#[test]
fn states_are_written_in_the_format_of_redis_cell() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for (call, ahead_ns) in [
        ("CL.THROTTLE a 15 30 60", 2 * SECOND_NS),
        ("CL.THROTTLE a 15 30 60 3", 8 * SECOND_NS),
        // The interval is truncated to whole nanoseconds.
        ("CL.THROTTLE b 6 7 60", 8_571_428_571),
        ("CL.THROTTLE b 6 7 60", 17_142_857_142),
        ("CL.THROTTLE c 0 6000 1", 166_666),
        ("CL.THROTTLE d 0 1000000000 1", 1),
    ] {
        assert_eq!(client.decide(call)[0], 0, "{call}");
        let key = call.split(' ').nth(1).expect("a key");
        assert_eq!(arrival_ns(&mut client, key), BASE_NS + ahead_ns, "{call}");
        assert!(client.integer(&format!("PTTL {key}")) > 0, "{call}");
    }
}

/// Makes a call as redis-cell 0.5 does: computes the result here and writes it with plain commands.
fn redis_cell(client: &mut Client, key: &str, now_ns: i64, [max_burst, count, period_s]: [i64; 3]) {
    let interval_ns = period_s * SECOND_NS / count;
    let arrival_ns = match client.run(&format!("GET {key}")) {
        Value::Nil => now_ns,
        value => text(&value).parse::<i64>().expect("what redis-cell can read"),
    };
    let new_ns = arrival_ns.max(now_ns) + interval_ns;
    if new_ns - interval_ns * (max_burst + 1) <= now_ns {
        // redis-cell sets an expiry too. Here it is a day longer, because the clock is frozen.
        let ttl_ms = (new_ns - now_ns) / 1_000_000 + 86_400_000;
        client.ok(&format!("SET {key} {new_ns} PX {ttl_ms}"));
    }
}

#[test]
fn module_and_redis_cell_can_use_a_live_key_in_turn() {
    let server = setup().start();
    let mut client = server.client();
    for rule in [[15, 30, 60], [6, 7, 60], [0, 700, 1], [99, 100_000, 3_600]] {
        let call = |key: &str| format!("CL.THROTTLE {key} {} {} {}", rule[0], rule[1], rule[2]);
        for step in 0..120 {
            let now_us = BASE_US + step * 777_777;
            client.freeze(now_us);
            // Only the module calls the first key. The module and redis-cell call the second in
            // turn.
            let ours = client.decide(&call("ours"));
            if step % 2 == 0 {
                redis_cell(&mut client, "both", now_us * 1_000, rule);
            } else {
                assert_eq!(client.decide(&call("both")), ours, "{rule:?} at step {step}");
            }
            assert_eq!(client.bytes("GET both"), client.bytes("GET ours"), "{rule:?}, {step}");
        }
        client.integer("DEL ours both");
    }
}

#[test]
fn foreign_value_is_refused_and_left_unchanged() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let texts = [
        "hello",
        "",
        "-1",
        "+1",
        "01",
        "00",
        "1.5",
        "1e9",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "1 ",
        "nil",
        "\u{fffd}",
    ];
    for text in texts {
        client.call(&["SET", text, text]);
    }
    client.call(&[&b"SET"[..], b"binary", b"1\xff\x002"]);
    for line in [
        "RPUSH list 1",
        "SADD set 1",
        "ZADD zset 1 1",
        "HSET hash 1 1",
        "XADD stream 1-1 1 1",
        "SETBIT bits 100 1",
        "RL.GCRA gcra 5 5 1h",
        "RL.FIXED fixed 5 1h",
        "RL.LEASE lease a 5 1h",
        "RL.SLIDINGLOG log 5 1h",
        "RL.RESERVE reserved id 1h FIXED 5 1h",
        "RL.BACKOFF bo 1 1 1 2",
        "RL.TOKENBUCKET bucket 5 5 1h",
        "RL.LEAKYBUCKET leaky 5 5 1h",
        "RL.SLIDING sliding 5 1h",
        "RL.QUOTA quota 5 day",
    ] {
        assert_eq!(raw_error(&client.run(line)), None, "{line}");
    }
    let before = client.contents();
    let changes = client.changes();
    assert!(before.len() > 25, "{} keys", before.len());
    for (key, ..) in &before {
        for rest in [&["15", "30", "60"][..], &["15", "30", "60", "0"], &["4", "1", "1", "6"]] {
            let rest = rest.iter().map(|word| word.as_bytes());
            let call: Vec<_> = [b"CL.THROTTLE", &key[..]].into_iter().chain(rest).collect();
            assert_eq!(raw_error(&client.call(&call)).as_deref(), Some(WRONGTYPE), "{call:?}");
        }
    }
    assert_eq!(client.contents(), before);
    assert_eq!(client.changes(), changes);
    server.assert_alive();
    // The key with which users of redis-cell reported a crash.
    client.ok("SET k hello");
    assert_eq!(client.error("CL.THROTTLE k 15 30 60"), WRONGTYPE);
    assert_eq!(client.bytes("GET k"), b"hello");
}

#[test]
fn other_commands_refuse_keys_of_redis_cell() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert_eq!(client.decide("CL.THROTTLE k 15 30 60")[0], 0);
    let before = client.snapshot("k");
    let changes = client.changes();
    for algorithm in support::ALGORITHMS {
        let (call, peek) = (algorithm.call("k", 5, "60"), algorithm.peek("k", 5, "60"));
        assert_eq!(client.error(&call), WRONGTYPE, "{call}");
        assert_eq!(client.error(&peek), WRONGTYPE, "{peek}");
    }
    for line in [
        "RL.CHARGE k GCRA 5 5 60",
        "RL.REFUND k GCRA 5 5 60",
        "RL.BACKOFF k 1 1 1 2",
        "RL.QUOTA k 5 day",
        "RL.LEASE k a 5 60",
        "RL.RESERVE k a 60 FIXED 5 60",
    ] {
        assert_eq!(client.error(line), WRONGTYPE, "{line}");
    }
    let inspected = client.error("RL.INSPECT k");
    assert_eq!(inspected, "WRONGTYPE the key does not hold a rate limiter's state");
    let both = client.call(&["RL.ALL", "k", "GCRA 5 5 60"]);
    assert!(raw_error(&both).expect("an error").starts_with("WRONGTYPE rule 1"), "{both:?}");
    // THROTTLE is not an algorithm, so no rule can use it.
    assert!(client.error("RL.PEEK k THROTTLE 15 30 60").contains("invalid algorithm"));
    assert_eq!(client.snapshot("k"), before);
    assert_eq!(client.changes(), changes);
}

#[test]
fn high_rates_are_limited_exactly() {
    let server = setup().start();
    let mut client = server.client();
    for (rule, interval_us) in [("0 6000 1", 167), ("0 700000 1000", 1_429)] {
        let call = format!("CL.THROTTLE k {rule}");
        client.freeze(BASE_US);
        let mut allowed = 0;
        // A call every microsecond for ten milliseconds.
        for at_us in 0..10_000 {
            client.freeze(BASE_US + at_us);
            allowed += i64::from(client.decide(&call)[0] == 0);
        }
        assert_eq!(allowed, 10_000_i64.div_euclid(interval_us) + 1, "{call}");
        client.integer("DEL k");
    }
    // On the real clock, a key expires at most 1.001 ms after its arrival time.
    client.integer("RL.DEBUG CLOCK RESUME");
    for rule in ["0 6000 1", "0 700000 1000", "0 1000 1", "2 7 1"] {
        for _ in 0..50 {
            client.ok("MULTI");
            for line in ["DEL k", &format!("CL.THROTTLE k {rule}"), "GET k", "PEXPIRETIME k"] {
                client.run(line);
            }
            let Value::Array(replies) = client.run("EXEC") else { panic!("no EXEC") };
            assert_eq!(integers(&replies[1]).expect("a decision")[0], 0);
            let arrival_ns = text(&replies[2]).parse::<i64>().expect("a number");
            let Value::Int(expires_ms) = replies[3] else { panic!("{replies:?}") };
            let excess_ns = expires_ms * 1_000_000 - arrival_ns;
            assert!((0..1_001_000).contains(&excess_ns), "{rule}: {excess_ns} ns");
        }
    }
}

#[test]
fn negative_and_impossible_numbers_are_errors_and_change_nothing() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert_eq!(client.decide("CL.THROTTLE k 15 30 60 10"), [0, 16, 6, -1, 20]);
    let (before, changes) = (client.snapshot("k"), client.changes());
    let burst = "ERR invalid max_burst: expected an integer from 0 to 999999999999";
    let count = "ERR invalid count_per_period: expected an integer from 1 to 1000000000000";
    let period = "ERR invalid period: expected whole seconds, an integer from 1 to 31622400";
    let quantity = "ERR invalid quantity: expected an integer from 0 to 1000000000000";
    let too_fast = "ERR invalid count_per_period: count_per_period / period must not exceed \
         1000000000 per second";
    let too_long = "ERR invalid max_burst: (max_burst + 1) x period / count_per_period, the time \
         to refill from empty, must not exceed 36525d";
    let rows = [
        // If these numbers were accepted, a call would return units or, with a rate of zero, always
        // be allowed.
        ("15 30 60 -1", quantity),
        ("15 30 60 -9223372036854775808", quantity),
        ("-1 30 60", burst),
        ("15 0 60", count),
        ("15 -30 60", count),
        ("15 30 0", period),
        ("15 30 -60", period),
        // Arguments that would overflow.
        ("9223372036854775807 30 60", burst),
        ("999999999999 1 31622400", too_long),
        ("15 9223372036854775807 60", count),
        ("15 30 9223372036854775807", period),
        ("15 30 60 9223372036854775807", quantity),
        ("15 1000000001 1", too_fast),
        // Texts that are not integers.
        ("15 30 60 1.5", quantity),
        ("15 30 60s", period),
        ("x x x x", burst),
    ];
    for (arguments, expected) in rows {
        assert_eq!(client.error(&format!("CL.THROTTLE k {arguments}")), expected, "{arguments}");
        assert_eq!(client.error(&format!("CL.THROTTLE new {arguments}")), expected);
    }
    for line in ["CL.THROTTLE", "CL.THROTTLE k", "CL.THROTTLE k 15 30", "CL.THROTTLE k 1 1 1 1 1"] {
        let error = client.error(line).to_lowercase();
        assert_eq!(error, "err wrong number of arguments for 'cl.throttle' command", "{line}");
    }
    assert_eq!(client.snapshot("k"), before);
    assert_eq!(client.changes(), changes);
    assert_eq!(client.integer("DBSIZE"), 1);
    server.assert_alive();
}

#[test]
fn quantity_of_zero_writes_nothing() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert_eq!(client.decide("CL.THROTTLE new 15 30 60 0"), [0, 16, 16, -1, 0]);
    assert_eq!(client.integer("DBSIZE"), 0);
    assert_eq!(client.decide("CL.THROTTLE k 15 30 60 16"), [0, 16, 0, -1, 32]);
    let (before, changes) = (client.snapshot("k"), client.changes());
    assert_eq!(client.decide("CL.THROTTLE k 15 30 60 0"), [0, 16, 0, -1, 32]);
    // After the limit is lowered, the debt exceeds it.
    assert_eq!(client.decide("CL.THROTTLE k 5 30 60 0"), [1, 6, 0, 20, 32]);
    assert_eq!(client.snapshot("k"), before);
    assert_eq!(client.changes(), changes);
}

#[test]
fn calls_with_any_key_and_any_byte_in_any_argument_get_a_reply() {
    let server = setup().start();
    let mut client = server.client();
    // redis-cell accepts only UTF-8 keys, and crashes the server on others.
    let keys: [&[u8]; 5] = [b"", b"\xff\xfe", b"a\0b", b"%s%n", b"a\r\nb"];
    for key in keys {
        for expected in [1, 0] {
            let reply = client.call(&[b"CL.THROTTLE", key, b"1", b"1", b"60"]);
            assert_eq!(integers(&reply).expect("a decision")[..3], [0, 2, expected], "{key:?}");
        }
    }
    assert_eq!(client.integer("DBSIZE"), 5);
    client.ok("FLUSHALL");
    let template = ["CL.THROTTLE", "k", "15", "30", "60", "1"].map(|word| word.as_bytes().to_vec());
    let mut calls = Vec::new();
    for place in 1..template.len() {
        for byte in 0..=255 {
            let (mut replaced, mut inserted) = (template.to_vec(), template.to_vec());
            replaced[place] = vec![byte];
            inserted[place].insert(1, byte);
            calls.extend([replaced, inserted]);
        }
    }
    for (call, reply) in calls.iter().zip(client.pipeline(&calls)) {
        if let Some([limited, limit, remaining, retry_s, reset_s]) = integers(&reply) {
            assert!((0..=1).contains(&limited) && (0..=limit).contains(&remaining), "{call:?}");
            assert!((retry_s == -1 || retry_s > 0) && reset_s >= 0, "{call:?}: {reply:?}");
        } else {
            let error = raw_error(&reply).unwrap_or_else(|| panic!("{call:?}: {reply:?}"));
            assert!(error.starts_with("ERR invalid "), "{call:?}: {error}");
        }
    }
    server.assert_alive();
}

#[test]
fn every_call_is_counted_as_allowed_denied_or_error() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for call in ["1 1 60", "1 1 60", "1 1 60", "1 1 60 0", "1 1 60 3", "1 1 60 -1"] {
        client.run(&format!("CL.THROTTLE k {call}"));
    }
    let counted = ["rl_throttle_allowed", "rl_throttle_denied", "rl_errors", "rl_gcra_allowed"]
        .map(|name| client.info_number("rl", name));
    assert_eq!(counted, [3, 2, 1, 0]);
}

/// A state dumped by Redis 7.0. Its arrival time is two seconds after [`BASE_US`].
const GOLDEN: &str = "0013313830303030303030323030303030303030300a00cec228fabee25f6a";

#[test]
fn payload_of_redis_7_0_loads_and_is_still_written() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let pairs = (0..GOLDEN.len()).step_by(2);
    let dump: Vec<u8> =
        pairs.map(|at| u8::from_str_radix(&GOLDEN[at..at + 2], 16).expect("two digits")).collect();
    assert_eq!(client.call(&[&b"RESTORE"[..], b"golden", b"0", &dump]), Value::Okay);
    assert_eq!(client.decide("CL.THROTTLE golden 15 30 60 0"), [0, 16, 15, -1, 2]);
    assert_eq!(client.decide("CL.THROTTLE k 15 30 60"), [0, 16, 15, -1, 2]);
    assert_eq!(client.bytes("GET k"), client.bytes("GET golden"));
}
