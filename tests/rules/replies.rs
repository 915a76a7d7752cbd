//! The five integers of every algorithm's replies, row by row on a frozen clock.
//!
//! The rows are the examples of the documentation and their edge cases: the end of a window, a cost
//! above the limit, fractions of a millisecond.

use support::{ALGORITHMS, BASE_US, Client, Server, play};

fn on_a_server(test: impl FnOnce(&mut Client)) {
    let server = Server::start();
    test(&mut server.client());
    server.assert_alive();
}

#[test]
fn fixed_window_opens_at_the_first_allowed_call_and_ends_after_its_length() {
    on_a_server(|client| {
        play(
            client,
            &[
                // The window opens at this call, between two multiples of ten seconds.
                (3_000, "RL.FIXED k 3 10", [1, 3, 2, 0, 10_000]),
                // Half a second later, half a second less is left of the window.
                (3_500, "RL.FIXED k 3 10", [1, 3, 1, 0, 9_500]),
                // The window does not end at a multiple of ten seconds.
                (10_000, "RL.FIXED k 3 10 COST 2", [0, 3, 1, 3_000, 3_000]),
                // The call takes the last unit.
                (10_000, "RL.FIXED k 3 10", [1, 3, 0, 0, 3_000]),
                // Calls are denied until the window ends.
                (10_000, "RL.FIXED k 3 10", [0, 3, 0, 3_000, 3_000]),
                // The last millisecond of the window.
                (12_999, "RL.FIXED k 3 10", [0, 3, 0, 1, 1]),
                // The next window opens at its first allowed call, which is this one.
                (13_000, "RL.FIXED k 3 10 COST 3", [1, 3, 0, 0, 10_000]),
                // The window has no units left.
                (13_000, "RL.FIXED k 3 10", [0, 3, 0, 10_000, 10_000]),
            ],
        );
    });
}

#[test]
fn fixed_window_of_15_per_10_seconds_allows_a_call_each_second() {
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
fn aligned_window_begins_at_a_multiple_of_its_length_since_the_epoch() {
    on_a_server(|client| {
        play(
            client,
            &[
                // The aligned window began three seconds ago.
                (3_000, "RL.FIXED k 2 10 ALIGNED", [1, 2, 1, 0, 7_000]),
                // The option may come before or after COST, in upper or lower case.
                (4_000, "RL.FIXED k 2 10 aligned CoSt 1", [1, 2, 0, 0, 6_000]),
                // Calls are denied until the boundary, not until ten seconds after the first call.
                (9_999, "RL.FIXED k 2 10 COST 1 ALIGNED", [0, 2, 0, 1, 1]),
                // At the boundary the next window opens.
                (10_000, "RL.FIXED k 2 10 ALIGNED", [1, 2, 1, 0, 10_000]),
            ],
        );
    });
}

#[test]
fn sliding_window_weights_the_previous_window_by_its_overlap() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Uses forty units, which have a weight until the end of the next window.
                (0, "RL.SLIDING k 100 60 COST 40", [1, 100, 60, 0, 120_000]),
                // At the boundary all forty still count.
                (60_000, "RL.SLIDING k 100 60 COST 61", [0, 100, 60, 1_500, 60_000]),
                // Half of forty units, plus eighty, is the limit of a hundred.
                (90_000, "RL.SLIDING k 100 60 COST 80", [1, 100, 0, 0, 90_000]),
                // Half a minute into the window, cost 1 is denied: it needs 40 x (60 - t) / 60 <=
                // 19, so t = 31.5 s.
                (90_000, "RL.SLIDING k 100 60", [0, 100, 0, 1_500, 90_000]),
                // One millisecond before that time, the call is still denied.
                (91_499, "RL.SLIDING k 100 60", [0, 100, 0, 1, 88_501]),
                // After 40 s the call is allowed: 13.33 and 81 leave 5.67.
                (100_000, "RL.SLIDING k 100 60", [1, 100, 5, 0, 80_000]),
                // Two windows after the start of their window, units no longer count.
                (180_000, "RL.SLIDING k 100 60 COST 0", [1, 100, 100, 0, 0]),
            ],
        );
    });
}

#[test]
fn full_sliding_window_still_denies_at_the_start_of_the_next_window() {
    on_a_server(|client| {
        play(
            client,
            &[
                // The call takes the whole limit at the start of a window.
                (0, "RL.SLIDING k 100 60 COST 100", [1, 100, 0, 0, 120_000]),
                // One unit returns 0.6 s into the next window.
                (0, "RL.SLIDING k 100 60", [0, 100, 0, 60_600, 120_000]),
                // At the boundary no unit has returned yet.
                (60_000, "RL.SLIDING k 100 60", [0, 100, 0, 600, 60_000]),
                // One unit has returned.
                (60_600, "RL.SLIDING k 100 60", [1, 100, 0, 0, 119_400]),
            ],
        );
    });
}

#[test]
fn sliding_log_returns_each_unit_one_window_after_it_was_used() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Three events, one second apart.
                (0, "RL.SLIDINGLOG k 3 10", [1, 3, 2, 0, 10_000]),
                (1_000, "RL.SLIDINGLOG k 3 10", [1, 3, 1, 0, 10_000]),
                (2_000, "RL.SLIDINGLOG k 3 10", [1, 3, 0, 0, 10_000]),
                // The first unit returns at 10 s. The last one returns at 12 s.
                (3_000, "RL.SLIDINGLOG k 3 10", [0, 3, 0, 7_000, 9_000]),
                // A cost of two also waits for the second unit.
                (3_000, "RL.SLIDINGLOG k 3 10 COST 2", [0, 3, 0, 8_000, 9_000]),
                // An event at t counts until just before t + window.
                (9_999, "RL.SLIDINGLOG k 3 10", [0, 3, 0, 1, 2_001]),
                (10_000, "RL.SLIDINGLOG k 3 10", [1, 3, 0, 0, 10_000]),
                // One unit is left and two are needed. The unit used at 2 s still counts.
                (11_000, "RL.SLIDINGLOG k 3 10 COST 2", [0, 3, 1, 1_000, 9_000]),
                (12_000, "RL.SLIDINGLOG k 3 10 COST 2", [1, 3, 0, 0, 10_000]),
            ],
        );
    });
}

#[test]
fn token_bucket_starts_full_and_refills_continuously() {
    on_a_server(|client| {
        play(
            client,
            &[
                // A bucket of thirty tokens, which gets one every two seconds.
                (0, "RL.TOKENBUCKET k 30 30 60", [1, 30, 29, 0, 2_000]),
                (0, "RL.TOKENBUCKET k 30 30 60 COST 29", [1, 30, 0, 0, 60_000]),
                (0, "RL.TOKENBUCKET k 30 30 60", [0, 30, 0, 2_000, 60_000]),
                // Half a token cannot be used yet.
                (1_000, "RL.TOKENBUCKET k 30 30 60", [0, 30, 0, 1_000, 59_000]),
                (2_000, "RL.TOKENBUCKET k 30 30 60", [1, 30, 0, 0, 60_000]),
                // Three and a half tokens: the half token is not lost by rounding.
                (9_000, "RL.TOKENBUCKET k 30 30 60 COST 3", [1, 30, 0, 0, 59_000]),
                (10_000, "RL.TOKENBUCKET k 30 30 60", [1, 30, 0, 0, 60_000]),
                // The bucket refills up to its capacity only.
                (1_000_000, "RL.TOKENBUCKET k 30 30 60 COST 30", [1, 30, 0, 0, 60_000]),
                (1_000_000, "RL.TOKENBUCKET k 30 30 60", [0, 30, 0, 2_000, 60_000]),
            ],
        );
    });
}

#[test]
fn token_bucket_loses_no_token_to_rounding_in_ten_minutes() {
    on_a_server(|client| {
        // At 30 per 60 s, with a call every 1.9 s, the bucket is not empty before 600 s.
        let mut allowed = 0;
        for call in 0..316 {
            client.freeze(BASE_US + call * 1_900_000);
            allowed += client.decide("RL.TOKENBUCKET k 30 30 60")[0];
        }
        assert_eq!(allowed, 316);
        // The remaining tokens show that all 299 whole tokens of the 598.5 s were added.
        assert_eq!(client.decide("RL.TOKENBUCKET k 30 30 60 COST 0")[2], 30 + 299 - 316);
    });
}

#[test]
fn leaky_bucket_drains_while_it_fills() {
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
fn leaky_bucket_tells_each_call_how_long_to_wait_for_its_turn() {
    on_a_server(|client| {
        play(
            client,
            &[
                // The queue is empty: the wait is zero.
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 3, 0, 500]),
                // Each later call waits half a second longer.
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 2, 500, 1_000]),
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 1, 1_000, 1_500]),
                // Cost 0 returns the wait of a new arrival and does not enter the queue.
                (0, "RL.LEAKYBUCKET k 4 2 1 COST 0", [1, 4, 1, 1_500, 1_500]),
                (0, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 0, 1_500, 2_000]),
                // The queue is full. It has room for one call in half a second.
                (0, "RL.LEAKYBUCKET k 4 2 1", [0, 4, 0, 500, 2_000]),
                (499, "RL.LEAKYBUCKET k 4 2 1", [0, 4, 0, 1, 1_501]),
                (500, "RL.LEAKYBUCKET k 4 2 1", [1, 4, 0, 1_500, 2_000]),
                // There is room for half a call, which is not sufficient.
                (750, "RL.LEAKYBUCKET k 4 2 1 COST 0", [1, 4, 0, 1_750, 1_750]),
            ],
        );
    });
}

#[test]
fn gcra_allows_a_burst_and_then_one_call_per_interval() {
    on_a_server(|client| {
        play(
            client,
            &[
                // Ten per minute is one call every six seconds, and six calls may come at once.
                (0, "RL.GCRA k 6 10 60", [1, 6, 5, 0, 6_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 4, 0, 12_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 3, 0, 18_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 2, 0, 24_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 1, 0, 30_000]),
                (0, "RL.GCRA k 6 10 60", [1, 6, 0, 0, 36_000]),
                // The seventh call waits for one interval.
                (0, "RL.GCRA k 6 10 60", [0, 6, 0, 6_000, 36_000]),
                (5_999, "RL.GCRA k 6 10 60", [0, 6, 0, 1, 30_001]),
                (6_000, "RL.GCRA k 6 10 60", [1, 6, 0, 0, 36_000]),
                // A denial reports the units left: two, when three are needed.
                (18_000, "RL.GCRA k 6 10 60 COST 3", [0, 6, 2, 6_000, 24_000]),
                (18_000, "RL.GCRA k 6 10 60 COST 2", [1, 6, 0, 0, 36_000]),
            ],
        );
    });
}

#[test]
fn gcra_rounds_the_interval_up_so_the_rate_is_never_exceeded() {
    on_a_server(|client| {
        play(
            client,
            &[
                // A third of a second is rounded up to 333,333,334 ns: three intervals exceed 1 s
                // by 2 ns.
                (0, "RL.GCRA g 3 3 1 COST 3", [1, 3, 0, 0, 1_001]),
                (0, "RL.GCRA g 3 3 1", [0, 3, 0, 334, 1_001]),
                (333, "RL.GCRA g 3 3 1", [0, 3, 0, 1, 668]),
                (334, "RL.GCRA g 3 3 1", [1, 3, 0, 0, 1_000]),
                // The token bucket is exact: three tokens take one second.
                (1_000, "RL.TOKENBUCKET t 3 3 1 COST 3", [1, 3, 0, 0, 1_000]),
                (1_000, "RL.TOKENBUCKET t 3 3 1", [0, 3, 0, 334, 1_000]),
                (1_333, "RL.TOKENBUCKET t 3 3 1", [0, 3, 0, 1, 667]),
                (1_334, "RL.TOKENBUCKET t 3 3 1", [1, 3, 0, 0, 1_000]),
            ],
        );
    });
}

#[test]
fn cost_above_the_limit_is_denied_for_ever_and_stores_nothing() {
    on_a_server(|client| {
        client.freeze(BASE_US);
        for algorithm in ALGORITHMS {
            let call = algorithm.call("never", 3, "1h");
            // With any state the wait is -1, because the call can never be allowed.
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
            let free = format!("{call} COST 0");
            // On a new key all units are left, there is no wait, and no key is created.
            assert_eq!(client.decide(&free), [1, 2, 2, 0, 0], "{call}");
            assert_eq!(client.integer("EXISTS free"), 0, "{call}");
            assert!(client.allows(&format!("{call} COST 2")), "{call}");
            let (full, before) = (client.decide(&call), client.snapshot("free"));
            let status = client.decide(&free);
            // On a key without units left the call is still allowed, and changes nothing.
            assert_eq!((status[0], status[2], status[4]), (1, 0, full[4]), "{call}");
            assert_eq!(client.snapshot("free"), before, "{call}");
            client.integer("DEL free");
        }
    });
}

#[test]
fn options_are_accepted_in_upper_and_lower_case() {
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
fn durations_are_exact_to_the_microsecond_in_every_unit() {
    // A new window reports its own length, rounded up to a millisecond.
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
