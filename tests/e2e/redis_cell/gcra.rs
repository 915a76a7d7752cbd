//! `GCRA`, the command that Redis has merged but not released. Clients that have its API get the
//! replies and errors that they know.

use redis::Value;

use super::replies::arrival_ns;
use support::server::Setup;
use support::{BASE_US, Client, Reply, Server, WRONGTYPE, integers, module, play, raw_error, text};

/// Configures a server that offers the command.
fn setup() -> Setup {
    Server::setup().line("rl.gcra yes")
}

const BASE_NS: i64 = BASE_US * 1_000;
const SECOND_NS: i64 = 1_000_000_000;

const INTEGER: &str = "ERR value is not an integer or out of range";
const TOKENS: &str = "ERR value is out of range, value must between 1 and 9223372036854775807";
const BURST: &str = "ERR value is out of range, must be positive";
const FLOAT: &str = "ERR value is not a valid float";
const PERIOD: &str = "ERR period must be > 0 and < 1e12";
const SYNTAX: &str = "ERR syntax error";
const MISSING: &str = "ERR Missing TOKENS value";
const ARITY: &str = "ERR wrong number of arguments for 'gcra' command";
const BEYOND: &str = "ERR invalid max-burst, tokens-per-period or period: expected max-burst up to \
    999999999999, up to 1000000000 tokens per second, and up to 36525d to refill max-burst + 1 \
    tokens";

/// The calls and replies of the design, and those of fractions of a second.
fn table() -> Vec<(i64, &'static str, Reply)> {
    vec![
        (0, "GCRA k 5 10 60", [0, 6, 5, -1, 6]),
        (0, "GCRA k 5 10 60", [0, 6, 4, -1, 12]),
        (0, "gcra k 5 10 60 tokens 1", [0, 6, 3, -1, 18]),
        (0, "GCRA k 5 10 60.000000000", [0, 6, 2, -1, 24]),
        (0, "GCRA k 5 10 60 TOKENS 1", [0, 6, 1, -1, 30]),
        (0, "GCRA k 5 10 60", [0, 6, 0, -1, 36]),
        (0, "GCRA k 5 10 60", [1, 6, 0, 6, 36]),
        (0, "GCRA k 5 10 60 TOKENS 6", [1, 6, 0, 36, 36]),
        (0, "GCRA k 5 10 60 TOKENS 7", [1, 6, 0, -1, 36]),
        (0, "GCRA k 5 10 60 TOKENS 9223372036854775807", [1, 6, 0, -1, 36]),
        // A rest of a millisecond is a second.
        (1, "GCRA k 5 10 60", [1, 6, 0, 6, 36]),
        (5_999, "GCRA k 5 10 60", [1, 6, 0, 1, 31]),
        (6_000, "GCRA k 5 10 60", [0, 6, 0, -1, 36]),
        // Exactly 1.0001 s per unit. CL.THROTTLE would return 1.
        (6_000, "GCRA slow 0 10000 10001", [0, 1, 0, -1, 2]),
        // A period of more than six decimals is rounded up to a microsecond: 0.5 s and 1 us.
        (6_000, "GCRA half 0 1 0.5", [0, 1, 0, -1, 1]),
        (6_500, "GCRA half 0 1 0.5", [0, 1, 0, -1, 1]),
        (6_500, "GCRA more 0 1 0.500000000001", [0, 1, 0, -1, 1]),
        (7_000, "GCRA more 0 1 0.500000000001", [1, 1, 0, 1, 1]),
        // The largest count that fits, and one more.
        (7_000, "GCRA all 5 10 60 TOKENS 6", [0, 6, 0, -1, 36]),
        (7_000, "GCRA none 5 10 60 TOKENS 7", [1, 6, 6, -1, 0]),
        // A century to refill.
        (7_000, "GCRA century 0 1 3155760000", [0, 1, 0, -1, 3_155_760_000]),
    ]
}

#[test]
fn replies_match_the_design_in_resp2_and_resp3() {
    let server = setup().start();
    for mut client in [server.client(), server.client3()] {
        play(&mut client, &table());
        client.ok("FLUSHALL");
    }
}

#[test]
fn errors_match_redis_in_its_order_and_change_nothing() {
    let server = setup().start();
    for mut client in [server.client(), server.client3()] {
        client.freeze(BASE_US);
        assert_eq!(client.decide("GCRA k 5 10 60 TOKENS 2"), [0, 6, 4, -1, 12]);
        client.ok("SET text hello");
        let (before, changes) = (client.contents(), client.changes());
        let rows = [
            ("", ARITY),
            (" k 5 10", ARITY),
            (" k 5 10 60 TOKENS 1 TOKENS", ARITY),
            (" k x x x x x x", ARITY),
            (" k -1 10 60", BURST),
            (" k x x x x", BURST),
            (" k 9223372036854775808 10 60", BURST),
            (" k 05 10 60", BURST),
            (" k 5 x x x", INTEGER),
            (" k 5 10.5 60", INTEGER),
            (" k 5 9223372036854775808 60", INTEGER),
            (" k 5 0 x", TOKENS),
            (" k 5 -1 60", TOKENS),
            (" k 5 10 x x", FLOAT),
            (" k 5 10 1e3", FLOAT),
            (" k 5 10 60s", FLOAT),
            (" k 5 10 .5", FLOAT),
            (" k 5 10 0 x", PERIOD),
            (" k 5 10 -60", PERIOD),
            (" k 5 10 1000000000000", PERIOD),
            (" k 5 10 60 COST", SYNTAX),
            (" k 5 10 60 1", SYNTAX),
            (" k 5 10 60 COST 1", SYNTAX),
            (" k 5 10 60 TOKENS", MISSING),
            (" k 5 10 60 TOKENS x", INTEGER),
            (" k 5 10 60 TOKENS 0", TOKENS),
            (" k 5 10 60 TOKENS -1", TOKENS),
            // The key comes next, and the limits of the module last.
            (" text 5 10 60 COST 1", SYNTAX),
            (" text 5 10 60", WRONGTYPE),
            (" text 9223372036854775807 10 60", WRONGTYPE),
            (" k 1000000000000 10 60", BEYOND),
            (" k 9223372036854775807 9223372036854775807 60", BEYOND),
            (" k 5 1000000001 1", BEYOND),
            (" k 0 1 3155760000.0000001", BEYOND),
            (" new 5 10 999999999999.9999999", BEYOND),
        ];
        for (arguments, expected) in rows {
            let error = client.error(&format!("GCRA{arguments}"));
            // Servers write the command's name as it was sent, or in lower case.
            let error = if error.contains("'GCRA'") { error.to_lowercase() } else { error };
            let is_expected = error == expected || error == expected.to_lowercase();
            assert!(is_expected, "{arguments}: {error}");
        }
        assert_eq!(client.contents(), before);
        assert_eq!(client.changes(), changes);
        client.ok("FLUSHALL");
    }
    server.assert_alive();
}

/// Does what `RGcra` of Redisson does: reads the limits as text and calls the command.
const REDISSON: &str = "local config = redis.call('HMGET', KEYS[2], 'maxBurst', 'rate', 'period') \
    if ARGV[1] == '1' then \
        return redis.call('GCRA', KEYS[1], config[1], config[2], config[3]) \
    end \
    return redis.call('GCRA', KEYS[1], config[1], config[2], config[3], 'TOKENS', ARGV[1])";

#[test]
fn script_of_redisson_runs() {
    let server = setup().start();
    for mut client in [server.client(), server.client3()] {
        client.freeze(BASE_US);
        client.call(&["HSET", "{api}:config", "maxBurst", "5", "rate", "10", "period", "60"]);
        let mut call_with = |tokens| {
            let call = ["EVAL", REDISSON, "2", "{api}", "{api}:config", tokens];
            client.call(&call)
        };
        for expected in [[0, 6, 5, -1, 6], [0, 6, 4, -1, 12]] {
            assert_eq!(integers(&call_with("1")), Some(expected));
        }
        assert_eq!(integers(&call_with("4")), Some([0, 6, 0, -1, 36]));
        assert_eq!(integers(&call_with("1")), Some([1, 6, 0, 6, 36]));
        assert_eq!(integers(&call_with("7")), Some([1, 6, 0, -1, 36]));
        let error = raw_error(&call_with("0")).expect("an error");
        assert!(error.starts_with(TOKENS), "{error}");
        // Redisson stores the period with nine decimals.
        client.call(&["HSET", "{api}:config", "period", "60.000000000"]);
        let call = ["EVAL", REDISSON, "2", "{api}", "{api}:config", "1"];
        assert_eq!(integers(&client.call(&call)), Some([1, 6, 0, 6, 36]));
        client.ok("FLUSHALL");
    }
}

#[test]
fn calls_as_rueidis_and_valkey_go_send_them_get_a_decision() {
    let server = setup().start();
    let mut client = server.client3();
    client.freeze(BASE_US);
    for (call, expected) in [
        (["GCRA", "k", "1", "2", "0.5", "TOKENS", "2"], [0, 2, 0, -1, 1]),
        (["GCRA", "k", "1", "2", "0.5", "TOKENS", "1"], [1, 2, 0, 1, 1]),
    ] {
        assert_eq!(integers(&client.call(&call)), Some(expected), "{call:?}");
    }
}

#[test]
fn state_is_that_of_cl_throttle_and_both_commands_may_use_one_key() {
    let server = setup().line("rl.redis-cell yes").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert_eq!(client.decide("GCRA k 15 30 60"), [0, 16, 15, -1, 2]);
    assert_eq!(arrival_ns(&mut client, "k"), BASE_NS + 2 * SECOND_NS);
    assert_eq!(client.decide("CL.THROTTLE k 15 30 60"), [0, 16, 14, -1, 4]);
    assert_eq!(client.decide("GCRA k 15 30 60"), [0, 16, 13, -1, 6]);
    assert_eq!(arrival_ns(&mut client, "k"), BASE_NS + 6 * SECOND_NS);
    // The key expires at its arrival time, rounded up, also one that had no expiry.
    client.ok(&format!("SET k {}", BASE_NS + 6 * SECOND_NS));
    assert_eq!(client.decide("GCRA k 15 30 60")[..3], [0, 16, 12]);
    assert!(client.integer("PEXPIRETIME k") > 0);
    // Other commands of the module refuse the key.
    assert_eq!(client.error("RL.GCRA k 16 30 60"), WRONGTYPE);
    client.integer("DEL k");
    assert!(client.allows("RL.GCRA k 16 30 60"));
    assert_eq!(client.error("GCRA k 15 30 60"), WRONGTYPE);
}

/// A state dumped by Redis 7.0. Its arrival time is two seconds after [`BASE_US`].
const GOLDEN: &str = "0013313830303030303030323030303030303030300a00cec228fabee25f6a";

#[test]
fn payload_of_redis_7_0_is_read_and_written_by_gcra() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let pairs = (0..GOLDEN.len()).step_by(2);
    let dump: Vec<u8> =
        pairs.map(|at| u8::from_str_radix(&GOLDEN[at..at + 2], 16).expect("two digits")).collect();
    assert_eq!(client.call(&[&b"RESTORE"[..], b"golden", b"0", &dump]), Value::Okay);
    assert_eq!(client.decide("GCRA k 15 30 60"), [0, 16, 15, -1, 2]);
    assert_eq!(client.bytes("GET k"), client.bytes("GET golden"));
    assert_eq!(client.bytes("GET k"), b"1800000002000000000");
    assert_eq!(client.decide("GCRA golden 15 30 60"), [0, 16, 14, -1, 4]);
}

#[test]
fn rates_above_one_per_microsecond_are_not_rounded_to_it() {
    let server = setup().start();
    let mut client = server.client();
    // 700,000 tokens in a second. Redis rounds the interval of 1.428 us to 1 us: 1,000,000.
    let call = "GCRA k 0 700000 1";
    let mut allowed = 0;
    for at_us in 0..10_000 {
        client.freeze(BASE_US + at_us);
        allowed += i64::from(client.decide(call)[0] == 0);
    }
    assert_eq!(allowed, 5_000, "every second microsecond, as the clock counts whole ones");
    client.integer("DEL k");
    client.freeze(BASE_US);
    assert_eq!(client.decide("GCRA k 699999 700000 1 TOKENS 700000")[..3], [0, 700_000, 0]);
    client.freeze(BASE_US + 500_000);
    // The interval is rounded down to the nanosecond, so a few units are back too early.
    let back = client.decide("GCRA k 699999 700000 1 TOKENS 1")[2];
    assert!((349_999..=350_139).contains(&back), "{back}");
}

#[test]
fn effect_of_an_allowed_call_is_its_state_and_an_absolute_expiry() {
    let server = setup().start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    client.freeze(BASE_US);
    assert_eq!(client.decide("GCRA k 1 2 60 TOKENS 2"), [0, 2, 0, -1, 60]);
    let expiry_ms = client.integer("PEXPIRETIME k").to_string();
    let digits = (BASE_NS + 60 * SECOND_NS).to_string();
    let words = ["SET", "k", &digits, "PXAT", &expiry_ms].map(|word| word.as_bytes().to_vec());
    assert_eq!(stream.effects(&mut client), [words.to_vec()]);
}

/// Returns true if the server lists the command as one of the module.
fn is_offered(client: &mut Client) -> bool {
    let Value::Array(listed) = client.run("COMMAND LIST FILTERBY MODULE rl") else {
        panic!("no list")
    };
    listed.iter().any(|name| text(name) == "gcra")
}

/// Returns true if the module counts the decisions of the command.
fn is_counted(client: &mut Client) -> bool {
    let in_info = client.info("rl").contains_key("rl_redis_gcra_allowed");
    let in_metrics = text(&client.run("RL.METRICS")).contains("redis_gcra");
    assert_eq!(in_info, in_metrics);
    in_info
}

#[test]
fn command_exists_only_if_the_configuration_enables_it() {
    for (line, expected) in
        [(None, false), (Some("rl.gcra no"), false), (Some("rl.gcra yes"), true)]
    {
        let setup = line.into_iter().fold(Server::setup(), |setup, line| setup.line(line));
        let server = setup.start();
        let mut client = server.client();
        assert_eq!(is_offered(&mut client), expected, "{line:?}");
        assert_eq!(is_counted(&mut client), expected, "{line:?}");
        let reply = client.run("GCRA k 5 10 60");
        if expected {
            assert_eq!(integers(&reply), Some([0, 6, 5, -1, 6]));
        } else {
            let error = raw_error(&reply).expect("an error");
            assert!(error.starts_with("ERR unknown command"), "{error}");
        }
    }
}

#[test]
fn setting_is_fixed_when_the_module_loads_and_survives_a_rewrite() {
    let mut server = setup().start();
    let mut client = server.client();
    for value in ["no", "yes"] {
        let error = client.error(&format!("CONFIG SET rl.gcra {value}"));
        assert!(error.contains("immutable"), "{error}");
    }
    client.ok("CONFIG REWRITE");
    server.start_again_as_written();
    assert!(is_offered(&mut server.client()));
    assert!(Server::setup().line("rl.gcra maybe").try_start().is_err());
}

/// Asserts that the server's command has the name, and that the module works without it.
fn assert_left_to_the_server(server: &Server) {
    let mut client = server.client();
    assert_eq!(text(&client.run("GCRA theirs")), "theirs");
    assert!(!is_offered(&mut client));
    assert!(!is_counted(&mut client));
    assert!(client.allows("RL.GCRA k 1 1 1h"));
    let Value::Array(pair) = client.run("CONFIG GET rl.gcra") else { panic!("no pair") };
    assert_eq!(text(&pair[1]), "yes");
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("loads without GCRA")).collect::<Vec<_>>();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("rl.gcra yes"), "{}", lines[0]);
    server.assert_alive();
}

#[test]
fn module_loads_without_the_command_if_the_server_has_one_of_that_name() {
    // Another command has the name, as in a later version of Redis.
    let taken = "rename-command ECHO GCRA";
    assert_left_to_the_server(&setup().line(taken).start());

    let server = Server::setup().without_module().line(taken).start();
    let path = module::path().display().to_string();
    server.client().ok(&format!("MODULE LOADEX {path} CONFIG rl.gcra yes"));
    assert_left_to_the_server(&server);

    // Any other name that is taken refuses the load, also together with this one.
    let setup = setup().line(taken).line("rename-command PING RL.FIXED");
    let log = setup.try_start().err().expect("the name is taken");
    assert!(log.contains("could not register rl.fixed"), "{log}");

    // With the setting off, the module does not register the name.
    let server = Server::setup().line(taken).start();
    assert_eq!(text(&server.client().run("GCRA theirs")), "theirs");
    assert!(!server.log().contains("loads without GCRA"));
}

#[test]
fn every_call_of_gcra_is_counted_as_allowed_denied_or_error() {
    let server = setup().start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for call in ["k 1 1 60", "k 1 1 60", "k 1 1 60", "k 1 1 60 TOKENS 3", "k 1 1 x", "k 1 1 1e12"] {
        client.run(&format!("GCRA {call}"));
    }
    let names = ["rl_redis_gcra_allowed", "rl_redis_gcra_denied", "rl_errors", "rl_gcra_allowed"];
    assert_eq!(names.map(|name| client.info_number("rl", name)), [2, 2, 2, 0]);
    let metrics = text(&client.run("RL.METRICS"));
    for line in [
        "rl_decisions_total{command=\"redis_gcra\",outcome=\"denied\"} 2\n",
        "rl_keys_created_total{command=\"redis_gcra\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn calls_of_gcra_with_any_byte_in_any_argument_get_a_reply() {
    let server = setup().start();
    let mut client = server.client();
    let words = ["GCRA", "k", "15", "30", "60", "TOKENS", "1"];
    let template = words.map(|word| word.as_bytes().to_vec());
    let mut calls = Vec::new();
    for place in 1..template.len() {
        for byte in 0..=255 {
            let (mut replaced, mut inserted) = (template.to_vec(), template.to_vec());
            replaced[place] = vec![byte];
            inserted[place].insert(1, byte);
            calls.extend([replaced, inserted]);
        }
    }
    let errors = [INTEGER, TOKENS, BURST, FLOAT, PERIOD, SYNTAX];
    for (call, reply) in calls.iter().zip(client.pipeline(&calls)) {
        if let Some([limited, limit, remaining, retry_s, reset_s]) = integers(&reply) {
            assert!((0..=1).contains(&limited) && (0..=limit).contains(&remaining), "{call:?}");
            assert!((retry_s == -1 || retry_s > 0) && reset_s > 0, "{call:?}: {reply:?}");
        } else {
            let error = raw_error(&reply).unwrap_or_else(|| panic!("{call:?}: {reply:?}"));
            assert!(errors.contains(&error.as_str()), "{call:?}: {error}");
        }
    }
    server.assert_alive();
}
