//! Charges, refunds, partial grants and growing delays in worked examples: tables of (time, call,
//! cost, expected).

use crate::algorithms::backoff::{Backoff, BackoffError};
use crate::bounds::{Cost, Leave, Limit, Period};
use crate::call::ChargeError;
use crate::oracle::reply::Verb::{Charge, Decide, Leaving, Partly, PartlyLeaving, Refund};
use crate::oracle::reply::{Verb, Wrote};
use crate::tables::*;
use crate::time::{Instant, Span};

impl Key {
    fn act(&mut self, verb: Verb, rule: &Rule, at_ms: i128, cost: u64) -> (Reply, Wrote) {
        let now = i128::from(START_US) + at_ms * 1_000;
        let (reply, wrote) = self.0.carry_out(verb, rule, now, cost.into()).expect("within bounds");
        let fields = (reply.allowed, reply.remaining, reply.retry_after_ms, reply.reset_after_ms);
        (fields, wrote)
    }

    fn charge_error(&self, rule: &Rule, at_ms: i128, cost: u64) -> Option<ChargeError> {
        let now = i128::from(START_US) + at_ms * 1_000;
        self.0.act(Charge, rule, now, cost.into()).err()
    }
}

/// Makes the calls on one key, row by row, and compares the replies.
fn check(rule: &Rule, rows: &[(i128, Verb, u64, Reply)]) {
    let mut key = Key::default();
    for (row, (at_ms, verb, cost, expected)) in rows.iter().enumerate() {
        let (reply, _) = key.act(*verb, rule, *at_ms, *cost);
        assert_eq!(reply, *expected, "row {row}: {verb:?} {cost} at {at_ms} ms of {rule:?}");
    }
}

#[test]
fn a_charged_fixed_window_is_in_debt_until_it_ends_or_is_refunded() {
    check(
        &fixed(10, seconds(60), false),
        &[
            (0, Charge, 12, (0, 0, 60_000, 60_000)), // two more than the limit
            (0, Decide, 1, (0, 0, 60_000, 60_000)),
            (0, Refund, 5, (1, 3, 0, 60_000)), // seven are used
            (0, Charge, 3, (1, 0, 0, 60_000)), // ten fit
            (0, Charge, 0, (1, 0, 0, 60_000)), // ten units are no debt
            (0, Charge, 1, (0, 0, 60_000, 60_000)),
            (1_000, Charge, 0, (0, 0, 59_000, 59_000)), // cost 0 shows the debt
            (59_999, Refund, 0, (0, 0, 1, 1)),          // in a refund too
            (60_000, Charge, 0, (1, 10, 0, 0)),         // a new window owes nothing
        ],
    );
}

#[test]
fn call_that_leaves_units_is_allowed_only_if_they_remain() {
    let minute = seconds(60);
    let units = |units| Leaving(Leave::Units(Cost::new(units).unwrap()));
    let fifth = PartlyLeaving(Leave::Percent(20));
    for rule in [token(10, 10, minute), gcra(10, 10, minute)] {
        check(
            &rule,
            &[
                (0, Decide, 7, (1, 3, 0, 42_000)),
                (0, units(3), 1, (0, 3, 6_000, 42_000)),
                (0, units(2), 1, (1, 2, 0, 48_000)),
                (0, fifth, 5, (0, 2, 6_000, 48_000)),
                (6_000, fifth, 5, (1, 2, 0, 48_000)), // 3 are there, 2 stay, 1 is granted
                (6_000, units(3), 0, (0, 2, 6_000, 48_000)),
                (6_000, units(2), 0, (1, 2, 0, 48_000)),
                (6_000, units(2), 9, (0, 2, -1, 48_000)),
                (6_000, PartlyLeaving(Leave::Percent(100)), 1, (0, 2, -1, 48_000)),
                (6_000, Leaving(Leave::Percent(29)), 1, (0, 2, 6_000, 48_000)), // 2.9 are 2
                (12_000, Leaving(Leave::Percent(29)), 1, (1, 2, 0, 48_000)),
                (12_000, units(0), 2, (1, 0, 0, 60_000)),
                (12_000, Charge, 2, (0, 0, 12_000, 72_000)),
                (12_000, units(1), 0, (0, 0, 18_000, 72_000)), // in debt, one unit is far
            ],
        );
    }
}

#[test]
fn buckets_and_gcra_deny_until_the_debt_is_paid() {
    let minute = seconds(60);
    for rule in [token(10, 10, minute), leaky(10, 10, minute), gcra(10, 10, minute)] {
        check(
            &rule,
            &[
                (0, Charge, 12, (0, 0, 12_000, 72_000)), // two units of 6 s
                (0, Decide, 1, (0, 0, 18_000, 72_000)),  // and one more
                (0, Decide, 10, (0, 0, 72_000, 72_000)),
                (0, Decide, 11, (0, 0, -1, 72_000)),
                (11_999, Charge, 0, (0, 0, 1, 60_001)),
                (12_000, Charge, 0, (1, 0, 0, 60_000)), // out of debt, and still empty
                (18_000, Charge, 3, (0, 0, 12_000, 72_000)),
                (18_000, Refund, 1, (0, 0, 6_000, 66_000)), // still in debt
                (18_000, Refund, 1, (1, 0, 0, 60_000)),
                (18_000, Refund, 100, (1, 10, 0, 0)), // at most the full allowance
                (18_000, Refund, 1, (1, 10, 0, 0)),
            ],
        );
    }
}

#[test]
fn a_charged_sliding_window_is_in_debt_until_enough_has_faded() {
    // 1,700,000,040 s is a multiple of 60 s.
    let window = 40_000;
    check(
        &sliding(100, seconds(60)),
        &[
            (window, Charge, 150, (0, 0, 80_000, 120_000)), // 100 count a third into the next
            (window + 60_000 + 19_999, Charge, 0, (0, 0, 1, 40_001)),
            (window + 60_000 + 20_000, Charge, 0, (1, 0, 0, 40_000)),
            (window + 60_000 + 30_000, Charge, 30, (0, 0, 2_000, 90_000)), // 75 + 30
            (window + 60_000 + 30_000, Refund, 40, (1, 30, 0, 30_000)),    // 30, and 10 of the 150
            (window + 60_000 + 30_000, Decide, 30, (1, 0, 0, 90_000)),     // 140 x 30/60 + 30
        ],
    );
}

#[test]
fn a_sliding_log_is_refunded_newest_first() {
    check(
        &log(3, seconds(10), 1_024),
        &[
            (0, Decide, 1, (1, 2, 0, 10_000)),
            (1_000, Decide, 2, (1, 0, 0, 10_000)),
            (2_000, Charge, 2, (0, 0, 9_000, 10_000)), // out of debt when the first two expire
            (2_000, Refund, 3, (1, 1, 0, 9_000)),      // left: one at 0 s, one at 1 s
            (10_000, Decide, 3, (0, 2, 1_000, 1_000)),
            (10_000, Decide, 2, (1, 0, 0, 10_000)),
            (11_000, Decide, 1, (1, 0, 0, 10_000)),
            (11_000, Refund, 1, (1, 1, 0, 9_000)), // the reset is that of the call before
        ],
    );
}

/// Returns the number of bytes that a change sends to replicas.
fn bytes_sent(write: Option<oracle::Write>) -> usize {
    match write {
        Some(oracle::Write::Keep { change, .. }) => match change {
            state::Change::Whole(bytes) => bytes.as_slice().len(),
            state::Change::Rewrite(bytes) => bytes.len(),
            state::Change::Patch { entry, .. } => entry.len(),
            state::Change::Tail { entries, .. } => entries.len(),
        },
        _ => 0,
    }
}

/// Fills a log with `filled` calls. Then, `rows` times, makes `row` calls and refunds them all.
/// Returns the largest number of entries, and the average number of bytes sent for one refund.
fn call_and_refund(rule: &Rule, filled: usize, row: usize, rows: usize) -> (usize, usize) {
    let mut key = Key::default();
    let (mut at_ms, mut most_entries, mut bytes) = (0, 0, 0);
    let mut call = |key: &mut Key| {
        at_ms += 1;
        key.call(rule, at_ms, 1);
        most_entries = most_entries.max(key.bytes().expect("a log").len() / sliding_log::ENTRY_LEN);
        at_ms
    };
    for _ in 0..filled {
        call(&mut key);
    }
    for _ in 0..rows {
        let at_ms = (0..row).map(|_| call(&mut key)).last().expect("a row of one or more");
        for _ in 0..row {
            let at_us = i128::from(START_US) + at_ms * 1_000;
            bytes += bytes_sent(key.0.act(Refund, rule, at_us, 1).expect("never refused").1);
            key.act(Refund, rule, at_ms, 1);
        }
    }
    (most_entries, bytes / (row * rows))
}

#[test]
fn log_that_is_called_and_refunded_again_and_again_stays_small() {
    let hour = seconds(3_600);
    for (limit, filled) in [(2, 1), (20, 10), (1_024, 10), (1_024, 900)] {
        for row in [1, 7, 40].into_iter().filter(|row| filled + row <= limit) {
            let rule = log(limit as u64, hour, 1_024);
            let (entries, bytes) = call_and_refund(&rule, filled, row, 2_000 / row);
            let case = format!("{entries} entries, {bytes} bytes: {filled} + {row} of {limit}");
            // The entries that count, and at most half as many dead entries and copies.
            assert!(entries <= (filled + row + 1) * 3 / 2 + 2, "{case}");
            // On average, a refund sends at most five entries. For several calls in a row, the
            // average also grows with the square root of the log's length.
            let most = if row == 1 { 60 } else { 60 + 12 * (2 * (filled + row)).isqrt() };
            assert!(bytes <= most, "{case}");
        }
    }
}

#[test]
fn full_refund_deletes_the_key_and_empty_refund_writes_nothing() {
    let ten = seconds(10);
    for rule in [
        fixed(3, ten, false),
        sliding(3, ten),
        log(3, ten, 1_024),
        token(3, 3, ten),
        leaky(3, 3, ten),
        gcra(3, 3, ten),
    ] {
        let mut key = Key::default();
        let whole = (1, 3, 0, 0);
        assert_eq!(key.act(Refund, &rule, 0, 1), (whole, Wrote::Nothing), "{rule:?}: no key");
        key.call(&rule, 0, 2);
        assert_eq!(key.act(Refund, &rule, 0, 0).1, Wrote::Nothing, "{rule:?}: cost 0");
        assert_eq!(key.act(Refund, &rule, 0, 1).1, Wrote::State, "{rule:?}");
        assert_eq!(key.act(Refund, &rule, 0, 2), (whole, Wrote::Deletion), "{rule:?}");
        assert_eq!(key.bytes(), None, "{rule:?}");
        key.call(&rule, 0, 3);
        let expired = key.act(Refund, &rule, 60_000, 1);
        assert_eq!(expired, (whole, Wrote::Nothing), "{rule:?}: expired");
    }
}

#[test]
fn partial_call_is_granted_the_units_left_up_to_its_cost() {
    let ten = seconds(10);
    for (rule, retry) in [
        (fixed(5, ten, false), 10_000),
        (log(5, ten, 1_024), 10_000),
        (token(5, 5, ten), 2_000),
        (gcra(5, 5, ten), 2_000),
    ] {
        let mut key = Key::default();
        assert_eq!(key.act(Partly, &rule, 0, 3).0.0, 3, "{rule:?}: as much as requested");
        assert_eq!(key.act(Partly, &rule, 0, 9).0.0, 2, "{rule:?}: what is left, though 9 > 5");
        let (denied, wrote) = key.act(Partly, &rule, 0, 9);
        assert_eq!(denied, (0, 0, retry, 10_000), "{rule:?}: retry is for one unit");
        assert_eq!(wrote, Wrote::Nothing, "{rule:?}");
    }
}

#[test]
fn leaky_bucket_returns_the_wait_of_the_first_unit_granted() {
    check(
        &leaky(4, 2, seconds(1)),
        &[
            (0, Partly, 3, (3, 1, 0, 1_500)),
            (0, Partly, 3, (1, 0, 1_500, 2_000)),
            (0, Partly, 3, (0, 0, 500, 2_000)),
        ],
    );
}

#[test]
fn new_capacity_caps_the_level_and_keeps_the_debt() {
    let each = seconds(1);
    // Ten and two more, at one per second; then a call of cost 0 under another capacity.
    type Bucket = fn(u64, u64, Period) -> Rule;
    let rows: [(Bucket, u64, i128, i128, i128); 4] = [
        (token, 5, 0, 2_000, 7_000),
        (token, 20, 0, 2_000, 22_000), // no token was left, and none is now
        (leaky, 5, 0, 2_000, 7_000),   // the queue is cut to five
        (leaky, 20, 8, 0, 12_000),     // twelve are in a queue of twenty
    ];
    for (rule, capacity, remaining, clear_ms, reset_ms) in rows {
        let mut key = Key::default();
        key.act(Charge, &rule(10, 1, each), 0, 12);
        let allowed = i128::from(clear_ms == 0);
        let reply = key.act(Charge, &rule(capacity, 1, each), 0, 0).0;
        assert_eq!(reply, (allowed, remaining, clear_ms, reset_ms), "of {capacity}");
    }
}

#[test]
fn half_a_unit_of_debt_is_kept_exactly() {
    let minute = seconds(60);
    for rule in [token(10, 10, minute), leaky(10, 10, minute)] {
        check(
            &rule,
            &[
                (0, Charge, 12, (0, 0, 12_000, 72_000)),
                (9_000, Charge, 1, (0, 0, 9_000, 69_000)), // half a unit, and one more
                (17_999, Charge, 0, (0, 0, 1, 60_001)),
                (18_000, Charge, 0, (1, 0, 0, 60_000)),
            ],
        );
    }
}

#[test]
fn charge_above_the_bounds_is_refused_and_changes_nothing() {
    use ChargeError::{TooLong, TooManyUnits};
    let (most, day) = (Limit::MAX, Period::new(Span::from_days(1)).unwrap());
    let hundred_years = 36_525;
    let rows = [
        (fixed(1, seconds(60), false), most, most, Some(TooManyUnits)),
        (sliding(1, seconds(60)), most, most, Some(TooManyUnits)),
        (log(1, seconds(60), 1_024), most, most, Some(TooManyUnits)),
        (token(1, most, day), most, most, Some(TooManyUnits)),
        (leaky(1, most, day), most, most, Some(TooManyUnits)),
        (gcra(1, most, day), most, most, Some(TooManyUnits)),
        (token(1, 1, day), hundred_years - 1, 1, Some(TooLong)),
        (leaky(1, 1, day), hundred_years - 1, 1, Some(TooLong)),
        (gcra(1, 1, day), hundred_years - 1, 1, Some(TooLong)),
    ];
    for (rule, charged, fits, refused) in rows {
        let mut key = Key::default();
        key.act(Charge, &rule, 0, charged);
        key.act(Charge, &rule, 0, fits);
        let before = key.bytes();
        assert_eq!(key.charge_error(&rule, 0, 1), refused, "{rule:?}");
        assert_eq!(key.bytes(), before, "{rule:?}");
        assert_eq!(key.act(Charge, &rule, 0, 0).0.0, 0, "{rule:?}: a question is not refused");
    }
}

#[test]
fn debt_longer_than_the_tolerance_is_not_repaired() {
    // 60 s fit in 2^36 ns, 68.7 s; a debt of 72 s does not.
    let rule = gcra(10, 10, seconds(60));
    let mut key = Key::default();
    key.act(Charge, &rule, 0, 12);
    assert_eq!(key.act(Decide, &rule, 0, 1), ((0, 0, 18_000, 72_000), Wrote::Nothing));
    assert_eq!(key.act(Decide, &rule, -1, 1), ((0, 0, 18_001, 72_001), Wrote::Nothing));
    // Far ahead of the clock, the time owed is cut to one tolerance.
    assert_eq!(key.act(Decide, &rule, -86_400_000, 1), ((0, 0, 6_000, 60_000), Wrote::State));
}

fn backoff(attempts: u64, base_ms: u64, max_ms: u64, forget_ms: u64) -> Rule {
    let [base, max, forget] =
        [base_ms, max_ms, forget_ms].map(|ms| Period::new(Span::from_ms(ms)).unwrap());
    Rule::Backoff(Backoff::new(limit(attempts), base, max, forget).unwrap())
}

#[test]
fn backoff_doubles_the_delay_after_the_free_attempts() {
    let hour = 3_600_000;
    check(
        &backoff(3, 1_000, 8_000, hour as u64),
        &[
            (0, Decide, 1, (1, 2, 0, hour)),
            (0, Decide, 1, (1, 1, 0, hour)),
            (0, Decide, 1, (1, 0, 0, hour)), // the last free one
            (0, Decide, 1, (0, 0, 1_000, hour)),
            (999, Decide, 1, (0, 0, 1, hour - 999)),
            (1_000, Decide, 1, (1, 0, 0, hour)),
            (2_999, Decide, 1, (0, 0, 1, hour - 1_999)),
            (3_000, Decide, 1, (1, 0, 0, hour)),
            (7_000, Decide, 1, (1, 0, 0, hour)),
            (14_999, Decide, 1, (0, 0, 1, hour - 7_999)),
            (15_000, Decide, 1, (1, 0, 0, hour)),
            (22_999, Decide, 1, (0, 0, 1, hour - 7_999)), // at most 8 s
            (23_000, Decide, 1, (1, 0, 0, hour)),
            (31_000, Decide, 1, (1, 0, 0, hour)),
            (31_000 + hour - 1, Decide, 1, (1, 0, 0, hour)), // remembered for an hour from here
            (31_000 + 2 * hour - 1, Decide, 1, (1, 2, 0, hour)), // all is forgotten
        ],
    );
}

#[test]
fn a_charged_attempt_restarts_the_delay_and_a_refund_takes_one_attempt_back() {
    let hour = 3_600_000;
    check(
        &backoff(3, 1_000, 8_000, hour as u64),
        &[
            (0, Charge, 1, (1, 2, 0, hour)),
            (0, Decide, 1, (1, 1, 0, hour)),
            (0, Charge, 1, (1, 0, 1_000, hour)), // it would have been allowed; the next call waits
            (0, Charge, 1, (0, 0, 2_000, hour)),
            (500, Charge, 1, (0, 0, 4_000, hour)), // the delay restarts here
            (500, Refund, 1, (0, 0, 2_000, hour)),
            (2_500, Refund, 0, (1, 0, 0, hour - 2_000)),
            (2_500, Refund, 1, (1, 0, 0, hour - 2_000)), // the last instant stays
            (2_500, Refund, 1, (1, 1, 0, hour - 2_000)),
        ],
    );
}

#[test]
fn backoff_keeps_its_count_and_last_instant_when_the_delays_change() {
    let mut key = Key::default();
    let hour = 3_600_000;
    let many = backoff(5, 1_000, 8_000, hour);
    (0..5).for_each(|_| assert_eq!(key.call(&many, 0, 1).0, 1));
    let few = backoff(3, 2_000, 60_000, hour);
    let (reply, _) = key.act(Decide, &few, 0, 1);
    assert_eq!(reply, (0, 0, 8_000, 3_600_000), "two of five were not free");
    let (reply, _) = key.act(Decide, &backoff(9, 1_000, 8_000, hour), 0, 1);
    assert_eq!(reply, (1, 3, 0, 3_600_000));
}

#[test]
fn count_of_attempts_stops_at_the_largest_number() {
    let rule = backoff(1, 1, 1_000, 10_000);
    let stored = crate::algorithms::backoff::State {
        last: Instant::from_us(START_US),
        count: u32::MAX.into(),
    };
    let mut bytes = Vec::new();
    state::encode(&NewState::Backoff(stored)).apply(&mut bytes);
    let mut key = Key::default();
    key.0.bytes = Some(bytes.clone());
    assert_eq!(key.act(Charge, &rule, 0, 1), ((0, 0, 1_000, 10_000), Wrote::State));
    assert_eq!(key.bytes(), Some(bytes));
}

#[test]
fn backoff_refuses_delays_that_contradict_each_other() {
    let new = |attempts, base, max, forget| {
        let [base, max, forget] = [base, max, forget].map(seconds);
        Backoff::new(limit(attempts), base, max, forget).map(|_| ())
    };
    assert_eq!(new(1_000_000, 1, 1, 2), Ok(()));
    assert_eq!(new(1_000_001, 1, 1, 2), Err(BackoffError::TooManyAttempts));
    assert_eq!(new(1, 2, 1, 3), Err(BackoffError::BaseAboveMax));
    assert_eq!(new(1, 1, 2, 2), Err(BackoffError::MaxNotBelowForget));
}
