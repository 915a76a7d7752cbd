//! `RL.TOP`: the keys that are denied most and the keys that are called most on this server.

use std::fmt::Write as _;
use std::io::Write as _;

use redis::Value;

use support::{BASE_US, Client, Pump, Server, raw_error, text};

/// A row of the reply: key, count and error.
type Row = (String, i64, i64);

/// Returns the rows that the call replies with.
fn rows(client: &mut Client, line: &str) -> Vec<Row> {
    let Value::Array(rows) = client.run(line) else { panic!("{line}: no rows") };
    let row = |row: &Value| {
        let Value::Array(fields) = row else { panic!("{line}: {row:?}") };
        let [key, Value::Int(count), Value::Int(error)] = &fields[..] else {
            panic!("{line}: {row:?}")
        };
        (text(key), *count, *error)
    };
    rows.iter().map(row).collect()
}

fn row(key: &str, count: i64, error: i64) -> Row {
    (key.to_owned(), count, error)
}

/// Returns the shares of the first key and of the first ten in `INFO`.
fn ratios(client: &mut Client) -> [String; 2] {
    let info = client.info("rl");
    ["rl_denied_top1_ratio", "rl_denied_top10_ratio"].map(|name| info[name].clone())
}

#[test]
fn one_command_shows_which_key_floods_the_service() {
    let server = Server::start();
    let mut client = server.client();
    let calls = (0..3_000).map(|number| {
        let key = if number % 3 == 0 { "api:42".to_owned() } else { format!("api:{number}") };
        ["RL.GCRA", &key, "1", "1", "1h", "COST", "2"].map(str::to_owned).to_vec()
    });
    client.pipeline(&calls.collect::<Vec<_>>());
    let listed = rows(&mut client, "RL.TOP");
    assert_eq!(listed.len(), 10);
    assert_eq!(listed[0], row("api:42", 1_000, 0));
    assert!(listed[1].1 < 20, "{listed:?}");
    assert_eq!(ratios(&mut client)[0], "0.333333");
    assert_eq!(rows(&mut client, "RL.TOP 1"), listed[..1]);
    let called = rows(&mut client, "RL.TOP 1 CALLS");
    assert!(called[0].0 == "api:42" && (300..2_000).contains(&called[0].1), "{called:?}");
}

/// Makes calls of every kind on keys of their own, twice each, so that the second is denied where
/// the rule allows one.
fn every_kind(client: &mut Client) {
    client.ok("RL.POLICY SET on GCRA 1 1 1h");
    client.ok("RL.POLICY SET off OFF GCRA 1 1 1h");
    client.ok("RL.POLICY SET shadow SHADOW GCRA 1 1 1h");
    client.ok("RL.POLICY SET blocked BLOCK GCRA 1 1 1h");
    let calls = "RL.FIXED fixed 1 1h
        RL.SLIDING sliding 1 1h
        RL.SLIDINGLOG slidinglog 1 1h
        RL.TOKENBUCKET tokenbucket 1 1 1h
        RL.LEAKYBUCKET leakybucket 1 1 1h
        RL.GCRA gcra 1 1 1h
        RL.BACKOFF backoff 1 1h 1h 2h
        RL.QUOTA quota 1 year
        RL.GCRA partial 1 1 1h PARTIAL
        CL.THROTTLE throttle 0 1 3600
        RL.USE use on
        RL.USE off off
        RL.USE shadow shadow
        RL.USE blocked blocked
        RL.USE default none DEFAULT GCRA 1 1 1h
        RL.GCRA status 1 1 1h COST 0
        CL.THROTTLE read 0 1 3600 0
        RL.PEEK gcra GCRA 1 1 1h
        RL.CHARGE charged GCRA 1 1 1h COST 2
        RL.REFUND charged GCRA 1 1 1h COST 1
        RL.COMMIT held id FIXED 1 1h
        RL.CANCEL held id FIXED 1 1h
        RL.RENEW lease no 1h
        RL.RELEASE lease no";
    for line in calls.lines().map(str::trim) {
        for _ in 0..2 {
            assert_eq!(raw_error(&client.run(line)), None, "{line}");
        }
    }
    for id in ["first", "second"] {
        client.run(&format!("RL.LEASE lease {id} 1 1h"));
        client.run(&format!("RL.RESERVE reserve {id} 1h FIXED 1 1h"));
    }
}

#[test]
fn enforced_denials_of_deciding_commands_are_counted_and_nothing_else() {
    let server = Server::setup().line("rl.redis-cell yes").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    every_kind(&mut client);
    let mut expected: Vec<_> = [
        "fixed",
        "sliding",
        "slidinglog",
        "tokenbucket",
        "leakybucket",
        "gcra",
        "backoff",
        "quota",
        "partial",
        "throttle",
        "use",
        "default",
        "lease",
        "reserve",
    ]
    .map(|key| row(key, 1, 0))
    .into();
    expected.push(row("blocked", 2, 0));
    let mut listed = rows(&mut client, "RL.TOP 128");
    assert_eq!(listed[0], row("blocked", 2, 0), "highest first");
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
}

#[test]
fn every_denying_rule_of_a_call_with_several_counts_under_its_key() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET shadow SHADOW GCRA 1 1 1h");
    let call = [
        "RL.ALL",
        "full",
        "GCRA 1 1 1h",
        "never",
        "FIXED 1 1h COST 2",
        "free",
        "FIXED 5 1h",
        "status",
        "FIXED 1 1h COST 0",
        "shadow",
        "USE shadow COST 2",
        "permit",
        "LEASE second 1 1h",
    ];
    client.decide("RL.GCRA full 1 1 1h");
    client.decide("RL.LEASE permit first 1 1h");
    client.call(&call);
    client.call(&[&["RL.PEEKALL"], &call[1..]].concat());
    let expected = ["full", "never", "permit"].map(|key| row(key, 1, 0));
    assert_eq!(rows(&mut client, "RL.TOP"), expected);
}

#[test]
fn sampled_calls_count_sixteen_times_and_include_allowed_ones() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let mut pump = Pump::new(&server);
    pump.run(64_000, |number, line| {
        let key = if number % 4 == 0 { "busy" } else { "calm" };
        write!(line, "RL.FIXED {key}:{} 1000000 1h", number % 2).expect("a buffer");
    });
    // `busy:0` and `calm:0` share the even numbers, and `calm:1` has the odd ones.
    let listed = rows(&mut client, "RL.TOP 10 CALLS");
    let expected = [("calm:1", 32_000), ("busy:0", 16_000), ("calm:0", 16_000)];
    for (key, calls) in expected {
        let found = listed.iter().find(|row| row.0 == key).expect(key);
        // Five standard deviations of the sample.
        let distance = (found.1 - calls).unsigned_abs();
        assert!(distance * distance < 25 * 16 * calls as u64, "{listed:?}");
        assert_eq!(found.1 % 16, 0, "{listed:?}");
    }
    assert_eq!(listed[0].0, "calm:1");
    assert_eq!(rows(&mut client, "RL.TOP"), []);
    // Calls of cost 0 and peeks are not sampled.
    client.ok("RL.TOP RESET");
    pump.repeat(1_000, "RL.FIXED k 5 1h COST 0");
    pump.repeat(1_000, "RL.PEEK k FIXED 5 1h");
    assert_eq!(rows(&mut client, "RL.TOP CALLS"), []);
}

#[test]
fn counts_halve_by_the_commands_clock_and_a_step_back_halves_nothing() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let table = [
        (0, 8),
        (599_999, 8),
        (1, 4),
        (-3_600_000, 4),
        // After the step back the next halving is one half-life later.
        (599_999, 4),
        (1, 2),
        (600_000, 1),
    ];
    (0..8).for_each(|_| assert!(!client.allows("RL.FIXED k 1 1h COST 2")));
    assert_eq!(ratios(&mut client), ["1.000000", "1.000000"]);
    for (ms, count) in table {
        client.advance_ms(ms);
        assert_eq!(rows(&mut client, "RL.TOP"), [row("k", count, 0)], "after {ms} ms");
    }
    client.advance_ms(600_000);
    assert_eq!(rows(&mut client, "RL.TOP"), []);
    // A shorter half-life applies at once, and 0 stops the decay.
    (0..8).for_each(|_| assert!(!client.allows("RL.FIXED j 1 1h COST 2")));
    client.ok("CONFIG SET rl.top-half-life 1s");
    assert_eq!(rows(&mut client, "RL.TOP"), [row("j", 8, 0)]);
    client.advance_ms(1_000);
    assert_eq!(rows(&mut client, "RL.TOP"), [row("j", 4, 0)]);
    client.ok("CONFIG SET rl.top-half-life 0");
    client.advance_ms(86_400_000);
    assert_eq!(rows(&mut client, "RL.TOP"), [row("j", 4, 0)]);
}

#[test]
fn each_database_has_its_own_rows() {
    let server = Server::start();
    let mut client = server.client();
    client.decide("RL.FIXED k 1 1h COST 2");
    client.ok("SELECT 1");
    client.decide("RL.FIXED k 1 1h COST 2");
    client.decide("RL.FIXED k 1 1h COST 2");
    assert_eq!(rows(&mut client, "RL.TOP"), [row("k", 2, 0)]);
    client.ok("SELECT 0");
    assert_eq!(rows(&mut client, "RL.TOP"), [row("k", 1, 0)]);
    client.ok("RL.TOP RESET");
    client.ok("SELECT 1");
    assert_eq!(rows(&mut client, "RL.TOP"), [], "a reset applies to all databases");
}

#[test]
fn key_of_any_bytes_is_listed_in_full_up_to_256_bytes_and_shortened_above() {
    let server = Server::start();
    let mut client = server.client();
    let whole = [&b"\0\r\n\xff"[..], &[b'k'; 252]].concat();
    let long = vec![b'k'; 100_000];
    for key in [&whole, &long, &long] {
        client.call(&[&b"RL.FIXED"[..], key, b"1", b"1h", b"COST", b"2"]);
    }
    let Value::Array(rows) = client.run("RL.TOP") else { panic!("no rows") };
    let names = rows.iter().map(|row| match row {
        Value::Array(fields) => match &fields[0] {
            Value::BulkString(name) => name.clone(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    });
    let names: Vec<_> = names.collect();
    let short = String::from_utf8(names[0].clone()).expect("UTF-8");
    let (start, hash) = short.split_once('…').expect("a mark");
    assert_eq!(start, "k".repeat(200));
    assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{hash}");
    assert_eq!(names[1], whole);
}

#[test]
fn a_million_denials_of_a_million_keys_take_no_memory_and_the_heavy_key_stays() {
    const CALLS: usize = 1_000_000;
    let server = Server::start();
    let (mut client, mut pump) = (server.client(), Pump::new(&server));
    let flood = |number: usize, line: &mut Vec<u8>| {
        let key = if number.is_multiple_of(100) { 0 } else { number };
        write!(line, "RL.FIXED flood:{key} 1 1h COST 2").expect("a buffer");
    };
    pump.run(20_000, flood);
    client.ok("RL.TOP RESET");
    let before = client.info_number("memory", "used_memory");
    let tally = pump.run(CALLS, flood);
    assert_eq!(tally.denied, CALLS, "{tally:?}");
    let grown = client.info_number("memory", "used_memory") - before;
    assert!(grown < 128 * 1024, "{grown} bytes");
    assert_eq!(client.integer("DBSIZE"), 0);
    let [(key, count, error)] = &rows(&mut client, "RL.TOP 1")[..] else { panic!("one row") };
    // One call in a hundred. The traffic takes seconds, so nothing halves.
    assert_eq!(key, "flood:0");
    assert!((count - error..=*count).contains(&10_000), "{count} {error}");
    assert!(*error <= CALLS as i64 / 512, "{error}");
    // The middle of a thousand replies, because other programs share the machine.
    client.ok("CONFIG RESETSTAT");
    (0..1_000).for_each(|_| assert_eq!(rows(&mut client, "RL.TOP 10").len(), 10));
    let percentiles = client.info("latencystats")["latency_percentiles_usec_rl.top"].clone();
    let middle = percentiles.split(',').next().and_then(|first| first.strip_prefix("p50="));
    let middle: f64 = middle.expect("p50").parse().expect("a number");
    assert!(middle < 100.0, "{percentiles}");
}

#[test]
fn wrong_arguments_are_errors_that_name_them() {
    let server = Server::start();
    let mut client = server.client();
    let count = "ERR invalid count: expected an integer from 1 to 128, CALLS or RESET";
    for line in ["0", "129", "-1", "ten", "1.5", "DENIED", "+1", "99999999999999999999"] {
        assert_eq!(client.error(&format!("RL.TOP {line}")), count, "{line}");
    }
    for line in ["10 DENIED", "10 10", "10 RESET"] {
        let error = client.error(&format!("RL.TOP {line}"));
        assert_eq!(error, "ERR invalid option: expected CALLS", "{line}");
    }
    for line in ["CALLS 10", "CALLS CALLS", "10 CALLS 10", "RESET 10", "RESET RESET"] {
        let error = client.error(&format!("RL.TOP {line}"));
        assert!(error.contains("wrong number of arguments"), "{line}: {error}");
    }
    let refused = client.call(&["EVAL", "return redis.call('RL.TOP')", "0"]);
    let refused = raw_error(&refused).expect("scripts may not call it");
    assert!(refused.contains("not allowed from script"), "{refused}");
}

#[test]
fn command_without_slots_says_how_to_enable_it_and_the_ratios_are_absent() {
    let server = Server::setup().line("rl.top-slots 0").start();
    let mut client = server.client();
    let disabled = "ERR RL.TOP is disabled: set rl.top-slots above 0 in the server's configuration \
                    and restart";
    Pump::new(&server).repeat(1_000, "RL.FIXED k 1 1h COST 2");
    for line in ["RL.TOP", "RL.TOP 5 CALLS", "RL.TOP RESET"] {
        assert_eq!(client.error(line), disabled, "{line}");
    }
    assert!(client.info("rl").keys().all(|name| !name.contains("ratio")));
    assert!(!text(&client.run("RL.METRICS")).contains("ratio"));
}

#[test]
fn least_and_most_slots_work_and_slots_cannot_change_at_run_time() {
    for slots in [1, 8_192] {
        let server = Server::setup().line(&format!("rl.top-slots {slots}")).start();
        let mut client = server.client();
        Pump::new(&server).run(20_000, |number, line| {
            write!(line, "RL.FIXED k:{number} 1 1h COST 2").expect("a buffer");
        });
        let listed = rows(&mut client, "RL.TOP 128");
        assert_eq!(listed.len(), slots.min(128));
        let total: i64 = listed.iter().map(|row| row.1).sum();
        assert!(total <= 20_000, "{total}");
        let error = client.error("CONFIG SET rl.top-slots 512");
        assert!(error.contains("immutable"), "{error}");
    }
    for line in ["rl.top-slots 8193", "rl.top-slots -1", "rl.top-half-life 999ms"] {
        assert!(Server::setup().line(line).try_start().is_err(), "{line} was accepted");
    }
}

#[test]
fn half_life_is_0_or_a_duration_from_1s_to_1d() {
    let server = Server::start();
    let mut client = server.client();
    for accepted in ["0", "1s", "90", "10m", "1d"] {
        client.ok(&format!("CONFIG SET rl.top-half-life {accepted}"));
        let Value::Array(pair) = client.run("CONFIG GET rl.top-half-life") else { panic!("none") };
        assert_eq!(text(&pair[1]), accepted);
    }
    for refused in ["999ms", "86401", "-1", "never", "2d"] {
        let error = client.error(&format!("CONFIG SET rl.top-half-life {refused}"));
        assert!(error.contains("rl.top-half-life"), "{refused}: {error}");
        let Value::Array(pair) = client.run("CONFIG GET rl.top-half-life") else { panic!("none") };
        assert_eq!(text(&pair[1]), "1d", "{refused}");
    }
}

#[test]
fn restart_forgets_the_keys_and_no_key_is_in_a_metric() {
    let mut server = Server::start();
    let mut client = server.client();
    client.decide("RL.FIXED secret:42 1 1h COST 2");
    let mut texts = String::new();
    for line in ["INFO everything", "RL.METRICS"] {
        write!(texts, "{}", text(&client.run(line))).expect("a string");
    }
    assert!(texts.contains("rl_denied_top10_ratio 1.000000"), "{texts}");
    assert!(!texts.contains("secret:42"), "{texts}");
    client.ok("SAVE");
    server.start_again();
    assert_eq!(rows(&mut server.client(), "RL.TOP"), []);
}
