//! The reading of a state after its rule's limits change, one table per algorithm.

use crate::support::{BASE_US, Reply, Server, play};

fn check(table: &[(i64, &str, Reply)]) {
    let server = Server::start();
    play(&mut server.client(), table);
}

#[test]
fn a_fixed_window_is_current_while_it_is_younger_than_the_window_asked_for_now() {
    check(&[
        // Eight of ten are used in a window of a minute.
        (0, "RL.FIXED k 10 60 COST 8", [1, 10, 2, 0, 60_000]),
        // A lower limit counts the same eight.
        (5_000, "RL.FIXED k 5 60", [0, 5, 0, 55_000, 55_000]),
        // So does a higher limit.
        (5_000, "RL.FIXED k 20 60", [1, 20, 11, 0, 55_000]),
        // A shorter window that is still open.
        (5_000, "RL.FIXED k 10 6", [1, 10, 0, 0, 1_000]),
        // A shorter one that would have ended by now: a fresh window.
        (7_000, "RL.FIXED k 10 6", [1, 10, 9, 0, 6_000]),
        // A longer one keeps the start.
        (8_000, "RL.FIXED k 10 60", [1, 10, 8, 0, 59_000]),
    ]);
}

#[test]
fn a_fixed_window_with_and_without_aligned_is_one_state() {
    check(&[
        // It opens off the grid and is current for both.
        (62_000, "RL.FIXED k 10 60 COST 4", [1, 10, 6, 0, 60_000]),
        (63_000, "RL.FIXED k 10 60 ALIGNED", [1, 10, 5, 0, 57_000]),
        // Past the boundary ALIGNED drops a start before it; without, it is still open.
        (121_000, "RL.PEEK k FIXED 10 60 COST 0", [1, 10, 5, 0, 1_000]),
        (121_000, "RL.FIXED k 10 60 ALIGNED", [1, 10, 9, 0, 59_000]),
        // And the state that ALIGNED wrote is read without it.
        (122_000, "RL.FIXED k 10 60", [1, 10, 8, 0, 58_000]),
    ]);
}

#[test]
fn a_sliding_window_off_the_new_grid_counts_previous_and_current_as_current() {
    check(&[
        // Previous 4 and current 3 on the grid of a minute.
        (0, "RL.SLIDING k 100 60 COST 4", [1, 100, 96, 0, 120_000]),
        (60_000, "RL.SLIDING k 100 60 COST 3", [1, 100, 93, 0, 120_000]),
        // A start at 60 s lies inside the 90 seconds that begin at 0: seven there.
        (61_000, "RL.SLIDING k 100 90 COST 0", [1, 100, 93, 0, 119_000]),
        // Ten seconds into the next ninety, eight ninths of seven weigh.
        (100_000, "RL.SLIDING k 100 90 COST 0", [1, 100, 93, 0, 80_000]),
        (150_000, "RL.SLIDING k 100 90 COST 0", [1, 100, 97, 0, 30_000]),
    ]);
}

#[test]
fn the_instants_of_a_sliding_log_stay_whatever_is_asked() {
    check(&[
        // Three events within two seconds.
        (0, "RL.SLIDINGLOG k 10 10", [1, 10, 9, 0, 10_000]),
        (1_000, "RL.SLIDINGLOG k 10 10", [1, 10, 8, 0, 10_000]),
        (2_000, "RL.SLIDINGLOG k 10 10", [1, 10, 7, 0, 10_000]),
        // A window of one second and a half sees two of them.
        (2_000, "RL.SLIDINGLOG k 3 1.5 COST 0", [1, 3, 1, 0, 1_500]),
        // A lower limit is exceeded until two have gone.
        (2_000, "RL.SLIDINGLOG k 2 10", [0, 2, 0, 9_000, 10_000]),
        // A longer window counts all three, and for longer.
        (2_000, "RL.SLIDINGLOG k 10 20 COST 0", [1, 10, 7, 0, 20_000]),
    ]);
}

#[test]
fn the_tokens_of_a_bucket_stay_and_time_is_credited_at_the_new_rate() {
    check(&[
        // Four tokens left of ten, one a second.
        (0, "RL.TOKENBUCKET k 10 10 10 COST 6", [1, 10, 4, 0, 6_000]),
        // A smaller bucket holds no more than its capacity.
        (0, "RL.TOKENBUCKET k 3 10 10 COST 0", [1, 3, 3, 0, 0]),
        // A larger one holds the same four.
        (0, "RL.TOKENBUCKET k 20 10 10 COST 0", [1, 20, 4, 0, 16_000]),
        // Two seconds at two tokens a second.
        (2_000, "RL.TOKENBUCKET k 10 20 10 COST 0", [1, 10, 8, 0, 1_000]),
        // The same two seconds at the old rate.
        (2_000, "RL.TOKENBUCKET k 10 10 10 COST 0", [1, 10, 6, 0, 4_000]),
    ]);
}

#[test]
fn the_level_of_a_leaky_bucket_stays_and_counts_as_full_above_a_lower_capacity() {
    check(&[
        // Six in the queue, one a second.
        (0, "RL.LEAKYBUCKET k 10 10 10 COST 6", [1, 10, 4, 0, 6_000]),
        // A capacity of four counts as full: one place comes free in a second.
        (0, "RL.LEAKYBUCKET k 4 10 10", [0, 4, 0, 1_000, 4_000]),
        // A larger one has the same six in it.
        (0, "RL.LEAKYBUCKET k 20 10 10 COST 0", [1, 20, 14, 6_000, 6_000]),
        // Drained at two a second for one second.
        (1_000, "RL.LEAKYBUCKET k 10 20 10 COST 0", [1, 10, 6, 2_000, 2_000]),
    ]);
}

#[test]
fn gcra_remembers_time_and_not_tokens() {
    check(&[
        // Four of six used: 24 seconds are owed.
        (0, "RL.GCRA k 6 10 60 COST 4", [1, 6, 2, 0, 24_000]),
        // At twice the rate the same 24 seconds are worth eight units: more than the burst.
        (0, "RL.GCRA k 6 20 60", [0, 6, 0, 9_000, 24_000]),
        // At half the rate they are worth two.
        (0, "RL.GCRA k 6 5 60 COST 0", [1, 6, 4, 0, 24_000]),
        // A debt is never forgiven, or two rules on one key would refill each other.
        (0, "RL.GCRA k 1 1000 1s", [0, 1, 0, 24_000, 24_000]),
        (0, "RL.GCRA k 6 10 60 COST 0", [1, 6, 2, 0, 24_000]),
    ]);
}

#[test]
fn two_rules_on_one_key_never_earn_gcra_more_than_the_faster_of_them() {
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
    // Ten seconds at twenty per ten seconds, and the larger burst once.
    assert!(allowed <= 50 + 20 + 1, "{allowed} were allowed");
    assert!(allowed >= 50, "{allowed} were allowed: the test must reach the limit");
}
