//! Leases: tables of worked numbers, and comparisons with the naive list over random schedules.

use crate::bounds::{Cost, Leave};
use crate::call::Mode;
use crate::decision::Verdict;
use crate::leases::{Grant, Holders, Release, release, renew};
use crate::oracle::draw::CLOCK_MAX_US;
use crate::oracle::leases::{Leases, Seen, lease_rule};
use crate::oracle::reply::Reply;
use crate::properties::config;
use crate::time::Instant;
use proptest::prelude::*;

const NOW: i128 = 1_800_000_000_000_000;
const SECOND: i128 = 1_000_000;

fn instant(us: i128) -> Instant {
    Instant::from_us(us.try_into().unwrap())
}

/// Returns the rule's decision, and the grant it would store.
fn decide(
    leases: &Leases,
    id: &[u8],
    (limit, ttl_us, leave): (i128, i128, Option<Leave>),
    now: i128,
    mode: Mode,
) -> (Reply, Option<Grant>) {
    let rule = lease_rule(limit, ttl_us);
    let Ok((decision, grant)) =
        rule.decide(&mut Seen::new(leases, id, now), leave, instant(now), mode);
    (decision.into(), grant)
}

/// The instant in us, the id, the limit, the ttl in us, and the expected reply.
type Row = (i128, &'static [u8], i128, i128, [i128; 5]);

#[test]
fn lease_is_taken_and_renewed_and_expires_to_the_microsecond() {
    let table: [Row; 12] = [
        (0, b"job-1", 3, 60 * SECOND, [1, 3, 2, 0, 60_000]),
        (SECOND, b"job-2", 3, 60 * SECOND, [1, 3, 1, 0, 60_000]),
        (2 * SECOND, b"job-3", 3, 60 * SECOND, [1, 3, 0, 0, 60_000]),
        // The wait ends when the first lease expires, and the reset when the last lease expires.
        (2 * SECOND, b"job-4", 3, 60 * SECOND, [0, 3, 0, 58_000, 60_000]),
        // A holder that calls again is allowed and still holds one lease, which now expires later.
        (3 * SECOND, b"job-1", 3, 60 * SECOND, [1, 3, 0, 0, 60_000]),
        (3 * SECOND, b"job-4", 3, 60 * SECOND, [0, 3, 0, 58_000, 60_000]),
        // A shorter ttl ends the lease sooner. Another lease is then the last to expire.
        (3 * SECOND, b"job-1", 3, 10 * SECOND, [1, 3, 0, 0, 59_000]),
        // A lease is live before the instant of its expiry, and no longer at that instant.
        (13 * SECOND - 1, b"job-4", 3, SECOND, [0, 3, 0, 1, 49_001]),
        (13 * SECOND, b"job-4", 3, SECOND, [1, 3, 0, 0, 49_000]),
        // A lowered limit ends no lease, and two have to expire before a new one is granted.
        (13 * SECOND, b"job-5", 2, SECOND, [0, 2, 0, 48_000, 49_000]),
        (13 * SECOND, b"job-2", 1, 60 * SECOND, [1, 1, 0, 0, 60_000]),
        (13 * SECOND, b"job-5", 1, SECOND, [0, 1, 0, 60_000, 60_000]),
    ];
    let mut leases = Leases::default();
    for (row, (at, id, limit, ttl_us, expected)) in table.into_iter().enumerate() {
        let (reply, grant) = decide(&leases, id, (limit, ttl_us, None), NOW + at, Mode::Take);
        assert_eq!(reply, leases.lease(id, limit, 0, ttl_us, NOW + at), "row {row}: the list");
        assert_eq!(reply.fields(), expected, "row {row}");
        assert_eq!(grant.is_some(), reply.allowed == 1, "row {row}: a denial leaves nothing");
        if let Some(grant) = grant {
            assert_eq!(grant.expires_at, instant(NOW + at + ttl_us), "row {row}");
        }
    }
}

#[test]
fn lease_that_leaves_permits_waits_until_more_are_free_and_renews_at_once() {
    let mut leases = Leases::default();
    leases.lease(b"a", 4, 0, 60 * SECOND, NOW);
    leases.lease(b"b", 4, 0, 10 * SECOND, NOW);
    let leaving = |id: &[u8], leave| {
        decide(&leases, id, (4, SECOND, Some(leave)), NOW, Mode::Take).0.fields()
    };
    let units = |units| Leave::Units(Cost::new(units).unwrap());
    assert_eq!(leaving(b"c", units(1)), [1, 4, 1, 0, 60_000]);
    assert_eq!(leaving(b"c", Leave::Percent(49)), [1, 4, 1, 0, 60_000]); // one permit of four
    assert_eq!(leaving(b"c", units(2)), [0, 4, 2, 10_000, 60_000]);
    assert_eq!(leaving(b"c", Leave::Percent(75)), [0, 4, 2, 60_000, 60_000]);
    assert_eq!(leaving(b"c", units(4)), [0, 4, 2, -1, 60_000]);
    assert_eq!(leaving(b"a", units(4)), [1, 4, 2, 0, 10_000]);
}

#[test]
fn release_returns_the_last_expiry_of_the_other_live_leases() {
    let mut leases = Leases::default();
    leases.lease(b"long", 3, 0, 60 * SECOND, NOW);
    leases.lease(b"short", 3, 0, 10 * SECOND, NOW);
    let last_expiry_after = |leases: &Leases, id: &[u8], at| {
        let Ok(released) = release(&mut Seen::new(leases, id, NOW + at));
        released.map(|released| released.last_expiry)
    };
    let expiry = |at| Some(Some(instant(NOW + at)));
    assert_eq!(last_expiry_after(&leases, b"long", 10 * SECOND - 1), expiry(10 * SECOND));
    assert_eq!(last_expiry_after(&leases, b"short", 10 * SECOND - 1), expiry(60 * SECOND));
    // When the short lease expires, the long one is the last; then none is left.
    assert_eq!(last_expiry_after(&leases, b"short", 10 * SECOND), None);
    assert_eq!(last_expiry_after(&leases, b"long", 10 * SECOND), Some(None));
    assert_eq!(last_expiry_after(&leases, b"long", 60 * SECOND), None);
}

#[test]
fn call_denied_by_another_rule_neither_takes_nor_renews_a_permit() {
    let mut leases = Leases::default();
    let none = decide(&leases, b"a", (3, SECOND, None), NOW, Mode::TakeNothing);
    leases.lease(b"a", 3, 0, 60 * SECOND, NOW);
    let one = decide(&leases, b"b", (3, 90 * SECOND, None), NOW, Mode::TakeNothing);
    let own = decide(&leases, b"a", (3, 90 * SECOND, None), NOW, Mode::TakeNothing);
    let reply = |remaining, reset_after_ms| {
        let (allowed, limit, retry_after_ms) = (1, 3, 0);
        (Reply { allowed, limit, remaining, retry_after_ms, reset_after_ms }, None)
    };
    assert_eq!([none, one, own], [reply(3, 0), reply(2, 60_000), reply(2, 60_000)]);
}

#[test]
fn denied_call_has_no_wait_when_the_holders_vanish() {
    struct Vanishing;
    impl Holders for Vanishing {
        type Error = ();
        fn live(&mut self) -> Result<u64, ()> {
            Ok(5)
        }
        fn mine(&mut self) -> Result<Option<Instant>, ()> {
            Ok(None)
        }
        fn last_of_others(&mut self) -> Result<Option<Instant>, ()> {
            Ok(None)
        }
        fn expiry_at_rank(&mut self, _: u64) -> Result<Option<Instant>, ()> {
            Ok(None)
        }
    }
    let rule = lease_rule(5, SECOND);
    let (decision, grant) = rule.decide(&mut Vanishing, None, instant(NOW), Mode::Take).unwrap();
    let retry_after = crate::time::Span::ZERO;
    assert_eq!((decision.verdict, grant), (Verdict::Denied { retry_after }, None));
}

/// One call: how far the clock moves before it, the caller, and the request.
#[derive(Clone, Debug)]
struct Call {
    step_us: i128,
    id: u8,
    limit: i128,
    /// The permits that must stay free.
    left: i128,
    ttl_us: i128,
    kind: u8,
}

fn calls(steps: impl Strategy<Value = i128>) -> impl Strategy<Value = Vec<Call>> {
    let ttls = prop_oneof![
        4 => (1..=8_i128).prop_map(|seconds| seconds * SECOND),
        2 => 1_000..=3_000_i128,
        1 => Just(366 * 86_400 * SECOND),
    ];
    let call =
        (steps, 0..8_u8, 1..=5_i128, prop_oneof![3 => Just(0), 1 => 0..=5_i128], ttls, 0..8_u8);
    let call = call.prop_map(|(step_us, id, limit, left, ttl_us, kind)| Call {
        step_us,
        id,
        limit,
        left,
        ttl_us,
        kind,
    });
    prop::collection::vec(call, 1..60)
}

fn good_steps() -> impl Strategy<Value = i128> {
    prop_oneof![
        3 => Just(0_i128),
        4 => (0..=4_i128, -1..=1_i128).prop_map(|(seconds, us)| (seconds * SECOND + us).max(0)),
        2 => 0..=4_000_i128,
    ]
}

fn any_steps() -> impl Strategy<Value = i128> {
    prop_oneof![
        6 => good_steps(),
        2 => -20 * SECOND..=0,
        1 => -3_653 * 86_400 * SECOND..=3_653 * 86_400 * SECOND,
    ]
}

/// Plays calls on the rule and on the naive list, and checks that their replies agree. If `limit`
/// is given, it replaces the limits of the calls.
fn play(calls: &[Call], limit: Option<i128>) -> Result<(), TestCaseError> {
    let mut leases = Leases::default();
    let mut now = NOW;
    for call in calls {
        now = (now + call.step_us).clamp(0, CLOCK_MAX_US);
        let id = [call.id];
        let limit = limit.unwrap_or(call.limit);
        let is_live = leases.of(&id, now).is_some();
        match call.kind {
            0 => {
                let Ok(released) = release(&mut Seen::new(&leases, &id, now));
                prop_assert_eq!(leases.release(&id, now), is_live);
                let last_expiry = leases.live(now).last().copied().map(instant);
                prop_assert_eq!(released, is_live.then_some(Release { last_expiry }));
            }
            1 | 2 => {
                let ttl = lease_rule(1, call.ttl_us).ttl;
                let Ok(renewed) = renew(&mut Seen::new(&leases, &id, now), ttl, instant(now));
                prop_assert_eq!(leases.renew(&id, call.ttl_us, now), renewed.is_some());
                prop_assert_eq!(
                    renewed.map(|grant| grant.expires_at),
                    of(&leases, &id, now, renewed)
                );
            }
            _ => {
                let before = leases.live(now).len() as i128;
                let leave = Cost::new(call.left.try_into().unwrap()).map(Leave::Units);
                let rule = (limit, call.ttl_us, leave.filter(|_| call.left > 0));
                let (reply, grant) = decide(&leases, &id, rule, now, Mode::Take);
                let expected = leases.lease(&id, limit, call.left, call.ttl_us, now);
                prop_assert_eq!(&reply, &expected);
                let live = leases.live(now);
                prop_assert_eq!(grant.is_some(), reply.allowed == 1);
                if let Some(grant) = grant {
                    prop_assert_eq!(Some(grant.last_expiry), live.last().copied().map(instant));
                    prop_assert!(is_live || live.len() as i128 + call.left <= limit);
                } else if call.left >= limit {
                    prop_assert_eq!((is_live, reply.retry_after_ms), (false, -1));
                } else {
                    prop_assert_eq!(live.len() as i128, before);
                    // The call is allowed after exactly `retry_after_ms`, and not 1 ms earlier.
                    let at = |ms: i128| decide(&leases, &id, rule, now + ms * 1_000, Mode::Take);
                    let retry_after_ms = reply.retry_after_ms;
                    prop_assert_eq!(at(retry_after_ms).0.allowed, 1);
                    prop_assert_eq!(at(retry_after_ms - 1).0.allowed, 0);
                }
            }
        }
    }
    Ok(())
}

/// Returns the instant at which a lease expires; `None` if `renewed` says that there was none to
/// renew.
fn of(leases: &Leases, id: &[u8], now: i128, renewed: Option<Grant>) -> Option<Instant> {
    renewed.and_then(|_| leases.of(id, now)).map(instant)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lease_replies_match_the_naive_list_under_any_clock(calls in calls(any_steps())) {
        play(&calls, None)?;
    }

    #[test]
    fn holders_never_exceed_the_limit(
        calls in calls(good_steps()),
        limit in 1..=4_i128,
    ) {
        play(&calls, Some(limit))?;
        let mut leases = Leases::default();
        let mut now = NOW;
        for call in &calls {
            now += call.step_us;
            leases.lease(&[call.id], limit, call.left, call.ttl_us, now);
            prop_assert!(leases.live(now).len() as i128 <= limit);
        }
    }
}
