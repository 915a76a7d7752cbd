//! A reservation as one of several rules, and under a policy in shadow mode: worked numbers.

use crate::bounds::{Cost, Leave, Slots};
use crate::call::Mode;
use crate::decision::{Decision, Verdict};
use crate::grammar::packed::packed_rule;
use crate::grammar::request::{AnyRequest, Request};
use crate::grammar::reservation::{RuleSource, packed_hold};
use crate::oracle::reservations::{Hold, Reserving, Step};
use crate::oracle::subject::Subject;
use crate::oracle::windows::Fixed;
use crate::oracle::{Leases, Limits, Reply, Twin, Write, lease_rule};
use crate::reservations::window::{self, ReservationError};
use crate::rule_set::{Row, deciding};
use crate::state::decode;
use crate::time::{Instant, Span};

const NOW: i128 = 1_800_000_000_000_000;
const SECOND: i128 = 1_000_000;

/// `FIXED 10 60`
const TEN_PER_MINUTE: Limits =
    Limits { capacity: 10, rate: 1, period_us: 60 * SECOND, aligned: false, slots: 16 };

fn parse(rule: &str) -> Request {
    match packed_rule(rule.as_bytes(), Slots::DEFAULT) {
        Ok(AnyRequest::Units(request)) => request,
        other => panic!("{rule}: {other:?}"),
    }
}

fn row(decision: Decision, cost: u64) -> Row {
    let cost = Cost::new(cost).expect("in range");
    Row { decision, cost, left_units: 0, force: None }
}

/// The first call of a gateway: a request rate, a token budget, a reserved month and a permit.
#[test]
fn gateway_call_is_decided_by_the_permit_that_runs_out_first() {
    let now = Instant::from_us(NOW.try_into().unwrap());
    let on_none = |rule: &str, cost| {
        let Request { rule, options } = parse(rule);
        let outcome = rule.decide_call(Mode::Take, None, now, options).unwrap();
        row(outcome.decision, cost)
    };
    let text = b"RESERVE job-7 30s QUOTA 5000000 month COST 1800";
    let request = packed_hold(text, Slots::DEFAULT).unwrap();
    let RuleSource::Call(quota) = request.source else { panic!("a rule") };
    let outcome = quota.reserve(Mode::Take, None, now, request.id, request.hold).unwrap();
    let lease = Leases::default().lease(b"job-7", 4, 0, 120 * SECOND, NOW);
    assert_eq!(lease.fields(), [1, 4, 3, 0, 120_000]);
    let permit = Decision {
        verdict: Verdict::ALLOWED,
        limit: lease_rule(4, SECOND).limit,
        remaining: 3,
        reset_after: Span::from_ms(120_000),
    };
    let rows = [
        on_none("GCRA 20 60 60", 1),
        on_none("TOKENBUCKET 90000 90000 60 COST 1800", 1_800),
        row(outcome.decision, 1_800),
        row(permit, 1),
    ];
    let replies = rows.map(|row| Reply::from(row.decision).fields());
    let expected = [
        [1, 20, 19, 0, 1_000],
        [1, 90_000, 88_200, 0, 1_200],
        // The month is unused, so it is full again when the reservation expires.
        [1, 5_000_000, 4_998_200, 0, 30_000],
        [1, 4, 3, 0, 120_000],
    ];
    assert_eq!(replies, expected);
    assert_eq!(deciding(&rows), 3);
}

type Reserved = Twin<Reserving<Fixed>>;

fn step(twin: &mut Reserved, at_ms: i128, id: &str, step: Step) -> [i128; 5] {
    let now = NOW + at_ms * 1_000;
    let reply = twin.step(&TEN_PER_MINUTE, now, id.as_bytes(), step).unwrap();
    reply.expect("not refused").fields()
}

fn hold(seconds: i128, cost: i128) -> Hold {
    Hold::new(seconds * SECOND, cost)
}

#[test]
fn reservation_of_a_call_that_another_rule_denies_holds_nothing_and_keeps_the_old_one() {
    let vain = |seconds, cost| Step::Reserve(Hold { is_vain: true, ..hold(seconds, cost) });
    let mut twin = Reserved::default();
    assert_eq!(step(&mut twin, 0, "a", vain(30, 4)), [1, 10, 10, 0, 0]);
    assert_eq!(twin.key.bytes, None);
    assert_eq!(step(&mut twin, 0, "a", Step::Reserve(hold(30, 4))), [1, 10, 6, 0, 30_000]);
    let before = twin.key.clone();
    // The row shows the units as they are, with the four that the id holds.
    assert_eq!(step(&mut twin, 0, "a", vain(90, 10)), [1, 10, 6, 0, 30_000]);
    assert_eq!(step(&mut twin, 0, "b", vain(90, 6)), [1, 10, 6, 0, 30_000]);
    assert_eq!(step(&mut twin, 0, "b", vain(90, 7)), [0, 10, 6, 30_000, 30_000]);
    assert_eq!(step(&mut twin, 0, "b", vain(90, 11)), [0, 10, 6, -1, 30_000]);
    assert_eq!(step(&mut twin, 0, "b", vain(90, 0)), [1, 10, 6, 0, 30_000]);
    assert_eq!(twin.key, before);
    // After the clock stepped back, the key is repaired, and only that.
    assert_eq!(step(&mut twin, -40_000, "b", vain(90, 6)), [1, 10, 6, 0, 30_000]);
    assert_ne!(twin.key.bytes, before.bytes);
    assert_eq!(step(&mut twin, -40_000, "a", Step::Commit(Some(1))), [1, 10, 9, 0, 60_000]);
    // The errors are the same as those of a reservation that nothing denies.
    let then = NOW - 40 * SECOND;
    let refused = twin.step(&TEN_PER_MINUTE, then, b"a", vain(30, 1));
    assert_eq!(refused, Ok(None), "settled");
    let rule = Fixed::rule(&TEN_PER_MINUTE);
    let result = twin.key.step(&rule, then, b"a", vain(30, 99));
    assert_eq!(result, Err(ReservationError::Settled));
}

#[test]
fn reservation_that_does_not_fit_is_held_as_0_units_in_shadow_mode() {
    let shadow = |seconds, cost| Step::Reserve(Hold { is_shadow: true, ..hold(seconds, cost) });
    let mut twin = Reserved::default();
    assert_eq!(step(&mut twin, 0, "a", shadow(30, 4)), [1, 10, 6, 0, 30_000]);
    // The numbers are those of an enforced policy; the id is remembered and can be settled.
    assert_eq!(step(&mut twin, 0, "b", shadow(30, 7)), [0, 10, 6, 30_000, 30_000]);
    assert_eq!(step(&mut twin, 0, "b", Step::Commit(None)), [1, 10, 6, 0, 30_000]);
    assert_eq!(step(&mut twin, 0, "c", shadow(30, 11)), [0, 10, 6, -1, 30_000]);
    assert_eq!(step(&mut twin, 0, "c", Step::Commit(Some(9))), [1, 10, 0, 30_000, 60_000]);
    let left = Some(Leave::Percent(50));
    let leaving = Hold { leave: left, is_shadow: true, ..hold(30, 0) };
    assert_eq!(step(&mut twin, 0, "d", Step::Reserve(leaving)), [0, 10, 0, 60_000, 60_000]);
    assert_eq!(step(&mut twin, 0, "d", Step::Cancel), [1, 10, 0, 30_000, 60_000]);
    // An amount that the id already holds is replaced by 0 units.
    assert_eq!(step(&mut twin, 0, "a", shadow(30, 5)), [0, 10, 1, 60_000, 60_000]);
    // If another rule denies the call, it stays.
    let mut twin = Reserved::default();
    assert_eq!(step(&mut twin, 0, "a", shadow(30, 4)), [1, 10, 6, 0, 30_000]);
    let before = twin.key.clone();
    let vain = Hold { is_shadow: true, is_vain: true, ..hold(30, 11) };
    assert_eq!(step(&mut twin, 0, "a", Step::Reserve(vain)), [0, 10, 6, -1, 30_000]);
    assert_eq!(twin.key, before);
}

#[test]
fn only_a_commit_of_an_open_reservation_reports_units() {
    let mut twin = Reserved::default();
    let rule = Fixed::rule(&TEN_PER_MINUTE);
    let cost = |units| Cost::new(units).expect("in range");
    let hold = |units| {
        let ttl = lease_rule(1, 30 * SECOND).ttl;
        window::Hold { ttl, cost: cost(units), leave: None, is_shadow: false }
    };
    let now = Instant::from_us(NOW.try_into().unwrap());
    let rows = [
        ("a", window::Step::Commit { cost: Some(cost(3)) }, 0),
        ("a", window::Step::Reserve(hold(4)), 0),
        ("a", window::Step::Commit { cost: None }, 4),
        ("a", window::Step::Commit { cost: None }, 0),
        ("b", window::Step::Reserve(hold(4)), 0),
        ("b", window::Step::Commit { cost: Some(cost(9)) }, 9),
        ("c", window::Step::Reserve(hold(0)), 0),
        ("c", window::Step::Cancel, 0),
    ];
    for (id, step, units) in rows {
        let bytes = twin.key.bytes.clone();
        let stored = bytes.as_deref().map(|bytes| decode(bytes).unwrap());
        let outcome = rule.take_step(stored, now, id.as_bytes(), step);
        let outcome = outcome.unwrap_or_else(|error| panic!("{id} {step:?}: {error:?}"));
        let committed = outcome.next.kept().map_or(0, |next| next.state.committed().units());
        assert_eq!(committed, units, "{id} {step:?}");
        if let Some(write) = Write::of(&outcome.next) {
            twin.key.store(&write);
        }
    }
    assert!(rule.is_reservable() && !parse("GCRA 6 10 60").rule.is_reservable());
}
