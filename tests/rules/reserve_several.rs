//! `RESERVE` as a rule of `RL.ALL` and `RL.PEEKALL`: a call takes the reservation and the units
//! of all other rules, or none of them.

use support::several::{Decision, call, decide};
use support::{BASE_US, Client, Random, Server, raw_error};

/// Returns the decision of RL.ALL. Asserts that RL.PEEKALL returns the same and changes nothing.
fn all(client: &mut Client, pairs: &[(&str, &str)]) -> Decision {
    let before = client.contents();
    let peeked = decide(client, "RL.PEEKALL", pairs);
    assert_eq!(client.contents(), before, "{pairs:?} peeked");
    let decision = decide(client, "RL.ALL", pairs);
    assert_eq!(decision, peeked, "{pairs:?}");
    decision
}

fn error(client: &mut Client, command: &str, pairs: &[(&str, &str)]) -> String {
    let value = client.call(&call(command, pairs));
    raw_error(&value).unwrap_or_else(|| panic!("{pairs:?}: no error: {value:?}"))
}

/// A rule that allows no call.
const NEVER: (&str, &str) = ("never", "FIXED 1 60 COST 2");

#[test]
fn gateway_takes_a_request_a_reservation_and_a_permit_together() {
    let server = Server::start();
    for mut client in [server.client(), server.client3()] {
        client.run("FLUSHALL");
        client.freeze(BASE_US);
        let rules = |id: &str| {
            [
                ("{t}:rpm", "GCRA 20 60 60".to_owned()),
                ("{t}:tpm", "TOKENBUCKET 90000 90000 60 COST 1800".to_owned()),
                ("{t}:month", format!("RESERVE {id} 30s QUOTA 5000000 month COST 1800")),
                ("{t}:runs", format!("LEASE {id} 4 2m")),
            ]
        };
        let start = |client: &mut Client, id: &str| {
            let rules = rules(id);
            all(client, &rules.each_ref().map(|(key, rule)| (*key, rule.as_str())))
        };
        // The rows of the first call: the month is unused, so it is full again when the reservation
        // expires.
        let expected = Decision {
            five: [1, 4, 3, 0, 120_000],
            rule: 4,
            rows: vec![
                [1, 20, 19, 0, 1_000],
                [1, 90_000, 88_200, 0, 1_200],
                [1, 5_000_000, 4_998_200, 0, 30_000],
                [1, 4, 3, 0, 120_000],
            ],
        };
        assert_eq!(start(&mut client, "job-7"), expected);
        for id in ["job-8", "job-9", "job-10"] {
            assert_eq!(start(&mut client, id).five[0], 1, "{id}");
        }
        let before = client.contents();
        let denied = start(&mut client, "job-11");
        assert_eq!((denied.five, denied.rule), ([0, 4, 0, 120_000, 120_000], 4));
        // The row of a reservation that would fit shows the units left, without it.
        assert_eq!(denied.rows[2], [1, 5_000_000, 4_992_800, 0, 30_000]);
        assert_eq!(client.contents(), before);
        let committed = client.decide("RL.COMMIT {t}:month job-7 QUOTA 5000000 month COST 1500");
        assert_eq!(committed[..3], [1, 5_000_000, 4_993_100]);
        client.integer("RL.RELEASE {t}:runs job-7");
        assert_eq!(start(&mut client, "job-11").five[0], 1);
    }
}

#[test]
fn row_is_the_reply_of_the_single_reservation_and_so_is_a_peek() {
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(220);
    let mut now_us = BASE_US;
    let (mut allowed, mut denied, mut refused) = (0, 0, 0);
    for _ in 0..4_000 {
        now_us += random.below(900_000) as i64;
        client.freeze(now_us);
        let rule = *random.pick(&["FIXED 10 20", "QUOTA 10 day", "FIXED 10 20 ALIGNED"]);
        let key = &rule[..5];
        let id = format!("job-{}", random.below(9));
        let leave = match random.below(4) {
            0 => format!(" LEAVE {}", random.below(4)),
            1 => " LEAVE 20%".to_owned(),
            _ => String::new(),
        };
        let words =
            format!("{id} {}s {rule} COST {}{leave}", 1 + random.below(30), random.below(12),);
        let peek = format!("RL.PEEK {key} RESERVE {words}");
        let single = format!("RL.RESERVE twin:{key} {words}");
        let packed = format!("reserve  {words} ");
        let pairs = [(key, packed.as_str()), ("other", "GCRA 5 50 1 COST 0")];
        if random.below(3) == 0 {
            let verb = *random.pick(&["COMMIT", "CANCEL"]);
            for key in [key.to_owned(), format!("twin:{key}")] {
                client.decide(&format!("RL.{verb} {key} {id} {rule}"));
            }
        }
        let expected = client.run(&single);
        assert_eq!(client.run(&peek), expected, "{peek}");
        if let Some(text) = raw_error(&expected) {
            refused += 1;
            let numbered = text.replacen("ERR ", "ERR rule 1: ", 1);
            for command in ["RL.PEEKALL", "RL.ALL"] {
                assert_eq!(error(&mut client, command, &pairs), numbered);
                // The error is the same if another rule denies.
                let vain = [NEVER, pairs[0]];
                let numbered = text.replacen("ERR ", "ERR rule 2: ", 1);
                assert_eq!(error(&mut client, command, &vain), numbered);
            }
            continue;
        }
        let before = client.snapshot(key);
        let vain = all(&mut client, &[NEVER, pairs[0]]);
        assert_eq!((vain.five, vain.rule), ([0, 1, 1, -1, 0], 1), "{words}");
        assert_eq!(client.snapshot(key), before, "{words}");
        let decision = all(&mut client, &pairs);
        let single = support::integers(&expected).expect("a decision");
        assert_eq!(vain.rows[1][0], single[0], "{words}");
        assert_eq!(decision.rows[0], single, "{words}");
        assert_eq!(decision.five[0], single[0], "{words}");
        let counter = if single[0] == 1 { &mut allowed } else { &mut denied };
        *counter += 1;
        let twin = client.call(&["DUMP", &format!("twin:{key}")]);
        assert_eq!(client.call(&["DUMP", key]), twin, "{words}");
    }
    assert!(allowed > 500 && denied > 500 && refused > 100, "{allowed} {denied} {refused}");
}

#[test]
fn open_reservation_is_replaced_or_stays_as_it_was() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let reserve = |seconds: u64, cost: u64| format!("RESERVE a {seconds}s FIXED 10 60 COST {cost}");
    let of = |rule: &str| [("k".to_owned(), rule.to_owned()), ("g".into(), "GCRA 9 1 1h".into())];
    let mut call = |rule: &str, other: Option<(&str, &str)>| {
        let pairs = of(rule);
        let mut pairs: Vec<_> = pairs.iter().map(|(k, r)| (k.as_str(), r.as_str())).collect();
        pairs.extend(other);
        all(&mut client, &pairs)
    };
    assert_eq!(call(&reserve(30, 4), None).rows[0], [1, 10, 6, 0, 30_000]);
    // Its own four units do not count. The other rule is taken again.
    let again = call(&reserve(60, 9), None);
    assert_eq!((again.rows[0], again.rows[1][2]), ([1, 10, 1, 0, 60_000], 7));
    // A denial by the reservation, and one by another rule, leave it as it was.
    assert_eq!(call(&reserve(20, 11), None).rows[0], [0, 10, 1, -1, 60_000]);
    let vain = call(&reserve(20, 2), Some(NEVER));
    assert_eq!((vain.rows[0], vain.rows[1][2]), ([1, 10, 1, 0, 60_000], 7));
    assert_eq!(client.decide("RL.COMMIT k a FIXED 10 60"), [1, 10, 1, 0, 60_000]);
}

#[test]
fn deciding_rule_counts_the_units_that_the_reservation_leaves() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // Nine units, of which seven stay: one more call of cost 2. The other rule allows two.
    let pairs = [("g", "GCRA 3 1 60"), ("k", "RESERVE a 30s FIXED 11 60 COST 2 LEAVE 7")];
    let decision = all(&mut client, &pairs);
    assert_eq!((decision.five, decision.rule), ([1, 11, 9, 0, 30_000], 2));
    let denied = all(&mut client, &[("k", "RESERVE b 30s FIXED 11 60 COST 3 LEAVE 7"), pairs[0]]);
    assert_eq!((denied.five, denied.rule), ([0, 11, 9, 30_000, 30_000], 1));
    // COST 0 never runs out, and what it leaves still decides. It remembers its id.
    let pairs = [("k", "RESERVE z 30s FIXED 11 60 COST 0 LEAVE 9"), ("g", "GCRA 3 1 60")];
    let decision = all(&mut client, &pairs);
    assert_eq!((decision.rows[0], decision.rule), ([1, 11, 9, 0, 30_000], 2));
    assert!(client.allows("RL.COMMIT k z FIXED 11 60"));
}

#[test]
fn denied_call_writes_nothing_but_the_repair_of_its_own_key() {
    let server = Server::setup().line("notify-keyspace-events EAm").start();
    let mut client = server.client();
    let mut listener = server.client3();
    client.freeze(BASE_US);
    client.decide("RL.RESERVE k a 30s FIXED 10 60 COST 4");
    client.decide("RL.GCRA g 9 1 60");
    listener.subscribe("__keyevent@0__:*");
    let mut stream = server.replication_stream();
    let (before, changes) = (client.contents(), client.changes());
    let pairs = [
        ("k", "RESERVE b 30s FIXED 10 60 COST 4"),
        ("g", "GCRA 9 1 60"),
        ("n", "FIXED 9 60"),
        NEVER,
    ];
    for _ in 0..3 {
        assert_eq!(decide(&mut client, "RL.ALL", &pairs).five[0], 0);
    }
    assert_eq!((client.contents(), client.changes()), (before.clone(), changes));
    assert!(stream.effects(&mut client).is_empty());
    // The reservation of 30 s now lies a minute ahead of the clock.
    client.freeze(BASE_US - 90_000_000);
    listener.pushed();
    let denied = decide(&mut client, "RL.ALL", &pairs);
    assert_eq!(denied.rows[0], [1, 10, 6, 0, 30_000]);
    let effects = stream.effects(&mut client);
    let keys: Vec<_> = effects.iter().filter(|words| words.len() > 2).map(|w| &w[1]).collect();
    assert!(keys.iter().all(|key| [b"k".to_vec(), b"g".to_vec()].contains(key)), "{effects:?}");
    assert_eq!(client.decide("RL.CANCEL k b FIXED 10 60")[0], 0, "b holds nothing");
    assert_eq!(client.decide("RL.CANCEL k a FIXED 10 60")[0], 1);
    assert_eq!(client.integer("EXISTS n never"), 0);
}

#[test]
fn wrong_reservation_gets_an_error_with_the_number_of_its_rule() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    client.ok("RL.POLICY SET bucket GCRA 5 5 60");
    client.decide("RL.GCRA g 5 5 60");
    client.decide("RL.RESERVE s settled 1h FIXED 10 60");
    client.decide("RL.COMMIT s settled FIXED 10 60");
    let before = client.contents();
    let reservable =
        "ERR rule 2: invalid algorithm: expected FIXED or QUOTA, which allow reservations, or USE";
    let words = "ERR rule 2: wrong number of arguments: expected";
    let rows = [
        ("k", "RESERVE", format!("{words} RESERVE id ttl rule")),
        ("k", "RESERVE a 30s", format!("{words} RESERVE id ttl rule")),
        ("k", "RESERVE a 30s FIXED 10", format!("{words} FIXED limit window")),
        ("k", "RESERVE a 30s USE", format!("{words} USE policy")),
        ("k", "RESERVE a 0s FIXED 10 60", "ERR rule 2: invalid ttl: expected a duration".into()),
        ("k", "RESERVE a 30s GCRA 5 5 60", reservable.into()),
        ("k", "RESERVE a 30s RESERVE b 30s FIXED 10 60", reservable.into()),
        ("k", "RESERVE a 30s LEASE b 3 30s", reservable.into()),
        ("k", "RESERVE a 30s FIXED 10 60 PARTIAL", "ERR rule 2: invalid option: PARTIAL".into()),
        ("k", "RESERVE a 30s FIXED 10 60 COST 1 COST 1", "ERR rule 2: repeated option".into()),
        ("k", "RESERVE a 30s USE none", "NOPOLICY rule 2: no such policy".into()),
        ("k", "RESERVE a 30s USE bucket", "ERR rule 2: invalid policy: expected a rule".into()),
        ("g", "RESERVE a 30s FIXED 10 60", "WRONGTYPE rule 2: the key does not hold".into()),
        ("s", "RESERVE settled 30s FIXED 10 60", "ERR rule 2: invalid id: already".into()),
    ];
    for (key, rule, expected) in rows {
        for first in [("f", "FIXED 9 60"), NEVER] {
            for command in ["RL.ALL", "RL.PEEKALL"] {
                let text = error(&mut client, command, &[first, (key, rule)]);
                assert!(text.starts_with(&expected), "{rule}: {text}");
            }
        }
    }
    // A reservation is not a rule of other commands, and not the rule of a policy.
    let refused = "ERR invalid algorithm: RESERVE is not allowed here";
    assert_eq!(client.error("RL.CHARGE k RESERVE a 30s FIXED 10 60"), refused);
    assert_eq!(client.error("RL.REFUND k RESERVE a 30s FIXED 10 60"), refused);
    for (line, start) in [
        ("RL.POLICY SET p RESERVE a 30s FIXED 10 60", "ERR invalid rule: expected FIXED"),
        ("RL.USE k p DEFAULT RESERVE a 30s FIXED 10 60", "ERR invalid algorithm: expected FIXED"),
        ("RL.RESERVE k a 30s RESERVE b 30s FIXED 1 1", "ERR invalid algorithm: expected FIXED"),
    ] {
        let text = client.error(line);
        assert!(text.starts_with(start), "{line}: {text}");
    }
    assert_eq!(client.contents(), before);
}

#[test]
fn one_id_too_many_is_an_error_also_when_another_rule_denies() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for number in 0..1_024 {
        client.decide(&format!("RL.RESERVE k {number} 1h QUOTA 1000000 year"));
    }
    let before = client.contents();
    let full = ("k", "RESERVE more 1h QUOTA 1000000 year");
    for pairs in [[full, ("g", "GCRA 5 5 60")], [full, NEVER]] {
        let text = error(&mut client, "RL.ALL", &pairs);
        assert_eq!(
            text,
            "ERR rule 1: too many reservations: a key remembers at most 1024 ids at a time"
        );
    }
    assert_eq!(client.contents(), before);
    let replaced = all(&mut client, &[("k", "RESERVE 7 1h QUOTA 1000000 year COST 9")]);
    assert_eq!(replaced.five[0], 1);
}
