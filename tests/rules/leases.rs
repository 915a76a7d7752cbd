//! `RL.LEASE`, `RL.RENEW` and `RL.RELEASE`: their replies, alone and in calls with several rules.

use redis::Value;

use support::leases::inspected;
use support::{ALGORITHMS, BASE_US, Client, Reply, Server, WRONGTYPE, integers, play, raw_error};

#[test]
fn leases_never_exceed_the_limit_and_a_released_one_is_free_again() {
    let server = Server::start();
    let mut client = server.client();
    let table: [(i64, &str, Reply); 5] = [
        (0, "RL.LEASE exports:7 job-1 3 60s", [1, 3, 2, 0, 60_000]),
        (10, "RL.LEASE exports:7 job-2 3 60s", [1, 3, 1, 0, 60_000]),
        (20, "RL.LEASE exports:7 job-3 3 60s", [1, 3, 0, 0, 60_000]),
        (20, "RL.PEEK exports:7 LEASE job-4 3 60s", [0, 3, 0, 59_980, 60_000]),
        (20, "RL.LEASE exports:7 job-4 3 60s", [0, 3, 0, 59_980, 60_000]),
    ];
    play(&mut client, &table);
    assert_eq!(client.integer("RL.RELEASE exports:7 job-2"), 1);
    assert_eq!(client.integer("RL.RELEASE exports:7 job-2"), 0, "once only");
    assert_eq!(client.decide("RL.LEASE exports:7 job-4 3 60s"), [1, 3, 0, 0, 60_000]);
    // Another key has its own holders.
    assert_eq!(client.decide("RL.LEASE exports:8 job-1 3 60s"), [1, 3, 2, 0, 60_000]);
}

#[test]
fn lease_of_a_killed_worker_is_free_at_its_ttl_and_not_before() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    {
        let mut worker = server.client();
        assert!(worker.allows("RL.LEASE k worker 1 60s"));
        client.advance_ms(20_000);
        assert_eq!(worker.integer("RL.RENEW k worker 60s"), 1);
    }
    // The worker's connection is gone and it no longer renews: its lease ends 60 s after the last
    // renewal.
    for (at_us, free) in [(20_000_000, 0), (79_999_000, 0), (79_999_999, 0), (80_000_000, 1)] {
        client.freeze(BASE_US + at_us);
        let peek = client.decide("RL.PEEK k LEASE other 1 60s");
        assert_eq!(peek[0], free, "{at_us}: {peek:?}");
        if free == 0 {
            let left_ms = (80_000_000 - at_us + 999) / 1_000;
            assert_eq!(peek[3..], [left_ms, left_ms], "{at_us}");
        }
    }
    // RENEW and RELEASE report to the former holder that it has no lease.
    assert_eq!(client.integer("RL.RENEW k worker 60s"), 0);
    assert_eq!(client.integer("RL.RELEASE k worker"), 0);
    assert_eq!(client.decide("RL.LEASE k other 1 60s"), [1, 1, 0, 0, 60_000]);
    assert_eq!(client.decide("RL.LEASE k worker 1 60s")[0], 0);
}

#[test]
fn denied_lease_is_granted_after_its_retry_time_and_not_a_millisecond_earlier() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // Forty leases that expire at irregular times, requested under every lower limit.
    for holder in 0..40 {
        let ttl_us = 10_000_000 + holder * 777_777;
        let (seconds, us) = (ttl_us / 1_000_000, ttl_us % 1_000_000);
        assert!(client.allows(&format!("RL.LEASE k h{holder} 40 {seconds}.{us:06}")));
    }
    for limit in (1..=40).rev() {
        client.freeze(BASE_US);
        let peek = format!("RL.PEEK k LEASE new {limit} 1s");
        let [allowed, _, remaining, retry_after_ms, reset_after_ms] = client.decide(&peek);
        let expiry_us = 10_000_000 + (40 - limit) * 777_777;
        assert_eq!([allowed, remaining], [0, 0], "{peek}");
        assert_eq!(retry_after_ms, (expiry_us + 999) / 1_000, "{peek}");
        assert_eq!(reset_after_ms, (10_000_000 + 39 * 777_777 + 999) / 1_000, "{peek}");
        client.advance_ms(retry_after_ms - 1);
        assert_eq!(client.decide(&peek)[0], 0, "{peek} 1 ms early");
        client.advance_ms(1);
        assert_eq!(client.decide(&peek)[0], 1, "{peek} in time");
    }
}

#[test]
fn lease_taken_again_is_renewed_even_for_a_shorter_time_or_under_a_lowered_limit() {
    let server = Server::start();
    let mut client = server.client();
    let table: [(i64, &str, Reply); 9] = [
        (0, "RL.LEASE k a 3 60s", [1, 3, 2, 0, 60_000]),
        (0, "RL.LEASE k b 3 30s", [1, 3, 1, 0, 60_000]),
        (1_000, "RL.PEEK k LEASE a 3 60s", [1, 3, 1, 0, 60_000]),
        (1_000, "RL.LEASE k a 3 60s", [1, 3, 1, 0, 60_000]),
        (1_000, "RL.LEASE k a 3 5s", [1, 3, 1, 0, 29_000]),
        // There are two holders when the limit is lowered to one: both keep their leases, and no
        // new holder gets one.
        (2_000, "RL.LEASE k a 1 10s", [1, 1, 0, 0, 28_000]),
        (2_000, "RL.LEASE k c 1 10s", [0, 1, 0, 28_000, 28_000]),
        (2_000, "RL.LEASE k c 2 10s", [0, 2, 0, 10_000, 28_000]),
        (12_000, "RL.LEASE k c 2 1ms", [1, 2, 0, 0, 18_000]),
    ];
    play(&mut client, &table);
}

#[test]
fn clock_that_steps_back_lengthens_a_lease_until_it_is_renewed_or_released() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    assert!(client.allows("RL.LEASE k a 2 60s"));
    assert!(client.allows("RL.LEASE k b 2 60s"));
    client.advance_ms(-3_600_000);
    let before = client.snapshot("k");
    let hour_and_minute = 3_660_000;
    assert_eq!(
        client.decide("RL.LEASE k c 2 60s"),
        [0, 2, 0, hour_and_minute, hour_and_minute],
        "by the step, and no repair"
    );
    assert_eq!(client.snapshot("k"), before, "a denial changes nothing, after a step either");
    assert_eq!(client.integer("RL.RENEW k a 60s"), 1);
    assert_eq!(client.decide("RL.LEASE k c 2 60s"), [0, 2, 0, 60_000, hour_and_minute]);
    assert_eq!(client.integer("RL.RELEASE k b"), 1);
    assert_eq!(client.decide("RL.LEASE k c 2 60s"), [1, 2, 0, 0, 60_000]);
    // A step forward ends leases early. RENEW reports that to their holders.
    client.advance_ms(60_000);
    assert_eq!(client.integer("RL.RENEW k a 60s"), 0);
    assert_eq!(client.decide("RL.LEASE k d 2 60s"), [1, 2, 1, 0, 60_000]);
    // The release of the last live lease deletes the expired ones, so a step back revives none.
    assert!(client.allows("RL.LEASE k e 2 10s"));
    client.advance_ms(10_000);
    assert_eq!(client.integer("RL.RELEASE k d"), 1);
    client.advance_ms(-10_000);
    assert_eq!(client.decide("RL.LEASE k f 2 60s"), [1, 2, 1, 0, 60_000]);
}

#[test]
fn lease_works_among_several_rules_and_a_denied_call_stores_no_lease() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let decide = |client: &mut Client, command: &str, id: &str, limit: u64| -> Vec<i64> {
        let lease = format!("LEASE {id} 2 60s");
        let rate = format!("FIXED {limit} 10");
        let reply = client.call(&[command, "{k}:l", &lease, "{k}:r", &rate]);
        let Value::Array(fields) = &reply else { panic!("{reply:?}") };
        let flat = fields.iter().flat_map(|field| match field {
            Value::Int(number) => vec![*number],
            row => integers(row).expect("a row").to_vec(),
        });
        flat.collect()
    };
    let allowed = [1, 2, 1, 0, 60_000, 1, 1, 2, 1, 0, 60_000, 1, 3, 2, 0, 10_000];
    assert_eq!(decide(&mut client, "RL.PEEKALL", "a", 3), allowed);
    assert_eq!(client.integer("DBSIZE"), 0);
    assert_eq!(decide(&mut client, "RL.ALL", "a", 3), allowed);
    // The call would leave one permit of the lease and no unit of the rate, so the rate decides.
    let decided_by_rate = decide(&mut client, "RL.PEEKALL", "a", 2);
    assert_eq!(decided_by_rate[..6], [1, 2, 0, 0, 10_000, 2]);
    // The rate denies: no lease is stored, and a live lease is not renewed.
    client.advance_ms(1_000);
    let before = client.snapshot("{k}:l");
    let denied = [0, 1, 0, 9_000, 9_000, 2];
    for (id, row) in [("b", [1, 2, 1, 0, 59_000]), ("a", [1, 2, 1, 0, 59_000])] {
        let numbers = decide(&mut client, "RL.ALL", id, 1);
        assert_eq!(numbers[..6], denied, "{id}");
        assert_eq!(numbers[6..11], row, "{id}: as it stands");
        assert_eq!(client.snapshot("{k}:l"), before, "{id}");
    }
    // The lease denies: the rate takes nothing.
    assert!(client.allows("RL.LEASE {k}:l c 2 60s"));
    let numbers = decide(&mut client, "RL.ALL", "b", 3);
    assert_eq!(numbers[..6], [0, 2, 0, 59_000, 60_000, 1]);
    assert_eq!(numbers[11..], [1, 3, 2, 0, 9_000]);
    // One call requests two leases. The second key is full, so the call takes neither lease.
    let reply = client.call(&["RL.ALL", "{k}:x", "LEASE b 1 60s", "{k}:l", "LEASE b 2 60s"]);
    let Value::Array(fields) = &reply else { panic!("{reply:?}") };
    assert_eq!(fields[0], Value::Int(0));
    assert_eq!(client.integer("EXISTS {k}:x"), 0);
}

#[test]
fn invalid_uses_of_a_lease_get_their_own_error_texts() {
    let server = Server::start();
    let mut client = server.client();
    let (long, longest) = ("i".repeat(129), "i".repeat(128));
    let limit = "ERR invalid limit: expected an integer from 1 to 1000000";
    let ttl = "ERR invalid ttl: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h";
    let option = "ERR invalid option: expected LEAVE n, a holder has one permit";
    let id = "ERR invalid id: expected 1 to 128 bytes";
    let rows: [(&[&str], &str); 13] = [
        (&["LEASE", "", "3", "60"], id),
        (&["LEASE", &long, "0", "60"], id),
        (&["LEASE", "a", "0", "60"], limit),
        (&["LEASE", "a", "1000001", "0"], limit),
        (&["LEASE", "a", "x", "60"], limit),
        (&["LEASE", "a", "3", "0"], ttl),
        (&["LEASE", "a", "3", "367d"], ttl),
        (&["LEASE", "a", "3", "60", "COST", "1"], option),
        (&["LEASE", "a", "3", "60", "PARTIAL"], option),
        (&["RENEW", "", "60"], id),
        (&["RENEW", &long, "60"], id),
        (&["RENEW", "a", "0"], ttl),
        (&["RELEASE", &long], id),
    ];
    for (words, expected) in rows {
        let command = format!("RL.{}", words[0]);
        let call = [&[command.as_str(), "k"], &words[1..]].concat();
        assert_eq!(raw_error(&client.call(&call)).as_deref(), Some(expected), "{call:?}");
        if words[0] == "LEASE" {
            let peek = [&["RL.PEEK", "k"], words].concat();
            assert_eq!(raw_error(&client.call(&peek)).as_deref(), Some(expected), "{peek:?}");
        }
    }
    for verb in ["CHARGE", "REFUND"] {
        let error = client.error(&format!("RL.{verb} k LEASE a 3 60"));
        assert_eq!(error, "ERR invalid algorithm: LEASE has no cost to charge or refund");
    }
    let packed = [
        ("LEASE a 3", "ERR rule 1: wrong number of arguments: expected LEASE id limit ttl"),
        (
            "LEASE a 3 60 PARTIAL",
            "ERR rule 1: invalid option: expected LEAVE n, a holder has one permit",
        ),
        ("LEASE a b 3 60", "ERR rule 1: invalid limit: expected an integer from 1 to 1000000"),
    ];
    for (rule, expected) in packed {
        let error = raw_error(&client.call(&["RL.ALL", "k", rule]));
        assert_eq!(error.as_deref(), Some(expected), "{rule}");
    }
    for short in
        ["RL.LEASE k a 3", "RL.RENEW k a", "RL.RENEW k a 60 3", "RL.RELEASE k", "RL.RELEASE k a 60"]
    {
        assert!(client.error(short).contains("wrong number of arguments"), "{short}");
    }
    assert_eq!(client.integer("DBSIZE"), 0, "an error has written");
    assert!(client.allows(&format!("RL.LEASE k {longest} 3 60")));
}

#[test]
fn id_may_have_any_bytes_and_equal_bytes_are_the_same_holder() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let ids: [&[u8]; 6] = [b"\0", b"\0\0", b"\xff\xfe", b" ", b"%s%n", b"12345"];
    for (at, id) in ids.iter().enumerate() {
        let ttl = format!("{}s", 10 + at);
        let call = [&b"RL.LEASE"[..], b"k", id, b"6", ttl.as_bytes()];
        let left = 5 - at as i64;
        let reply = integers(&client.call(&call)).expect("a decision");
        assert_eq!(reply[..3], [1, 6, left], "{id:?}");
        assert_eq!(integers(&client.call(&call)), Some(reply), "{id:?} again");
    }
    let (holders, first) = inspected(&mut client, "k");
    let expected = ids.iter().enumerate().map(|(at, id)| (id.to_vec(), 10_000 + at as i64 * 1_000));
    assert_eq!((holders, first), (6, expected.collect()));
    for id in ids {
        assert_eq!(client.call(&[&b"RL.RENEW"[..], b"k", id, b"9"]), Value::Int(1), "{id:?}");
        assert_eq!(client.call(&[&b"RL.RELEASE"[..], b"k", id]), Value::Int(1), "{id:?}");
    }
    assert_eq!(client.integer("EXISTS k"), 0, "the last one took the key along");
}

#[test]
fn inspect_shows_the_number_of_holders_and_the_first_hundred_by_remaining_time() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // Each lease expires a second before the previous one.
    for holder in 0..150 {
        assert!(client.allows(&format!("RL.LEASE k h{holder} 1000 {}s", 300 - holder)));
    }
    let expected = |live: i64, skipped: i64| {
        let first = (0..100.min(live)).map(|place| {
            let holder = 149 - skipped - place;
            (format!("h{holder}").into_bytes(), (300 - holder - 151 - skipped + 1) * 1_000)
        });
        first.collect::<Vec<_>>()
    };
    client.advance_ms(150_000);
    assert_eq!(inspected(&mut client, "k"), (150, expected(150, 0)));
    // INSPECT neither shows nor counts expired leases.
    client.advance_ms(30_000);
    assert_eq!(inspected(&mut client, "k"), (120, expected(120, 30)));
    client.advance_ms(90_000);
    assert_eq!(inspected(&mut client, "k"), (30, expected(30, 120)));
    client.advance_ms(30_000);
    assert_eq!(inspected(&mut client, "k"), (0, vec![]));
    assert_eq!(client.run("RL.INSPECT missing"), Value::Nil);
    let Value::Map(fields) = server.client3().run("RL.INSPECT k") else { panic!("no map") };
    assert_eq!(fields.len(), 3);
    assert_eq!(fields[2].1, Value::Map(vec![]), "a map in the map");
}

#[test]
fn lease_calls_refuse_keys_of_algorithms_and_algorithms_refuse_keys_of_leases() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let leasing =
        ["RL.LEASE k a 3 60", "RL.PEEK k LEASE a 3 60", "RL.RENEW k a 60", "RL.RELEASE k a"];
    for algorithm in ALGORITHMS {
        assert!(client.allows(&algorithm.call("k", 5, "60")));
        let before = client.snapshot("k");
        for call in leasing {
            assert_eq!(client.error(call), WRONGTYPE, "{call} on {}", algorithm.name);
        }
        let in_all = client.call(&["RL.ALL", "other", "GCRA 1 1 1", "k", "LEASE a 3 60"]);
        assert_eq!(
            raw_error(&in_all).as_deref(),
            Some("WRONGTYPE rule 2: the key does not hold a state of this algorithm")
        );
        assert_eq!(client.snapshot("k"), before, "{}", algorithm.name);
        client.integer("DEL k");
        assert!(client.allows("RL.LEASE k a 3 60"));
        let before = client.snapshot("k");
        for call in [algorithm.call("k", 5, "60"), algorithm.peek("k", 5, "60")] {
            assert_eq!(client.error(&call), WRONGTYPE, "{call}");
        }
        let rule = format!("{} {}", algorithm.name, algorithm.arguments(5, "60"));
        for verb in ["CHARGE", "REFUND"] {
            assert_eq!(client.error(&format!("RL.{verb} k {rule}")), WRONGTYPE, "{verb} {rule}");
        }
        assert_eq!(client.snapshot("k"), before, "{}", algorithm.name);
        client.integer("DEL k");
    }
}

#[test]
fn info_counts_leases_renewals_and_releases() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let calls = [
        ("RL.LEASE k a 1 60", "lease_allowed"),
        ("RL.LEASE k b 1 60", "lease_denied"),
        ("RL.PEEK k LEASE b 1 60", "peek_denied"),
        ("RL.PEEK k LEASE a 1 60", "peek_allowed"),
        ("RL.RENEW k a 60", "renew_allowed"),
        ("RL.RENEW k b 60", "renew_denied"),
        ("RL.RELEASE k b", "release_denied"),
        ("RL.RELEASE k a", "release_allowed"),
    ];
    for (call, counter) in calls {
        let field = format!("rl_{counter}");
        assert_eq!(client.info_number("rl", &field), 0, "{counter}");
        client.run(call);
        assert_eq!(client.info_number("rl", &field), 1, "{call}");
    }
}
