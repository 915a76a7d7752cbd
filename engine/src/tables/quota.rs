//! Calendar quotas in worked examples, with changes of the clock and of the rule.

use crate::algorithms::quota::CalendarQuota;
use crate::algorithms::window::Window;
use crate::calendar::zone::Zone;
use crate::calendar::{Calendar, Unit};
use crate::oracle::reply::{Verb, Wrote};
use crate::tables::*;
use crate::time::Instant;

const HOUR_MS: i128 = 3_600_000;
const DAY_MS: i128 = 24 * HOUR_MS;
/// 2023-11-14 00:00 UTC: [`START_US`] is 22:13:20 of that day.
const MIDNIGHT_US: u64 = 1_699_920_000_000_000;
/// The time from midnight to [`START_US`].
const LATE_MS: i128 = 22 * HOUR_MS + 800_000;

fn per(unit: Unit, start: u8, zone: &str, units: u64) -> Rule {
    let zone = Zone::named(zone.as_bytes()).unwrap();
    let calendar = Calendar::new(unit, start, zone).unwrap();
    Rule::CalendarQuota(CalendarQuota { limit: limit(units), calendar })
}

fn day(units: u64) -> Rule {
    per(Unit::Day, 1, "UTC", units)
}

/// Returns a key with the state of a period that began `start_ms` after [`MIDNIGHT_US`].
fn holding(start_ms: i128, used: u64) -> Key {
    let start_us = i128::from(MIDNIGHT_US) + start_ms * 1_000;
    let start = Instant::from_us(start_us.try_into().unwrap());
    let mut key = Key::default();
    let bytes = key.0.bytes.get_or_insert_default();
    state::encode(&NewState::CalendarQuota(Window { start, used })).apply(bytes);
    key
}

impl Key {
    /// Makes a deciding call `at_ms` after [`MIDNIGHT_US`]; returns the reply and the write.
    fn at(&mut self, rule: &Rule, at_ms: i128, cost: u64) -> (Reply, Wrote) {
        let now = i128::from(MIDNIGHT_US) + at_ms * 1_000;
        let carried_out = self.0.carry_out(Verb::Decide, rule, now, cost.into());
        let (reply, wrote) = carried_out.expect("a decision");
        let fields = (reply.allowed, reply.remaining, reply.retry_after_ms, reply.reset_after_ms);
        (fields, wrote)
    }
}

#[test]
fn quota_counts_until_its_day_ends_and_starts_again() {
    let left = DAY_MS - LATE_MS;
    check(
        &day(3),
        &[
            (0, 2, (1, 1, 0, left)),
            (1_000, 2, (0, 1, left - 1_000, left - 1_000)), // one is left, two requested
            (1_000, 4, (0, 1, -1, left - 1_000)),           // more than the limit: never
            (1_000, 0, (1, 1, 0, left - 1_000)),            // cost 0 takes nothing
            (2_000, 1, (1, 0, 0, left - 2_000)),
            (left - 1, 1, (0, 0, 1, 1)), // the last ms
            (left, 3, (1, 0, 0, DAY_MS)),
            (left + 5 * DAY_MS, 1, (1, 2, 0, DAY_MS)),
        ],
    );
}

#[test]
fn period_ahead_by_more_than_the_current_periods_length_is_repaired() {
    let rule = day(2);
    let wait = |at_ms: i128| 2 * DAY_MS - at_ms;
    // The stored period is the 15th, and the clock shows the start of the 14th, one day before.
    let mut key = holding(DAY_MS, 2);
    assert_eq!(key.at(&rule, 0, 1), ((0, 0, wait(0), wait(0)), Wrote::Nothing));
    assert_eq!(key.at(&rule, HOUR_MS, 1), ((0, 0, wait(HOUR_MS), wait(HOUR_MS)), Wrote::Nothing));
    // One ms earlier, the clock shows the 13th, more than a day before the stored start.
    assert_eq!(key.at(&rule, -1, 0), ((1, 0, 0, 1), Wrote::Nothing));
    assert_eq!(key.at(&rule, -1, 1), ((0, 0, 1, 1), Wrote::State));
    assert_eq!(key.bytes(), holding(-DAY_MS, 2).bytes(), "what was used is the 13th's");
    assert_eq!(key.at(&rule, 0, 1), ((1, 1, 0, DAY_MS), Wrote::State));
    // A stored period ahead of the clock takes calls that fit, and its start stays as it is.
    let mut key = holding(DAY_MS, 1);
    assert_eq!(key.at(&rule, HOUR_MS, 1), ((1, 0, 0, wait(HOUR_MS)), Wrote::State));
    assert_eq!(key.bytes(), holding(DAY_MS, 2).bytes());
}

#[test]
fn stored_start_is_kept_while_it_lies_in_the_open_period() {
    let month = per(Unit::Month, 1, "UTC", 9);
    let mut key = holding(0, 4);
    // The 14th is in November; the stored start stays that of the day.
    assert_eq!(key.at(&month, HOUR_MS, 1).0.1, 4);
    assert_eq!(key.bytes(), holding(0, 5).bytes());
    assert_eq!(key.at(&day(9), HOUR_MS, 1).0.1, 3);
    // A month that starts on the 15th ends in one day.
    let mut key = holding(0, 4);
    assert_eq!(key.at(&per(Unit::Month, 15, "UTC", 9), HOUR_MS, 1).0, (1, 4, 0, 23 * HOUR_MS));
    // The day in Tokyo began at 15:00 UTC the day before, the one in New York began at 05:00.
    assert_eq!(key.at(&per(Unit::Day, 1, "Asia/Tokyo", 9), 6 * HOUR_MS, 1).0.1, 3);
    assert_eq!(key.at(&per(Unit::Day, 1, "America/New_York", 9), 6 * HOUR_MS, 1).0.1, 8);
    assert_eq!(key.bytes(), holding(5 * HOUR_MS, 1).bytes());
}

#[test]
fn rule_and_request_types_do_not_grow() {
    assert!(size_of::<CalendarQuota>() <= 16);
    assert!(size_of::<Rule>() <= 32);
}
