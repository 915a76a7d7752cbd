//! Worked examples of the sketch, and a comparison with an exact count of every key.

use crate::time::{Instant, Span};
use crate::top::name::Seed;
use crate::top::{HalfLife, Moment, Sketch, UNIT};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NOW: Instant = Instant::from_us(1_700_000_000_000_000);

fn at(ms: u64) -> Moment {
    Moment { now: NOW.after(Span::from_ms(ms)), half_life: HalfLife::DEFAULT }
}

fn sketch(slots: usize) -> Sketch {
    Sketch::new(slots, Seed::new(1))
}

/// Returns the first rows of database 0, each as its key, count and error.
fn rows(sketch: &mut Sketch, most: usize, at: Moment) -> Vec<(String, u64, u64)> {
    let rows = sketch.top(0, most, 1, at);
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    rows.iter().map(|row| (text(row.name), row.count, row.error)).collect()
}

fn row(key: &str, count: u64, error: u64) -> (String, u64, u64) {
    (key.to_owned(), count, error)
}

#[test]
fn counts_are_exact_while_every_key_has_a_slot() {
    let mut sketch = sketch(3);
    for key in ["b", "a", "c", "a", "c", "a"] {
        sketch.count(0, key.as_bytes(), at(0));
    }
    let expected = [row("a", 3, 0), row("c", 2, 0), row("b", 1, 0)];
    assert_eq!(rows(&mut sketch, 10, at(0)), expected);
    assert_eq!(rows(&mut sketch, 2, at(0)), expected[..2]);
}

#[test]
fn new_key_continues_from_the_lowest_count_and_that_count_is_its_error() {
    let mut sketch = sketch(2);
    for key in ["a", "a", "a", "b", "b", "c"] {
        sketch.count(0, key.as_bytes(), at(0));
    }
    assert_eq!(rows(&mut sketch, 10, at(0)), [row("a", 3, 0), row("c", 3, 2)]);
    // The former holder of the slot starts from a count that is too high as well.
    sketch.count(0, b"c", at(0));
    sketch.count(0, b"b", at(0));
    assert_eq!(rows(&mut sketch, 10, at(0)), [row("b", 4, 3), row("c", 4, 2)]);
}

#[test]
fn databases_are_counted_apart_and_share_the_slots() {
    let mut sketch = sketch(2);
    sketch.count(0, b"a", at(0));
    sketch.count(1, b"a", at(0));
    sketch.count(1, b"a", at(0));
    assert_eq!(rows(&mut sketch, 10, at(0)), [row("a", 1, 0)]);
    let other: Vec<_> = sketch.top(1, 10, 1, at(0)).iter().map(|row| row.count).collect();
    assert_eq!(other, [2]);
    assert!(sketch.top(2, 10, 1, at(0)).is_empty());
}

#[test]
fn counts_and_errors_halve_once_per_half_life() {
    let mut sketch = sketch(2);
    for (key, times) in [("a", 40), ("b", 8), ("c", 1)] {
        (0..times).for_each(|_| sketch.count(0, key.as_bytes(), at(0)));
    }
    let table = [
        (599_999, row("a", 40, 0), Some(row("c", 9, 8))),
        (600_000, row("a", 20, 0), Some(row("c", 4, 4))),
        (1_199_999, row("a", 20, 0), Some(row("c", 4, 4))),
        // Two half-lives at once.
        (1_800_000, row("a", 5, 0), Some(row("c", 1, 1))),
        (2_400_000, row("a", 2, 0), None),
        (3_000_000, row("a", 1, 0), None),
    ];
    for (ms, first, second) in table {
        let expected: Vec<_> = [Some(first), second].into_iter().flatten().collect();
        assert_eq!(rows(&mut sketch, 10, at(ms)), expected, "{ms}");
    }
    // A key whose count is below 1 is not listed.
    assert_eq!(rows(&mut sketch, 10, at(3_600_000)), []);
    // Centuries later nothing overflows.
    let late = Moment { now: Instant::from_us(u64::MAX), half_life: HalfLife::DEFAULT };
    assert_eq!(rows(&mut sketch, 10, late), []);
}

#[test]
fn clock_that_steps_back_halves_nothing_and_delays_halving_by_one_half_life_at_most() {
    let mut sketch = sketch(2);
    (0..8).for_each(|_| sketch.count(0, b"a", at(10_000_000)));
    assert_eq!(rows(&mut sketch, 1, at(0)), [row("a", 8, 0)]);
    assert_eq!(rows(&mut sketch, 1, at(599_999)), [row("a", 8, 0)]);
    assert_eq!(rows(&mut sketch, 1, at(600_000)), [row("a", 4, 0)]);
    let epoch = Moment { now: Instant::from_us(0), ..at(0) };
    assert_eq!(rows(&mut sketch, 1, epoch), [row("a", 4, 0)]);
}

#[test]
fn changed_half_life_applies_from_the_next_command() {
    let second = HalfLife::new(Span::from_ms(1_000)).expect("in range");
    let mut sketch = sketch(2);
    let never = |ms| Moment { half_life: HalfLife::NEVER, ..at(ms) };
    (0..8).for_each(|_| sketch.count(0, b"a", never(0)));
    assert_eq!(rows(&mut sketch, 1, never(u64::MAX / 2_000)), [row("a", 8, 0)]);
    let mut sketch = self::sketch(2);
    (0..8).for_each(|_| sketch.count(0, b"a", at(0)));
    let quick = |ms| Moment { half_life: second, ..at(ms) };
    assert_eq!(rows(&mut sketch, 1, quick(0)), [row("a", 8, 0)]);
    assert_eq!(rows(&mut sketch, 1, quick(999)), [row("a", 8, 0)]);
    assert_eq!(rows(&mut sketch, 1, quick(1_000)), [row("a", 4, 0)]);
    assert_eq!(rows(&mut sketch, 1, never(9_000)), [row("a", 4, 0)]);
    // The time without a half-life halves nothing afterwards.
    assert_eq!(rows(&mut sketch, 1, quick(50_000)), [row("a", 4, 0)]);
    assert_eq!(rows(&mut sketch, 1, quick(50_999)), [row("a", 4, 0)]);
    assert_eq!(rows(&mut sketch, 1, quick(51_000)), [row("a", 2, 0)]);
    let mut sketch = self::sketch(2);
    (0..8).for_each(|_| sketch.count(0, b"a", never(0)));
    assert_eq!(rows(&mut sketch, 1, at(0)), [row("a", 8, 0)]);
}

#[test]
fn reset_forgets_all_keys_and_counting_starts_again() {
    let mut sketch = sketch(2);
    for key in ["a", "b", "c"] {
        sketch.count(0, key.as_bytes(), at(0));
    }
    sketch.reset();
    assert_eq!(rows(&mut sketch, 10, at(0)), []);
    assert_eq!(sketch.shares(at(0)), [0, 0]);
    for key in ["a", "b", "b"] {
        sketch.count(0, key.as_bytes(), at(0));
    }
    assert_eq!(rows(&mut sketch, 10, at(0)), [row("b", 2, 0), row("a", 1, 0)]);
}

#[test]
fn shares_are_those_of_the_first_key_and_the_first_ten_without_errors() {
    let mut sketch = sketch(16);
    assert_eq!(sketch.shares(at(0)), [0, 0]);
    for (number, key) in (b'a'..=b'l').enumerate() {
        (0..=number).for_each(|_| sketch.count(0, &[key], at(0)));
    }
    // 1 + 2 + ... + 12 = 78; the ten largest are 75.
    assert_eq!(sketch.shares(at(0)), [12 * 1_000_000 / 78, 75 * 1_000_000 / 78]);
    // One slot: the last key has one event for certain.
    let mut sketch = self::sketch(1);
    (0..100_u32).for_each(|key| sketch.count(0, &key.to_be_bytes(), at(0)));
    assert_eq!(sketch.shares(at(0)), [10_000, 10_000]);
    // Rounding keeps a rest of each count; less than one event in all is no share.
    let mut sketch = self::sketch(2);
    sketch.count(0, b"a", at(0));
    assert_eq!(sketch.shares(at(0)), [1_000_000, 1_000_000]);
    assert_eq!(sketch.shares(at(600_000)), [0, 0]);
}

#[test]
fn weighted_rows_count_each_event_as_often() {
    let mut sketch = sketch(1);
    for key in ["a", "a", "b", "b"] {
        sketch.count(0, key.as_bytes(), at(0));
    }
    let [row] = sketch.top(0, 10, 16, at(0))[..] else { panic!("one row") };
    assert_eq!((row.name, row.count, row.error), (&b"b"[..], 64, 32));
    // A quarter of an event of weight 16 is still listed.
    let [row] = sketch.top(0, 10, 16, at(2_400_000))[..] else { panic!("one row") };
    assert_eq!((row.count, row.error), (4, 2));
}

#[test]
fn long_key_is_listed_in_short_form_and_counted_by_all_of_its_bytes() {
    let mut sketch = sketch(8);
    let longest = "k".repeat(256);
    let [long, other] = ["x", "y"].map(|end| "k".repeat(256) + end);
    for key in [&longest, &long, &other, &long] {
        sketch.count(0, key.as_bytes(), at(0));
    }
    let rows = rows(&mut sketch, 10, at(0));
    assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), [2, 1, 1]);
    assert!(rows[0].0.starts_with(&("k".repeat(200) + "…")), "{rows:?}");
    assert_eq!(rows[0].0.chars().count(), 200 + 1 + 16);
    assert!(rows.iter().any(|row| row.0 == longest));
}

#[test]
fn heavy_keys_stay_among_a_million_distinct_ones() {
    let mut sketch = sketch(512);
    for number in 0..1_000_000_u64 {
        sketch.count(0, format!("flood:{number}").as_bytes(), at(0));
        if number % 100 == 0 {
            sketch.count(0, b"heavy", at(0));
        }
        if number % 300 == 0 {
            sketch.count(0, b"half as heavy", at(0));
        }
    }
    let rows = rows(&mut sketch, 2, at(0));
    assert_eq!([&*rows[0].0, &*rows[1].0], ["heavy", "half as heavy"]);
    for (row, count) in rows.iter().zip([10_000, 3_334]) {
        assert!((row.1 - row.2..=row.1).contains(&count), "{row:?}");
        assert!(row.2 <= 1_013_334 / 512, "{row:?}");
    }
}

/// An exact count of every key. An event after `halvings` halvings counts 2^`halvings`, so that no
/// number is ever divided.
#[derive(Default)]
struct Exact {
    counts: BTreeMap<(u32, Vec<u8>), u128>,
    total: u128,
    halvings: u32,
    next_us: u64,
}

impl Exact {
    /// Halves as the definition says, one half-life at a time.
    fn decay(&mut self, at: Moment) {
        let (now_us, span_us) = (at.now.as_us(), at.half_life.as_us());
        let starts = self.total == 0 && self.next_us <= now_us;
        if starts || self.next_us > now_us + span_us {
            self.next_us = now_us + span_us;
        }
        while self.next_us <= now_us {
            self.next_us += span_us;
            self.halvings += 1;
        }
    }

    fn count(&mut self, database: u32, key: &[u8], at: Moment) {
        self.decay(at);
        *self.counts.entry((database, key.to_vec())).or_default() += 1 << self.halvings;
        self.total += 1 << self.halvings;
    }
}

/// Asserts every bound of the sketch on every key.
fn assert_bounds(sketch: &mut Sketch, exact: &mut Exact, at: Moment) {
    exact.decay(at);
    sketch.decay(at);
    // Counts of the model are in parts of 1 / `one` of an event.
    let one = 1_u128 << exact.halvings;
    let mut held = BTreeMap::new();
    for owner in sketch.in_use() {
        let (count, sure) = (u128::from(owner.count) * one, u128::from(owner.sure()) * one);
        let key = (owner.database, owner.name().to_vec());
        let truth = exact.counts[&key] * u128::from(UNIT);
        assert!(sure <= truth && truth <= count, "{key:?}: {sure} <= {truth} <= {count}");
        assert_eq!(held.insert(key, count), None, "each key has one slot");
    }
    let slots = sketch.owners.len() as u128;
    for (key, truth) in &exact.counts {
        // More than total / slots, and 1 / 256 of an event for the rounding.
        let is_heavy =
            truth * slots * u128::from(UNIT) > exact.total * u128::from(UNIT) + one * slots;
        assert!(!is_heavy || held.contains_key(key), "{key:?}: {truth} of {}", exact.total);
    }
    let total = u128::from(sketch.total) * one;
    let truth = exact.total * u128::from(UNIT);
    assert!(truth <= total && total < truth + one, "{truth} <= {total}");
    let databases: Vec<_> = (0..3).collect();
    for database in databases {
        let rows = sketch.top(database, 128, 1, at);
        assert!(rows.is_sorted_by(|a, b| a.count >= b.count), "highest first");
        for row in rows {
            let truth = exact.counts[&(database, row.name.to_vec())];
            let (count, error) = (u128::from(row.count) * one, u128::from(row.error) * one);
            assert!(count <= truth + error, "{row:?}: {truth} of {one}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Count { database: u32, key: u8, times: u32 },
    Wait { ms: u64 },
    Back { ms: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Small numbers are likelier, so that some keys are heavy.
    let key = prop_oneof![3 => 0_u8..4, 1 => 0_u8..60];
    let step = prop_oneof![
        20 => (0_u32..3, key, 1_u32..6)
            .prop_map(|(database, key, times)| Step::Count { database, key, times }),
        2 => (0_u64..5_000).prop_map(|ms| Step::Wait { ms }),
        1 => (0_u64..9_000).prop_map(|ms| Step::Back { ms }),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn every_bound_holds_for_decayed_counts_whatever_the_clock_does(
        slots in 1_usize..24, random in any::<u64>(), steps in steps(),
    ) {
        let half_life = HalfLife::new(Span::from_ms(1_000)).expect("in range");
        let (mut sketch, mut exact) = (Sketch::new(slots, Seed::new(random)), Exact::default());
        let mut ms = 1_000_000_000_u64;
        let moment = |ms| Moment { now: Instant::from_us(ms * 1_000), half_life };
        for step in steps {
            match step {
                Step::Wait { ms: by } if exact.halvings < 80 => ms += by,
                Step::Wait { .. } => {}
                Step::Back { ms: by } => ms -= by,
                Step::Count { database, key, times } => {
                    for _ in 0..times {
                        sketch.count(database, &[key], moment(ms));
                        exact.count(database, &[key], moment(ms));
                    }
                }
            }
            assert_bounds(&mut sketch, &mut exact, moment(ms));
        }
    }
}
