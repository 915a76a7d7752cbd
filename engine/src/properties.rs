//! One property suite for all limiters, compared with the naive models of `oracle.rs`.
//!
//! A case is one or two rules on one key and a schedule of calls, under a clock that may move in
//! any direction. Calls go through the codec, as on a server, so the suite compares what a client
//! would see. It runs ten thousand cases of each property; `PROPTEST_CASES=100000` runs more.

mod ban;
mod rule_set;

use crate::algorithms::State;
use crate::bounds::{Cost, Leave, Slots};
use crate::grammar::rule::request;
use crate::oracle::draw::{CLOCK_MAX_US, DAY_US, Share, Step, UNITS_MAX};
use crate::oracle::gcra::CellRate;
use crate::oracle::key::Key;
use crate::oracle::model::Limits;
use crate::oracle::reply::{Verb, Wrote};
use crate::oracle::subject::{Subject, Twin};
use crate::{oracle, state};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult};

/// One call: how far the clock moves before it, the rule, the verb and the cost.
#[derive(Clone, Debug)]
struct Call {
    step: Step,
    rule: usize,
    verb: Verb,
    cost: Share,
}

/// Checks the algorithm's bound in every stretch of time that ends with the last of `calls`.
fn check_bound<S: Subject>(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
    let Some((end, _)) = calls.last() else { return Ok(()) };
    let mut sum = 0;
    for (start, cost) in calls.iter().rev() {
        sum += cost;
        let Some(most) = S::most(limits, end - start) else { break };
        prop_assert!(sum <= most, "{sum} units from {start} to {end}, more than {most}");
    }
    Ok(())
}

const NOW: i128 = 1_800_000_000_000_000;

fn units() -> impl Strategy<Value = i128> {
    prop_oneof![
        6 => 1..=12_i128,
        2 => 1..=5_000_i128,
        1 => 1..=UNITS_MAX,
        1 => Just(UNITS_MAX),
    ]
}

fn periods_us() -> impl Strategy<Value = i128> {
    prop_oneof![
        4 => (1..=120_i128).prop_map(|seconds| seconds * 1_000_000),
        2 => 1_000..=2_000_000_i128,
        1 => 1_000..=366 * DAY_US,
        1 => prop_oneof![Just(1_000), Just(366 * DAY_US)],
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let slots = prop_oneof![Just(16_i128), Just(1_024), Just(65_536)];
    (units(), units(), periods_us(), any::<bool>(), slots).prop_map(
        |(capacity, rate, period_us, aligned, slots)| {
            Limits { capacity, rate, period_us, aligned, slots }.in_bounds()
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::By { sixteenths: 0, us: 0 }),
        6 => (0..=8_i128, -2..=1_000_i128).prop_map(|(sixteenths, us)| Step::By { sixteenths, us }),
        3 => (0..=40_i128, -1..=1_i128).prop_map(|(sixteenths, us)| Step::By { sixteenths, us }),
    ]
}

fn any_steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => steps(),
        2 => (-40..=0_i128, -1..=1_i128).prop_map(|(sixteenths, us)| Step::By { sixteenths, us }),
        1 => (-3_653..=3_653_i128).prop_map(Step::Days),
    ]
}

fn costs() -> impl Strategy<Value = Share> {
    let shares = prop_oneof![
        8 => Just((0, 1)),
        3 => (0..=16_i128, 0..=3_i128),
        1 => Just((0, 0)),
        1 => Just((17, 1)),
    ];
    shares.prop_map(|(sixteenths, units)| Share { sixteenths, units })
}

/// Generates deciding calls, in full or partial.
fn calls(steps: impl Strategy<Value = Step>, rules: usize) -> impl Strategy<Value = Vec<Call>> {
    schedule(steps, rules, deciding_verbs())
}

/// Generates deciding calls, some of which leave units.
fn deciding_verbs() -> impl Strategy<Value = Verb> {
    prop_oneof![
        4 => Just(Verb::Decide),
        1 => Just(Verb::Partly),
        1 => leaves().prop_map(Verb::Leaving),
        1 => leaves().prop_map(Verb::PartlyLeaving),
    ]
}

fn leaves() -> impl Strategy<Value = Leave> {
    prop_oneof![
        (0..=100_u8).prop_map(Leave::Percent),
        (0..=12_u64).prop_map(|units| Leave::Units(Cost::new(units).unwrap())),
    ]
}

/// Generates calls of any kind.
fn any_calls(steps: impl Strategy<Value = Step>, rules: usize) -> impl Strategy<Value = Vec<Call>> {
    let verbs = prop_oneof![
        6 => deciding_verbs(),
        3 => Just(Verb::Charge),
        3 => Just(Verb::Refund),
    ];
    schedule(steps, rules, verbs)
}

fn schedule(
    steps: impl Strategy<Value = Step>,
    rules: usize,
    verbs: impl Strategy<Value = Verb>,
) -> impl Strategy<Value = Vec<Call>> {
    let call = (steps, 0..rules, verbs, costs());
    let call = call.prop_map(|(step, rule, verb, cost)| Call { step, rule, verb, cost });
    prop::collection::vec(call, 1..40)
}

impl Call {
    fn now<S: Subject>(&self, limits: &Limits, now: i128) -> i128 {
        (now + self.step.us(S::span_us(limits))).clamp(0, CLOCK_MAX_US)
    }

    /// Makes the call. Returns `None` if it is refused.
    fn make<S: Subject>(
        &self,
        key: &mut Key,
        limits: &Limits,
        now: i128,
    ) -> Option<(oracle::Reply, Wrote)> {
        key.carry_out(S::verb(self.verb), &S::rule(limits), now, S::cost(self.cost.of(limits))).ok()
    }
}

/// Returns a configuration of ten thousand cases, or more if `PROPTEST_CASES` says so.
pub(crate) fn config() -> Config {
    let cases = Config::default().cases.max(10_000);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Checks that verdict and numbers match the model, for any clock and rule. Checks that only
/// repairs, and calls that take or give back units, write. Checks that the promised time of a
/// retry, or of the end of a debt, is exact.
fn agrees_with_its_model<S: Subject>(rules: &[Limits], calls: &[Call]) -> TestCaseResult {
    let (mut twin, mut now) = (Twin::<S>::default(), NOW);
    for call in calls {
        let limits = &rules[call.rule];
        now = call.now::<S>(limits, now);
        let cost = S::cost(call.cost.of(limits));
        twin.call(S::verb(call.verb), limits, now, cost).map_err(TestCaseError::fail)?;
    }
    Ok(())
}

/// Checks the algorithm's bound under one rule and a steady clock.
fn keeps_its_bound<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now, mut allowed) = (Key::default(), NOW, Vec::new());
    for call in calls {
        now = now.max(call.now::<S>(limits, now));
        let cost = S::cost(call.cost.of(limits));
        let Some((reply, _)) = call.make::<S>(&mut key, limits, now) else { continue };
        if reply.allowed > 0 {
            let granted = if S::verb(call.verb).is_partial() { reply.allowed } else { cost };
            prop_assert!(cost == 0 || granted <= cost);
            allowed.push((now, granted.min(cost)));
            check_bound::<S>(limits, &allowed)?;
        }
    }
    Ok(())
}

/// Checks that a state that has expired under the rule that wrote it counts as a missing one.
fn an_expired_state_is_none<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    let rule = S::rule(limits);
    for call in calls {
        now = call.now::<S>(limits, now);
        call.make::<S>(&mut key, limits, now);
        let later = key.expires_at.max(now);
        if key.bytes.is_none() || later > CLOCK_MAX_US {
            continue;
        }
        let mut none = Key::default();
        let mut expired = key.clone();
        let of_none = call.make::<S>(&mut none, limits, later);
        prop_assert_eq!(call.make::<S>(&mut expired, limits, later), of_none);
        if of_none.is_some_and(|(_, wrote)| wrote == Wrote::State) {
            prop_assert_eq!(&expired.bytes, &none.bytes);
        }
        // One microsecond earlier, the state still counts.
        if key.expires_at > now {
            let before = key.peek(&rule, key.expires_at - 1, 0);
            prop_assert!(before.reset_after_ms > 0);
        }
    }
    Ok(())
}

/// Checks that a clock that steps back lengthens the longest wait of a call by at most one span.
fn a_step_back_adds_one_span<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    for call in calls {
        now = call.now::<S>(limits, now);
        let cost = S::cost(call.cost.of(limits));
        let Some((reply, _)) = call.make::<S>(&mut key, limits, now) else { continue };
        // A partial call waits until one unit is free.
        let waits_for = if call.verb.is_partial() { cost.min(1) } else { cost };
        let waits_for = waits_for + call.verb.left(reply.limit);
        let longest_us = S::longest_wait_us(limits, waits_for) + S::span_us(limits);
        prop_assert!(reply.retry_after_ms <= oracle::div_ceil(longest_us, 1_000));
    }
    Ok(())
}

/// Checks that only allowed calls write, under any rule, as long as the clock does not step back.
fn a_denial_writes_nothing<S: Subject>(rules: &[Limits], calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    for call in calls {
        let limits = &rules[call.rule];
        now = now.max(call.now::<S>(limits, now));
        let cost = S::cost(call.cost.of(limits));
        let Some((reply, wrote)) = call.make::<S>(&mut key, limits, now) else { continue };
        let takes = reply.allowed > 0 && cost > 0;
        let expected = if takes { Wrote::State } else { Wrote::Nothing };
        prop_assert_eq!(wrote, expected, "{:?} of {:?}", call, limits);
    }
    Ok(())
}

/// Checks that a charge and its immediate refund leave all replies unchanged, at once and later.
fn a_refund_undoes_a_charge<S: Subject>(
    limits: &Limits,
    calls: &[Call],
    charged: Share,
) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    for call in calls {
        now = now.max(call.now::<S>(limits, now));
        call.make::<S>(&mut key, limits, now);
    }
    let (rule, cost) = (S::rule(limits), S::cost(charged.of(limits)));
    let before = key.clone();
    if key.carry_out(Verb::Charge, &rule, now, cost).is_err() {
        prop_assert_eq!(key, before);
        return Ok(());
    }
    let refunded = key.carry_out(Verb::Refund, &rule, now, cost).expect("is never refused");
    if !S::REFUND_UNDOES_CHARGE {
        return Ok(());
    }
    prop_assert_eq!(refunded.0, before.act(Verb::Refund, &rule, now, 0).expect("nothing").0);
    let span_us = S::span_us(limits);
    for later in (0..40).map(|sixteenths| now + span_us * sixteenths / 16) {
        for cost in [0, 1, limits.capacity / 2, limits.capacity].map(S::cost) {
            let later = later.min(CLOCK_MAX_US);
            prop_assert_eq!(key.peek(&rule, later, cost), before.peek(&rule, later, cost));
        }
    }
    Ok(())
}

/// Checks that a stored state stays within its documented length.
fn stays_small<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    for call in calls {
        now = call.now::<S>(limits, now);
        call.make::<S>(&mut key, limits, now);
        let Some(bytes) = &key.bytes else { continue };
        let most = match state::decode(bytes).expect("a state") {
            State::LeakyBucket(bucket) if bucket.debt > 0 => 38,
            State::Gcra(_) => 12,
            State::Backoff(_) => 16,
            State::FixedWindow(_) | State::CalendarQuota(_) | State::Banned(_) => 20,
            State::SlidingLog(log) => 20 + 12 * log.entries.len(),
            _ => 29,
        };
        prop_assert!(bytes.len() <= most);
    }
    Ok(())
}

/// Checks that the text of a rule parses as that rule.
fn words_read_as_their_rule<S: Subject>(limits: &Limits) -> TestCaseResult {
    let rule = S::rule(limits);
    // The slots of the setting are overridden by those of the words.
    let of_rule = Slots::new(limits.slots.try_into().expect("small")).expect("in bounds");
    let slots = if limits.aligned { Slots::DEFAULT } else { of_rule };
    for words in [S::words(limits), S::example()] {
        let args: Vec<_> = words.split(' ').map(str::as_bytes).collect();
        let read = request(rule.algorithm(), &args, slots);
        prop_assert!(read.is_ok(), "{words}: {read:?}");
        if words == S::words(limits) {
            prop_assert_eq!(read.map(|request| request.rule), Ok(rule), "{}", words);
        }
    }
    Ok(())
}

macro_rules! suites {
    ($($name:ident: $_algorithm:ident => $subject:ty,)*) => {$(
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn agrees_with_its_model_under_any_clock_and_changing_limits(
                    rules in prop::collection::vec(limits(), 2),
                    calls in any_calls(any_steps(), 2),
                ) {
                    agrees_with_its_model::<$subject>(&rules, &calls)?;
                }

                #[test]
                fn agrees_with_its_model_under_one_rule(
                    rule in limits(),
                    calls in calls(any_steps(), 1),
                ) {
                    agrees_with_its_model::<$subject>(&[rule], &calls)?;
                }

                #[test]
                fn agrees_with_its_model_with_charges_and_refunds(
                    rule in limits(),
                    calls in any_calls(any_steps(), 1),
                ) {
                    agrees_with_its_model::<$subject>(&[rule], &calls)?;
                }

                #[test]
                fn stays_within_its_bound_under_a_steady_clock(
                    rule in limits(),
                    calls in calls(steps(), 1),
                ) {
                    keeps_its_bound::<$subject>(&rule, &calls)?;
                }

                #[test]
                fn treats_an_expired_state_as_missing(
                    rule in limits(),
                    calls in any_calls(any_steps(), 1),
                ) {
                    an_expired_state_is_none::<$subject>(&rule, &calls)?;
                }

                #[test]
                fn adds_at_most_one_span_to_a_wait_when_the_clock_steps_back(
                    rule in limits(),
                    calls in calls(any_steps(), 1),
                ) {
                    a_step_back_adds_one_span::<$subject>(&rule, &calls)?;
                }

                #[test]
                fn writes_only_for_allowed_calls_while_the_clock_runs_forward(
                    rules in prop::collection::vec(limits(), 2),
                    calls in calls(steps(), 2),
                ) {
                    a_denial_writes_nothing::<$subject>(&rules, &calls)?;
                }

                #[test]
                fn keeps_its_state_small(
                    rule in limits(),
                    calls in any_calls(any_steps(), 1),
                ) {
                    stays_small::<$subject>(&rule, &calls)?;
                }

                #[test]
                fn parses_the_text_of_a_rule_as_that_rule(rule in limits()) {
                    words_read_as_their_rule::<$subject>(&rule)?;
                }

                #[test]
                fn replies_the_same_after_a_charge_and_its_refund(
                    rule in limits(),
                    calls in any_calls(steps(), 1),
                    charged in costs(),
                ) {
                    a_refund_undoes_a_charge::<$subject>(&rule, &calls, charged)?;
                }
            }
        }
    )*};
}

crate::for_all_subjects!(suites);

proptest! {
    #![proptest_config(config())]

    /// Checks that a debt is not forgiven because another rule on the key has a smaller limit: two
    /// rules would otherwise refill each other without end.
    #[test]
    fn two_gcra_rules_on_one_key_each_stay_within_their_own_rate(
        rules in prop::collection::vec(limits(), 2),
        calls in calls(steps(), 2),
    ) {
        let (mut key, mut now) = (Key::default(), NOW);
        let mut allowed = [Vec::new(), Vec::new()];
        for call in &calls {
            let limits = &rules[call.rule];
            now = now.max(call.now::<CellRate>(limits, now));
            let cost = call.cost.of(limits);
            if key.call(&CellRate::rule(limits), now, cost).0.allowed > 0 {
                allowed[call.rule].push((now, cost));
                check_bound::<CellRate>(limits, &allowed[call.rule])?;
            }
        }
    }
}
