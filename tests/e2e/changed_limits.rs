//! Tests how the next call reads a state after its rule's limits change: one table per algorithm.

use crate::support::{BASE_US, Reply, Server, play};

fn check(table: &[(i64, &str, Reply)]) {
    let server = Server::start();
    play(&mut server.client(), table);
}

#[test]
fn fixed_window_is_current_while_it_is_younger_than_the_window_of_the_call() {
    check(&[
        // Eight units of ten are used in a window of a minute.
        (0, "RL.FIXED k 10 60 COST 8", [1, 10, 2, 0, 60_000]),
        // A lower limit counts the same eight units.
        (5_000, "RL.FIXED k 5 60", [0, 5, 0, 55_000, 55_000]),
        // A higher limit counts them too.
        (5_000, "RL.FIXED k 20 60", [1, 20, 11, 0, 55_000]),
        // A shorter window, which is still open.
        (5_000, "RL.FIXED k 10 6", [1, 10, 0, 0, 1_000]),
        // The same shorter window after its end: a new window opens.
        (7_000, "RL.FIXED k 10 6", [1, 10, 9, 0, 6_000]),
        // A longer window keeps the start.
        (8_000, "RL.FIXED k 10 60", [1, 10, 8, 0, 59_000]),
    ]);
}

#[test]
fn fixed_windows_with_and_without_aligned_share_one_state() {
    check(&[
        // The window opens off the grid and is current for both.
        (62_000, "RL.FIXED k 10 60 COST 4", [1, 10, 6, 0, 60_000]),
        (63_000, "RL.FIXED k 10 60 ALIGNED", [1, 10, 5, 0, 57_000]),
        // At the boundary ALIGNED ends the window that began before it. Without ALIGNED it is still
        // open.
        (121_000, "RL.PEEK k FIXED 10 60 COST 0", [1, 10, 5, 0, 1_000]),
        (121_000, "RL.FIXED k 10 60 ALIGNED", [1, 10, 9, 0, 59_000]),
        // The window that ALIGNED opened is read without ALIGNED.
        (122_000, "RL.FIXED k 10 60", [1, 10, 8, 0, 58_000]),
    ]);
}

#[test]
fn sliding_window_counts_both_windows_as_current_when_the_new_grid_differs() {
    check(&[
        // Previous window 4 and current window 3, on the grid of a minute.
        (0, "RL.SLIDING k 100 60 COST 4", [1, 100, 96, 0, 120_000]),
        (60_000, "RL.SLIDING k 100 60 COST 3", [1, 100, 93, 0, 120_000]),
        // The current window starts at 60 s, inside the 90 s window that starts at 0, which counts
        // all seven.
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
        // A window of one and a half seconds sees two of them.
        (2_000, "RL.SLIDINGLOG k 3 1.5 COST 0", [1, 3, 1, 0, 1_500]),
        // A lower limit is exceeded until two events have expired.
        (2_000, "RL.SLIDINGLOG k 2 10", [0, 2, 0, 9_000, 10_000]),
        // A longer window counts all three events, for longer.
        (2_000, "RL.SLIDINGLOG k 10 20 COST 0", [1, 10, 7, 0, 20_000]),
    ]);
}

#[test]
fn bucket_keeps_its_tokens_and_refills_at_the_new_rate() {
    check(&[
        // Four tokens of ten are left, and one returns per second.
        (0, "RL.TOKENBUCKET k 10 10 10 COST 6", [1, 10, 4, 0, 6_000]),
        // A bucket with a smaller capacity holds no more than that.
        (0, "RL.TOKENBUCKET k 3 10 10 COST 0", [1, 3, 3, 0, 0]),
        // A larger bucket holds the same four tokens.
        (0, "RL.TOKENBUCKET k 20 10 10 COST 0", [1, 20, 4, 0, 16_000]),
        // Two seconds at two tokens per second.
        (2_000, "RL.TOKENBUCKET k 10 20 10 COST 0", [1, 10, 8, 0, 1_000]),
        // The same two seconds at the old rate.
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
        // One second, in which two units drain.
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
        // A debt is never forgiven: otherwise two rules on one key would refill each other.
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
    // Ten seconds at twenty per ten seconds, plus the larger burst once.
    assert!(allowed <= 50 + 20 + 1, "{allowed} were allowed");
    assert!(allowed >= 50, "{allowed} were allowed: the test must reach the limit");
}
