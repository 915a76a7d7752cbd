//! One property suite for all six limiters, against the naive models of `oracle.rs`.
//!
//! A case is a rule or two on one key and a schedule of calls, with a clock that moves as it likes.
//! Calls go through the codec, as in the server: what is compared is what a client would see. Ten
//! thousand cases each; `PROPTEST_CASES=100000` runs more.

use super::oracle::{self, Limits, Oracle};
use super::{
    Cost, FixedWindow, Gcra, Instant, LeakyBucket, Limit, Period, Quota, Rule, SlidingLog,
    SlidingWindow, Slots, Span, TokenBucket, Verdict,
};
use crate::state::{self, Change};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseResult};

/// One call: how far the clock moves before it, which rule makes it, what it takes.
#[derive(Clone, Debug)]
struct Call {
    step: Step,
    rule: usize,
    /// In 1/16 of the capacity, and the units on top.
    cost: (i128, i128),
}

/// How the clock moves: in 1/16 of the time the rule is about, and some microseconds on top.
#[derive(Clone, Copy, Debug)]
enum Step {
    By { sixteenths: i128, us: i128 },
    Days(i128),
}

/// What a client sees, in ms; `allowed` is 1 or 0, `retry_after` -1 for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    allowed: i128,
    remaining: i128,
    retry_after_ms: i128,
    reset_after_ms: i128,
}

/// A key as a server holds it, and when its state lapses under the rule that wrote it.
#[derive(Clone, Debug, Default)]
struct Key {
    bytes: Option<Vec<u8>>,
    lapses_at: i128,
}

impl Key {
    /// A deciding call: what it answers, and whether it wrote.
    fn call(&mut self, rule: &Rule, now: i128, cost: i128) -> (Answer, bool) {
        let stored = self.bytes.as_deref().map(|bytes| state::decode(bytes).expect("a state"));
        let outcome = rule.decide(stored, instant(now), self::cost(cost)).expect("same algorithm");
        let decision = outcome.decision;
        let written = outcome
            .next
            .map(|next| (state::encode(&next.state), i128::from(next.lapses_at.as_us())));
        let (allowed, retry_after_ms) = match decision.verdict {
            Verdict::Allowed { wait } => (1, ms(wait)),
            Verdict::Denied { retry_after } => (0, ms(retry_after)),
            Verdict::Impossible => (0, -1),
        };
        let answer = Answer {
            allowed,
            remaining: decision.remaining.into(),
            retry_after_ms,
            reset_after_ms: ms(decision.reset_after),
        };
        let writes = written.is_some();
        if let Some((change, lapses_at)) = written {
            self.apply(change);
            self.lapses_at = lapses_at;
        }
        (answer, writes)
    }

    /// What a call would answer.
    fn peek(&self, rule: &Rule, now: i128, cost: i128) -> Answer {
        self.clone().call(rule, now, cost).0
    }

    fn apply(&mut self, change: Change) {
        let bytes = self.bytes.get_or_insert_default();
        match change {
            Change::Whole(whole) => *bytes = whole.as_slice().to_vec(),
            Change::Rewrite(whole) => *bytes = whole,
            Change::Patch { offset, entry } => {
                assert!(offset <= bytes.len(), "a patch leaves no gap");
                bytes.truncate(offset);
                bytes.extend_from_slice(&entry);
            }
        }
    }
}

fn ms(span: Span) -> i128 {
    span.as_ms_ceil().into()
}

fn instant(us: i128) -> Instant {
    Instant::from_us(us.try_into().expect("a time after 1970"))
}

fn cost(units: i128) -> Cost {
    Cost::new(units.try_into().expect("no negative cost")).expect("a cost in bounds")
}

fn limit(units: i128) -> Limit {
    Limit::new(units.try_into().expect("positive")).expect("a limit in bounds")
}

fn period(limits: &Limits) -> Period {
    Period::new(Span::from_us(limits.period_us.try_into().expect("positive"))).expect("in bounds")
}

fn slots(limits: &Limits) -> Slots {
    Slots::new(limits.slots.try_into().expect("small")).expect("in bounds")
}

fn quota(limits: &Limits) -> Quota {
    Quota::new(limit(limits.capacity), limit(limits.rate), period(limits)).expect("in bounds")
}

/// An algorithm under test: its rule for given limits, its model, and its bounds.
trait Subject {
    type Model: Oracle;
    /// The algorithm under `limits`.
    fn rule(limits: &Limits) -> Rule;
    /// The time that a state under `limits` may lie ahead of the clock.
    fn span_us(limits: &Limits) -> i128;
    /// The longest a call waits under a good clock.
    fn longest_wait_us(limits: &Limits) -> i128 {
        Self::span_us(limits)
    }
    /// The most that may be allowed at the times of `calls`, the last one included, in any stretch
    /// that ends with the last one: fails when they are too many.
    fn check_bound(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult;
}

/// No more than `limit` within any time shorter than the window.
fn check_windows(limits: &Limits, calls: &[(i128, i128)], limit: i128) -> TestCaseResult {
    let Some((end, _)) = calls.last() else { return Ok(()) };
    let within = calls.iter().filter(|(at, _)| *at > end - limits.period_us);
    let sum: i128 = within.map(|(_, cost)| cost).sum();
    prop_assert!(sum <= limit, "{sum} units in one window, more than {limit}");
    Ok(())
}

/// No more than `capacity + rate x t` in any stretch `t`.
fn check_rate(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
    let Some((end, _)) = calls.last() else { return Ok(()) };
    let mut sum = 0;
    for (start, cost) in calls.iter().rev() {
        sum += cost;
        let bound = limits.capacity * limits.period_us + limits.rate * (end - start);
        prop_assert!(sum * limits.period_us <= bound, "{sum} units from {start} to {end}");
    }
    Ok(())
}

struct Fixed;
impl Subject for Fixed {
    type Model = oracle::FixedWindow;
    fn rule(limits: &Limits) -> Rule {
        Rule::FixedWindow(FixedWindow {
            limit: limit(limits.capacity),
            window: period(limits),
            aligned: limits.aligned,
        })
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn check_bound(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
        // Aligned, both windows may be used up next to their common edge; otherwise the call that
        // opened the first one lies a whole window before the second.
        check_windows(limits, calls, 2 * limits.capacity - i128::from(!limits.aligned))
    }
}

struct Sliding;
impl Subject for Sliding {
    type Model = oracle::SlidingWindow;
    fn rule(limits: &Limits) -> Rule {
        let (limit, window) = (limit(limits.capacity), period(limits));
        Rule::SlidingWindow(SlidingWindow { limit, window })
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits) -> i128 {
        2 * limits.period_us
    }
    fn check_bound(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
        check_windows(limits, calls, 2 * limits.capacity - 1)
    }
}

struct Log;
impl Subject for Log {
    type Model = oracle::SlidingLog;
    fn rule(limits: &Limits) -> Rule {
        Rule::SlidingLog(SlidingLog {
            limit: limit(limits.capacity),
            window: period(limits),
            slots: slots(limits),
        })
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits) -> i128 {
        limits.period_us + oracle::div_ceil(limits.period_us, limits.slots)
    }
    fn check_bound(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
        check_windows(limits, calls, limits.capacity)
    }
}

struct Token;
impl Subject for Token {
    type Model = oracle::TokenBucket;
    fn rule(limits: &Limits) -> Rule {
        Rule::TokenBucket(TokenBucket(quota(limits)))
    }
    fn span_us(limits: &Limits) -> i128 {
        oracle::div_ceil(limits.capacity * limits.period_us, limits.rate)
    }
    fn check_bound(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
        check_rate(limits, calls)
    }
}

struct Leaky;
impl Subject for Leaky {
    type Model = oracle::LeakyBucket;
    fn rule(limits: &Limits) -> Rule {
        Rule::LeakyBucket(LeakyBucket(quota(limits)))
    }
    fn span_us(limits: &Limits) -> i128 {
        Token::span_us(limits)
    }
    fn check_bound(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
        check_rate(limits, calls)
    }
}

struct CellRate;
impl Subject for CellRate {
    type Model = oracle::Gcra;
    fn rule(limits: &Limits) -> Rule {
        Rule::Gcra(Gcra::new(quota(limits)))
    }
    fn span_us(limits: &Limits) -> i128 {
        let interval_ns = oracle::div_ceil(limits.period_us * 1_000, limits.rate);
        oracle::div_ceil(limits.capacity * interval_ns, 1_000)
    }
    fn check_bound(limits: &Limits, calls: &[(i128, i128)]) -> TestCaseResult {
        check_rate(limits, calls)
    }
}

const UNITS_MAX: i128 = Limit::MAX as i128;
const NOW: i128 = 1_800_000_000_000_000;
const CLOCK_MAX: i128 = Instant::CLOCK_MAX.as_us() as i128;
const DAY_US: i128 = 86_400_000_000;

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

/// Limits that every algorithm accepts: where a bucket would not, its rate is moved into bounds.
fn limits() -> impl Strategy<Value = Limits> {
    let slots = prop_oneof![Just(16_i128), Just(1_024), Just(65_536)];
    (units(), units(), periods_us(), any::<bool>(), slots).prop_map(
        |(capacity, rate, period_us, aligned, slots)| {
            let fastest = (period_us * i128::from(Quota::RATE_MAX_PER_US)).min(UNITS_MAX);
            let longest_us = i128::from(Quota::REFILL_MAX.as_us());
            let slowest = oracle::div_ceil(capacity * period_us, longest_us).max(1);
            let rate = rate.clamp(slowest.min(fastest), fastest);
            // A huge capacity over a long period has no rate that is quick enough.
            let capacity = capacity.min(longest_us * rate / period_us).max(1);
            Limits { capacity, rate, period_us, aligned, slots }
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

fn costs() -> impl Strategy<Value = (i128, i128)> {
    prop_oneof![
        8 => Just((0, 1)),
        3 => (0..=16_i128, 0..=3_i128),
        1 => Just((0, 0)),
        1 => Just((17, 1)),
    ]
}

fn calls(steps: impl Strategy<Value = Step>, rules: usize) -> impl Strategy<Value = Vec<Call>> {
    let call = (steps, 0..rules, costs());
    prop::collection::vec(call.prop_map(|(step, rule, cost)| Call { step, rule, cost }), 1..40)
}

impl Call {
    fn now<S: Subject>(&self, limits: &Limits, now: i128) -> i128 {
        let moved = match self.step {
            Step::By { sixteenths, us } => now + S::span_us(limits) * sixteenths / 16 + us,
            Step::Days(days) => now + days * DAY_US,
        };
        moved.clamp(0, CLOCK_MAX)
    }

    fn cost(&self, limits: &Limits) -> i128 {
        let (sixteenths, units) = self.cost;
        (limits.capacity * sixteenths / 16 + units).min(UNITS_MAX)
    }
}

fn config() -> Config {
    let cases = Config::default().cases.max(10_000);
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// The whole answer, as the model gives it by asking one question again and again.
fn expected<O: Oracle>(model: &O, limits: &Limits, now: i128, cost: i128) -> Answer {
    let mut after = model.clone();
    let (allowed, retry_after_ms) = if cost > limits.capacity {
        (0, -1)
    } else if cost == 0 || model.would_allow(limits, now, cost) {
        (1, oracle::div_ceil(model.wait_us(limits, now), 1_000))
    } else {
        (0, oracle::retry_after_ms(model, limits, now, cost))
    };
    if allowed == 1 && cost > 0 {
        after.take(limits, now, cost);
    }
    Answer {
        allowed,
        remaining: oracle::remaining(&after, limits, now),
        retry_after_ms,
        reset_after_ms: oracle::reset_after_ms(&after, limits, now),
    }
}

/// Verdict and numbers are the model's, whatever the clock does and whichever rule calls; nothing
/// is written but by allowed calls and repairs; a retry is neither too late nor too early.
fn agrees_with_its_model<S: Subject>(rules: &[Limits], calls: &[Call]) -> TestCaseResult {
    let (mut key, mut model, mut now) = (Key::default(), S::Model::default(), NOW);
    for call in calls {
        let limits = &rules[call.rule];
        let rule = S::rule(limits);
        now = call.now::<S>(limits, now);
        let cost = call.cost(limits);

        let mut settled = model.clone();
        let repaired = settled.repair(limits, now);
        let expected = expected(&settled, limits, now, cost);
        let (answer, wrote) = key.call(&rule, now, cost);
        prop_assert_eq!(answer, expected, "{:?} at {} of {:?}", call, now, limits);

        let takes = cost > 0 && answer.allowed == 1;
        prop_assert_eq!(wrote, takes || (cost > 0 && repaired));
        if cost > 0 {
            model = settled;
        }
        if takes {
            model.take(limits, now, cost);
        }
        if wrote {
            prop_assert!(key.lapses_at > now, "a stored state means something");
        }
        check_retry(&key, &rule, now, cost, answer)?;
    }
    Ok(())
}

/// Denied until exactly the promised instant, allowed from then on.
fn check_retry(key: &Key, rule: &Rule, now: i128, cost: i128, answer: Answer) -> TestCaseResult {
    let retry_at = now + answer.retry_after_ms * 1_000;
    if answer.allowed == 1 || answer.retry_after_ms < 0 || cost == 0 || retry_at > CLOCK_MAX {
        return Ok(());
    }
    prop_assert!(answer.retry_after_ms > 0, "a denial has a wait");
    prop_assert_eq!(key.peek(rule, retry_at, cost).allowed, 1, "at the promised time");
    prop_assert_eq!(key.peek(rule, retry_at - 1_000, cost).allowed, 0, "1 ms before");
    Ok(())
}

/// Under one rule and a good clock, never more than the algorithm's bound.
fn keeps_its_bound<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now, mut allowed) = (Key::default(), NOW, Vec::new());
    for call in calls {
        now = now.max(call.now::<S>(limits, now));
        let cost = call.cost(limits);
        if key.call(&S::rule(limits), now, cost).0.allowed == 1 {
            allowed.push((now, cost));
            S::check_bound(limits, &allowed)?;
        }
    }
    Ok(())
}

/// A state that has lapsed under the rule that wrote it decides as if there were none.
fn a_lapsed_state_is_none<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    let rule = S::rule(limits);
    for call in calls {
        now = call.now::<S>(limits, now);
        let cost = call.cost(limits);
        key.call(&rule, now, cost);
        let later = key.lapses_at.max(now);
        if key.bytes.is_none() || later > CLOCK_MAX {
            continue;
        }
        let mut none = Key::default();
        let mut lapsed = key.clone();
        prop_assert_eq!(lapsed.call(&rule, later, cost), none.call(&rule, later, cost));
        if cost > 0 {
            prop_assert!(none.bytes.is_none() || lapsed.bytes == none.bytes);
        }
        // One microsecond before, something is still owed.
        if key.lapses_at > now {
            let before = key.peek(&rule, key.lapses_at - 1, 0);
            prop_assert!(before.reset_after_ms > 0);
        }
    }
    Ok(())
}

/// However the clock steps, nobody waits longer than under a good one plus one span.
fn a_step_back_adds_one_span<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    let longest_us = S::longest_wait_us(limits) + S::span_us(limits);
    for call in calls {
        now = call.now::<S>(limits, now);
        let (answer, _) = key.call(&S::rule(limits), now, call.cost(limits));
        prop_assert!(answer.retry_after_ms <= oracle::div_ceil(longest_us, 1_000));
    }
    Ok(())
}

/// What is stored stays within the bytes that the design allows.
fn stays_small<S: Subject>(limits: &Limits, calls: &[Call]) -> TestCaseResult {
    let (mut key, mut now) = (Key::default(), NOW);
    for call in calls {
        now = call.now::<S>(limits, now);
        let cost = call.cost(limits);
        key.call(&S::rule(limits), now, cost);
        let Some(bytes) = &key.bytes else { continue };
        let most = match state::decode(bytes).expect("a state") {
            super::State::Gcra(_) => 12,
            super::State::FixedWindow(_) => 24,
            super::State::SlidingLog(log) => 24 + 12 * log.entries.len(),
            _ => 32,
        };
        prop_assert!(bytes.len() <= most);
    }
    Ok(())
}

macro_rules! suite {
    ($name:ident, $subject:ty) => {
        mod $name {
            use super::*;

            proptest! {
                #![proptest_config(config())]

                #[test]
                fn agrees_with_its_model_under_any_clock_and_changing_limits(
                    rules in prop::collection::vec(limits(), 2),
                    calls in calls(any_steps(), 2),
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
                fn keeps_its_bound_under_a_good_clock(
                    rule in limits(),
                    calls in calls(steps(), 1),
                ) {
                    keeps_its_bound::<$subject>(&rule, &calls)?;
                }

                #[test]
                fn takes_a_lapsed_state_for_none(
                    rule in limits(),
                    calls in calls(any_steps(), 1),
                ) {
                    a_lapsed_state_is_none::<$subject>(&rule, &calls)?;
                }

                #[test]
                fn adds_at_most_one_span_when_the_clock_steps_back(
                    rule in limits(),
                    calls in calls(any_steps(), 1),
                ) {
                    a_step_back_adds_one_span::<$subject>(&rule, &calls)?;
                }

                #[test]
                fn keeps_its_state_small(
                    rule in limits(),
                    calls in calls(any_steps(), 1),
                ) {
                    stays_small::<$subject>(&rule, &calls)?;
                }
            }
        }
    };
}

suite!(fixed_window, Fixed);
suite!(sliding_window, Sliding);
suite!(sliding_log, Log);
suite!(token_bucket, Token);
suite!(leaky_bucket, Leaky);
suite!(gcra, CellRate);

proptest! {
    #![proptest_config(config())]

    /// The trap of a debt forgiven because a caller's limit is smaller: two rules on one key would
    /// refill each other without end.
    #[test]
    fn two_rules_on_one_key_never_earn_gcra_more_than_its_own_rate(
        rules in prop::collection::vec(limits(), 2),
        calls in calls(steps(), 2),
    ) {
        let (mut key, mut now) = (Key::default(), NOW);
        let mut allowed = [Vec::new(), Vec::new()];
        for call in &calls {
            let limits = &rules[call.rule];
            now = now.max(call.now::<CellRate>(limits, now));
            let cost = call.cost(limits);
            if key.call(&CellRate::rule(limits), now, cost).0.allowed == 1 {
                allowed[call.rule].push((now, cost));
                CellRate::check_bound(limits, &allowed[call.rule])?;
            }
        }
    }
}
