//! Reservations on a calendar quota: across midnight, on days of 23 and 25 hours, in other zones,
//! and their effects on replicas and on disk.

use redis::Value;

use support::several::{call, decision_of};
use support::utc;
use support::{Client, Reply, Server, WRONGTYPE, raw_error, text};

const RULE: &str = "QUOTA 10 day ZONE Europe/Berlin";
const HOUR: i64 = 3_600_000;

/// Makes the calls of a table (ms after a time in UTC, call, expected reply). In a call, `)` stands
/// for the rule.
fn play(client: &mut Client, from: &str, table: &[(i64, &str, Reply)]) {
    for (at_ms, words, expected) in table {
        client.freeze(utc(from) + at_ms * 1_000);
        assert_eq!(client.decide(&line(words)), *expected, "{words} at {from} and {at_ms} ms");
    }
}

fn line(words: &str) -> String {
    words.replace(')', RULE)
}

/// Returns the names and values that `RL.INSPECT` shows of a quota with reservations.
fn inspected(client: &mut Client, key: &str) -> Vec<(String, Value)> {
    let Value::Array(fields) = client.run(&format!("RL.INSPECT {key}")) else { panic!("no state") };
    let pairs = fields.chunks(2).map(|pair| (text(&pair[0]), pair[1].clone()));
    pairs.collect()
}

#[test]
fn reservation_across_midnight_counts_on_both_days_and_is_used_on_the_second() {
    let server = Server::start();
    let mut client = server.client();
    // The hour before the start of a day of 23 hours in Berlin, of one with 25, and of one with 24.
    let nights = [("2026-03-28T22:00", 23), ("2026-10-24T21:00", 25), ("2026-07-14T21:00", 24)];
    for (from, hours) in nights {
        let day = hours * HOUR;
        play(
            &mut client,
            from,
            &[
                (0, "RL.QUOTA k 10 day ZONE Europe/Berlin COST 6", [1, 10, 4, 0, HOUR]),
                (0, "RL.RESERVE k a 2h ) COST 3", [1, 10, 1, 0, 2 * HOUR]),
                // Repeated after a lost reply, a reservation holds its units once.
                (0, "RL.RESERVE k a 2h ) COST 3", [1, 10, 1, 0, 2 * HOUR]),
                // The used units return at midnight, and the reserved units when the reservation
                // expires.
                (0, "RL.PEEK k ) COST 7", [0, 10, 1, HOUR, 2 * HOUR]),
                (0, "RL.PEEK k ) COST 8", [0, 10, 1, 2 * HOUR, 2 * HOUR]),
                (HOUR - 1, "RL.PEEK k ) COST 7", [0, 10, 1, 1, HOUR + 1]),
                (HOUR, "RL.PEEK k ) COST 8", [0, 10, 7, HOUR, HOUR]),
                (HOUR, "RL.QUOTA k 10 day ZONE Europe/Berlin COST 7", [1, 10, 0, 0, day]),
                (HOUR, "RL.COMMIT k a ) COST 2", [1, 10, 1, 0, day]),
                // The reservation is settled once, and its id is remembered until the reservation
                // would have ended.
                (HOUR, "RL.COMMIT k a ) COST 9", [1, 10, 1, 0, day]),
                (HOUR, "RL.CANCEL k a )", [0, 10, 1, 0, day]),
                (2 * HOUR - 1, "RL.COMMIT k a )", [1, 10, 1, 0, day - HOUR + 1]),
                (2 * HOUR, "RL.COMMIT k a )", [0, 10, 1, 0, day - HOUR]),
                // The last millisecond of the second day, and the first of the third.
                (HOUR + day - 1, "RL.PEEK k ) COST 2", [0, 10, 1, 1, 1]),
                (HOUR + day, "RL.PEEK k ) COST 10", [1, 10, 0, 0, 24 * HOUR]),
            ],
        );
        client.integer("DEL k");
    }
}

#[test]
fn commit_after_its_reservation_expired_returns_0_and_charges_nothing() {
    let server = Server::start();
    let mut client = server.client();
    play(
        &mut client,
        "2026-03-28T22:59",
        &[
            (0, "RL.RESERVE k a 2m ) COST 4", [1, 10, 6, 0, 120_000]),
            (119_999, "RL.PEEK k ) COST 7", [0, 10, 6, 1, 1]),
            (120_000, "RL.COMMIT k a ) COST 9", [0, 10, 10, 0, 0]),
            (120_000, "RL.QUOTA k 10 day ZONE Europe/Berlin COST 10", [1, 10, 0, 0, 82_740_000]),
        ],
    );
    assert_eq!(client.integer("STRLEN k"), 12, "the plain form again");
}

#[test]
fn retry_time_is_exact_across_expiries_and_the_end_of_the_day() {
    let server = Server::start();
    let mut client = server.client();
    let from = utc("2026-03-28T22:00");
    for cost in 2..=10 {
        client.freeze(from);
        for (id, ttl, held) in [("a", "10m", 2), ("b", "1h", 1), ("c", "90m", 2), ("d", "25h", 2)] {
            let call = format!("RL.RESERVE k {id} {ttl} {RULE} COST {held}");
            assert_eq!(client.decide(&call)[0], 1, "{call}");
        }
        assert!(client.allows("RL.QUOTA k 10 day ZONE Europe/Berlin COST 2"));
        let call = format!("RL.QUOTA k 10 day ZONE Europe/Berlin COST {cost}");
        // One unit is left. Two more return after ten minutes, three more at midnight, and so on.
        let [.., retry_ms, reset_ms] = client.decide(&call);
        let expected = match cost {
            2..=3 => 10 * 60_000,
            4..=6 => HOUR,
            7..=8 => 90 * 60_000,
            _ => 25 * HOUR,
        };
        assert_eq!((retry_ms, reset_ms), (expected, 25 * HOUR), "{call}");
        client.advance_ms(retry_ms - 1);
        assert_eq!(client.decide(&call)[3], 1, "{call}");
        client.advance_ms(1);
        assert!(client.allows(&call), "{call}");
        client.integer("DEL k");
    }
}

#[test]
fn plain_calls_charges_refunds_and_partial_grants_respect_reservations() {
    let server = Server::start();
    let mut client = server.client();
    let quota = "RL.QUOTA k 10 day ZONE Europe/Berlin";
    let (until, last) = (HOUR, 3 * HOUR);
    let part = format!("{quota} COST 9 PARTIAL");
    play(
        &mut client,
        "2026-03-28T22:00",
        &[
            (0, "RL.RESERVE k a 3h ) COST 4", [1, 10, 6, 0, last]),
            (0, "RL.RESERVE k b 30m ) COST 7", [0, 10, 6, last, last]),
            (0, "RL.RESERVE k b 30m ) COST 11", [0, 10, 6, -1, last]),
            (0, quota, [1, 10, 5, 0, last]),
            (0, "RL.PEEK k ) COST 9 PARTIAL", [5, 10, 0, 0, last]),
            (0, &part, [5, 10, 0, 0, last]),
            (0, &part, [0, 10, 0, until, last]),
            (0, "RL.CHARGE k ) COST 2", [0, 10, 0, until, last]),
            // A refund returns used units, and never reserved ones.
            (0, "RL.REFUND k ) COST 99", [1, 10, 6, 0, last]),
            (0, "RL.REFUND k ) COST 1", [1, 10, 6, 0, last]),
            (0, "RL.COMMIT k a ) COST 12", [1, 10, 0, until, until]),
            (0, "RL.CHARGE k ) COST 0", [0, 10, 0, until, until]),
            (until, "RL.PEEK k ) COST 10", [1, 10, 0, 0, 23 * HOUR]),
        ],
    );
    client.integer("DEL k");
    client.decide(&line("RL.RESERVE k a 2h ) COST 8"));
    let all =
        call("RL.ALL", &[("k", "QUOTA 10 day ZONE Europe/Berlin COST 3"), ("o", "GCRA 5 5 60")]);
    let before = client.contents();
    let denied = decision_of(&client.call(&all)).expect("a decision");
    assert_eq!((denied.five, denied.rule), ([0, 10, 2, 2 * HOUR, 2 * HOUR], 1));
    assert_eq!(client.contents(), before, "none of the rules has taken anything");
    client.decide(&line("RL.CANCEL k a )"));
    assert_eq!(decision_of(&client.call(&all)).expect("a decision").five[0], 1);
}

#[test]
fn keys_of_fixed_and_of_quota_with_reservations_are_not_confused() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(utc("2026-07-15T12:00"));
    let rules = ["FIXED 10 1d", RULE, "GCRA 10 10 60"];
    for (key, rule) in [("f", rules[0]), ("q", rules[1])] {
        assert!(client.decide(&format!("RL.RESERVE {key} a 1h {rule} COST 3"))[0] == 1);
        let before = client.snapshot(key);
        for other in rules.into_iter().filter(|other| *other != rule) {
            let (name, rest) = other.split_once(' ').expect("a rule");
            let mut calls = vec![
                format!("RL.{name} {key} {rest}"),
                format!("RL.PEEK {key} {other}"),
                format!("RL.CHARGE {key} {other}"),
                format!("RL.REFUND {key} {other}"),
            ];
            if !other.starts_with("GCRA") {
                calls.push(format!("RL.RESERVE {key} a 1h {other}"));
                calls.push(format!("RL.COMMIT {key} a {other}"));
                calls.push(format!("RL.CANCEL {key} a {other}"));
                calls.push(format!("{} PARTIAL", calls[0]));
            }
            for call in calls {
                assert_eq!(client.error(&call), WRONGTYPE, "{call}");
            }
            let all = ["RL.ALL", key, other];
            assert!(
                raw_error(&client.call(&all)).is_some_and(|e| e.starts_with("WRONGTYPE rule 1"))
            );
        }
        assert_eq!(client.snapshot(key), before);
    }
    // The first two bytes name the kind. With the first two bytes of FIXED, the rest of this state
    // is valid as a window.
    let quota = client.bytes("GET q");
    let as_fixed = [&[0x93, 0xf5], &quota[2..]].concat();
    client.call(&[b"SET".as_slice(), b"x", &as_fixed]);
    assert_eq!(client.error(&format!("RL.PEEK x {RULE}")), WRONGTYPE);
    assert_eq!(client.decide("RL.PEEK x FIXED 10 1d COST 0")[2], 7);
}

#[test]
fn inspect_shows_a_period_and_its_reservations() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(utc("2026-07-15T12:00"));
    for call in [
        "RL.RESERVE k a 1h ) COST 3",
        "RL.RESERVE k b 2h ) COST 2",
        "RL.RESERVE k c 2h ) COST 4",
        "RL.COMMIT k c )",
    ] {
        assert_eq!(client.decide(&line(call))[0], 1, "{call}");
    }
    let fields = |period: &str, numbers: [i64; 4]| {
        let names = ["used", "reserved", "reservations_open", "reservations_settled"];
        let front = [
            ("algorithm".to_owned(), Value::BulkString(b"QUOTA".to_vec())),
            ("period_start_us".to_owned(), Value::Int(utc(period))),
        ];
        let rest = names.map(str::to_owned).into_iter().zip(numbers.map(Value::Int));
        front.into_iter().chain(rest).collect::<Vec<_>>()
    };
    assert_eq!(inspected(&mut client, "k"), fields("2026-07-14T22:00", [4, 5, 2, 1]));
    client.advance_ms(HOUR);
    assert_eq!(inspected(&mut client, "k"), fields("2026-07-14T22:00", [4, 2, 1, 1]));
    client.advance_ms(HOUR);
    assert_eq!(inspected(&mut client, "k"), fields("2026-07-14T22:00", [4, 0, 0, 0]));
}

#[test]
fn in_another_zone_reservations_count_and_usage_counts_if_its_period_is_current() {
    let server = Server::start();
    let mut client = server.client();
    let last = 90 * 60_000;
    play(
        &mut client,
        // It is 23:00 on the 14th in UTC, 01:00 on the 15th in Berlin, and 08:00 on the 15th in
        // Tokyo.
        "2026-07-14T23:00",
        &[
            (0, "RL.QUOTA k 10 day ZONE Europe/Berlin COST 5", [1, 10, 5, 0, 23 * HOUR]),
            (0, "RL.RESERVE k a 90m ) COST 2", [1, 10, 3, 0, 23 * HOUR]),
            // Berlin's day began at 22:00 UTC, on the day in UTC that ends in an hour.
            (0, "RL.PEEK k QUOTA 10 day COST 4", [0, 10, 3, HOUR, last]),
            (0, "RL.PEEK k QUOTA 10 day COST 9", [0, 10, 3, last, last]),
            (HOUR, "RL.PEEK k QUOTA 10 day COST 8", [1, 10, 0, 0, 24 * HOUR]),
            // Tokyo's day began at 15:00 UTC.
            (0, "RL.PEEK k QUOTA 10 day ZONE Asia/Tokyo COST 6", [0, 10, 3, 16 * HOUR, 16 * HOUR]),
            // The commit uses the calendar of its own call, so it counts on the day in UTC, with 5
            // units used.
            (0, "RL.COMMIT k a QUOTA 10 day", [1, 10, 3, 0, HOUR]),
            (0, "RL.COMMIT k a )", [1, 10, 3, 0, 23 * HOUR]),
        ],
    );
}

#[test]
fn plain_call_sends_16_bytes_with_any_number_of_remembered_ids() {
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    for number in 0..200 {
        client.decide(&format!("RL.RESERVE k job-{number:040} 1h QUOTA 1000 year COST 2"));
    }
    stream.effects(&mut client);
    let length = client.integer("STRLEN k");
    let mut first = vec![b"PEXPIREAT".to_vec()];
    for call in [
        "RL.QUOTA k 1000 year COST 100",
        "RL.QUOTA k 1000 year",
        "RL.CHARGE k QUOTA 1000 year COST 5000",
        "RL.REFUND k QUOTA 1000 year COST 4999",
    ] {
        assert_eq!(client.decide(call).len(), 5);
        let mut effects = stream.effects(&mut client);
        // The first call opens a period that ends after all reservations, so the expiry moves.
        effects.retain(|effect| !matches!(effect[0].as_slice(), b"MULTI" | b"EXEC"));
        if first.pop().is_some() {
            assert_eq!(effects.pop().expect("two")[0], b"PEXPIREAT", "{call}");
        }
        let offset = (length - 16).to_string().into_bytes();
        let tail = client.bytes("GET k")[length as usize - 16..].to_vec();
        assert_eq!(effects, [[b"SETRANGE".to_vec(), b"k".to_vec(), offset, tail]], "{call}");
    }
    // A denied call has no effect. A commit sends the whole state.
    assert!(!client.allows("RL.QUOTA k 1000 year COST 1000"));
    assert!(stream.effects(&mut client).is_empty());
    client.decide(&format!("RL.COMMIT k job-{:040} QUOTA 1000 year", 7));
    let effects = stream.effects(&mut client);
    let state = client.bytes("GET k");
    assert_eq!(effects, [[b"SET".to_vec(), b"k".to_vec(), state, b"KEEPTTL".to_vec()]]);
}
