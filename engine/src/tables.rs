//! The limiters in worked examples: tables of (time, cost, expected).
//!
//! The expected numbers are `allowed remaining retry_after_ms reset_after_ms`, as in the reply.

use crate::algorithms::fixed_window::FixedWindow;
use crate::algorithms::gcra::Gcra;
use crate::algorithms::leaky_bucket::LeakyBucket;
use crate::algorithms::sliding_log::SlidingLog;
use crate::algorithms::sliding_window::SlidingWindow;
use crate::algorithms::token_bucket::TokenBucket;
use crate::algorithms::*;
use crate::bounds::{Cost, Limit, Period, Refill, RefillError, Slots};
use crate::time::{Instant, Span};
use crate::{oracle, state};

mod debt;
mod quota;

/// 2023-11-14 22:13:20 UTC, a multiple of 10 s.
const START_US: u64 = 1_700_000_000_000_000;

type Reply = (i128, i128, i128, i128);

/// A key that calls change through the codec, as in the server.
#[derive(Default)]
struct Key(oracle::Key);

impl Key {
    fn call(&mut self, rule: &Rule, at_ms: i128, cost: u64) -> Reply {
        let now = i128::from(START_US) + at_ms * 1_000;
        let (reply, _) = self.0.call(rule, now, cost.into());
        (reply.allowed, reply.remaining, reply.retry_after_ms, reply.reset_after_ms)
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        self.0.bytes.clone()
    }
}

/// Makes the calls on one key, row by row, and compares the replies.
fn check(rule: &Rule, rows: &[(i128, u64, Reply)]) {
    let mut key = Key::default();
    for (row, (at_ms, cost, expected)) in rows.iter().enumerate() {
        let reply = key.call(rule, *at_ms, *cost);
        assert_eq!(reply, *expected, "row {row}: cost {cost} at {at_ms} ms of {rule:?}");
    }
}

fn limit(units: u64) -> Limit {
    Limit::new(units).unwrap()
}

fn seconds(seconds: u64) -> Period {
    Period::new(Span::from_ms(seconds * 1_000)).unwrap()
}

fn refill(capacity: u64, rate: u64, period: Period) -> Refill {
    Refill::new(limit(capacity), limit(rate), period).unwrap()
}

fn fixed(units: u64, window: Period, aligned: bool) -> Rule {
    Rule::FixedWindow(FixedWindow { limit: limit(units), window, aligned })
}

fn sliding(units: u64, window: Period) -> Rule {
    Rule::SlidingWindow(SlidingWindow { limit: limit(units), window })
}

fn log(units: u64, window: Period, slots: u32) -> Rule {
    let (limit, slots) = (limit(units), Slots::new(slots).unwrap());
    Rule::SlidingLog(SlidingLog { limit, window, slots, has_own_slots: false })
}

fn token(capacity: u64, rate: u64, period: Period) -> Rule {
    Rule::TokenBucket(TokenBucket(refill(capacity, rate, period)))
}

fn leaky(capacity: u64, rate: u64, period: Period) -> Rule {
    Rule::LeakyBucket(LeakyBucket(refill(capacity, rate, period)))
}

fn gcra(burst: u64, rate: u64, period: Period) -> Rule {
    Rule::Gcra(Gcra::new(refill(burst, rate, period)))
}

#[test]
fn a_fixed_window_opens_at_the_first_allowed_call() {
    check(
        &fixed(3, seconds(10), false),
        &[
            (2_500, 1, (1, 2, 0, 10_000)), // opens here, not at a multiple of 10 s
            (3_500, 2, (1, 0, 0, 9_000)),  // used up
            (3_500, 1, (0, 0, 9_000, 9_000)), // until the end of the window
            (3_500, 4, (0, 0, -1, 9_000)), // more than the limit: never
            (3_500, 0, (1, 0, 0, 9_000)),  // cost 0 takes nothing
            (12_499, 1, (0, 0, 1, 1)),     // the last ms
            (12_500, 1, (1, 2, 0, 10_000)), // a new window
        ],
    );
}

#[test]
fn an_aligned_fixed_window_opens_at_a_multiple_of_its_length() {
    check(
        &fixed(3, seconds(10), true),
        &[
            (2_500, 1, (1, 2, 0, 7_500)),   // ends at a multiple of 10 s
            (9_999, 3, (0, 2, 1, 1)),       // two are left, three requested
            (10_000, 3, (1, 0, 0, 10_000)), // a new window
        ],
    );
}

#[test]
fn a_fixed_window_of_15_per_10_s_allows_a_call_a_second() {
    let rule = fixed(15, seconds(10), false);
    let mut key = Key::default();
    let allowed = (0..20).filter(|second| key.call(&rule, second * 1_000, 1).0 == 1).count();
    assert_eq!(allowed, 20);
}

#[test]
fn fixed_windows_with_and_without_aligned_share_their_state() {
    let mut key = Key::default();
    let (plain, aligned) = (fixed(3, seconds(10), false), fixed(3, seconds(10), true));
    assert_eq!(key.call(&plain, 4_000, 2), (1, 1, 0, 10_000)); // opens between two boundaries
    assert_eq!(key.call(&aligned, 5_000, 1), (1, 0, 0, 5_000)); // ends at the boundary
    assert_eq!(key.call(&plain, 11_000, 1), (0, 0, 3_000, 3_000)); // still open without ALIGNED
    assert_eq!(key.call(&aligned, 11_000, 1), (1, 2, 0, 9_000)); // with ALIGNED, it ended at 10 s
}

#[test]
fn fixed_window_uses_the_length_of_the_current_rule() {
    let mut key = Key::default();
    key.call(&fixed(3, seconds(10), false), 0, 3);
    assert_eq!(key.call(&fixed(3, seconds(60), false), 9_000, 1), (0, 0, 51_000, 51_000));
    assert_eq!(key.call(&fixed(3, seconds(5), false), 9_000, 1), (1, 2, 0, 5_000));
}

#[test]
fn a_sliding_window_weighs_the_previous_one_by_its_overlap() {
    let rule = sliding(100, seconds(60));
    // 1,700,000,040 s is a multiple of 60 s.
    let window = 40_000;
    check(
        &rule,
        &[
            (window, 40, (1, 60, 0, 120_000)),         // the previous window
            (window + 60_000, 60, (1, 0, 0, 120_000)), // 40 + 60 fill this one
            (window + 60_000 + 30_000, 20, (1, 0, 0, 90_000)), // 40 x 30/60 + 60 + 20
            (window + 60_000 + 30_000, 1, (0, 0, 1_500, 90_000)), // denied 30 s in ...
            (window + 60_000 + 40_000, 1, (1, 5, 0, 80_000)), // ... allowed 40 s in: 13.3 + 81
            (window + 60_000 + 40_000, 100, (0, 5, 80_000, 80_000)), // all 100: in two windows
        ],
    );
}

#[test]
fn sliding_window_that_starts_off_the_new_grid_counts_in_full() {
    let mut key = Key::default();
    // Ten in a window of 7 s that starts at 1,699,999,995 s, off the grid of 20 s.
    key.call(&sliding(10, seconds(7)), 0, 10);
    // 1,699,999,980 is a multiple of 20 s: all ten count in the window that holds the old start,
    // which is the previous one now.
    assert_eq!(key.call(&sliding(10, seconds(20)), 10_000, 1), (1, 4, 0, 30_000));
}

#[test]
fn a_sliding_log_never_exceeds_the_limit_in_any_window() {
    check(
        &log(3, seconds(10), 1_024),
        &[
            (0, 1, (1, 2, 0, 10_000)),
            (4_000, 2, (1, 0, 0, 10_000)),
            (9_999, 1, (0, 0, 1, 4_001)), // the first call counts for 10 s
            (9_999, 2, (0, 0, 4_001, 4_001)), // two units: the second call too
            (10_000, 1, (1, 0, 0, 10_000)), // exactly one is free
            (10_000, 1, (0, 0, 4_000, 10_000)),
            (14_000, 2, (1, 0, 0, 10_000)),
        ],
    );
}

#[test]
fn a_sliding_log_whose_limit_exceeds_its_slots_rounds_instants_up() {
    check(
        &log(17, seconds(16), 16),
        &[
            (100, 17, (1, 0, 0, 16_900)), // counts from the next full second on
            (16_999, 1, (0, 0, 1, 1)),    // counts most of a slot too long
            (17_000, 1, (1, 16, 0, 16_000)),
        ],
    );
}

#[test]
fn a_sliding_log_adds_up_calls_of_one_microsecond_in_one_entry() {
    let rule = log(1_000, seconds(10), 1_024);
    let mut key = Key::default();
    (0..1_000).for_each(|_| assert_eq!(key.call(&rule, 0, 1).0, 1));
    assert_eq!(key.call(&rule, 0, 1).0, 0);
    assert!(key.bytes().unwrap().len() <= 24 + 12);
}

#[test]
fn sliding_log_drops_dead_entries_and_stays_bounded() {
    let rule = log(10, seconds(10), 1_024);
    let mut key = Key::default();
    for call in 0..10_000 {
        assert_eq!(key.call(&rule, call * 1_000, 1).0, 1, "call {call}");
        // Ten live entries, and fewer than half as many dead ones.
        assert!(key.bytes().unwrap().len() <= 24 + 12 * 15);
    }
}

#[test]
fn a_token_bucket_refills_exactly() {
    check(
        &token(5, 3, seconds(10)),
        &[
            (0, 5, (1, 0, 0, 16_667)),     // empty: 5 x 10 / 3 s to refill
            (0, 1, (0, 0, 3_334, 16_667)), // a token takes 3.333.. s
            (3_333, 1, (0, 0, 1, 13_334)),
            (3_334, 1, (1, 0, 0, 16_666)), // 0.0002 tokens are left, and kept
            (6_667, 1, (1, 0, 0, 16_667)), // 6.667 s are 2.0001 tokens
            (10_000, 1, (1, 0, 0, 16_667)),
            (10_000, 6, (0, 0, -1, 16_667)),
        ],
    );
}

#[test]
fn a_token_bucket_of_30_per_minute_allows_a_call_every_1_9_s_for_ten_minutes() {
    let rule = token(30, 30, seconds(60));
    let mut key = Key::default();
    let calls = (0..=600_000).step_by(1_900);
    let (count, allowed) = calls
        .fold((0, 0), |(count, allowed), at_ms| (count + 1, allowed + key.call(&rule, at_ms, 1).0));
    assert_eq!((count, allowed), (316, 316));
}

#[test]
fn a_token_bucket_keeps_its_tokens_when_the_limits_change() {
    let mut key = Key::default();
    key.call(&token(10, 1, seconds(1)), 0, 2);
    // The new capacity caps the tokens.
    assert_eq!(key.call(&token(5, 1, seconds(1)), 0, 5), (1, 0, 0, 5_000));
    // Ten seconds at the new rate.
    assert_eq!(key.call(&token(10, 1, seconds(10)), 10_000, 1), (1, 0, 0, 100_000));
}

#[test]
fn leaky_bucket_returns_the_wait_of_an_allowed_call() {
    check(
        &leaky(4, 2, seconds(1)),
        &[
            (0, 1, (1, 3, 0, 500)),     // at once
            (0, 1, (1, 2, 500, 1_000)), // when the first has drained
            (0, 1, (1, 1, 1_000, 1_500)),
            (0, 1, (1, 0, 1_500, 2_000)),
            (0, 1, (0, 0, 500, 2_000)),   // the queue is full
            (0, 0, (1, 0, 2_000, 2_000)), // the wait of a new arrival
            (0, 5, (0, 0, -1, 2_000)),
            (250, 1, (0, 0, 250, 1_750)),
            (500, 1, (1, 0, 1_500, 2_000)),
        ],
    );
}

#[test]
fn a_leaky_bucket_of_10_per_30_s_drains_exactly() {
    let rule = leaky(10, 10, seconds(30));
    let mut key = Key::default();
    let remaining: Vec<_> = (0..11).map(|second| key.call(&rule, second * 1_000, 1).1).collect();
    assert_eq!(remaining, [9, 8, 7, 7, 6, 5, 5, 4, 3, 3, 2]);
}

#[test]
fn a_leaky_bucket_above_a_lowered_capacity_counts_as_full() {
    let mut key = Key::default();
    key.call(&leaky(10, 1, seconds(1)), 0, 8);
    assert_eq!(key.call(&leaky(4, 1, seconds(1)), 0, 1), (0, 0, 1_000, 4_000));
    assert_eq!(key.call(&leaky(4, 1, seconds(1)), 1_000, 1), (1, 0, 3_000, 4_000));
}

#[test]
fn gcra_allows_a_burst_and_then_one_call_an_interval() {
    check(
        &gcra(6, 10, seconds(60)),
        &[
            (0, 1, (1, 5, 0, 6_000)),
            (0, 1, (1, 4, 0, 12_000)),
            (0, 1, (1, 3, 0, 18_000)),
            (0, 1, (1, 2, 0, 24_000)),
            (0, 1, (1, 1, 0, 30_000)),
            (0, 1, (1, 0, 0, 36_000)),
            (0, 1, (0, 0, 6_000, 36_000)),
            (0, 2, (0, 0, 12_000, 36_000)),
            (0, 7, (0, 0, -1, 36_000)),
            (5_999, 1, (0, 0, 1, 30_001)),
            (6_000, 1, (1, 0, 0, 36_000)),
            (21_000, 3, (0, 2, 3_000, 21_000)), // a denial shows the units left
        ],
    );
}

#[test]
fn gcra_keeps_the_owed_time_when_the_limits_change() {
    let mut key = Key::default();
    key.call(&gcra(6, 10, seconds(60)), 0, 6);
    // 36 s are owed under any limits, also under a smaller limit.
    assert_eq!(key.call(&gcra(2, 1, seconds(1)), 0, 1), (0, 0, 35_000, 36_000));
    assert_eq!(key.call(&gcra(6, 10, seconds(60)), 0, 1), (0, 0, 6_000, 36_000));
}

#[test]
fn gcra_enforces_a_rate_of_a_million_units_per_second() {
    // A thousand units in a millisecond. The key lives for a millisecond, and no unit is lost.
    let rule = gcra(1_000, 1_000_000, seconds(1));
    check(
        &rule,
        &[
            (0, 1_000, (1, 0, 0, 1)), // a key that lives for a millisecond
            (0, 1, (0, 0, 1, 1)),
            (1, 1_000, (1, 0, 0, 1)),
            (2, 1_001, (0, 1_000, -1, 0)),
        ],
    );
}

#[test]
fn buckets_and_gcra_enforce_the_highest_rate() {
    let most = 1_000_000;
    let least = Period::new(Period::MIN).unwrap();
    for rule in [gcra(most, most, least), token(most, most, least), leaky(most, most, least)] {
        check(
            &rule,
            &[
                (0, most, (1, 0, 0, 1)), // 10^9 per second, an interval of one nanosecond
                (0, 1, (0, 0, 1, 1)),
                (1, most, (1, 0, 0, 1)), // all back a millisecond later
            ],
        );
    }
}

/// Checks the reply when a state far ahead of the clock is repaired; one row per algorithm.
#[test]
fn state_far_ahead_of_the_clock_is_moved_to_now() {
    let ten = seconds(10);
    let back_ms = -86_400_000;
    let rows = [
        (fixed(3, ten, false), (0, 0, 10_000, 10_000)), // used stays used
        (fixed(3, ten, true), (0, 0, 10_000, 10_000)),
        (sliding(3, ten), (0, 0, 13_334, 20_000)),
        (log(3, ten, 1_024), (0, 0, 10_000, 10_000)),
        (token(3, 3, ten), (0, 0, 3_334, 10_000)), // no token is added or lost
        (leaky(3, 3, ten), (0, 0, 3_334, 10_000)),
        (gcra(3, 3, ten), (0, 0, 3_334, 10_001)), // an interval is a whole number of ns
    ];
    for (rule, expected) in rows {
        let mut key = Key::default();
        assert_eq!(key.call(&rule, 0, 3).0, 1);
        let before = key.bytes();
        assert_eq!(key.call(&rule, back_ms, 0).2, wait(&rule));
        assert_eq!(key.bytes(), before, "{rule:?}: cost 0 writes nothing");
        assert_eq!(key.call(&rule, back_ms, 1), expected, "{rule:?}");
        assert_ne!(key.bytes(), before, "{rule:?}: the repair is stored");
        assert_eq!(key.call(&rule, back_ms, 1), expected, "{rule:?}: and needs no other");
        assert_eq!(key.call(&rule, back_ms + expected.2, 1).0, 1, "{rule:?}");
    }
}

/// Returns the reply to cost 0 on a full queue: 10 s for the leaky bucket, 0 for the others.
fn wait(rule: &Rule) -> i128 {
    if matches!(rule, Rule::LeakyBucket(_)) { 10_000 } else { 0 }
}

#[test]
fn state_a_little_ahead_of_the_clock_stays_as_it_is() {
    let ten = seconds(10);
    let rules = [
        fixed(3, ten, false),
        sliding(3, ten),
        log(3, ten, 1_024),
        token(3, 3, ten),
        leaky(3, 3, ten),
        gcra(3, 3, ten),
    ];
    for rule in rules {
        let mut key = Key::default();
        key.call(&rule, 0, 3);
        let before = key.bytes();
        assert_eq!(key.call(&rule, -1, 1).0, 0, "{rule:?}");
        assert_eq!(key.bytes(), before, "{rule:?}");
    }
}

#[test]
fn a_rule_does_not_read_the_state_of_another_algorithm() {
    let ten = seconds(10);
    let rules = [
        fixed(3, ten, false),
        sliding(3, ten),
        log(3, ten, 1_024),
        token(3, 3, ten),
        leaky(3, 3, ten),
        gcra(3, 3, ten),
    ];
    for (writer_index, writer) in rules.iter().enumerate() {
        let mut key = Key::default();
        key.call(writer, 0, 1);
        let bytes = key.bytes().unwrap();
        let stored = state::decode(&bytes).unwrap();
        for (reader_index, reader) in rules.iter().enumerate() {
            let read = reader.decide(Some(stored), Instant::from_us(START_US), Cost::ONE);
            assert_eq!(read.is_ok(), reader_index == writer_index);
        }
    }
}

#[test]
fn refill_beyond_its_bounds_is_rejected() {
    let day = Period::new(Span::from_days(1)).unwrap();
    let most = Period::new(Period::MAX).unwrap();
    let least = Period::new(Period::MIN).unwrap();
    let new = |capacity, rate, period| Refill::new(limit(capacity), limit(rate), period);
    assert!(new(36_525, 1, day).is_ok());
    assert_eq!(new(36_526, 1, day), Err(RefillError::RefillTooLong));
    assert!(new(1, 1_000_000, least).is_ok());
    assert_eq!(new(1, 1_000_001, least), Err(RefillError::RateTooHigh));
    assert!(new(99, 1, most).is_ok());
    assert_eq!(new(100, 1, most), Err(RefillError::RefillTooLong));
    assert!(new(Limit::MAX, Limit::MAX, most).is_ok());
}
