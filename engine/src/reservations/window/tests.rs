//! Reservations: worked numbers.

use crate::algorithms::State;
use crate::bounds::{Cost, Leave};
use crate::calendar::Unit;
use crate::call::ChargeError;
use crate::oracle;
use crate::oracle::key::Key;
use crate::oracle::model::Limits;
use crate::oracle::reply::Verb;
use crate::oracle::reservations::{Hold, Reserving, Step};
use crate::oracle::subject::Subject;
use crate::oracle::windows::{Fixed, Quotas, Windows, calendar};
use crate::reservations::one::Reservation;
use crate::reservations::window::ReservationError;
use crate::state::decode;

type Twin<S = Fixed> = oracle::Twin<Reserving<S>>;

pub(super) const NOW: i128 = 1_800_000_000_000_000;
pub(super) const SECOND: i128 = 1_000_000;

/// `FIXED 10 60`
pub(super) const TEN_PER_MINUTE: Limits =
    Limits { capacity: 10, rate: 1, period_us: 60 * SECOND, aligned: false, slots: 16 };

pub(super) fn reserve(seconds: i128, cost: i128) -> Step {
    Step::Reserve(Hold::new(seconds * SECOND, cost))
}

enum Call {
    Plain(Verb, i128),
    Step(&'static str, Step),
}
use Call::Plain;

type Row = (i128, Call, [i128; 5]);

/// Makes the calls of a table on one key, each at its time in ms, and compares each reply with the
/// table and with the model.
fn check(limits: &Limits, rows: &[Row]) -> Twin {
    check_from::<Fixed>(NOW, limits, rows)
}

fn check_from<S: Subject + Windows>(start: i128, limits: &Limits, rows: &[Row]) -> Twin<S> {
    let mut twin = Twin::<S>::default();
    for (number, (at_ms, call, expected)) in rows.iter().enumerate() {
        let now = start + at_ms * 1_000;
        let reply = match call {
            Plain(verb, cost) => twin.call(*verb, limits, now, *cost),
            Call::Step(id, step) => twin.step(limits, now, id.as_bytes(), *step),
        };
        let reply = reply.unwrap().expect("not refused");
        assert_eq!(reply.fields(), *expected, "row {}", number + 1);
    }
    twin
}

#[test]
fn reservation_that_leaves_units_is_granted_only_if_others_leave_them() {
    let leaving = |cost, units| {
        let leave = Some(Leave::Units(Cost::new(units).unwrap()));
        Call::Step("a", Step::Reserve(Hold { leave, ..Hold::new(30 * SECOND, cost) }))
    };
    check(
        &TEN_PER_MINUTE,
        &[
            (0, Call::Step("b", reserve(90, 4)), [1, 10, 6, 0, 90_000]),
            (0, leaving(4, 3), [0, 10, 6, 90_000, 90_000]),
            (0, leaving(4, 2), [1, 10, 2, 0, 90_000]),
            // Its own four units do not count; cost 0 needs only what it leaves.
            (0, leaving(3, 3), [1, 10, 3, 0, 90_000]),
            (0, leaving(0, 7), [0, 10, 3, 90_000, 90_000]),
            (0, leaving(0, 6), [1, 10, 6, 0, 90_000]),
            (0, leaving(5, 6), [0, 10, 6, -1, 90_000]),
        ],
    );
}

#[test]
fn open_reservation_counts_as_used_until_it_expires() {
    check(
        &TEN_PER_MINUTE,
        &[
            // The reservation opens no window: its units are freed when it expires.
            (0, Call::Step("a", reserve(90, 4)), [1, 10, 6, 0, 90_000]),
            (0, Plain(Verb::Decide, 1), [1, 10, 5, 0, 90_000]),
            (0, Call::Step("b", reserve(30, 5)), [1, 10, 0, 0, 90_000]),
            // Cost 1 waits until the reservation of 30 s expires. Cost 6 also waits for the end of
            // the window, and cost 7 for all reservations.
            (0, Plain(Verb::Decide, 1), [0, 10, 0, 30_000, 90_000]),
            (0, Plain(Verb::Decide, 6), [0, 10, 0, 60_000, 90_000]),
            (0, Plain(Verb::Decide, 7), [0, 10, 0, 90_000, 90_000]),
            (0, Plain(Verb::Decide, 11), [0, 10, 0, -1, 90_000]),
            // A partial call, a charge, and a refund: one unit is used.
            (0, Plain(Verb::Partly, 9), [0, 10, 0, 30_000, 90_000]),
            (0, Plain(Verb::Charge, 1), [0, 10, 0, 30_000, 90_000]),
            (0, Plain(Verb::Refund, 9), [1, 10, 1, 0, 90_000]),
            (29_999, Plain(Verb::Decide, 2), [0, 10, 1, 1, 60_001]),
            (30_000, Plain(Verb::Decide, 2), [1, 10, 4, 0, 60_000]),
            // The end of a window frees only the units used in it.
            (89_999, Plain(Verb::Decide, 5), [0, 10, 4, 1, 1]),
            (90_000, Plain(Verb::Decide, 8), [1, 10, 2, 0, 60_000]),
        ],
    );
}

#[test]
fn reservation_is_settled_once_for_the_amount_used() {
    check(
        &TEN_PER_MINUTE,
        &[
            (0, Call::Step("a", reserve(60, 4)), [1, 10, 6, 0, 60_000]),
            (0, Call::Step("b", reserve(60, 4)), [1, 10, 2, 0, 60_000]),
            // Commits less than reserved: the rest is free again. A repetition changes nothing.
            (10_000, Call::Step("a", Step::Commit(Some(1))), [1, 10, 5, 0, 60_000]),
            (10_000, Call::Step("a", Step::Commit(Some(1))), [1, 10, 5, 0, 60_000]),
            (10_000, Call::Step("a", Step::Commit(Some(9))), [1, 10, 5, 0, 60_000]),
            (10_000, Call::Step("a", Step::Cancel), [0, 10, 5, 0, 60_000]),
            // Commits the reserved amount.
            (10_000, Call::Step("b", Step::Commit(None)), [1, 10, 5, 0, 60_000]),
            // Commits more than reserved, and more than is left: the key goes into debt.
            (20_000, Call::Step("c", reserve(60, 5)), [1, 10, 0, 0, 60_000]),
            (20_000, Call::Step("c", Step::Commit(Some(8))), [1, 10, 0, 50_000, 50_000]),
            (20_000, Plain(Verb::Decide, 1), [0, 10, 0, 50_000, 50_000]),
            // The id is unknown.
            (20_000, Call::Step("d", Step::Commit(Some(8))), [0, 10, 0, 50_000, 50_000]),
            (20_000, Call::Step("d", Step::Cancel), [0, 10, 0, 50_000, 50_000]),
            // After a settled id has expired, it is unknown too.
            (69_999, Call::Step("a", Step::Commit(None)), [1, 10, 0, 1, 1]),
            (70_000, Call::Step("a", Step::Commit(None)), [0, 10, 10, 0, 0]),
        ],
    );
}

#[test]
fn commit_after_the_reservation_expired_charges_nothing() {
    check(
        &TEN_PER_MINUTE,
        &[
            (0, Call::Step("a", reserve(60, 4)), [1, 10, 6, 0, 60_000]),
            (60_000, Call::Step("a", Step::Commit(Some(9))), [0, 10, 10, 0, 0]),
            (60_000, Call::Step("a", Step::Commit(Some(9))), [0, 10, 10, 0, 0]),
            (60_000, Plain(Verb::Decide, 10), [1, 10, 0, 0, 60_000]),
        ],
    );
}

#[test]
fn reservation_survives_its_window_and_counts_in_the_window_of_its_commit() {
    let aligned = Limits { aligned: true, ..TEN_PER_MINUTE };
    // At 0 ms, the clock is on a boundary between windows.
    check(
        &aligned,
        &[
            (50_000, Plain(Verb::Decide, 3), [1, 10, 7, 0, 10_000]),
            (50_000, Call::Step("a", reserve(30, 5)), [1, 10, 2, 0, 30_000]),
            // The old window has ended; the reservation has not.
            (60_000, Plain(Verb::Decide, 6), [0, 10, 5, 20_000, 20_000]),
            (60_000, Plain(Verb::Decide, 1), [1, 10, 4, 0, 60_000]),
            (70_000, Call::Step("a", Step::Commit(Some(4))), [1, 10, 5, 0, 50_000]),
            (120_000, Plain(Verb::Decide, 10), [1, 10, 0, 0, 60_000]),
        ],
    );
    // A commit opens a window if none is open.
    check(
        &TEN_PER_MINUTE,
        &[
            (0, Call::Step("a", reserve(100, 5)), [1, 10, 5, 0, 100_000]),
            (30_000, Call::Step("a", Step::Commit(None)), [1, 10, 5, 0, 60_000]),
        ],
    );
}

#[test]
fn second_reserve_replaces_amount_and_ttl_if_the_new_amount_fits() {
    check(
        &TEN_PER_MINUTE,
        &[
            (0, Plain(Verb::Decide, 2), [1, 10, 8, 0, 60_000]),
            (0, Call::Step("a", reserve(30, 6)), [1, 10, 2, 0, 60_000]),
            // The amount that the id already holds does not count.
            (0, Call::Step("a", reserve(90, 8)), [1, 10, 0, 0, 90_000]),
            (0, Call::Step("a", reserve(30, 7)), [1, 10, 1, 0, 60_000]),
            // A new amount that does not fit leaves the old one. The wait in its reply depends only
            // on the units that other calls use.
            (0, Call::Step("a", reserve(30, 9)), [0, 10, 1, 60_000, 60_000]),
            (0, Call::Step("a", reserve(30, 11)), [0, 10, 1, -1, 60_000]),
            (0, Plain(Verb::Decide, 2), [0, 10, 1, 30_000, 60_000]),
            // Nothing is held for the id, which is still remembered.
            (0, Call::Step("a", reserve(30, 0)), [1, 10, 8, 0, 60_000]),
            (0, Call::Step("a", Step::Commit(None)), [1, 10, 8, 0, 60_000]),
            (0, Call::Step("a", Step::Commit(None)), [1, 10, 8, 0, 60_000]),
        ],
    );
}

/// Returns the stored reservation of a key's only id.
fn only_reservation(twin: &Twin) -> Reservation<'_> {
    let State::Reserved(state) = decode(twin.key.bytes.as_ref().unwrap()).unwrap() else {
        panic!("reserved")
    };
    state.list.read(|_, _| ()).unwrap().iter().next().unwrap()
}

#[test]
fn committed_id_is_remembered_for_60_s_or_its_ttl_even_if_it_was_about_to_expire() {
    // The ttl, the time of the commit, and the time at which the id is forgotten, in ms.
    let rows = [
        (10_000, 9_900, 19_900),
        (10_000, 0, 10_000),
        (60_000, 59_999, 119_999),
        (90_000, 10_000, 90_000),
        (90_000, 80_000, 140_000),
    ];
    for (ttl_ms, at_ms, forgotten_ms) in rows {
        let mut twin = <Twin>::default();
        let mut step = |at_ms: i128, step| {
            twin.step(&TEN_PER_MINUTE, NOW + at_ms * 1_000, b"a", step).unwrap().unwrap()
        };
        let commit = Step::Commit(Some(3));
        assert_eq!(step(0, Step::Reserve(Hold::new(ttl_ms * 1_000, 4))).remaining, 6);
        assert_eq!(step(at_ms, commit).remaining, 7);
        let again = step(forgotten_ms - 1, commit);
        assert_eq!(again.allowed, 1, "{ttl_ms} {at_ms}");
        // The units are charged once: all are free again when the window of the first commit ends.
        assert_eq!(again.reset_after_ms, (at_ms + 60_001 - forgotten_ms).max(0));
        assert_eq!(step(forgotten_ms, commit).allowed, 0, "{ttl_ms} {at_ms}");
        let Reservation { since, ttl, held, .. } = only_reservation(&twin);
        let stored = (since.as_us().into(), ttl.as_us().into(), held);
        let (at, span) = (NOW + at_ms * 1_000, (forgotten_ms - at_ms) * 1_000);
        assert_eq!(stored, (at, span, None));
        assert!(twin.key.expires_at >= at + span, "the expiry of the key covers it");
    }
}

#[test]
fn id_committed_after_the_clock_stepped_back_is_remembered_until_its_old_end() {
    let mut twin = <Twin>::default();
    let mut step = |at: i128, step| {
        twin.step(&TEN_PER_MINUTE, NOW + at * SECOND, b"a", step).unwrap().unwrap().allowed
    };
    assert_eq!(step(0, reserve(90, 4)), 1);
    assert_eq!(step(-90, Step::Commit(None)), 1);
    assert_eq!(step(89, Step::Commit(None)), 1);
    assert_eq!(step(90, Step::Commit(None)), 0);
    // The clock steps back by the longest ttl: the id is remembered for the longest ttl only.
    let mut twin = <Twin>::default();
    let year = 366 * 86_400;
    twin.step(&TEN_PER_MINUTE, NOW, b"a", reserve(year, 4)).unwrap();
    twin.step(&TEN_PER_MINUTE, NOW - year * SECOND, b"a", Step::Commit(None)).unwrap();
    assert_eq!(i128::from(only_reservation(&twin).ttl.as_us()), year * SECOND);
}

#[test]
fn settled_id_cannot_be_reserved_before_it_expires() {
    let mut twin = check(
        &TEN_PER_MINUTE,
        &[
            (0, Call::Step("a", reserve(60, 4)), [1, 10, 6, 0, 60_000]),
            (0, Call::Step("a", Step::Commit(Some(0))), [1, 10, 10, 0, 0]),
        ],
    );
    let rule = Fixed::rule(&TEN_PER_MINUTE);
    let refused = twin.key.step(&rule, NOW + 59_999_999, b"a", reserve(1, 1));
    assert_eq!(refused, Err(ReservationError::Settled));
    let reply = twin.step(&TEN_PER_MINUTE, NOW + 60_000_000, b"a", reserve(1, 1));
    assert_eq!(reply.unwrap().unwrap().allowed, 1);
}

#[test]
fn key_holds_1024_ids_and_expired_ones_make_room() {
    let limits = Limits { capacity: 5_000, ..TEN_PER_MINUTE };
    let mut twin = <Twin>::default();
    for number in 0..1_024 {
        let ttl = if number == 77 { 30 } else { 60 };
        let id = format!("job-{number}");
        twin.step(&limits, NOW, id.as_bytes(), reserve(ttl, 2)).unwrap().expect("fits");
    }
    assert_eq!(twin.key.bytes.as_ref().unwrap().len(), 25_537);
    let rule = Fixed::rule(&limits);
    let more = |at, id: &str| twin.key.step(&rule, at, id.as_bytes(), reserve(60, 0)).map(|_| ());
    assert_eq!(more(NOW, "one more"), Err(ReservationError::TooMany));
    // A stored id needs no new place, and an expired one makes room.
    assert_eq!(more(NOW, "job-3"), Ok(()));
    assert_eq!(more(NOW + 30 * SECOND, "one more"), Ok(()));
    // A plain call writes 16 bytes, however many reservations there are.
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
fn refused_commit_above_the_largest_debt_leaves_the_reservation_open() {
    let limits = Limits { capacity: 1_000_000_000_000, ..TEN_PER_MINUTE };
    let mut twin = <Twin>::default();
    twin.call(Verb::Charge, &limits, NOW, 1_000_000_000_000).unwrap();
    twin.step(&limits, NOW + 1, b"a", reserve(90, 0)).unwrap().expect("holds nothing");
    twin.call(Verb::Charge, &limits, NOW, 1).unwrap();
    let before = twin.key.clone();
    let commit = Step::Commit(Some(1_000_000_000_000));
    assert_eq!(twin.step(&limits, NOW, b"a", commit), Ok(None));
    let refused = ReservationError::Charge(ChargeError::TooManyUnits);
    assert_eq!(before.step(&Fixed::rule(&limits), NOW, b"a", commit), Err(refused));
    assert_eq!(twin.key, before);
}

#[test]
fn removing_the_last_reservation_deletes_the_key_or_restores_the_plain_state() {
    let limits = &TEN_PER_MINUTE;
    let mut twin = <Twin>::default();
    twin.step(limits, NOW, b"a", reserve(60, 4)).unwrap();
    twin.step(limits, NOW, b"a", Step::Cancel).unwrap();
    assert_eq!(twin.key, Key::default());

    let kind = |twin: &Twin| twin.key.bytes.as_ref().map(|bytes| bytes[1] as i8);
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
    // A refund of all used units leaves the reservations.
    twin.step(limits, NOW + 10_000_000, b"a", reserve(10, 4)).unwrap();
    twin.call(Verb::Refund, limits, NOW + 10_000_000, 9).unwrap();
    assert_eq!(kind(&twin), Some(-11));
    twin.step(limits, NOW + 10_000_000, b"a", Step::Cancel).unwrap();
    assert_eq!(twin.key, Key::default());
}

#[test]
fn clock_set_back_lengthens_a_reservation_by_at_most_its_ttl() {
    let limits = &TEN_PER_MINUTE;
    let mut twin = <Twin>::default();
    twin.step(limits, NOW, b"a", reserve(20, 8)).unwrap();
    // The clock steps back by the ttl: the reservation stays, and the wait grows by as much.
    let denied = twin.call(Verb::Decide, limits, NOW - 20 * SECOND, 3).unwrap().unwrap();
    assert_eq!(denied.retry_after_ms, 40_000);
    // The clock steps further back: the reservation starts now. The new start is written although
    // the call is denied.
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
    let list = state.list.read(|_, _| ()).unwrap();
    let Reservation { since, .. } = list.iter().next().unwrap();
    assert_eq!(i128::from(since.as_us()), back);
}

/// `QUOTA 10 day ZONE Europe/Berlin`
const TEN_PER_DAY: Limits = Limits { rate: 5, period_us: 60 * SECOND + 1, ..TEN_PER_MINUTE };

#[test]
fn reservation_survives_midnight_before_a_day_of_23_hours() {
    assert_eq!(calendar(&TEN_PER_DAY), (Unit::Day, 1, "Europe/Berlin"));
    // 2026-03-28T22:00:00Z: an hour before midnight in Berlin. The next day has 23 hours.
    let start = 1_774_735_200 * SECOND;
    let hour = 3_600_000;
    check_from::<Quotas>(
        start,
        &TEN_PER_DAY,
        &[
            (0, Plain(Verb::Decide, 6), [1, 10, 4, 0, hour]),
            (0, Call::Step("a", reserve(7_200, 3)), [1, 10, 1, 0, 2 * hour]),
            // The day and the reservation end at different times.
            (0, Plain(Verb::Decide, 7), [0, 10, 1, hour, 2 * hour]),
            (0, Plain(Verb::Decide, 8), [0, 10, 1, 2 * hour, 2 * hour]),
            // Nothing is used any more; the reservation still holds its units.
            (hour, Plain(Verb::Decide, 8), [0, 10, 7, hour, hour]),
            (hour, Plain(Verb::Decide, 7), [1, 10, 0, 0, 23 * hour]),
            // A commit of more than reserved, in the new day: the debt ends with the day, after 23
            // hours.
            (hour, Call::Step("a", Step::Commit(Some(5))), [1, 10, 0, 23 * hour, 23 * hour]),
            (hour, Call::Step("a", Step::Commit(Some(9))), [1, 10, 0, 23 * hour, 23 * hour]),
            (24 * hour - 1, Plain(Verb::Decide, 1), [0, 10, 0, 1, 1]),
            (24 * hour, Plain(Verb::Decide, 10), [1, 10, 0, 0, 24 * hour]),
        ],
    );
}

#[test]
fn reservations_survive_a_new_calendar_and_usage_counts_if_its_start_is_in_the_open_period() {
    // 2027-01-15T08:00:00Z: 9:00 in Berlin. A UTC day ends an hour later than a day in Berlin.
    let utc = Limits { period_us: 60 * SECOND, ..TEN_PER_DAY };
    assert_eq!(calendar(&utc), (Unit::Day, 1, "UTC"));
    let mut twin = Twin::<Quotas>::default();
    let hour = 3_600 * SECOND;
    let step = |twin: &mut Twin<Quotas>, limits, at, step| {
        let reply = twin.step(limits, NOW + at, b"a", step).unwrap().expect("not refused");
        (reply.remaining, reply.reset_after_ms)
    };
    twin.call(Verb::Decide, &TEN_PER_DAY, NOW, 3).unwrap();
    assert_eq!(step(&mut twin, &TEN_PER_DAY, 0, reserve(86_400, 4)), (3, 86_400_000));
    // The day in Berlin began before the day in UTC.
    let peeked = twin.call(Verb::Decide, &utc, NOW, 0).unwrap().unwrap();
    assert_eq!((peeked.remaining, peeked.reset_after_ms), (6, 86_400_000));
    assert_eq!(step(&mut twin, &utc, hour, Step::Commit(None)), (6, 54_000_000));
    // The day in UTC began within the day in Berlin.
    let peeked = twin.call(Verb::Decide, &TEN_PER_DAY, NOW + hour, 0).unwrap().unwrap();
    assert_eq!((peeked.remaining, peeked.reset_after_ms), (6, 50_400_000));
}
