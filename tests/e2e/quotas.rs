//! `RL.QUOTA`: calendar periods on a clock frozen at unusual days, charged, refunded, granted in
//! part, and called by rules that change.

use std::sync::Barrier;
use std::thread;

use redis_throttle_engine::grammar::error::GrammarError;

use crate::support::{Client, Reply, Server, integers, listing};

/// Parses an instant of UTC, such as `2026-03-28T23:30`, to microseconds since the epoch.
pub fn utc(text: &str) -> i64 {
    let parsed = format!("{text}Z").parse::<jiff::Timestamp>();
    parsed.unwrap_or_else(|error| panic!("{text}: {error}")).as_microsecond()
}

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Plays a table of (time in UTC, call, expected reply) on the stopped clock.
fn play(client: &mut Client, table: &[(&str, &str, Reply)]) {
    for (at, call, expected) in table {
        client.freeze(utc(at));
        assert_eq!(client.decide(call), *expected, "{call} at {at}");
    }
}

#[test]
fn a_quota_ends_where_its_day_does_however_long_that_is() {
    let server = Server::start();
    let mut client = server.client();
    let rows = [
        // The worked example: a day of 23 hours, half an hour in.
        ("2026-03-28T23:30", "RL.QUOTA k 1000 day ZONE Europe/Berlin", 1000, 81_000_000),
        // A day of 25 hours.
        ("2026-10-24T22:00", "RL.QUOTA k 2 day ZONE europe/berlin", 2, 25 * HOUR),
        ("2026-10-24T22:00", "RL.QUOTA k 2 day", 2, 2 * HOUR),
        // Half an hour more, and half an hour less.
        ("2026-04-04T13:00", "RL.QUOTA k 2 day ZONE Australia/Lord_Howe", 2, 24 * HOUR + HOUR / 2),
        ("2026-10-03T13:30", "RL.QUOTA k 2 day ZONE Australia/Lord_Howe", 2, 24 * HOUR - HOUR / 2),
        // Days that begin at 01:00, and one with 00:00 twice.
        ("2026-09-06T04:00", "RL.QUOTA k 2 day ZONE America/Santiago", 2, 23 * HOUR),
        ("2026-04-23T22:00", "RL.QUOTA k 2 day ZONE Africa/Cairo", 2, 23 * HOUR),
        ("2026-11-01T04:00", "RL.QUOTA k 2 day ZONE America/Havana", 2, 25 * HOUR),
        // The day after the 29th was the 31st; 2011 had one day less there.
        ("2011-12-30T09:00", "RL.QUOTA k 2 day ZONE Pacific/Apia", 2, HOUR),
        ("2011-12-30T09:00", "RL.QUOTA k 2 year ZONE Pacific/Apia", 2, HOUR + DAY),
        // Begun at 02:30, back in the previous day at 02:31.
        ("2010-11-07T02:45", "RL.QUOTA k 2 day ZONE America/St_Johns", 2, 24 * HOUR + 3 * HOUR / 4),
        // Longer periods.
        (
            "2026-03-08T05:00",
            "RL.QUOTA k 2 week START sun ZONE America/New_York",
            2,
            7 * DAY - HOUR,
        ),
        ("2026-03-08T05:00", "RL.QUOTA k 2 week", 2, 19 * HOUR),
        ("2026-02-27T00:00", "RL.QUOTA k 2 month START 31", 2, DAY),
        ("2026-02-28T00:00", "RL.QUOTA k 2 month START 31", 2, 31 * DAY),
        ("2028-02-01T00:00", "RL.QUOTA k 2 MONTH", 2, 29 * DAY),
        ("2026-01-01T00:00", "RL.QUOTA k 2 quarter", 2, 90 * DAY),
        ("2026-03-31T15:00", "RL.QUOTA k 2 year START 4 ZONE Asia/Tokyo", 2, 365 * DAY),
        // Both ends of the clock's range.
        ("1970-01-01T00:00", "RL.QUOTA k 2 year ZONE Asia/Kathmandu", 2, 365 * DAY - 11 * HOUR / 2),
        ("2200-01-01T00:00", "RL.QUOTA k 2 year", 2, 365 * DAY),
    ];
    for (at, call, limit, reset_ms) in rows {
        client.freeze(utc(at));
        assert_eq!(client.decide(call), [1, limit, limit - 1, 0, reset_ms], "{call} at {at}");
        // The remaining units are used, then calls are denied until exactly that instant.
        assert!(client.allows(&format!("{call} COST {}", limit - 1)), "{call} at {at}");
        assert_eq!(client.decide(call), [0, limit, 0, reset_ms, reset_ms], "{call} at {at}");
        if !at.starts_with("2200") {
            client.advance_ms(reset_ms - 1);
            assert_eq!(client.decide(call), [0, limit, 0, 1, 1], "{call} at {at}");
            client.advance_ms(1);
            assert!(client.allows(call), "{call} after {at}");
        }
        client.integer("DEL k");
    }
}

#[test]
fn a_quota_answers_peek_partial_zero_and_excessive_costs() {
    let server = Server::start();
    let mut client = server.client();
    let noon = "2026-07-15T12:00";
    let until = 12 * HOUR;
    play(
        &mut client,
        &[
            (noon, "RL.PEEK k QUOTA 5 day", [1, 5, 4, 0, until]),
            (noon, "RL.PEEK k QUOTA 5 day COST 0", [1, 5, 5, 0, 0]),
            (noon, "RL.QUOTA k 5 day COST 6", [0, 5, 5, -1, 0]),
            (noon, "RL.QUOTA k 5 day COST 3", [1, 5, 2, 0, until]),
            (noon, "RL.QUOTA k 5 day COST 3", [0, 5, 2, until, until]),
            (noon, "RL.PEEK k QUOTA 5 day COST 9 PARTIAL", [2, 5, 0, 0, until]),
            (noon, "RL.QUOTA k 5 day PARTIAL COST 9", [2, 5, 0, 0, until]),
            (noon, "RL.QUOTA k 5 day COST 9 PARTIAL", [0, 5, 0, until, until]),
            (noon, "RL.QUOTA k 5 day COST 0", [1, 5, 0, 0, until]),
            // The new day starts at zero; a PEEK of it changes nothing.
            ("2026-07-16T00:00", "RL.PEEK k QUOTA 5 day COST 0", [1, 5, 5, 0, 0]),
        ],
    );
}

#[test]
fn a_quota_is_charged_into_debt_and_refunded_for_its_open_period_only() {
    let server = Server::start();
    let mut client = server.client();
    let (noon, until) = ("2026-07-15T12:00", 12 * HOUR);
    let next = "2026-07-16T00:00";
    play(
        &mut client,
        &[
            (noon, "RL.CHARGE k QUOTA 10 day COST 12", [0, 10, 0, until, until]),
            (noon, "RL.QUOTA k 10 day", [0, 10, 0, until, until]),
            (noon, "RL.REFUND k QUOTA 10 day COST 1", [0, 10, 0, until, until]),
            (noon, "RL.REFUND k QUOTA 10 day COST 4", [1, 10, 3, 0, until]),
            (noon, "RL.CHARGE k QUOTA 10 day COST 0", [1, 10, 3, 0, until]),
            (noon, "RL.REFUND k QUOTA 10 day COST 99", [1, 10, 10, 0, 0]),
        ],
    );
    assert_eq!(client.integer("EXISTS k"), 0, "what is given back whole is forgotten");
    play(&mut client, &[(noon, "RL.CHARGE k QUOTA 10 day COST 7", [1, 10, 3, 0, until])]);
    let before = client.snapshot("k");
    // The next day has no debt, and nothing to refund.
    play(&mut client, &[(next, "RL.REFUND k QUOTA 10 day COST 5", [1, 10, 10, 0, 0])]);
    assert_eq!(client.snapshot("k"), before);
    for _ in 0..2 {
        client.decide("RL.CHARGE y QUOTA 1 year COST 1000000000000");
    }
    let error = client.error("RL.CHARGE y QUOTA 1 year");
    assert_eq!(error, "ERR invalid cost: the total of used units must not exceed 2000000000000");
    let partial = client.error("RL.CHARGE k QUOTA 1 year COST 1 PARTIAL");
    assert!(partial.contains("PARTIAL is for RL.PEEK and commands that decide"), "{partial}");
}

#[test]
fn usage_counts_while_its_start_lies_in_the_current_period() {
    let server = Server::start();
    // A Wednesday; the day began 12 hours ago.
    let noon = "2026-07-15T12:00";
    let half = 12 * HOUR;
    play(
        &mut server.client(),
        &[
            (noon, "RL.QUOTA k 10 day COST 3", [1, 10, 7, 0, half]),
            (noon, "RL.QUOTA k 10 month", [1, 10, 6, 0, 16 * DAY + half]),
            // The start of the day is kept, so two period units on one key do not refill each
            // other.
            (noon, "RL.QUOTA k 10 day", [1, 10, 5, 0, half]),
            // 21:00 of the same day in Tokyo, which began before.
            (noon, "RL.QUOTA k 10 day ZONE Asia/Tokyo", [1, 10, 4, 0, 3 * HOUR]),
            (noon, "RL.QUOTA k 10 week START thu", [1, 10, 3, 0, half]),
            (noon, "RL.QUOTA k 4 week START thu", [0, 4, 0, half, half]),
            // The day in New York began four hours later: nothing of it is used.
            (noon, "RL.QUOTA k 10 day ZONE America/New_York", [1, 10, 9, 0, 16 * HOUR]),
            (noon, "RL.QUOTA k 10 month START 15", [1, 10, 8, 0, 30 * DAY + half]),
            (noon, "RL.QUOTA k 10 month START 16", [1, 10, 7, 0, half]),
            (noon, "RL.QUOTA k 10 quarter", [1, 10, 6, 0, 77 * DAY + half]),
            (noon, "RL.QUOTA k 10 year START 8 COST 6", [1, 10, 0, 0, 16 * DAY + half]),
            (noon, "RL.QUOTA k 10 year START 8", [0, 10, 0, 16 * DAY + half, 16 * DAY + half]),
        ],
    );
}

#[test]
fn a_clock_that_steps_back_adds_one_period_at_most_and_repairs_beyond() {
    let server = Server::start();
    let mut client = server.client();
    let noon = "2026-07-15T12:00";
    play(&mut client, &[(noon, "RL.QUOTA k 2 day COST 2", [1, 2, 0, 0, 12 * HOUR])]);
    let before = client.snapshot("k");
    // Half a day ahead: the stored period is the open one, and nothing is written.
    let wait = 36 * HOUR;
    let rows = [("2026-07-14T12:00", "RL.QUOTA k 2 day", [0, 2, 0, wait, wait])];
    play(&mut client, &rows);
    assert_eq!(client.snapshot("k"), before);
    // More than a day ahead: the usage moves to the current day. A peek writes nothing.
    let rows = [
        ("2026-07-13T23:00", "RL.QUOTA k 2 day COST 0", [1, 2, 0, 0, HOUR]),
        ("2026-07-13T23:00", "RL.PEEK k QUOTA 2 day", [0, 2, 0, HOUR, HOUR]),
    ];
    play(&mut client, &rows);
    assert_eq!(client.snapshot("k"), before);
    play(&mut client, &[("2026-07-13T23:00", "RL.QUOTA k 2 day", [0, 2, 0, HOUR, HOUR])]);
    assert_ne!(client.snapshot("k"), before, "a repair is written, though denied");
    let repaired = client.snapshot("k");
    play(
        &mut client,
        &[
            ("2026-07-13T23:30", "RL.QUOTA k 2 day", [0, 2, 0, HOUR / 2, HOUR / 2]),
            ("2026-07-14T00:00", "RL.PEEK k QUOTA 2 day", [1, 2, 1, 0, DAY]),
        ],
    );
    assert_eq!(client.snapshot("k"), repaired);
    // Forward by ten years, and a day has passed: one more allowance.
    play(&mut client, &[("2036-07-14T00:00", "RL.QUOTA k 2 day COST 2", [1, 2, 0, 0, DAY])]);
}

#[test]
fn a_quota_among_several_rules_is_taken_with_all_or_none() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(utc("2026-07-15T12:00"));
    let quota = " QUOTA  3 month ZONE  Europe/Berlin START 15 COST 2 ";
    let call = ["RL.ALL", "q", quota, "g", "GCRA 1 1 60"];
    let reply = |value: &redis::Value| match value {
        redis::Value::Array(fields) => {
            let head = redis::Value::Array(fields[..5].to_vec());
            let rows = fields[6..].iter().map(|row| integers(row).expect("a row"));
            (integers(&head).expect("integers"), rows.collect::<Vec<_>>())
        }
        other => panic!("{other:?}"),
    };
    // From 15 July to 15 August, in Berlin.
    let left = 30 * DAY + 10 * HOUR;
    let expected = ([1, 1, 0, 0, 60_000], vec![[1, 3, 1, 0, left], [1, 1, 0, 0, 60_000]]);
    assert_eq!(reply(&client.call(&call)), expected);
    let before = client.contents();
    // Its own rule denies until the end of the month, longer than the other.
    let expected = ([0, 3, 1, left, left], vec![[0, 3, 1, left, left], [0, 1, 0, 60_000, 60_000]]);
    assert_eq!(reply(&client.call(&call)), expected);
    // The other denies: one unit of the quota is left, and stays.
    let call = ["RL.ALL", "q", "QUOTA 3 month ZONE Europe/Berlin START 15", "g", "GCRA 1 1 60"];
    let expected = ([0, 1, 0, 60_000, 60_000], vec![[1, 3, 1, 0, left], [0, 1, 0, 60_000, 60_000]]);
    assert_eq!(reply(&client.call(&call)), expected);
    assert_eq!(reply(&client.call(&[&["RL.PEEKALL"], &call[1..]].concat())), expected);
    assert_eq!(client.contents(), before);
    for (rule, expected) in [
        ("QUOTA 3", "ERR rule 1: wrong number of arguments: expected QUOTA limit unit"),
        (
            "QUOTA 3 day PARTIAL",
            "ERR rule 1: invalid option: PARTIAL is for RL.PEEK and commands that decide by \
             one rule",
        ),
    ] {
        let refused = client.call(&["RL.ALL", "q", rule]);
        assert_eq!(crate::support::raw_error(&refused).as_deref(), Some(expected));
    }
}

#[test]
fn every_wrong_argument_of_a_quota_has_its_own_text() {
    const UNIT: &str = "ERR invalid unit: expected day, week, month, quarter or year";
    const ZONE: &str = "ERR invalid zone: expected a name of the IANA time zone database, such as \
                        UTC or Europe/Berlin";
    const WEEK: &str = "ERR invalid start: expected mon, tue, wed, thu, fri, sat or sun for a week";
    const MONTH: &str = "ERR invalid start: expected an integer from 1 to 31 for a month";
    const YEAR: &str = "ERR invalid start: expected an integer from 1 to 12 for a year";
    const NONE: &str = "ERR invalid start: only week, month and year take START";
    let option = listing(GrammarError::OptionOfQuota);
    let rows = [
        ("0 x", "ERR invalid limit: expected an integer from 1 to 1000000000000"),
        ("5 60 ZONE x", UNIT),
        ("5 days", UNIT),
        ("5 day ZONE Berlin COST x", ZONE),
        ("5 day ZONE Factory", ZONE),
        ("5 day ZONE Etc/Unknown", ZONE),
        ("5 day ZONE ../UTC", ZONE),
        ("5 day START 1 COST x", NONE),
        ("5 quarter START 1", NONE),
        ("5 week START 1", WEEK),
        ("5 month START 32", MONTH),
        ("5 year START 13", YEAR),
        ("5 day 60", option),
        ("5 day ALIGNED", option),
        (
            "5 day ZONE",
            "ERR missing zone: expected ZONE followed by a name of the IANA time zone database, \
             such as UTC or Europe/Berlin",
        ),
        (
            "5 week START",
            "ERR missing start: expected START followed by a weekday, a day of the month or a \
             month",
        ),
        ("5 day ZONE UTC ZONE UTC", "ERR repeated option: ZONE may be given once"),
        ("5 week START mon START mon", "ERR repeated option: START may be given once"),
        ("5 day COST 1 COST 1", "ERR repeated option: COST may be given once"),
        ("5 day PARTIAL PARTIAL", "ERR repeated option: PARTIAL may be given once"),
        ("5 day COST x", "ERR invalid cost: expected an integer from 0 to 1000000000000"),
    ];
    let server = Server::start();
    let mut client = server.client();
    for (arguments, expected) in rows {
        for call in [format!("RL.QUOTA k {arguments}"), format!("RL.PEEK k QUOTA {arguments}")] {
            assert_eq!(client.error(&call), expected, "{call}");
        }
    }
    for call in ["RL.QUOTA k 5", "RL.QUOTA k", "RL.PEEK k QUOTA 5"] {
        assert!(client.error(call).contains("wrong number of arguments"), "{call}");
    }
    assert_eq!(client.integer("DBSIZE"), 0);
}

#[test]
fn zone_names_cost_bounded_memory_and_unknown_names_none() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(utc("2026-07-15T12:00"));
    let used = |client: &mut Client| client.info_number("memory", "used_memory");
    let before = used(&mut client);
    let names = include_str!("../../engine/testdata/boundaries.txt").lines();
    let names: Vec<_> = names.filter(|line| !line.contains(' ')).collect();
    assert!(names.len() > 500);
    for name in &names {
        for rule in ["day", "week START tue", "month START 30", "quarter", "year START 2"] {
            let peek = format!("RL.PEEK k QUOTA 5 {rule} ZONE {name}");
            assert_eq!(client.decide(&peek)[..4], [1, 5, 4, 0], "{peek}");
        }
    }
    let all = used(&mut client) - before;
    eprintln!("{all} bytes for all zones");
    assert!(all < 8_000_000, "{all} bytes for all zones");
    // Unknown zone names, and long ones, are not remembered.
    let full = used(&mut client);
    for number in 0..2_000_u32 {
        let name = format!("Europe/{number:x}");
        assert!(client.error(&format!("RL.QUOTA k 5 day ZONE {name}")).contains("invalid zone"));
    }
    let long = vec![b'a'; 1_000_000];
    let value = client.call(&[b"RL.QUOTA".as_slice(), b"k", b"5", b"day", b"ZONE", &long]);
    assert!(crate::support::raw_error(&value).is_some_and(|error| error.contains("invalid zone")));
    let grown = used(&mut client) - full;
    assert!(grown < 3_000_000, "{grown} bytes for names of no zone");
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
    server.assert_alive();
}

#[test]
fn two_servers_agree_whatever_zone_and_files_their_machines_have() {
    let elsewhere = Server::setup()
        .environment("TZ", "Pacific/Kiritimati")
        .environment("TZDIR", "/nowhere")
        .environment("PYTHONTZPATH", "/nowhere")
        .start();
    let here = Server::start();
    let calls = [
        "RL.QUOTA k 9 day",
        "RL.QUOTA k 9 day ZONE America/St_Johns",
        "RL.QUOTA k 9 week START sat ZONE Asia/Tehran",
        "RL.QUOTA k 9 month START 31 ZONE Africa/Casablanca",
        "RL.QUOTA k 9 year START 7 ZONE Antarctica/Troll",
    ];
    for at in ["1999-12-31T23:59", "2026-03-29T01:00", "2037-10-25T00:30", "2199-02-28T12:00"] {
        let [ours, theirs] = [&here, &elsewhere].map(|server| {
            let mut client = server.client();
            client.ok("FLUSHALL");
            client.freeze(utc(at));
            let replies = calls.map(|call| client.decide(call));
            (replies, client.bytes("GET k"), client.info("rl")["rl_tzdb_version"].clone())
        });
        assert_eq!(ours, theirs, "{at}");
    }
}

#[test]
fn of_6_400_calls_on_64_connections_exactly_1_000_are_allowed() {
    const CONNECTIONS: usize = 64;
    let server = Server::start();
    // Midnight must not pass between two calls.
    server.client().freeze(utc("2026-07-15T12:00"));
    let start = Barrier::new(CONNECTIONS);
    let allowed: usize = thread::scope(|scope| {
        let callers = (0..CONNECTIONS).map(|number| {
            let (server, start) = (&server, &start);
            scope.spawn(move || {
                let mut client = server.client();
                // Two spellings of one zone use the same key and state.
                let zone = if number % 2 == 0 { "Asia/Tokyo" } else { "asia/TOKYO" };
                let call = format!("RL.QUOTA k 1000 month ZONE {zone}");
                start.wait();
                (0..100).filter(|_| client.allows(&call)).count()
            })
        });
        callers.collect::<Vec<_>>().into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(allowed, 1_000);
}
