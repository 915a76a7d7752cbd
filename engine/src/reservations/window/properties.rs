//! Properties of reservations in windows of both kinds, compared with the model over random
//! schedules.

use crate::algorithms::State;
use crate::oracle::draw::{CLOCK_MAX_US, DAY_US, Source};
use crate::oracle::key::Key;
use crate::oracle::model::Limits;
use crate::oracle::reply::{Reply, Verb};
use crate::oracle::reservations::{AnyCall, Reserving, Step};
use crate::oracle::subject::{Subject, Twin};
use crate::oracle::windows::{Fixed, Quotas, Windows};
use crate::reservations::window::tests::{NOW, SECOND, TEN_PER_MINUTE, reserve};
use crate::state::decode;
use crate::time::{Instant, Span};
use crate::{oracle, properties};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

/// Plays the schedule that `source` encodes on the rule and on the model, and calls `check` after
/// each call. The clock steps back only if `is_set`.
fn play<S: Subject + Windows>(
    mut source: &[u8],
    is_set: bool,
    mut check: impl FnMut(&Key, &Limits, i128, AnyCall, Reply, &Key) -> Result<(), String>,
) -> TestCaseResult {
    let source = &mut source;
    let rules = [Limits::draw(source), Limits::draw(source)];
    let (mut twin, mut now) = (Twin::<Reserving<S>>::default(), NOW);
    while !source.is_empty() {
        let limits = &rules[usize::from(source.below(8) == 1)];
        let steps_back = is_set && source.below(6) == 1;
        let step = if steps_back {
            oracle::Step::draw_set(source)
        } else {
            oracle::Step::draw_good(source)
        };
        let moved = (now + step.us(S::span_us(limits))).clamp(0, CLOCK_MAX_US);
        now = if is_set { moved } else { moved.max(now) };
        let call = AnyCall::draw(source, limits, S::span_us(limits));
        let before = twin.key.clone();
        if let Some(reply) = twin.any_call(limits, now, call).map_err(TestCaseError::fail)? {
            let checked = check(&twin.key, limits, now, call, reply, &before);
            checked.map_err(TestCaseError::fail)?;
        }
    }
    Ok(())
}

fn sources() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 20..700)
}

/// Checks that a denied call writes nothing while the clock runs forward, and that an expired state
/// counts as a missing one.
fn writes_only_what_is_allowed<S: Subject + Windows>(source: &[u8]) -> TestCaseResult {
    play::<S>(source, false, |key, limits, now, call, reply, before| {
        let denies = match call {
            AnyCall::Plain(verb, _) if verb.decides() => reply.allowed == 0,
            AnyCall::Plain(_, cost) => cost == 0,
            AnyCall::Step(_, Step::Reserve(hold)) if hold.is_vain => true,
            AnyCall::Step(_, Step::Reserve(hold)) => reply.allowed == 0 && !hold.is_shadow,
            AnyCall::Step(..) => reply.allowed == 0,
        };
        if denies && key != before {
            return Err(format!("{call:?} at {now} wrote what it denied"));
        }
        let rule = S::rule(limits);
        let expired = key.expires_at.max(now);
        if key == before || key.bytes.is_none() || expired > CLOCK_MAX_US {
            return Ok(());
        }
        for cost in [0, 1, limits.capacity] {
            if key.peek(&rule, expired, cost) != Key::default().peek(&rule, expired, cost) {
                return Err(format!("{call:?} at {now} is not over at {expired}"));
            }
        }
        Ok(())
    })
}

/// Checks that no wait exceeds twice the window, or twice the longest ttl of a reservation if that
/// is longer, however the clock steps.
fn waits_are_bounded<S: Subject + Windows>(source: &[u8]) -> TestCaseResult {
    let mut longest_us = 0;
    play::<S>(source, true, |_, limits, now, call, reply, _| {
        if let AnyCall::Step(_, Step::Reserve(hold)) = call {
            longest_us = longest_us.max(hold.ttl_us);
        }
        let waits = 2 * longest_us.max(S::span_us(limits));
        let is_short = reply.retry_after_ms <= oracle::div_ceil(waits, 1_000);
        if is_short { Ok(()) } else { Err(format!("{call:?} at {now} waits {reply:?}")) }
    })
}

/// Checks that the units used and held together never exceed the limit, under one rule and a steady
/// clock, without charges and without commits above the amount held. Windows are `window_us` long;
/// the clock moves in steps of `tick_us`.
fn never_exceeds<S: Subject + Windows>(
    limits: &Limits,
    tick_us: i128,
    window_us: u64,
    calls: &[(usize, u8, i128, i128)],
) -> TestCaseResult {
    let (mut twin, mut now) = (Twin::<Reserving<S>>::default(), NOW);
    let mut held = [0; 6];
    for &(id, kind, cost, ticks) in calls {
        now += if ticks > 20 { 0 } else { ticks * tick_us };
        let call = match kind {
            0 => AnyCall::Plain(Verb::Decide, cost),
            1 | 2 => AnyCall::Step(id, reserve((ticks + 1) * tick_us / SECOND, cost)),
            3 => AnyCall::Step(id, Step::Commit(Some(cost.min(held[id])))),
            _ => AnyCall::Step(id, Step::Cancel),
        };
        let reply = twin.any_call(limits, now, call).map_err(TestCaseError::fail)?;
        let allowed = reply.is_some_and(|reply| reply.allowed > 0);
        if matches!(call, AnyCall::Step(_, Step::Reserve(..))) && allowed {
            held[id] = cost;
        }
        let Some(bytes) = &twin.key.bytes else { continue };
        if let State::Reserved(state) = decode(bytes).expect("a state") {
            let now = Instant::from_us(now.try_into().unwrap());
            let list = state.list.read(|_, _| ()).expect("a list");
            let open = list.iter().filter_map(|one| one.at(now)?.held);
            let open: u64 = open.map(|held| held.units()).sum();
            let ends = state.window.start.after(Span::from_us(window_us));
            let used = if now < ends { state.window.used } else { 0 };
            prop_assert!(used + open <= 10, "{used} used and {open} held");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(properties::config())]

    /// Checks that replies, writes and promised times match the model, for any clock, two
    /// alternating rules, and any order of plain calls, reservations, commits and cancellations.
    #[test]
    fn reservations_in_a_window_agree_with_their_model_under_any_clock(source in sources()) {
        play::<Fixed>(&source, true, |_, _, _, _, _, _| Ok(()))?;
    }

    /// Checks that replies, writes and promised times match the model on a quota, for any clock,
    /// two alternating rules, and any order of plain calls, reservations, commits and
    /// cancellations.
    #[test]
    fn reservations_on_a_quota_agree_with_their_model_under_any_clock(source in sources()) {
        play::<Quotas>(&source, true, |_, _, _, _, _, _| Ok(()))?;
    }

    #[test]
    fn reservations_in_a_window_write_only_for_allowed_calls(source in sources()) {
        writes_only_what_is_allowed::<Fixed>(&source)?;
    }

    #[test]
    fn reservations_on_a_quota_write_only_for_allowed_calls(source in sources()) {
        writes_only_what_is_allowed::<Quotas>(&source)?;
    }

    #[test]
    fn clock_step_back_adds_at_most_one_span_to_a_wait_in_a_window(source in sources()) {
        waits_are_bounded::<Fixed>(&source)?;
    }

    #[test]
    fn clock_step_back_adds_at_most_one_span_to_a_wait_on_a_quota(source in sources()) {
        waits_are_bounded::<Quotas>(&source)?;
    }

    #[test]
    fn used_and_reserved_together_never_exceed_the_limit(
        calls in prop::collection::vec((0..6_usize, 0..5_u8, 1..9_i128, 0..40_i128), 1..60),
    ) {
        never_exceeds::<Fixed>(&TEN_PER_MINUTE, SECOND, 60_000_000, &calls)?;
        // `QUOTA 10 day`, and steps of half an hour.
        let days = Limits { rate: 5, ..TEN_PER_MINUTE };
        never_exceeds::<Quotas>(&days, DAY_US / 48, DAY_US as u64, &calls)?;
    }
}
