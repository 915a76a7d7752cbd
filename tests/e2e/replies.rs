//! The five integers of every algorithm, row by row on a frozen clock.
//!
//! The rows hold the numbers of the documentation and their edge cases: the instant at which a
//! window ends, a cost above the limit, fractions of a millisecond.

use crate::support::{ALGORITHMS, BASE_US, Client, Server, play};

fn on_a_server(test: impl FnOnce(&mut Client)) {
    let server = Server::start();
    test(&mut server.client());
    server.assert_alive();
}

#[test]
fn a_fixed_window_opens_at_the_first_allowed_call_and_ends_with_its_length() {
    on_a_server(|client| {
        play(
            client,
            &[
                // It opens here, between two multiples of ten seconds.
                (3_000, "RL.FIXED k 3 10", [1, 3, 2, 0, 10_000]),
                // Half a second later the window has half a second less.
                (3_500, "RL.FIXED k 3 10", [1, 3, 1, 0, 9_500]),
                // A multiple of ten seconds means nothing to it.
                (10_000, "RL.FIXED k 3 10 COST 2", [0, 3, 1, 3_000, 3_000]),
                // The last unit.
                (10_000, "RL.FIXED k 3 10", [1, 3, 0, 0, 3_000]),
                // Denied until the window ends.
                (10_000, "RL.FIXED k 3 10", [0, 3, 0, 3_000, 3_000]),
                // Its last millisecond.
                (12_999, "RL.FIXED k 3 10", [0, 3, 0, 1, 1]),
                // The next window opens at the first allowed call, which is now.
                (13_000, "RL.FIXED k 3 10 COST 3", [1, 3, 0, 0, 10_000]),
                // And it is used up at once.
                (13_000, "RL.FIXED k 3 10", [0, 3, 0, 10_000, 10_000]),
            ],
        );
    });
}

#[test]
fn a_fixed_window_of_15_per_10_seconds_allows_a_call_each_second() {
    on_a_server(|client| {
        for second in 0..20 {
            client.freeze(BASE_US + 4_000_000 + second * 1_000_000);
            let within = second % 10;
            let expected = [1, 15, 14 - within, 0, 10_000 - within * 1_000];
            assert_eq!(client.decide("RL.FIXED k 15 10"), expected, "second {second}");
        }
    });
}

#[test]
fn an_aligned_window_begins_at_a_multiple_of_its_length_since_the_epoch() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Three seconds of the current ten have passed.
                (3_000, "RL.FIXED k 2 10 ALIGNED", [1, 2, 1, 0, 7_000]),
                // The option may stand on either side of COST, in any case of letters.
                (4_000, "RL.FIXED k 2 10 aligned CoSt 1", [1, 2, 0, 0, 6_000]),
                // Denied until the boundary, not until ten seconds after the first call.
                (9_999, "RL.FIXED k 2 10 COST 1 ALIGNED", [0, 2, 0, 1, 1]),
                // The boundary.
                (10_000, "RL.FIXED k 2 10 ALIGNED", [1, 2, 1, 0, 10_000]),
            ],
        );
    });
}

#[test]
fn a_sliding_window_weights_the_previous_window_by_its_overlap() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Forty in the window before: they weigh until the end of the next window.
                (0, "RL.SLIDING k 100 60 COST 40", [1, 100, 60, 0, 120_000]),
                // At the boundary all forty still count.
                (60_000, "RL.SLIDING k 100 60 COST 61", [0, 100, 60, 1_500, 60_000]),
                // Half of forty and eighty is the whole hundred.
                (90_000, "RL.SLIDING k 100 60 COST 80", [1, 100, 0, 0, 90_000]),
                // After 30 s cost 1 is denied: it needs 40 x (60 - t) / 60 <= 19, so t = 31.5 s.
                (90_000, "RL.SLIDING k 100 60", [0, 100, 0, 1_500, 90_000]),
                // One millisecond too early.
                (91_499, "RL.SLIDING k 100 60", [0, 100, 0, 1, 88_501]),
                // After 40 s it is allowed: 13.33 and 81 leave 5.67.
                (100_000, "RL.SLIDING k 100 60", [1, 100, 5, 0, 80_000]),
                // Everything is forgotten two windows after it began.
                (180_000, "RL.SLIDING k 100 60 COST 0", [1, 100, 100, 0, 0]),
            ],
        );
    });
}

#[test]
fn a_full_sliding_window_waits_into_the_next_one() {
    on_a_server(|client| {
        play(
            client,
            &[
                // The whole limit at the start of a window.
                (0, "RL.SLIDING k 100 60 COST 100", [1, 100, 0, 0, 120_000]),
                // One unit comes free 0.6 s into the next window.
                (0, "RL.SLIDING k 100 60", [0, 100, 0, 60_600, 120_000]),
                // At the boundary nothing has come free yet.
                (60_000, "RL.SLIDING k 100 60", [0, 100, 0, 600, 60_000]),
                // Here one has.
                (60_600, "RL.SLIDING k 100 60", [1, 100, 0, 0, 119_400]),
            ],
        );
    });
}

#[test]
fn a_sliding_log_gives_each_unit_back_one_window_after_it_was_used() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Three events, one second apart.
                (0, "RL.SLIDINGLOG k 3 10", [1, 3, 2, 0, 10_000]),
                (1_000, "RL.SLIDINGLOG k 3 10", [1, 3, 1, 0, 10_000]),
                (2_000, "RL.SLIDINGLOG k 3 10", [1, 3, 0, 0, 10_000]),
                // The first comes back at 10 s; all are back at 12 s.
                (3_000, "RL.SLIDINGLOG k 3 10", [0, 3, 0, 7_000, 9_000]),
                // Two units need the second one too.
                (3_000, "RL.SLIDINGLOG k 3 10 COST 2", [0, 3, 0, 8_000, 9_000]),
                // An event at t counts until t + window, and not at it.
                (9_999, "RL.SLIDINGLOG k 3 10", [0, 3, 0, 1, 2_001]),
                (10_000, "RL.SLIDINGLOG k 3 10", [1, 3, 0, 0, 10_000]),
                // One unit is free, two are needed: the call made at second 2 still counts.
                (11_000, "RL.SLIDINGLOG k 3 10 COST 2", [0, 3, 1, 1_000, 9_000]),
                (12_000, "RL.SLIDINGLOG k 3 10 COST 2", [1, 3, 0, 0, 10_000]),
            ],
        );
    });
}

#[test]
fn a_token_bucket_starts_full_and_refills_continuously() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Thirty tokens, one every two seconds.
                (0, "RL.TOKENBUCKET k 30 30 60", [1, 30, 29, 0, 2_000]),
                (0, "RL.TOKENBUCKET k 30 30 60 COST 29", [1, 30, 0, 0, 60_000]),
                (0, "RL.TOKENBUCKET k 30 30 60", [0, 30, 0, 2_000, 60_000]),
                // Half a token does not count yet.
                (1_000, "RL.TOKENBUCKET k 30 30 60", [0, 30, 0, 1_000, 59_000]),
                (2_000, "RL.TOKENBUCKET k 30 30 60", [1, 30, 0, 0, 60_000]),
                // Three and a half tokens: the half is kept, not lost to rounding.
                (9_000, "RL.TOKENBUCKET k 30 30 60 COST 3", [1, 30, 0, 0, 59_000]),
                (10_000, "RL.TOKENBUCKET k 30 30 60", [1, 30, 0, 0, 60_000]),
                // It fills up to its capacity and no further.
                (1_000_000, "RL.TOKENBUCKET k 30 30 60 COST 30", [1, 30, 0, 0, 60_000]),
                (1_000_000, "RL.TOKENBUCKET k 30 30 60", [0, 30, 0, 2_000, 60_000]),
            ],
        );
    });
}

#[test]
fn a_token_bucket_loses_nothing_to_rounding_in_ten_minutes() {
    on_a_server(|client| {
        // 30 per 60 s and a call every 1.9 s: the bucket never runs dry before 600 s.
        let mut allowed = 0;
        for call in 0..316 {
            client.freeze(BASE_US + call * 1_900_000);
            allowed += client.decide("RL.TOKENBUCKET k 30 30 60")[0];
        }
        assert_eq!(allowed, 316);
        // What is left shows that none of the 299 whole tokens of 598.5 s went missing.
        assert_eq!(client.decide("RL.TOKENBUCKET k 30 30 60 COST 0")[2], 30 + 299 - 316);
    });
}

#[test]
fn a_leaky_bucket_drains_while_it_fills() {
    on_a_server(|client| {
        let remaining = [9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2];
        for (second, expected) in remaining.into_iter().enumerate() {
            client.freeze(BASE_US + second as i64 * 1_000_000);
            let reply = client.decide("RL.LEAKYBUCKET k 10 10 30");
            assert_eq!(reply[..3], [1, 10, expected], "second {second}");
        }
    });
}

#[test]
fn a_leaky_bucket_tells_each_call_how_long_to_wait_for_its_turn() {
    on_a_server(|client| {
        play(
            client,
            &[
                // An empty queue: act at once.
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 3, 0, 500]),
                // Each later call waits half a second more.
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 2, 500, 1_000]),
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 1, 1_000, 1_500]),
                // Cost 0 asks for the wait of a new arrival and takes no place.
                (0, "RL.LEAKYBUCKET k 4 2 1 COST 0", [1, 4, 1, 1_500, 1_500]),
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 0, 1_500, 2_000]),
                // The queue is full: a place comes free in half a second.
                (0, "RL.LEAKYBUCKET k 4 2 1", [0, 4, 0, 500, 2_000]),
                (499, "RL.LEAKYBUCKET k 4 2 1", [0, 4, 0, 1, 1_501]),
                (500, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 0, 1_500, 2_000]),
                // Half a place drained does not count.
                (750, "RL.LEAKYBUCKET k 4 2 1 COST 0", [1, 4, 0, 1_750, 1_750]),
            ],
        );
    });
}

#[test]
fn gcra_gives_a_burst_and_then_one_call_per_interval() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Ten per minute is one every six seconds; six may come at once.
                (0, "RL.GCRA k 6 10 60", [1, 6, 5, 0, 6_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 4, 0, 12_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 3, 0, 18_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 2, 0, 24_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 1, 0, 30_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 0, 0, 36_000]),
                // The seventh waits one interval.
                (0, "RL.GCRA k 6 10 60", [0, 6, 0, 6_000, 36_000]),
                (5_999, "RL.GCRA k 6 10 60", [0, 6, 0, 1, 30_001]),
                (6_000, "RL.GCRA k 6 10 60", [1, 6, 0, 0, 36_000]),
                // A denial reports the units left: two, with three needed.
                (18_000, "RL.GCRA k 6 10 60 COST 3", [0, 6, 2, 6_000, 24_000]),
                (18_000, "RL.GCRA k 6 10 60 COST 2", [1, 6, 0, 0, 36_000]),
            ],
        );
    });
}

#[test]
fn an_emission_interval_of_a_fraction_is_rounded_up_and_never_faster_than_asked() {
    on_a_server(|client| {
        play(
            client,
            &[
                // A third of a second becomes 333,333,334 ns: three take 2 ns more than 1 s.
                (0, "RL.GCRA g 3 3 1 COST 3", [1, 3, 0, 0, 1_001]),
                (0, "RL.GCRA g 3 3 1", [0, 3, 0, 334, 1_001]),
                (333, "RL.GCRA g 3 3 1", [0, 3, 0, 1, 668]),
                (334, "RL.GCRA g 3 3 1", [1, 3, 0, 0, 1_000]),
                // The token bucket is exact: three take one second.
                (1_000, "RL.TOKENBUCKET t 3 3 1 COST 3", [1, 3, 0, 0, 1_000]),
                (1_000, "RL.TOKENBUCKET t 3 3 1", [0, 3, 0, 334, 1_000]),
                (1_333, "RL.TOKENBUCKET t 3 3 1", [0, 3, 0, 1, 667]),
                (1_334, "RL.TOKENBUCKET t 3 3 1", [1, 3, 0, 0, 1_000]),
            ],
        );
    });
}

#[test]
fn a_cost_above_the_limit_is_denied_for_ever_and_stores_nothing() {
    on_a_server(|client| {
        client.freeze(BASE_US);
        for algorithm in ALGORITHMS {
            let call = algorithm.call("never", 3, "1h");
            // Whatever the state, -1: the call can never be allowed.
            assert_eq!(client.decide(&format!("{call} COST 4")), [0, 3, 3, -1, 0], "{call}");
            assert_eq!(client.integer("EXISTS never"), 0, "{call}");
            let used = client.decide(&format!("{call} COST 2"));
            let again = client.decide(&format!("{call} COST 1000000000000"));
            // The remaining units and the reset time are those of the call before.
            assert_eq!(again, [0, 3, 1, -1, used[4]], "{call}");
            client.integer("DEL never");
        }
    });
}

#[test]
fn cost_zero_is_always_allowed_and_takes_nothing() {
    on_a_server(|client| {
        client.freeze(BASE_US);
        for algorithm in ALGORITHMS {
            let call = algorithm.call("free", 2, "1h");
            let asked = format!("{call} COST 0");
            // A new key: all units left, no wait, and no key is created.
            assert_eq!(client.decide(&asked), [1, 2, 2, 0, 0], "{call}");
            assert_eq!(client.integer("EXISTS free"), 0, "{call}");
            assert!(client.allows(&format!("{call} COST 2")), "{call}");
            let (full, before) = (client.decide(&call), client.snapshot("free"));
            let status = client.decide(&asked);
            // A key without units left: the call is still allowed, and nothing changes.
            assert_eq!((status[0], status[2], status[4]), (1, 0, full[4]), "{call}");
            assert_eq!(client.snapshot("free"), before, "{call}");
            client.integer("DEL free");
        }
    });
}

#[test]
fn every_option_is_understood_in_any_case_of_letters() {
    on_a_server(|client| {
        client.freeze(BASE_US);
        for algorithm in ALGORITHMS {
            let call = algorithm.call("k", 10, "1h").to_lowercase();
            for option in ["COST 2", "cost 2", "cOsT 02"] {
                let before = client.decide(&format!("{call} COST 0"))[2];
                let reply = client.decide(&format!("{call} {option}"));
                assert_eq!((reply[0], reply[2]), (1, before - 2), "{call} {option}");
            }
            client.integer("DEL k");
        }
    });
}

#[test]
fn durations_are_read_in_every_unit_to_the_microsecond() {
    // A fresh window reports its own length, rounded up to the millisecond.
    let rows: [(&str, i64); 20] = [
        ("1ms", 1),
        ("500ms", 500),
        ("1.5ms", 2),
        ("1.001ms", 2),
        ("0.001", 1),
        ("0.5", 500),
        ("0.001001", 2),
        ("1", 1_000),
        ("1s", 1_000),
        ("001.50s", 1_500),
        ("60", 60_000),
        ("1m", 60_000),
        ("0.5m", 30_000),
        ("1h", 3_600_000),
        ("0.000001h", 4),
        ("1.25h", 4_500_000),
        ("1d", 86_400_000),
        ("366d", 31_622_400_000),
        ("31622400", 31_622_400_000),
        ("0000000000000000000000060", 60_000),
    ];
    on_a_server(|client| {
        client.freeze(BASE_US);
        for (written, ms) in rows {
            let call = format!("RL.FIXED k 1 {written}");
            assert_eq!(client.decide(&call), [1, 1, 0, 0, ms], "{written}");
            client.integer("DEL k");
        }
    });
}
