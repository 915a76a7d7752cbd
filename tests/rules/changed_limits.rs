//! Tests how the next call reads a state after its rule's limits change: one table per algorithm.

use support::{BASE_US, Reply, Server, play};

fn check(table: &[(i64, &str, Reply)]) {
    let server = Server::start();
    play(&mut server.client(), table);
}

#[test]
fn fixed_window_stays_open_while_it_is_younger_than_the_window_of_the_call() {
    check(&[
        // Eight units of ten are used in a window of a minute.
        (0, "RL.FIXED k 10 60 COST 8", [1, 10, 2, 0, 60_000]),
        // A lower limit counts the same eight units.
        (5_000, "RL.FIXED k 5 60", [0, 5, 0, 55_000, 55_000]),
        // Under a higher limit, the same eight units count.
        (5_000, "RL.FIXED k 20 60", [1, 20, 11, 0, 55_000]),
        // Under a shorter window, the stored window is still open.
        (5_000, "RL.FIXED k 10 6", [1, 10, 0, 0, 1_000]),
        // After the end of the shorter window, a new window opens.
        (7_000, "RL.FIXED k 10 6", [1, 10, 9, 0, 6_000]),
        // Under a longer window, the stored window keeps its start.
        (8_000, "RL.FIXED k 10 60", [1, 10, 8, 0, 59_000]),
    ]);
}

#[test]
fn fixed_windows_with_and_without_aligned_share_one_state() {
    check(&[
        // The window opens between two multiples of a minute. Calls with and without ALIGNED use
        // it.
        (62_000, "RL.FIXED k 10 60 COST 4", [1, 10, 6, 0, 60_000]),
        (63_000, "RL.FIXED k 10 60 ALIGNED", [1, 10, 5, 0, 57_000]),
        // With ALIGNED, this window ended at the boundary of 120 s. Without ALIGNED, it is still
        // open.
        (121_000, "RL.PEEK k FIXED 10 60 COST 0", [1, 10, 5, 0, 1_000]),
        (121_000, "RL.FIXED k 10 60 ALIGNED", [1, 10, 9, 0, 59_000]),
        // A call without ALIGNED uses the window that the call with ALIGNED opened.
        (122_000, "RL.FIXED k 10 60", [1, 10, 8, 0, 58_000]),
    ]);
}

#[test]
fn sliding_window_counts_the_units_of_both_windows_as_current_when_the_window_length_changes() {
    check(&[
        // With windows of a minute, the previous one has four units and the current one has three.
        (0, "RL.SLIDING k 100 60 COST 4", [1, 100, 96, 0, 120_000]),
        (60_000, "RL.SLIDING k 100 60 COST 3", [1, 100, 93, 0, 120_000]),
        // The current window starts at 60 s, inside the 90 s window that starts at 0. This 90 s
        // window therefore counts all seven units.
        (61_000, "RL.SLIDING k 100 90 COST 0", [1, 100, 93, 0, 119_000]),
        // Ten seconds into the next 90 s window, the seven units weigh eight ninths.
        (100_000, "RL.SLIDING k 100 90 COST 0", [1, 100, 93, 0, 80_000]),
        (150_000, "RL.SLIDING k 100 90 COST 0", [1, 100, 97, 0, 30_000]),
    ]);
}

#[test]
fn sliding_log_keeps_its_instants_when_the_limits_of_the_calls_change() {
    check(&[
        // Three events within two seconds.
        (0, "RL.SLIDINGLOG k 10 10", [1, 10, 9, 0, 10_000]),
        (1_000, "RL.SLIDINGLOG k 10 10", [1, 10, 8, 0, 10_000]),
        (2_000, "RL.SLIDINGLOG k 10 10", [1, 10, 7, 0, 10_000]),
        // A window of one and a half seconds counts two of the events.
        (2_000, "RL.SLIDINGLOG k 3 1.5 COST 0", [1, 3, 1, 0, 1_500]),
        // A lower limit is exceeded until two events have expired.
        (2_000, "RL.SLIDINGLOG k 2 10", [0, 2, 0, 9_000, 10_000]),
        // A longer window counts all three events, and counts each of them for longer.
        (2_000, "RL.SLIDINGLOG k 10 20 COST 0", [1, 10, 7, 0, 20_000]),
    ]);
}

#[test]
fn bucket_keeps_its_tokens_and_refills_at_the_new_rate() {
    check(&[
        // Four tokens of ten are left, and one returns per second.
        (0, "RL.TOKENBUCKET k 10 10 10 COST 6", [1, 10, 4, 0, 6_000]),
        // Under a smaller capacity, the bucket holds only as many tokens as that capacity.
        (0, "RL.TOKENBUCKET k 3 10 10 COST 0", [1, 3, 3, 0, 0]),
        // A larger bucket holds the same four tokens.
        (0, "RL.TOKENBUCKET k 20 10 10 COST 0", [1, 20, 4, 0, 16_000]),
        // At two tokens per second, two seconds add four tokens.
        (2_000, "RL.TOKENBUCKET k 10 20 10 COST 0", [1, 10, 8, 0, 1_000]),
        // At the old rate, the same two seconds add two tokens.
        (2_000, "RL.TOKENBUCKET k 10 10 10 COST 0", [1, 10, 6, 0, 4_000]),
    ]);
}

#[test]
fn leaky_bucket_keeps_its_level_and_counts_as_full_above_a_lower_capacity() {
    check(&[
        // Six units in the queue, which drains by one per second.
        (0, "RL.LEAKYBUCKET k 10 10 10 COST 6", [1, 10, 4, 0, 6_000]),
        // With a capacity of four the queue is full, and has room for a unit in a second.
        (0, "RL.LEAKYBUCKET k 4 10 10", [0, 4, 0, 1_000, 4_000]),
        // A larger queue holds the same six units.
        (0, "RL.LEAKYBUCKET k 20 10 10 COST 0", [1, 20, 14, 6_000, 6_000]),
        // At two units per second, one second drains two units.
        (1_000, "RL.LEAKYBUCKET k 10 20 10 COST 0", [1, 10, 6, 2_000, 2_000]),
    ]);
}

#[test]
fn gcra_stores_an_instant_and_not_tokens() {
    check(&[
        // Four of six units are used: the theoretical arrival time is 24 s ahead.
        (0, "RL.GCRA k 6 10 60 COST 4", [1, 6, 2, 0, 24_000]),
        // At twice the rate the same 24 s are worth eight units, more than the burst.
        (0, "RL.GCRA k 6 20 60", [0, 6, 0, 9_000, 24_000]),
        // At half the rate they are worth two units.
        (0, "RL.GCRA k 6 5 60 COST 0", [1, 6, 4, 0, 24_000]),
        // A rule with a shorter period does not reduce the debt of 24 s. Otherwise, calls by one
        // rule would return the units that calls by another rule used.
        (0, "RL.GCRA k 1 1000 1s", [0, 1, 0, 24_000, 24_000]),
        (0, "RL.GCRA k 6 10 60 COST 0", [1, 6, 2, 0, 24_000]),
    ]);
}

#[test]
fn two_gcra_rules_on_one_key_never_allow_more_than_the_faster_rule() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    // A slow rule with a large burst, and a fast one with a burst of one.
    let (slow, fast) = ("RL.GCRA k 50 10 10", "RL.GCRA k 1 20 10");
    let mut allowed = 0;
    for _ in 0..200 {
        allowed += client.decide(slow)[0] + client.decide(fast)[0];
        client.advance_ms(50);
    }
    // The larger burst once, and twenty units in the ten seconds.
    assert!(allowed <= 50 + 20 + 1, "{allowed} were allowed");
    assert!(allowed >= 50, "{allowed} were allowed: the test must reach the limit");
}
