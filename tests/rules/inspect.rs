//! RL.INSPECT shows a state to operators: the fields, their order and their numbers.

use redis::Value;

use support::algorithms::SLIDINGLOG;
use support::{ALGORITHMS, BASE_US, Client, Server, text};

type Fields = [(&'static str, i64)];

/// Decodes RESP2's flat array. Returns the algorithm and its fields in order.
fn inspect(client: &mut Client, key: &str) -> (String, Vec<(String, i64)>) {
    let Value::Array(flat) = client.run(&format!("RL.INSPECT {key}")) else {
        panic!("{key} is not there");
    };
    assert_eq!(text(&flat[0]), "algorithm");
    let fields = flat[2..].chunks(2).map(|pair| match &pair[1] {
        Value::Int(number) => (text(&pair[0]), *number),
        other => panic!("{} is no integer: {other:?}", text(&pair[0])),
    });
    (text(&flat[1]), fields.collect())
}

/// Makes calls, each at a time in ms after [`BASE_US`], and compares the output of INSPECT at the
/// end.
fn check(algorithm: &str, calls: &[(i64, &str)], expected: &Fields) {
    let server = Server::start();
    let mut client = server.client();
    for (at_ms, call) in calls {
        client.freeze(BASE_US + at_ms * 1_000);
        assert!(client.allows(call), "{call}");
    }
    let expected = expected.iter().map(|(name, number)| ((*name).to_owned(), *number));
    assert_eq!(inspect(&mut client, "k"), (algorithm.to_owned(), expected.collect()));
}

#[test]
fn fixed_window_shows_its_start_and_its_used_units() {
    check(
        "FIXED",
        &[(3_000, "RL.FIXED k 5 10 COST 2"), (4_000, "RL.FIXED k 5 10")],
        &[("window_start_us", BASE_US + 3_000_000), ("used", 3)],
    );
    check(
        "FIXED",
        &[(3_000, "RL.FIXED k 5 10 ALIGNED")],
        &[("window_start_us", BASE_US), ("used", 1)],
    );
}

#[test]
fn sliding_window_shows_its_start_and_both_counts() {
    check(
        "SLIDING",
        &[(5_000, "RL.SLIDING k 100 60 COST 4"), (61_000, "RL.SLIDING k 100 60 COST 3")],
        &[("window_start_us", BASE_US + 60_000_000), ("previous", 4), ("current", 3)],
    );
}

#[test]
fn sliding_log_shows_a_summary() {
    let calls = [
        (0, "RL.SLIDINGLOG k 9 10 COST 2"),
        (1_000, "RL.SLIDINGLOG k 9 10"),
        // A second event in the same microsecond is added to the entry of the first.
        (2_000, "RL.SLIDINGLOG k 9 10"),
        (2_000, "RL.SLIDINGLOG k 9 10 COST 3"),
    ];
    let fields = [
        ("entries", 3),
        ("used", 7),
        ("oldest_us", BASE_US),
        ("newest_us", BASE_US + 2_000_000),
        // With at most as many units as slots, instants are exact to the microsecond.
        ("slot_us", 1),
    ];
    check("SLIDINGLOG", &calls, &fields);
}

#[test]
fn token_bucket_shows_its_tokens_and_the_fraction_of_a_token() {
    check(
        "TOKENBUCKET",
        &[(0, "RL.TOKENBUCKET k 30 30 60"), (1_000, "RL.TOKENBUCKET k 30 30 60")],
        // Half a token is stored as half of the period, in microseconds.
        &[("tokens", 28), ("fraction", 30_000_000), ("updated_us", BASE_US + 1_000_000)],
    );
}

#[test]
fn leaky_bucket_shows_its_level_and_the_fraction_of_a_unit() {
    check(
        "LEAKYBUCKET",
        &[(0, "RL.LEAKYBUCKET k 10 10 30"), (1_000, "RL.LEAKYBUCKET k 10 10 30")],
        // A third of a unit has drained. The other two thirds take 20 of the 30 s.
        &[("level", 1), ("fraction", 20_000_000), ("updated_us", BASE_US + 1_000_000)],
    );
}

#[test]
fn gcra_shows_its_arrival_time_and_the_magnitude_of_its_tolerance() {
    check(
        "GCRA",
        &[(0, "RL.GCRA k 6 10 60"), (1_000, "RL.GCRA k 6 10 60")],
        // The arrival time is 12 s after the first call. The tolerance of 36 s is less than 2^36
        // ns.
        &[("theoretical_arrival_ns", (BASE_US + 12_000_000) * 1_000), ("tolerance_log2_ns", 36)],
    );
}

#[test]
fn inspect_of_a_missing_key_is_null_in_resp2_and_resp3() {
    let server = Server::start();
    assert_eq!(server.client().run("RL.INSPECT missing"), Value::Nil);
    assert_eq!(server.client3().run("RL.INSPECT missing"), Value::Nil);
}

#[test]
fn inspect_is_a_map_in_resp3_and_the_same_pairs_flat_in_resp2() {
    let server = Server::start();
    let (mut flat, mut mapped) = (server.client(), server.client3());
    for algorithm in ALGORITHMS {
        assert!(flat.allows(&algorithm.call("k", 5, "60")));
        let Value::Map(pairs) = mapped.run("RL.INSPECT k") else {
            panic!("{}: no map in RESP3", algorithm.name);
        };
        assert_eq!(text(&pairs[0].1), algorithm.name);
        let pairs = pairs.into_iter().flat_map(|(name, value)| [name, value]).collect();
        assert_eq!(flat.run("RL.INSPECT k"), Value::Array(pairs), "{}", algorithm.name);
        flat.integer("DEL k");
    }
}

#[test]
fn long_log_stays_within_its_slots_and_its_summary_stays_short() {
    let server = Server::setup().line("rl.sliding-log-slots 16").start();
    let mut client = server.client();
    client.freeze(BASE_US);
    let call = SLIDINGLOG.call("k", 100_000, "16");
    for _ in 0..400 {
        assert!(client.allows(&format!("{call} COST 3")));
        client.advance_ms(97);
    }
    let (_, fields) = inspect(&mut client, "k");
    let field = |name: &str| fields.iter().find(|(field, _)| field == name).expect(name).1;
    assert_eq!(field("slot_us"), 1_000_000);
    assert!(field("newest_us") % 1_000_000 == 0, "instants are rounded up to a slot");
    // At most one live entry more than slots, and half as many expired entries that are not dropped
    // yet.
    assert!(field("entries") <= 26, "{} entries", field("entries"));
    let bytes = client.integer("STRLEN k");
    assert!(bytes <= 24 + 12 * field("entries"), "{bytes} bytes, {} entries", field("entries"));
}

#[test]
fn state_is_as_small_as_documented() {
    let server = Server::start();
    let mut client = server.client();
    // The largest numbers that a state can hold, in the year 2199.
    client.freeze(7_258_118_000_000_000);
    let states = [
        ("RL.GCRA k 3155760000 1 1 COST 3155760000", 12),
        ("RL.FIXED k 1000000000000 366d COST 1000000000000", 24),
        ("RL.SLIDING k 1000000000000 366d COST 1000000000000", 32),
        ("RL.TOKENBUCKET k 1000000000000 1000000007 1d COST 999999999", 32),
        ("RL.LEAKYBUCKET k 1000000000000 1000000007 1d COST 999999999999", 32),
        // A log is a header of at most 24 bytes and entries of twelve bytes. This one has one
        // entry.
        ("RL.SLIDINGLOG k 1000000000000 366d COST 1000000000000", 36),
    ];
    for (call, most) in states {
        assert!(client.allows(call), "{call}");
        // Makes the call a little later, so that a bucket has a fraction to store.
        client.advance_ms(7);
        client.decide(&format!("{} COST 1", call.split(" COST").next().unwrap()));
        let bytes = client.integer("STRLEN k");
        assert!(bytes <= most, "{call}: {bytes} bytes");
        client.integer("DEL k");
    }
}
