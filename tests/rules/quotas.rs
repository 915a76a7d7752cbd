//! `RL.QUOTA`: calendar periods, on a clock frozen at unusual days, with charges, refunds, partial
//! grants and changing rules.

use std::sync::Barrier;
use std::thread;

use redis_throttle_engine::grammar::error::GrammarError;

use support::utc;
use support::{Client, Reply, Server, integers, listing};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Makes the calls of a table (time in UTC, call, expected reply) on a frozen clock.
fn play(client: &mut Client, table: &[(&str, &str, Reply)]) {
    for (at, call, expected) in table {
        client.freeze(utc(at));
        assert_eq!(client.decide(call), *expected, "{call} at {at}");
    }
}

#[test]
fn quota_ends_exactly_with_its_calendar_period() {
    let server = Server::start();
    let mut client = server.client();
    let rows = [
        // The example of the documentation: half an hour into a day of 23 hours.
        ("2026-03-28T23:30", "RL.QUOTA k 1000 day ZONE Europe/Berlin", 1000, 81_000_000),
        // A day of 25 hours.
        ("2026-10-24T22:00", "RL.QUOTA k 2 day ZONE europe/berlin", 2, 25 * HOUR),
        ("2026-10-24T22:00", "RL.QUOTA k 2 day", 2, 2 * HOUR),
        // Days that are half an hour longer, and half an hour shorter.
        ("2026-04-04T13:00", "RL.QUOTA k 2 day ZONE Australia/Lord_Howe", 2, 24 * HOUR + HOUR / 2),
        ("2026-10-03T13:30", "RL.QUOTA k 2 day ZONE Australia/Lord_Howe", 2, 24 * HOUR - HOUR / 2),
        // Days that begin at 01:00, and a day that has 00:00 twice.
        ("2026-09-06T04:00", "RL.QUOTA k 2 day ZONE America/Santiago", 2, 23 * HOUR),
        ("2026-04-23T22:00", "RL.QUOTA k 2 day ZONE Africa/Cairo", 2, 23 * HOUR),
        ("2026-11-01T04:00", "RL.QUOTA k 2 day ZONE America/Havana", 2, 25 * HOUR),
        // The 31st followed the 29th, so 2011 had one day less in this zone.
        ("2011-12-30T09:00", "RL.QUOTA k 2 day ZONE Pacific/Apia", 2, HOUR),
        ("2011-12-30T09:00", "RL.QUOTA k 2 year ZONE Pacific/Apia", 2, HOUR + DAY),
        // At 00:01 the clock went back to 23:01 of the previous day.
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
        // The first and the last instant of the clock's range.
        ("1970-01-01T00:00", "RL.QUOTA k 2 year ZONE Asia/Kathmandu", 2, 365 * DAY - 11 * HOUR / 2),
        ("2200-01-01T00:00", "RL.QUOTA k 2 year", 2, 365 * DAY),
    ];
    for (at, call, limit, reset_ms) in rows {
        client.freeze(utc(at));
        assert_eq!(client.decide(call), [1, limit, limit - 1, 0, reset_ms], "{call} at {at}");
        // Takes the remaining units. Further calls are denied until exactly the reset time.
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
fn quota_decides_peeks_and_partial_zero_and_excessive_costs() {
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
            // The new day starts with all units, and PEEK changes nothing.
            ("2026-07-16T00:00", "RL.PEEK k QUOTA 5 day COST 0", [1, 5, 5, 0, 0]),
        ],
    );
}

#[test]
fn quota_is_charged_into_debt_and_refunds_only_its_current_period() {
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
    // The next day has neither debt nor units to refund.
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
fn usage_counts_if_its_stored_period_start_lies_in_the_current_period() {
    let server = Server::start();
    // A Wednesday. The day began 12 hours ago.
    let noon = "2026-07-15T12:00";
    let half = 12 * HOUR;
    play(
        &mut server.client(),
        &[
            (noon, "RL.QUOTA k 10 day COST 3", [1, 10, 7, 0, half]),
            (noon, "RL.QUOTA k 10 month", [1, 10, 6, 0, 16 * DAY + half]),
            // The call for a month has kept the start of the day in the state. Calls with two
            // periods on one key therefore do not return each other's units.
            (noon, "RL.QUOTA k 10 day", [1, 10, 5, 0, half]),
            // It is 21:00 of the same day in Tokyo, where the day began before the stored start.
            (noon, "RL.QUOTA k 10 day ZONE Asia/Tokyo", [1, 10, 4, 0, 3 * HOUR]),
            (noon, "RL.QUOTA k 10 week START thu", [1, 10, 3, 0, half]),
            (noon, "RL.QUOTA k 4 week START thu", [0, 4, 0, half, half]),
            // The day in New York began four hours after the stored start, so no unit of it is
            // used.
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
fn clock_that_steps_back_adds_at_most_one_period_and_a_longer_step_is_repaired() {
    let server = Server::start();
    let mut client = server.client();
    let noon = "2026-07-15T12:00";
    play(&mut client, &[(noon, "RL.QUOTA k 2 day COST 2", [1, 2, 0, 0, 12 * HOUR])]);
    let before = client.snapshot("k");
    // Half a day back: the stored period counts as the current one, and nothing is written.
    let wait = 36 * HOUR;
    let rows = [("2026-07-14T12:00", "RL.QUOTA k 2 day", [0, 2, 0, wait, wait])];
    play(&mut client, &rows);
    assert_eq!(client.snapshot("k"), before);
    // More than a day back: the used units move to the current day. A peek writes nothing.
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
    // Ten years forward: the day is over, and a new allowance starts.
    play(&mut client, &[("2036-07-14T00:00", "RL.QUOTA k 2 day COST 2", [1, 2, 0, 0, DAY])]);
}

#[test]
fn quota_among_several_rules_takes_with_all_or_none() {
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
    // The month from 15 July to 15 August in Berlin.
    let left = 30 * DAY + 10 * HOUR;
    let expected = ([1, 1, 0, 0, 60_000], vec![[1, 3, 1, 0, left], [1, 1, 0, 0, 60_000]]);
    assert_eq!(reply(&client.call(&call)), expected);
    let before = client.contents();
    // Both rules deny. The quota waits longer, until the end of its month.
    let expected = ([0, 3, 1, left, left], vec![[0, 3, 1, left, left], [0, 1, 0, 60_000, 60_000]]);
    assert_eq!(reply(&client.call(&call)), expected);
    // The other rule denies, so the remaining unit of the quota is not taken.
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
        assert_eq!(support::raw_error(&refused).as_deref(), Some(expected));
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
fn known_zone_names_use_bounded_memory_and_unknown_ones_use_none() {
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
    // Unknown names and very long names are not cached.
    let full = used(&mut client);
    for number in 0..2_000_u32 {
        let name = format!("Europe/{number:x}");
        assert!(client.error(&format!("RL.QUOTA k 5 day ZONE {name}")).contains("invalid zone"));
    }
    let long = vec![b'a'; 1_000_000];
    let value = client.call(&[b"RL.QUOTA".as_slice(), b"k", b"5", b"day", b"ZONE", &long]);
    assert!(support::raw_error(&value).is_some_and(|error| error.contains("invalid zone")));
    let grown = used(&mut client) - full;
    assert!(grown < 3_000_000, "{grown} bytes for names of no zone");
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
    server.assert_alive();
}

#[test]
fn quotas_do_not_depend_on_the_zone_and_zone_files_of_the_machine() {
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
fn of_6_400_quota_calls_on_64_connections_exactly_1_000_are_allowed() {
    const CONNECTIONS: usize = 64;
    let server = Server::start();
    // On a frozen clock, midnight cannot pass between two calls.
    server.client().freeze(utc("2026-07-15T12:00"));
    let start = Barrier::new(CONNECTIONS);
    let allowed: usize = thread::scope(|scope| {
        let callers = (0..CONNECTIONS).map(|number| {
            let (server, start) = (&server, &start);
            scope.spawn(move || {
                let mut client = server.client();
                // Two spellings of one zone use the same state.
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
