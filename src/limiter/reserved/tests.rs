//! Reservations: worked numbers, and any schedule compared with the model.

use crate::limiter::oracle::{
    self, Answer, AnyCall, CLOCK_MAX_US, Key, Limits, ReservationStep as Step, Reserving, Source,
    Subject, Twin, Verb,
};
use crate::limiter::{ChargeError, Reservation, ReservationError, State, properties};
use crate::state::decode;
use proptest::prelude::*;

const NOW: i128 = 1_800_000_000_000_000;
const SECOND: i128 = 1_000_000;

/// `FIXED 10 60`
const TEN_A_MINUTE: Limits =
    Limits { capacity: 10, rate: 1, period_us: 60 * SECOND, aligned: false, slots: 16 };

fn reserve(seconds: i128, cost: i128) -> Step {
    Step::Reserve(seconds * SECOND, cost)
}

enum Call {
    Plain(Verb, i128),
    Step(&'static str, Step),
}
use Call::Plain;

type Row = (i128, Call, [i128; 5]);

/// Makes the calls of a table on one key, at these ms, and compares with it and with the model.
fn check(limits: &Limits, rows: &[Row]) -> Twin<Reserving> {
    let mut twin = Twin::<Reserving>::default();
    for (number, (at_ms, call, expected)) in rows.iter().enumerate() {
        let now = NOW + at_ms * 1_000;
        let answer = match call {
            Plain(verb, cost) => twin.call(*verb, limits, now, *cost),
            Call::Step(id, step) => twin.step(limits, now, id.as_bytes(), *step),
        };
        let answer = answer.unwrap().expect("not refused");
        let Answer { allowed, limit, remaining, retry_after_ms, reset_after_ms } = answer;
        let integers = [allowed, limit, remaining, retry_after_ms, reset_after_ms];
        assert_eq!(integers, *expected, "row {}", number + 1);
    }
    twin
}

#[test]
fn what_is_open_counts_as_used_for_everybody_until_it_lapses() {
    check(
        &TEN_A_MINUTE,
        &[
            // It opens no window: what is held lapses with its own time.
            (0, Call::Step("a", reserve(90, 4)), [1, 10, 6, 0, 90_000]),
            (0, Plain(Verb::Decide, 1), [1, 10, 5, 0, 90_000]),
            (0, Call::Step("b", reserve(30, 5)), [1, 10, 0, 0, 90_000]),
            // Denied until the first of the two lapses, and one of two until both have.
            (0, Plain(Verb::Decide, 1), [0, 10, 0, 30_000, 90_000]),
            (0, Plain(Verb::Decide, 6), [0, 10, 0, 60_000, 90_000]),
            (0, Plain(Verb::Decide, 7), [0, 10, 0, 90_000, 90_000]),
            (0, Plain(Verb::Decide, 11), [0, 10, 0, -1, 90_000]),
            // In part, a charge, and what a refund finds: one is used.
            (0, Plain(Verb::Partly, 9), [0, 10, 0, 30_000, 90_000]),
            (0, Plain(Verb::Charge, 1), [0, 10, 0, 30_000, 90_000]),
            (0, Plain(Verb::Refund, 9), [1, 10, 1, 0, 90_000]),
            (29_999, Plain(Verb::Decide, 2), [0, 10, 1, 1, 60_001]),
            (30_000, Plain(Verb::Decide, 2), [1, 10, 4, 0, 60_000]),
            // The end of a window frees what was used in it, and no more.
            (89_999, Plain(Verb::Decide, 5), [0, 10, 4, 1, 1]),
            (90_000, Plain(Verb::Decide, 8), [1, 10, 2, 0, 60_000]),
        ],
    );
}

#[test]
fn a_reservation_is_settled_once_and_for_what_it_took() {
    check(
        &TEN_A_MINUTE,
        &[
            (0, Call::Step("a", reserve(60, 4)), [1, 10, 6, 0, 60_000]),
            (0, Call::Step("b", reserve(60, 4)), [1, 10, 2, 0, 60_000]),
            // Less than reserved: the rest is free again. A second time changes nothing.
            (10_000, Call::Step("a", Step::Commit(Some(1))), [1, 10, 5, 0, 60_000]),
            (10_000, Call::Step("a", Step::Commit(Some(1))), [1, 10, 5, 0, 60_000]),
            (10_000, Call::Step("a", Step::Commit(Some(9))), [1, 10, 5, 0, 60_000]),
            (10_000, Call::Step("a", Step::Cancel), [0, 10, 5, 0, 60_000]),
            // As reserved.
            (10_000, Call::Step("b", Step::Commit(None)), [1, 10, 5, 0, 60_000]),
            // More than reserved, and than there is: debt.
            (20_000, Call::Step("c", reserve(60, 5)), [1, 10, 0, 0, 60_000]),
            (20_000, Call::Step("c", Step::Commit(Some(8))), [1, 10, 0, 50_000, 50_000]),
            (20_000, Plain(Verb::Decide, 1), [0, 10, 0, 50_000, 50_000]),
            // Unknown.
            (20_000, Call::Step("d", Step::Commit(Some(8))), [0, 10, 0, 50_000, 50_000]),
            (20_000, Call::Step("d", Step::Cancel), [0, 10, 0, 50_000, 50_000]),
            // Once its time is over, a settled id is unknown too.
            (59_999, Call::Step("a", Step::Commit(None)), [1, 10, 0, 10_001, 10_001]),
            (60_000, Call::Step("a", Step::Commit(None)), [0, 10, 0, 10_000, 10_000]),
        ],
    );
}

#[test]
fn a_commit_after_its_reservation_lapsed_charges_nothing() {
    check(
        &TEN_A_MINUTE,
        &[
            (0, Call::Step("a", reserve(60, 4)), [1, 10, 6, 0, 60_000]),
            (60_000, Call::Step("a", Step::Commit(Some(9))), [0, 10, 10, 0, 0]),
            (60_000, Call::Step("a", Step::Commit(Some(9))), [0, 10, 10, 0, 0]),
            (60_000, Plain(Verb::Decide, 10), [1, 10, 0, 0, 60_000]),
        ],
    );
}

#[test]
fn a_reservation_goes_along_when_the_window_turns_and_counts_where_it_is_settled() {
    let aligned = Limits { aligned: true, ..TEN_A_MINUTE };
    // The clock stands on a boundary at 0.
    check(
        &aligned,
        &[
            (50_000, Plain(Verb::Decide, 3), [1, 10, 7, 0, 10_000]),
            (50_000, Call::Step("a", reserve(30, 5)), [1, 10, 2, 0, 30_000]),
            // The old window is over; what is held is not.
            (60_000, Plain(Verb::Decide, 6), [0, 10, 5, 20_000, 20_000]),
            (60_000, Plain(Verb::Decide, 1), [1, 10, 4, 0, 60_000]),
            (70_000, Call::Step("a", Step::Commit(Some(4))), [1, 10, 5, 0, 50_000]),
            (120_000, Plain(Verb::Decide, 10), [1, 10, 0, 0, 60_000]),
        ],
    );
    // A commit opens a window where none is.
    check(
        &TEN_A_MINUTE,
        &[
            (0, Call::Step("a", reserve(100, 5)), [1, 10, 5, 0, 100_000]),
            (30_000, Call::Step("a", Step::Commit(None)), [1, 10, 5, 0, 60_000]),
        ],
    );
}

#[test]
fn to_reserve_again_replaces_amount_and_time_if_that_fits() {
    check(
        &TEN_A_MINUTE,
        &[
            (0, Plain(Verb::Decide, 2), [1, 10, 8, 0, 60_000]),
            (0, Call::Step("a", reserve(30, 6)), [1, 10, 2, 0, 60_000]),
            // Its own amount is not counted.
            (0, Call::Step("a", reserve(90, 8)), [1, 10, 0, 0, 90_000]),
            (0, Call::Step("a", reserve(30, 7)), [1, 10, 1, 0, 60_000]),
            // What does not fit leaves the old one, and waits for the others alone.
            (0, Call::Step("a", reserve(30, 9)), [0, 10, 1, 60_000, 60_000]),
            (0, Call::Step("a", reserve(30, 11)), [0, 10, 1, -1, 60_000]),
            (0, Plain(Verb::Decide, 2), [0, 10, 1, 30_000, 60_000]),
            // Nothing is held for the id, which is remembered.
            (0, Call::Step("a", reserve(30, 0)), [1, 10, 8, 0, 60_000]),
            (0, Call::Step("a", Step::Commit(None)), [1, 10, 8, 0, 60_000]),
            (0, Call::Step("a", Step::Commit(None)), [1, 10, 8, 0, 60_000]),
        ],
    );
}

#[test]
fn a_settled_id_cannot_be_reserved_before_its_time_is_over() {
    let mut twin = check(
        &TEN_A_MINUTE,
        &[
            (0, Call::Step("a", reserve(60, 4)), [1, 10, 6, 0, 60_000]),
            (0, Call::Step("a", Step::Commit(Some(0))), [1, 10, 10, 0, 0]),
        ],
    );
    let rule = Reserving::rule(&TEN_A_MINUTE);
    let refused = twin.key.step(&rule, NOW + 59_999_999, b"a", reserve(1, 1));
    assert_eq!(refused, Err(ReservationError::Settled));
    let answer = twin.step(&TEN_A_MINUTE, NOW + 60_000_000, b"a", reserve(1, 1));
    assert_eq!(answer.unwrap().unwrap().allowed, 1);
}

#[test]
fn a_key_remembers_1024_ids_and_what_has_lapsed_makes_room() {
    let limits = Limits { capacity: 5_000, ..TEN_A_MINUTE };
    let mut twin = Twin::<Reserving>::default();
    for number in 0..1_024 {
        let ttl = if number == 77 { 30 } else { 60 };
        let id = format!("job-{number}");
        twin.step(&limits, NOW, id.as_bytes(), reserve(ttl, 2)).unwrap().expect("fits");
    }
    assert_eq!(twin.key.bytes.as_ref().unwrap().len(), 25_537);
    let rule = Reserving::rule(&limits);
    let more = |at, id: &str| twin.key.step(&rule, at, id.as_bytes(), reserve(60, 0)).map(|_| ());
    assert_eq!(more(NOW, "one more"), Err(ReservationError::TooMany));
    // Also one that would not fit, for it would never come to that.
    assert_eq!(more(NOW, "job-3"), Ok(()));
    assert_eq!(more(NOW + 30 * SECOND, "one more"), Ok(()));
    // A plain call writes its 16 bytes, however many there are.
    let (_, write) = twin.key.act(Verb::Decide, &rule, NOW, 1).unwrap();
    let Some(oracle::Write::Keep {
        change: crate::state::Change::Tail { offset, entries }, ..
    }) = write
    else {
        panic!("{write:?}")
    };
    assert_eq!((offset, entries.len()), (25_537 - 16, 16));
}

#[test]
fn what_cannot_be_owed_is_not_committed_and_stays_open() {
    let limits = Limits { capacity: 1_000_000_000_000, ..TEN_A_MINUTE };
    let mut twin = Twin::<Reserving>::default();
    twin.call(Verb::Charge, &limits, NOW, 1_000_000_000_000).unwrap();
    twin.step(&limits, NOW + 1, b"a", reserve(90, 0)).unwrap().expect("holds nothing");
    twin.call(Verb::Charge, &limits, NOW, 1).unwrap();
    let before = twin.key.clone();
    let commit = Step::Commit(Some(1_000_000_000_000));
    assert_eq!(twin.step(&limits, NOW, b"a", commit), Ok(None));
    let refused = ReservationError::Charge(ChargeError::TooManyUnits);
    assert_eq!(before.step(&Reserving::rule(&limits), NOW, b"a", commit), Err(refused));
    assert_eq!(twin.key, before);
}

#[test]
fn the_last_that_is_forgotten_deletes_the_key_or_leaves_its_plain_form() {
    let limits = &TEN_A_MINUTE;
    let mut twin = Twin::<Reserving>::default();
    twin.step(limits, NOW, b"a", reserve(60, 4)).unwrap();
    twin.step(limits, NOW, b"a", Step::Cancel).unwrap();
    assert_eq!(twin.key, Key::default());

    let kind = |twin: &Twin<Reserving>| twin.key.bytes.as_ref().map(|bytes| bytes[1] as i8);
    twin.call(Verb::Decide, limits, NOW, 1).unwrap();
    assert_eq!(kind(&twin), Some(-1));
    twin.step(limits, NOW, b"a", reserve(60, 4)).unwrap();
    assert_eq!(kind(&twin), Some(-11));
    twin.step(limits, NOW, b"a", Step::Cancel).unwrap();
    assert_eq!(kind(&twin), Some(-1));
    twin.step(limits, NOW, b"a", reserve(10, 4)).unwrap();
    twin.call(Verb::Decide, limits, NOW + 9_999_999, 1).unwrap();
    assert_eq!(kind(&twin), Some(-11));
    twin.call(Verb::Decide, limits, NOW + 10_000_000, 1).unwrap();
    assert_eq!(kind(&twin), Some(-1));
    // A refund of all that was used leaves what is remembered.
    twin.step(limits, NOW + 10_000_000, b"a", reserve(10, 4)).unwrap();
    twin.call(Verb::Refund, limits, NOW + 10_000_000, 9).unwrap();
    assert_eq!(kind(&twin), Some(-11));
    twin.step(limits, NOW + 10_000_000, b"a", Step::Cancel).unwrap();
    assert_eq!(twin.key, Key::default());
}

#[test]
fn set_back_the_clock_lengthens_a_reservation_by_its_own_time_at_most() {
    let limits = &TEN_A_MINUTE;
    let mut twin = Twin::<Reserving>::default();
    twin.step(limits, NOW, b"a", reserve(20, 8)).unwrap();
    // Back by its time: it stays, and waits that much longer.
    let denied = twin.call(Verb::Decide, limits, NOW - 20 * SECOND, 3).unwrap().unwrap();
    assert_eq!(denied.retry_after_ms, 40_000);
    // Further: it begins now, and that is written though the call is denied.
    let before = twin.key.clone();
    let back = NOW - 20 * SECOND - 1;
    let peeked = twin.call(Verb::Decide, limits, back, 0).unwrap().unwrap();
    assert_eq!((peeked.remaining, &twin.key), (2, &before));
    let denied = twin.call(Verb::Decide, limits, back, 3).unwrap().unwrap();
    assert_eq!((denied.allowed, denied.retry_after_ms), (0, 20_000));
    assert_ne!(twin.key, before);
    let State::Reserved(state) = decode(twin.key.bytes.as_ref().unwrap()).unwrap() else {
        panic!("reserved")
    };
    let (Reservation { since, .. }, _) = state.list.iter().next().unwrap();
    assert_eq!(i128::from(since.as_us()), back);
}

/// Plays a schedule that `source` says, with the model beside it.
fn play(
    mut source: &[u8],
    is_set: bool,
    mut check: impl FnMut(&Twin<Reserving>, &Limits, i128, AnyCall, Answer, &Key) -> Result<(), String>,
) -> Result<(), String> {
    let source = &mut source;
    let rules = [Limits::draw(source), Limits::draw(source)];
    let (mut twin, mut now) = (Twin::<Reserving>::default(), NOW);
    while !source.is_empty() {
        let limits = &rules[usize::from(source.below(8) == 1)];
        let steps_back = is_set && source.below(6) == 1;
        let step = if steps_back {
            oracle::Step::draw_set(source)
        } else {
            oracle::Step::draw_good(source)
        };
        let moved = (now + step.us(limits.period_us)).clamp(0, CLOCK_MAX_US);
        now = if is_set { moved } else { moved.max(now) };
        let call = AnyCall::draw(source, limits);
        let before = twin.key.clone();
        if let Some(answer) = twin.any_call(limits, now, call)? {
            check(&twin, limits, now, call, answer, &before)?;
        }
    }
    Ok(())
}

fn sources() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 20..700)
}

proptest! {
    #![proptest_config(properties::config())]

    /// Answers, writes and promises are the model's, whatever the clock does, whichever of two
    /// rules calls, and however plain calls, reservations and settlements take turns.
    #[test]
    fn reservations_agree_with_their_model_under_any_clock_and_changing_limits(
        source in sources(),
    ) {
        play(&source, true, |_, _, _, _, _, _| Ok(())).map_err(TestCaseError::fail)?;
    }

    /// Denied, nothing is written while the clock runs forward, and what has lapsed is as if it had
    /// never been.
    #[test]
    fn reservations_write_only_what_they_allow_and_lapse_without_a_trace(source in sources()) {
        let checked = play(&source, false, |twin, limits, now, call, answer, before| {
            let denies = match call {
                AnyCall::Plain(Verb::Decide | Verb::Partly, _) => answer.allowed == 0,
                AnyCall::Plain(_, cost) => cost == 0,
                AnyCall::Step(..) => answer.allowed == 0,
            };
            if denies && twin.key != *before {
                return Err(format!("{call:?} at {now} wrote what it denied"));
            }
            let rule = Reserving::rule(limits);
            let lapsed = twin.key.lapses_at.max(now);
            if twin.key == *before || twin.key.bytes.is_none() || lapsed > CLOCK_MAX_US {
                return Ok(());
            }
            for cost in [0, 1, limits.capacity] {
                if twin.key.peek(&rule, lapsed, cost) != Key::default().peek(&rule, lapsed, cost) {
                    return Err(format!("{call:?} at {now} is not over at {lapsed}"));
                }
            }
            Ok(())
        });
        checked.map_err(TestCaseError::fail)?;
    }

    /// However the clock steps, nobody waits for more than the window, or the longest time that
    /// anything is held, and as much again.
    #[test]
    fn a_step_back_adds_at_most_one_span_to_the_wait_for_reservations(source in sources()) {
        let mut longest_us = 0;
        let checked = play(&source, true, |_, limits, now, call, answer, _| {
            if let AnyCall::Step(_, Step::Reserve(ttl, _)) = call {
                longest_us = longest_us.max(ttl);
            }
            let waits = 2 * longest_us.max(limits.period_us);
            let is_short = answer.retry_after_ms <= oracle::div_ceil(waits, 1_000);
            if is_short { Ok(()) } else { Err(format!("{call:?} at {now} waits {answer:?}")) }
        });
        checked.map_err(TestCaseError::fail)?;
    }

    /// Under one rule and a good clock, with nothing charged and nothing settled above what was
    /// held, used and held together are never above the limit.
    #[test]
    fn used_and_reserved_together_never_exceed_the_limit(
        calls in prop::collection::vec((0..6_usize, 0..5_u8, 1..9_i128, 0..40_i128), 1..60),
    ) {
        let limits = &TEN_A_MINUTE;
        let (mut twin, mut now) = (Twin::<Reserving>::default(), NOW);
        let mut held = [0; 6];
        for (id, kind, cost, seconds) in calls {
            now += if seconds > 20 { 0 } else { seconds * SECOND };
            let call = match kind {
                0 => AnyCall::Plain(Verb::Decide, cost),
                1 | 2 => AnyCall::Step(id, reserve(seconds + 1, cost)),
                3 => AnyCall::Step(id, Step::Commit(Some(cost.min(held[id])))),
                _ => AnyCall::Step(id, Step::Cancel),
            };
            let answer = twin.any_call(limits, now, call).map_err(TestCaseError::fail)?;
            if matches!(call, AnyCall::Step(_, Step::Reserve(..)))
                && answer.is_some_and(|answer| answer.allowed > 0)
            {
                held[id] = cost;
            }
            let Some(bytes) = &twin.key.bytes else { continue };
            if let State::Reserved(state) = decode(bytes).expect("a state") {
                let now = crate::limiter::Instant::from_us(now.try_into().unwrap());
                let open: u64 = state
                    .list
                    .iter()
                    .filter_map(|(one, _)| one.at(now)?.held)
                    .map(|held| held.units())
                    .sum();
                let ends = state.window.start.after(crate::limiter::Span::from_ms(60_000));
                let used = if now < ends { state.window.used } else { 0 };
                prop_assert!(used + open <= 10, "{used} used and {open} held");
            }
        }
    }
}
