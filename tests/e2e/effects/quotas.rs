//! The effects of `RL.QUOTA` on this server, on replicas and on disk, and its replies on keys of
//! other kinds. A denied call has no effect unless it repairs the state.

use redis::Value;

use support::utc;
use support::{Client, Server, WRONGTYPE, replica_of, text, wait_for_offset};

const CALL: &str = "RL.QUOTA k 5 month START 15 ZONE Europe/Berlin";
const RULE: &str = "QUOTA 5 month START 15 ZONE Europe/Berlin";

/// Returns the documented bytes of a state whose period started at `start_us`.
fn state(start_us: i64, used: u8) -> Vec<u8> {
    [&[0x93, 0xf6, 0xcf], start_us.to_be_bytes().as_slice(), &[used]].concat()
}

/// Formats the words of an effect.
fn format_effect(effect: &[Vec<u8>]) -> Vec<String> {
    effect.iter().map(|word| word.escape_ascii().to_string()).collect()
}

/// Returns the start of the current year in UTC, by the server's clock.
fn this_year_us(client: &mut Client) -> i64 {
    let now = jiff::Timestamp::from_microsecond(client.server_time_us()).expect("a time");
    let year = now.to_zoned(jiff::tz::TimeZone::UTC).year();
    utc(&format!("{year}-01-01T00:00"))
}

#[test]
fn allowed_quota_call_has_an_absolute_effect_and_a_denied_one_has_none() {
    // Uses the real clock: on a frozen one, every expiry is a little later than the one before.
    const CALL: &str = "RL.QUOTA k 5 year";
    let server = Server::start();
    let mut client = server.client();
    let mut stream = server.replication_stream();
    assert!(client.allows(CALL));
    let start_us = this_year_us(&mut client);
    let expiry = client.integer("PEXPIRETIME k").to_string();
    let key = |used, rest: &[&str]| {
        let rest = rest.iter().map(|word| word.as_bytes().to_vec());
        let front = [b"SET".to_vec(), b"k".to_vec(), state(start_us, used)];
        front.into_iter().chain(rest).collect::<Vec<_>>()
    };
    assert_eq!(stream.effects(&mut client), [key(1, &["PXAT", &expiry])]);
    assert_eq!(client.bytes("GET k"), state(start_us, 1));
    // The end of a period does not change, so the expiry stays.
    assert!(client.allows(&format!("{CALL} COST 3")));
    assert_eq!(stream.effects(&mut client), [key(4, &["KEEPTTL"])]);
    client.decide("RL.CHARGE k QUOTA 5 year COST 3");
    client.decide("RL.REFUND k QUOTA 5 year COST 2");
    assert_eq!(stream.effects(&mut client), [key(7, &["KEEPTTL"]), key(5, &["KEEPTTL"])]);
    let (before, changes) = (client.snapshot("k"), client.changes());
    for _ in 0..25 {
        for denied in [CALL.to_owned(), format!("{CALL} COST 6"), format!("{CALL} PARTIAL")] {
            assert!(!client.allows(&denied), "{denied}");
        }
        for read in [&format!("{CALL} COST 0"), "RL.PEEK k QUOTA 5 year", "RL.INSPECT k"] {
            client.run(read);
        }
        client.error(&format!("{CALL} COST x"));
    }
    assert_eq!((client.snapshot("k"), client.changes()), (before, changes));
    assert!(stream.effects(&mut client).is_empty(), "a denial is no effect");
    // A repair, after a step back of two years, is an effect too, though the call is denied.
    client.freeze(start_us - 2 * 31_536_000_000_000);
    assert!(!client.allows(CALL));
    let effects = stream.effects(&mut client);
    assert_eq!((effects.len(), effects[0][0].as_slice()), (1, b"SET".as_slice()));
    assert_eq!(effects[0][2], client.bytes("GET k"));
    client.decide("RL.REFUND k QUOTA 5 year COST 99");
    let effects: Vec<_> = stream.effects(&mut client).iter().map(|e| format_effect(e)).collect();
    assert_eq!(effects, [["DEL", "k"]]);
}

#[test]
fn key_expires_at_the_end_of_its_period() {
    let server = Server::start();
    let mut client = server.client();
    const DAY_MS: i64 = 86_400_000;
    // Repeats the call if midnight passes between the call and the reading of the date.
    let (ends_ms, expiry_ms) = loop {
        client.integer("DEL k");
        let today = client.server_time_us() / 1_000 / DAY_MS;
        assert!(client.allows("RL.QUOTA k 5 day"));
        let expiry_ms = client.integer("PEXPIRETIME k");
        if client.server_time_us() / 1_000 / DAY_MS == today {
            break ((today + 1) * DAY_MS, expiry_ms);
        }
    };
    assert_eq!(expiry_ms, ends_ms);
    // A call sets the expiry again after PERSIST.
    assert_eq!(client.integer("PERSIST k"), 1);
    assert!(client.allows("RL.QUOTA k 5 year"));
    assert!(client.integer("PEXPIRETIME k") >= ends_ms);
}

#[test]
fn replicas_and_files_hold_the_primarys_bytes_of_a_quota() {
    let setup = Server::setup().with_tcp().line("appendonly yes").line("appendfsync always");
    let mut primary = setup.start();
    let mut client = primary.client();
    let replica = replica_of(&primary);
    assert!(client.allows("RL.QUOTA a 9 day ZONE Asia/Kolkata COST 4"));
    assert!(client.allows("RL.QUOTA b 9 year START 12"));
    client.decide("RL.CHARGE c QUOTA 9 week START wed COST 20");
    client.decide("RL.REFUND c QUOTA 9 week START wed COST 3");
    client.run_in_script("RL.QUOTA d 9 quarter ZONE Africa/Cairo");
    client.ok("MULTI");
    client.ok_queued(&["RL.QUOTA", "e", "9", "month"]);
    client.ok_queued(&["RL.QUOTA", "e", "9", "month", "COST", "2"]);
    assert!(matches!(client.run("EXEC"), Value::Array(replies) if replies.len() == 2));
    let expected = client.contents();
    assert_eq!(expected.len(), 5);
    assert!(expected.iter().all(|(.., expiry_ms)| *expiry_ms > 0), "every key has a TTL");
    wait_for_offset(&primary, &replica);
    let mut reader = replica.client();
    assert_eq!(reader.contents(), expected);
    // A replica serves PEEK, and refuses calls that decide.
    assert_eq!(reader.decide("RL.PEEK e QUOTA 9 month COST 0")[..4], [1, 9, 6, 0]);
    for call in ["RL.QUOTA e 9 month", "RL.CHARGE e QUOTA 9 month", "RL.REFUND e QUOTA 9 month"] {
        assert!(reader.error(call).starts_with("READONLY"), "{call}");
    }
    primary.crash();
    primary.start_again();
    assert_eq!(primary.client().contents(), expected, "after kill -9 and a replay of the AOF");
}

#[test]
fn quota_commands_accept_only_a_valid_quota_state() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(utc("2026-07-20T12:00"));
    let good = state(utc("2026-07-14T22:00"), 4);
    let mut forged: Vec<Vec<u8>> = vec![
        [good.as_slice(), &[0]].concat(),  // a byte too many
        good[..11].to_vec(),               // a byte too few
        state(utc("2026-07-14T22:00"), 0), // no used units
        state(1 << 53, 4),                 // a start above the maximum
        state(-1, 4),
        [&[0x93, 0xff], &good[2..]].concat(), // a fixed window's kind
        [&[0x93, 0xf5], &good[2..]].concat(), // an unknown kind
        [&[0x94, 0xf6], &good[2..], &[1]].concat(), // one number too many
        [&good[..11], &[0xcc, 4]].concat(),   // a longer encoding of the number
        [&good[..11], &[0xcf, 0, 0, 1, 0xd1, 0xa9, 0x4a, 0x20, 1]].concat(), // too large a debt
        b"hello".to_vec(),
    ];
    forged.push(Vec::new());
    for bytes in forged {
        client.call(&[b"SET".as_slice(), b"k", &bytes]);
        let before = client.snapshot("k");
        for call in [CALL.to_owned(), format!("RL.PEEK k {RULE}")] {
            assert_eq!(client.error(&call), WRONGTYPE, "{call} on {bytes:02x?}");
        }
        for verb in ["RL.CHARGE", "RL.REFUND"] {
            assert_eq!(client.error(&format!("{verb} k {RULE}")), WRONGTYPE, "{bytes:02x?}");
        }
        assert_eq!(client.snapshot("k"), before, "{bytes:02x?}");
    }
    client.call(&[b"SET".as_slice(), b"k", &good]);
    assert_eq!(client.decide(CALL)[..3], [1, 5, 0]);
    assert!(client.integer("PTTL k") > 0, "it has an end now");
    for other in ["RL.FIXED k 5 60", "RL.GCRA k 5 5 60", "RL.BACKOFF k 3 1s 2s 1h"] {
        assert_eq!(client.error(other), WRONGTYPE, "{other}");
    }
    let Value::Array(fields) = client.run("RL.INSPECT k") else { panic!("no state") };
    let names: Vec<_> = fields.iter().step_by(2).map(text).collect();
    assert_eq!(names, ["algorithm", "period_start_us", "used"]);
    assert_eq!(text(&fields[1]), "QUOTA");
    assert_eq!(fields[3], Value::Int(utc("2026-07-14T22:00")));
    assert_eq!(fields[5], Value::Int(5));
    // A state with any start in range is decided on, and a call leaves a valid state.
    for start_us in [0, 1, (1 << 53) - 1, utc("2200-01-01T00:00"), utc("2026-07-20T12:00")] {
        client.call(&[b"SET".as_slice(), b"k", &state_of(start_us)]);
        for rule in ["day ZONE Pacific/Apia", "week", "month START 31", "quarter", "year START 12"]
        {
            let reply = client.decide(&format!("RL.QUOTA k 9 {rule}"));
            assert!(reply[3] >= 0 && reply[4] > 0, "{start_us} {rule}: {reply:?}");
            assert!(client.integer("PTTL k") > 0, "{start_us} {rule}");
        }
    }
}

/// Returns the state with this start, in the shortest encoding.
fn state_of(start_us: i64) -> Vec<u8> {
    match start_us {
        0..=0x7f => vec![0x93, 0xf6, start_us as u8, 1],
        _ => state(start_us, 1),
    }
}

#[test]
fn quota_calls_are_counted_as_allowed_denied_or_error() {
    let server = Server::start();
    let mut client = server.client();
    for _ in 0..7 {
        client.decide(CALL);
    }
    client.error("RL.QUOTA k 5 fortnight");
    let info = client.info("rl");
    let numbers =
        ["rl_quota_allowed", "rl_quota_denied", "rl_errors"].map(|name| info[name].clone());
    assert_eq!(numbers, ["5", "2", "1"]);
}
