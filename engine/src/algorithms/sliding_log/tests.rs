//! The number of entries that charges leave in a log, and calls with different slots.

use crate::algorithms::State;
use crate::oracle::key::Key;
use crate::oracle::log::Log;
use crate::oracle::model::Limits;
use crate::oracle::reply::Verb;
use crate::oracle::subject::Twin;
use crate::properties;
use crate::state::decode;
use proptest::prelude::*;

const NOW: i128 = 1_800_000_000_000_000;
const SECOND: i128 = 1_000_000;

/// `SLIDINGLOG 10 16` with 16 slots, each of which is one second wide.
const TEN: Limits =
    Limits { capacity: 10, rate: 1, period_us: 16 * SECOND, aligned: false, slots: 16 };

/// Returns the number of stored entries, and the number of those that count at `now`.
fn entries(twin: &Twin<Log>, limits: &Limits, now: i128) -> (usize, usize) {
    let Some(bytes) = &twin.key.bytes else { return (0, 0) };
    let State::SlidingLog(log) = decode(bytes).expect("a state") else { panic!("a log") };
    let instants = (0..log.entries.len()).map(|index| i128::from(log.entry(index).instant.as_us()));
    (log.entries.len(), instants.filter(|at| at + limits.period_us > now).count())
}

fn make(twin: &mut Twin<Log>, verb: Verb, limits: &Limits, now: i128, cost: i128) -> [i128; 3] {
    let reply = twin.call(verb, limits, now, cost).unwrap().expect("not refused");
    [reply.allowed, reply.remaining, reply.retry_after_ms]
}

#[test]
fn instant_of_a_charge_is_rounded_up_to_its_slot_when_the_log_has_an_entry_for_each_slot() {
    let mut twin = Twin::<Log>::default();
    let mut charge = |at_us| {
        make(&mut twin, Verb::Charge, &TEN, NOW + at_us, 1);
        let State::SlidingLog(log) = decode(twin.key.bytes.as_ref().unwrap()).unwrap() else {
            panic!("a log")
        };
        (log.entries.len(), i128::from(log.last().instant.as_us()) - NOW, log.slot.as_us())
    };
    for number in 1..=16 {
        assert_eq!(charge(number), (number as usize, number, 1));
    }
    assert_eq!(charge(17), (17, SECOND, 1_000_000));
    assert_eq!(charge(18), (17, SECOND, 1_000_000));
    assert_eq!(charge(SECOND), (17, SECOND, 1_000_000));
    assert_eq!(charge(SECOND + 1), (18, 2 * SECOND, 1_000_000));
    // A rule with a shorter window does not take the rounded instant for a clock that stepped back.
    let (short, now) = (Limits { period_us: 1_000, ..TEN }, NOW + SECOND + 1);
    assert_eq!(make(&mut twin, Verb::Decide, &short, now, 10), [0, 6, 1_001]);
    // 20 units are used, and 16 of them were charged with exact instants. There is room when eleven
    // of these 16 have expired.
    assert_eq!(make(&mut twin, Verb::Decide, &TEN, now, 1), [0, 0, 15_001]);
    assert_eq!(make(&mut twin, Verb::Decide, &TEN, NOW + 16 * SECOND + 11, 1), [1, 0, 0]);
}

#[test]
fn ten_thousand_charges_store_at_most_one_entry_more_than_twice_the_slots() {
    let limits = Limits { slots: 1_024, period_us: 60 * SECOND, ..TEN };
    let mut twin = Twin::<Log>::default();
    let rule = <Log as crate::oracle::subject::Subject>::rule(&limits);
    for number in 0..10_000 {
        twin.key.carry_out(Verb::Charge, &rule, NOW + number * 6_000, 1).unwrap();
    }
    let (stored, _) = entries(&twin, &limits, NOW + 60 * SECOND);
    assert!((1_024..=2_049).contains(&stored), "{stored}");
    assert!(twin.key.bytes.unwrap().len() <= 20 + 12 * 2_049);
}

/// Guards against a bug of version 0.2.0, where each charge with its refund added an entry to the
/// log: the refund estimated the number of entries from the units used.
#[test]
fn charge_overwrites_the_copy_of_an_entry_that_a_refund_left() {
    let limits = Limits { slots: 1_024, period_us: 86_400 * SECOND, ..TEN };
    let (mut twin, mut now) = (Twin::<Log>::default(), NOW);
    make(&mut twin, Verb::Charge, &limits, now, 1_000_000_000);
    for _ in 0..3_000 {
        for verb in [Verb::Charge, Verb::Refund] {
            now += 1_000;
            make(&mut twin, verb, &limits, now, 1);
            assert_eq!(entries(&twin, &limits, now), (2, 2));
        }
    }
}

/// Refunds a unit of a log in debt, in a form that version 0.2.0 could leave: 10,000 entries, two
/// for each instant.
#[test]
fn refund_rewrites_a_log_with_more_entries_than_charges_leave() {
    let limits = Limits { slots: 1_024, period_us: 86_400 * SECOND, ..TEN };
    let mut bytes = vec![0x93, 0xfd, 0xcf];
    bytes.extend_from_slice(&(NOW as u64).to_be_bytes());
    bytes.push(1);
    for number in 0..10_000_u64 {
        bytes.extend_from_slice(&(number / 2).to_be_bytes()[2..]);
        bytes.extend_from_slice(&(number / 2 + 1_000_000_000).to_be_bytes()[2..]);
    }
    let mut key = Key { bytes: Some(bytes), expires_at: NOW + limits.period_us };
    let rule = <Log as crate::oracle::subject::Subject>::rule(&limits);
    key.carry_out(Verb::Refund, &rule, NOW + SECOND, 1).unwrap();
    let twin = Twin::<Log> { key, ..Twin::default() };
    assert_eq!(entries(&twin, &limits, NOW + SECOND), (4_999, 4_999));
}

#[test]
fn calls_with_different_slots_share_one_key() {
    let mut twin = Twin::<Log>::default();
    let limits = |slots| Limits { capacity: 17, slots, aligned: true, ..TEN };
    let rows = [
        // 17 units exceed 16 slots: the call counts from the next second on.
        (SECOND / 10, 16, 8, [1, 9, 0]),
        // 1,024 slots hold 17 units exactly. The call is not before the last entry.
        (SECOND / 5, 1_024, 8, [1, 1, 0]),
        (SECOND + 1, 1_024, 1, [1, 0, 0]),
        (SECOND + 2, 16, 1, [0, 0, 16_000]),
        (17 * SECOND, 16, 16, [1, 0, 0]),
    ];
    for (at_us, slots, cost, expected) in rows {
        let now = NOW + at_us;
        let reply = make(&mut twin, Verb::Decide, &limits(slots), now, cost);
        assert_eq!(reply, expected, "{slots} slots at {at_us}");
    }
}

proptest! {
    #![proptest_config(properties::config())]

    /// Charges in bursts at any pace, and compares each reply with the model.
    #[test]
    fn charges_store_at_most_one_entry_more_than_twice_the_slots(
        calls in prop::collection::vec((0..6_u8, 0..2_000_000_i128, 1..4_i128), 1..120),
        capacity in 1..30_i128,
    ) {
        let limits = Limits { capacity, ..TEN };
        let (mut twin, mut now) = (Twin::<Log>::default(), NOW);
        for (pace, step, cost) in calls {
            now += [1, 10, 1_000, step / 4, step, 16 * step][usize::from(pace)];
            let done = twin.call(Verb::Charge, &limits, now, cost);
            prop_assert!(done.is_ok(), "{done:?}");
            let (stored, _) = entries(&twin, &limits, now);
            prop_assert!(stored <= 33, "{stored}");
        }
    }

    /// Mixes calls, charges and refunds, and checks that the number of live entries stays within
    /// its bound.
    #[test]
    fn any_mix_of_calls_leaves_at_most_one_live_entry_more_than_twice_the_slots(
        calls in prop::collection::vec((0..30_u8, 0..2_000_000_i128, 1..4_i128, 0..8_u8), 1..200),
        alternates in any::<bool>(),
        capacity in 1..30_i128,
        first in prop_oneof![1..4_i128, Just(1_000_000)],
    ) {
        let limits = Limits { capacity, ..TEN };
        let (mut twin, mut now) = (Twin::<Log>::default(), NOW);
        let done = twin.call(Verb::Charge, &limits, now, first);
        prop_assert!(done.is_ok(), "{done:?}");
        for (number, (pace, step, cost, verb)) in calls.into_iter().enumerate() {
            // Most steps are microseconds long. Now and then, one is as long as a slot or the
            // window.
            now += [1, 10, 1_000, step / 4, step, 16 * step][usize::from(pace.saturating_sub(24))];
            let (verb, cost) = match verb {
                _ if alternates => ([Verb::Charge, Verb::Refund][number % 2], 1),
                0 | 1 => (Verb::Decide, cost),
                2..5 => (Verb::Refund, cost),
                _ => (Verb::Charge, cost),
            };
            let done = twin.call(verb, &limits, now, cost);
            prop_assert!(done.is_ok(), "{done:?}");
            let (_, live) = entries(&twin, &limits, now);
            prop_assert!(live <= 33, "{live}");
        }
    }
}
