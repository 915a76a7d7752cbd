//! redis-cell's command and Redis' `GCRA`: tables of worked numbers, and comparisons with the naive
//! key over random schedules.

use crate::bounds::Cost;
use crate::msgpack::Array;
use crate::oracle::redis_cell::{CellKey, CellLimits};
use crate::properties::config;
use crate::redis_cell::{Outcome, State, Verdict};
use crate::state::Change;
use crate::state::decimal::{decode_decimal, encode_decimal};
use crate::time::{Instant, Span};
use proptest::prelude::*;

const NOW_US: i128 = 1_800_000_000_000_000;
const DAY_US: i128 = 86_400_000_000;

fn instant(us: i128) -> Instant {
    Instant::from_us(us.try_into().expect("an instant"))
}

fn cost(quantity: i128) -> Cost {
    Cost::new(quantity.try_into().expect("a quantity")).expect("in range")
}

fn integers(outcome: &Outcome) -> [i128; 5] {
    let decision = outcome.decision;
    let (limited, retry_after_s) = match decision.verdict {
        Verdict::Allowed => (0, -1),
        Verdict::Limited { retry_after_s } => (1, retry_after_s.into()),
        Verdict::Impossible => (1, -1),
    };
    let limit = decision.limit.units().into();
    [limited, limit, decision.remaining.into(), retry_after_s, decision.reset_after_s.into()]
}

/// Returns the state to store, and checks its expiry.
fn kept(outcome: &Outcome) -> Option<State> {
    let next = outcome.next.as_ref()?;
    let Change::Whole(digits) = encode_decimal(&next.state) else { panic!("a small state") };
    assert_eq!(digits, Array::digits(next.state.arrival_ns));
    let read = decode_decimal(digits.as_slice()).expect("what is written reads");
    assert_eq!(read, next.state);
    // The state expires at its arrival time, rounded up to a microsecond.
    let ends_ns = i128::from(next.expires_at.as_us()) * 1_000;
    assert!((0..1_000).contains(&(ends_ns - i128::from(read.arrival_ns))), "{next:?}");
    assert!(next.ttl_slack.is_zero());
    Some(read)
}

/// The instant in us, the quantity, and the expected reply.
type Row = (i128, i128, [i128; 5]);

/// Plays a table on one key and on its model.
fn play(limits: CellLimits, table: &[Row]) {
    let rule = limits.rule().expect("a rule");
    let (mut state, mut model) = (None, CellKey::default());
    for (row, (at_us, quantity, expected)) in table.iter().enumerate() {
        let outcome = rule.decide(state, instant(NOW_US + at_us), cost(*quantity));
        assert_eq!(integers(&outcome), *expected, "row {row}");
        let (reply, takes) = model.call(&limits, NOW_US + at_us, *quantity);
        assert_eq!(reply, *expected, "row {row}: the model");
        assert_eq!(outcome.next.is_some(), takes, "row {row}: what is stored");
        state = kept(&outcome).or(state);
    }
}

const fn limits(max_burst: i128, count: i128, period_s: i128) -> CellLimits {
    let period_us = period_s * 1_000_000;
    CellLimits { limit: max_burst + 1, count, period_us, of_gcra: false }
}

/// The limits of `GCRA`, with a period in microseconds.
const fn gcra(max_burst: i128, count: i128, period_us: i128) -> CellLimits {
    CellLimits { limit: max_burst + 1, count, period_us, of_gcra: true }
}

#[test]
fn replies_match_redis_cell_at_one_instant() {
    play(limits(15, 30, 60), &[(0, 1, [0, 16, 15, -1, 2])]);
    // A quantity above the limit is never allowed, and takes nothing.
    play(limits(4, 1, 1), &[(0, 6, [1, 5, 5, -1, 0])]);
    // An interval of 8,571,428,571.4 ns: seven of them are 3 ns short of a minute.
    let resets = [9, 18, 26, 35, 43, 52, 60].into_iter().zip((0..7).rev());
    let mut rows: Vec<Row> = resets.map(|(reset, left)| (0, 1, [0, 7, left, -1, reset])).collect();
    rows.push((0, 1, [1, 7, 0, 9, 60]));
    play(limits(6, 7, 60), &rows);
}

#[test]
fn units_refill_one_by_one_and_a_denial_takes_nothing() {
    const MS: i128 = 1_000;
    let rows = [
        // A quantity above the limit is denied, whatever is left.
        (0, 6, [1, 5, 5, -1, 0]),
        (0, 1, [0, 5, 4, -1, 1]),
        (0, 1, [0, 5, 3, -1, 2]),
        (0, 1, [0, 5, 2, -1, 3]),
        (0, 1, [0, 5, 1, -1, 4]),
        (0, 1, [0, 5, 0, -1, 5]),
        (0, 1, [1, 5, 0, 1, 5]),
        (0, 1, [1, 5, 0, 1, 5]),
        // Three units came back, and one is taken again.
        (3_000 * MS, 1, [0, 5, 2, -1, 3]),
        (3_100 * MS, 1, [0, 5, 1, -1, 4]),
        (4_000 * MS, 1, [0, 5, 1, -1, 4]),
        (8_000 * MS, 1, [0, 5, 4, -1, 1]),
        (9_500 * MS, 1, [0, 5, 4, -1, 1]),
        // A quantity of 0 shows the units left and writes nothing.
        (9_500 * MS, 0, [0, 5, 4, -1, 1]),
        (9_500 * MS, 2, [0, 5, 2, -1, 3]),
        // A quantity of more than is left, but not more than the limit.
        (9_500 * MS, 5, [1, 5, 2, 3, 3]),
        // The wait is exact to the microsecond. A wait of less than a millisecond counts as 1 s,
        // not 0.
        (12_500 * MS - 1, 5, [1, 5, 4, 1, 0]),
        (12_500 * MS, 5, [0, 5, 0, -1, 5]),
    ];
    play(limits(4, 1, 1), &rows);
}

#[test]
fn remainder_of_a_millisecond_counts_as_a_second() {
    // Intervals of 1.000 s, 1.001001001 s, 1.000400160 s, and 0.999000999 s.
    for (count, period_s, reset) in
        [(1, 1, 1), (999, 1_000, 2), (2_499, 2_500, 1), (1_001, 1_000, 1)]
    {
        play(limits(9, count, period_s), &[(0, 1, [0, 10, 9, -1, reset])]);
    }
    // An interval below a millisecond: the reset is 0 s, but a denial waits 1 s.
    play(limits(0, 2_001, 1), &[(0, 1, [0, 1, 0, -1, 0]), (0, 1, [1, 1, 0, 1, 0])]);
}

#[test]
fn gcra_counts_any_remainder_as_a_second() {
    const MS: i128 = 1_000;
    let rows = [
        (0, 1, [0, 6, 5, -1, 6]),
        (0, 1, [0, 6, 4, -1, 12]),
        (0, 1, [0, 6, 3, -1, 18]),
        (0, 1, [0, 6, 2, -1, 24]),
        (0, 1, [0, 6, 1, -1, 30]),
        (0, 1, [0, 6, 0, -1, 36]),
        (0, 1, [1, 6, 0, 6, 36]),
        (0, 7, [1, 6, 0, -1, 36]),
        (0, 6, [1, 6, 0, 36, 36]),
        // A microsecond less than six seconds is six seconds, and a microsecond is one.
        (1, 1, [1, 6, 0, 6, 36]),
        (5_000 * MS, 1, [1, 6, 0, 1, 31]),
        (6_000 * MS - 1, 1, [1, 6, 0, 1, 31]),
        (6_000 * MS, 1, [0, 6, 0, -1, 36]),
    ];
    play(gcra(5, 10, 60_000_000), &rows);
    // Intervals of 1.001001001 s, 1.000400160 s, 0.999000999 s, 1 us, and 1 ns.
    for (count, period_us, reset) in [
        (999, 1_000_000_000, 2),
        (2_499, 2_500_000_000, 2),
        (1_001, 1_000_000_000, 1),
        (1, 1, 1),
        (1_000, 1, 1),
    ] {
        play(gcra(9, count, period_us), &[(0, 1, [0, 10, 9, -1, reset])]);
    }
    // A period beyond that of CL.THROTTLE: a century for one unit.
    let century = 36_525 * 86_400_000_000;
    play(gcra(0, 1, century), &[(0, 1, [0, 1, 0, -1, 3_155_760_000])]);
    // An interval of 8,571,428,571.4 ns: seven of them are 3 ns short of a minute, and no second
    // more.
    play(gcra(6, 7, 60_000_000), &[(0, 7, [0, 7, 0, -1, 60]), (0, 1, [1, 7, 0, 9, 60])]);
}

#[test]
fn redis_cell_keeps_rates_above_one_per_millisecond() {
    for (count, period_s, interval_us) in [(6_000, 1, 167), (700_000, 1_000, 1_429)] {
        let rows = [
            (0, 1, [0, 1, 0, -1, interval_us / 1_000]),
            (0, 1, [1, 1, 0, 1, interval_us / 1_000]),
            (interval_us - 1, 1, [1, 1, 0, 1, 0]),
            (interval_us, 1, [0, 1, 0, -1, interval_us / 1_000]),
        ];
        play(limits(0, count, period_s), &rows);
    }
}

#[test]
fn lowered_limit_keeps_the_debt_and_a_quantity_of_0_shows_it() {
    let mut model = CellKey::default();
    let (wide, narrow) = (limits(9, 1, 1), limits(1, 1, 1));
    let outcome = wide.rule().unwrap().decide(None, instant(NOW_US), cost(10));
    model.call(&wide, NOW_US, 10);
    for (quantity, expected) in
        [(0, [1, 2, 0, 8, 10]), (1, [1, 2, 0, 9, 10]), (3, [1, 2, 0, -1, 10])]
    {
        let lowered =
            narrow.rule().unwrap().decide(kept(&outcome), instant(NOW_US), cost(quantity));
        assert_eq!(integers(&lowered), expected, "{quantity}");
        assert_eq!(
            model.call(&narrow, NOW_US, quantity),
            (expected, false),
            "{quantity}: the model"
        );
        assert_eq!(lowered.next, None);
    }
}

#[test]
fn clock_that_steps_back_is_not_repaired_and_a_denial_takes_nothing() {
    let rule = limits(4, 1, 1).rule().unwrap();
    let first = kept(&rule.decide(None, instant(NOW_US), cost(1)));
    let back = rule.decide(first, instant(NOW_US - DAY_US), cost(1));
    assert_eq!(integers(&back), [1, 5, 0, 86_397, 86_401]);
    assert_eq!(back.next, None);
}

#[test]
fn stored_arrival_always_fits_in_an_i64() {
    // A limit that takes a century to refill, at the last instant of the clock. The largest arrival
    // time is in the year 2262.
    let rule = limits(36_524, 1, 86_400).rule().unwrap();
    let now = Instant::CLOCK_MAX;
    let ends_ns = u64::try_from(i64::MAX).unwrap();
    let days = (ends_ns - now.as_us() * 1_000) / 86_400_000_000_000;
    let mut state = None;
    let mut taken = 0;
    loop {
        let outcome = rule.decide(state, now, cost(1_000));
        let Some(kept) = kept(&outcome) else { break };
        assert!(kept.arrival_ns <= ends_ns);
        (state, taken) = (Some(kept), taken + 1_000);
        assert_eq!(outcome.decision.remaining, days - taken);
    }
    assert_eq!(taken, days / 1_000 * 1_000);
}

/// Generates the steps of a schedule: the clock, the limits from then on, and the quantity.
fn steps() -> impl Strategy<Value = Vec<(i128, CellLimits, i128)>> {
    let size = prop_oneof![
        (1..=10_i128).boxed(),
        (1..=1_000_000_i128).boxed(),
        (1..=1_000_000_000_000_i128).boxed()
    ];
    let period_us = prop_oneof![
        (1..=100_i128).prop_map(|period_s| period_s * 1_000_000).boxed(),
        (1..=31_622_400_i128).prop_map(|period_s| period_s * 1_000_000).boxed(),
        (1..=2_000_000_i128).boxed(),
        (1..=1_000_000_000_000_000_000_i128).boxed(),
    ];
    // Both commands on one key. A period that CL.THROTTLE does not accept is one of GCRA.
    let limits = (size.clone(), size, period_us, any::<bool>())
        .prop_map(|(limit, count, period_us, of_gcra)| {
            let limits = CellLimits { limit, count, period_us, of_gcra };
            let is_whole = period_us % 1_000_000 == 0;
            CellLimits { of_gcra: of_gcra || !is_whole || limits.rule().is_none(), ..limits }
        })
        .prop_filter("a rule", |limits| limits.rule().is_some());
    let limits = prop::collection::vec(limits, 1..3);
    let forward_us = prop_oneof![
        (0..=1_i128).boxed(),
        (0..=2_000_000_i128).boxed(),
        (-DAY_US..=30 * DAY_US).boxed()
    ];
    let quantity = prop_oneof![
        (0..=1_i128).boxed(),
        (0..=12_i128).boxed(),
        (0..=1_000_000_000_000_i128).boxed()
    ];
    limits.prop_flat_map(move |limits| {
        let limits = prop::sample::select(limits);
        prop::collection::vec((forward_us.clone(), limits, quantity.clone()), 1..30)
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn replies_match_those_of_the_naive_key(steps in steps()) {
        let (mut state, mut model, mut now_us) = (None, CellKey::default(), NOW_US);
        for (forward_us, limits, quantity) in steps {
            now_us = (now_us + forward_us).max(0);
            let rule = limits.rule().expect("a rule");
            let outcome = rule.decide(state, instant(now_us), cost(quantity));
            let (reply, takes) = model.call(&limits, now_us, quantity);
            prop_assert_eq!(integers(&outcome), reply);
            prop_assert_eq!(outcome.next.is_some(), takes);
            state = kept(&outcome).or(state);
            prop_assert_eq!(state.map(|state| state.arrival_ns.into()), model.arrival_ns);
            if let Some(next) = &outcome.next {
                // An expired state counts as a missing one.
                let later = next.expires_at.after(Span::from_us(quantity.unsigned_abs() as u64));
                let at = |state| rule.decide(state, later, cost(1));
                prop_assert_eq!(at(state), at(None));
            }
            if let Verdict::Limited { retry_after_s } = outcome.decision.verdict {
                let at = |us: i128| rule.decide(state, instant(now_us + us), cost(quantity));
                let retry_us = i128::from(retry_after_s) * 1_000_000;
                // GCRA waits long enough, and CL.THROTTLE too little by less than a millisecond.
                let (more_us, rest_us) = if limits.of_gcra { (0, 0) } else { (1_000, 999) };
                prop_assert_eq!(at(retry_us + more_us).decision.verdict, Verdict::Allowed);
                // A second less is too little.
                let early = at((retry_us - 1_000_000 + rest_us).max(0)).decision.verdict;
                prop_assert!(retry_after_s == 1 || early != Verdict::Allowed);
            }
        }
    }

    #[test]
    fn no_interval_allows_more_than_the_burst_plus_its_refill(
        steps in prop::collection::vec((0..=3_000_000_i128, 1..=6_i128), 1..60),
        (limit, count, period_s) in (1..=20_i128, 1..=50_i128, 1..=30_i128),
    ) {
        let limits = limits(limit - 1, count, period_s);
        let rule = limits.rule().expect("a rule");
        let (mut state, mut now_us, mut taken) = (None, NOW_US, Vec::new());
        for (forward_us, quantity) in steps {
            now_us += forward_us;
            let outcome = rule.decide(state, instant(now_us), cost(quantity));
            if outcome.next.is_some() {
                taken.push((now_us, quantity));
            }
            state = kept(&outcome).or(state);
        }
        let interval_ns = period_s * 1_000_000_000 / count;
        for (from, (begin_us, _)) in taken.iter().enumerate() {
            let mut sum = 0;
            for (end_us, quantity) in &taken[from..] {
                sum += quantity;
                let most = limit + (end_us - begin_us) * 1_000 / interval_ns;
                prop_assert!(sum <= most, "{sum} in {begin_us}..{end_us}");
            }
        }
    }
}
