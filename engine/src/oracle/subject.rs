//! The algorithms as subjects of a test: rule, model, and what the design promises of each.

use crate::algorithms::Rule;
use crate::bounds::{Limit, Period, Refill, Slots};
use crate::oracle::answer::{Answer, Verb, Wrote};
use crate::oracle::any::AnyOracle;
use crate::oracle::backoff::delays;
use crate::oracle::key::Key;
use crate::oracle::model::{Limits, Oracle, div_ceil};
use crate::oracle::quota::{calendar_of, hours};
use crate::time::Span;

/// An algorithm under test: its rule for given limits, its model, and its bounds.
pub trait Subject {
    /// The naive model, which a stored state can be read into.
    type Model: Oracle + for<'a> TryFrom<crate::algorithms::State<'a>> + 'static;
    /// The algorithm under `limits`.
    fn rule(limits: &Limits) -> Rule;
    /// A cost that it can be asked for.
    fn cost(cost: i128) -> i128 {
        cost
    }
    /// A way in which it can be called.
    fn verb(verb: Verb) -> Verb {
        verb
    }
    /// The time that a state under `limits` may lie ahead of the clock.
    fn span_us(limits: &Limits) -> i128;
    /// The longest that a call of `cost`, which is at most the capacity, waits under a good clock.
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128;
    /// The most that is allowed under a good clock from one call to another `elapsed_us` later,
    /// both included; `None` where nothing is promised for a stretch of that length.
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128>;
    /// How many times the capacity a clock that is set forward, or back, gives at most on top.
    fn bursts(_limits: &Limits, forward: bool) -> i128 {
        i128::from(forward)
    }
}

/// `RL.FIXED`
pub struct Fixed;
/// `RL.SLIDING`
pub struct Sliding;
/// `RL.SLIDINGLOG`
pub struct Log;
/// `RL.TOKENBUCKET`
pub struct Token;
/// `RL.LEAKYBUCKET`
pub struct Leaky;
/// `RL.GCRA`
pub struct CellRate;
/// `RL.BACKOFF`
pub struct Delays;
/// `RL.QUOTA`
pub struct Quotas;

impl Subject for Fixed {
    type Model = super::FixedWindow;
    fn rule(limits: &Limits) -> Rule {
        Rule::FixedWindow(crate::algorithms::fixed_window::FixedWindow {
            limit: limit(limits.capacity),
            window: period(limits),
            aligned: limits.aligned,
        })
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits, _cost: i128) -> i128 {
        limits.period_us
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        // Aligned, both windows may be used up next to their common edge; otherwise the call that
        // opened the first one lies a whole window before the second.
        let twice = 2 * limits.capacity - i128::from(!limits.aligned);
        (elapsed_us < limits.period_us).then_some(twice)
    }
    fn bursts(limits: &Limits, forward: bool) -> i128 {
        // Aligned, the clock may be set to just before an edge, which is one more window.
        i128::from(forward) + i128::from(limits.aligned)
    }
}

impl Subject for Sliding {
    type Model = super::SlidingWindow;
    fn rule(limits: &Limits) -> Rule {
        let (limit, window) = (limit(limits.capacity), period(limits));
        Rule::SlidingWindow(crate::algorithms::sliding_window::SlidingWindow { limit, window })
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        // To the end of a window used up at its start, and until enough of it has faded.
        limits.period_us + div_ceil(limits.period_us * cost, limits.capacity)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        (elapsed_us < limits.period_us).then_some(2 * limits.capacity - 1)
    }
    fn bursts(_limits: &Limits, _forward: bool) -> i128 {
        // Also set back, the clock may show the end of a window, from which the one before has all
        // but faded.
        1
    }
}

impl Subject for Log {
    type Model = super::SlidingLog;
    fn rule(limits: &Limits) -> Rule {
        Rule::SlidingLog(crate::algorithms::sliding_log::SlidingLog {
            limit: limit(limits.capacity),
            window: period(limits),
            slots: slots(limits),
        })
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits, _cost: i128) -> i128 {
        limits.period_us + div_ceil(limits.period_us, limits.slots)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        (elapsed_us < limits.period_us).then_some(limits.capacity)
    }
}

/// Never more than `capacity + rate x t` in any stretch `t`.
fn at_the_rate(limits: &Limits, elapsed_us: i128) -> Option<i128> {
    Some(limits.capacity + limits.rate * elapsed_us / limits.period_us)
}

/// The time to refill, or to drain, `units`.
fn earned_in_us(limits: &Limits, units: i128) -> i128 {
    div_ceil(units * limits.period_us, limits.rate)
}

impl Subject for Token {
    type Model = super::TokenBucket;
    fn rule(limits: &Limits) -> Rule {
        Rule::TokenBucket(crate::algorithms::token_bucket::TokenBucket(quota(limits)))
    }
    fn span_us(limits: &Limits) -> i128 {
        earned_in_us(limits, limits.capacity)
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        earned_in_us(limits, cost)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        at_the_rate(limits, elapsed_us)
    }
}

impl Subject for Leaky {
    type Model = super::LeakyBucket;
    fn rule(limits: &Limits) -> Rule {
        Rule::LeakyBucket(crate::algorithms::leaky_bucket::LeakyBucket(quota(limits)))
    }
    fn span_us(limits: &Limits) -> i128 {
        earned_in_us(limits, limits.capacity)
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        // Denied, until there is room for it; allowed, until what stands before it has drained.
        earned_in_us(limits, cost.max(limits.capacity - cost))
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        at_the_rate(limits, elapsed_us)
    }
}

impl Subject for CellRate {
    type Model = super::Gcra;
    fn rule(limits: &Limits) -> Rule {
        Rule::Gcra(crate::algorithms::gcra::Gcra::new(quota(limits)))
    }
    fn span_us(limits: &Limits) -> i128 {
        Self::longest_wait_us(limits, limits.capacity)
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        let interval_ns = div_ceil(limits.period_us * 1_000, limits.rate);
        div_ceil(cost * interval_ns, 1_000)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        at_the_rate(limits, elapsed_us)
    }
}

impl Subject for Delays {
    type Model = super::Backoff;
    fn rule(limits: &Limits) -> Rule {
        let (attempts, base_us, max_us, forget_us) = delays(limits);
        let [base, max, forget] = [base_us, max_us, forget_us].map(period_of);
        let rule = crate::algorithms::backoff::Backoff::new(limit(attempts), base, max, forget)
            .expect("in bounds");
        Rule::Backoff(rule)
    }
    fn cost(cost: i128) -> i128 {
        cost.min(1)
    }
    fn verb(verb: Verb) -> Verb {
        if verb == Verb::Partly { Verb::Decide } else { verb }
    }
    fn span_us(limits: &Limits) -> i128 {
        delays(limits).3
    }
    fn longest_wait_us(limits: &Limits, _cost: i128) -> i128 {
        delays(limits).2
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        let (attempts, base_us, max_us, forget_us) = delays(limits);
        let (mut most, mut delay_us, mut left_us) = (attempts, base_us, elapsed_us);
        while left_us >= delay_us {
            most += 1;
            left_us -= delay_us;
            delay_us = (delay_us * 2).min(max_us);
        }
        (elapsed_us < forget_us).then_some(most)
    }
    fn bursts(limits: &Limits, forward: bool) -> i128 {
        // What was forgotten too early has its free attempts again, and its short delays.
        let (attempts, base_us, max_us, _) = delays(limits);
        let short = (0..64).take_while(|doublings| base_us << doublings < max_us).count();
        let again = attempts + short as i128 + 1;
        i128::from(forward) * div_ceil(again, limits.capacity)
    }
}

impl Subject for Quotas {
    type Model = super::CalendarQuota;
    fn rule(limits: &Limits) -> Rule {
        Rule::CalendarQuota(crate::algorithms::quota::CalendarQuota {
            limit: limit(limits.capacity),
            calendar: calendar_of(limits),
        })
    }
    fn span_us(limits: &Limits) -> i128 {
        hours(limits).1 * HOUR_US
    }
    fn longest_wait_us(limits: &Limits, _cost: i128) -> i128 {
        Self::span_us(limits)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        // Both periods may be used up next to their common edge.
        (elapsed_us < hours(limits).0 * HOUR_US).then_some(2 * limits.capacity)
    }
    fn bursts(_limits: &Limits, forward: bool) -> i128 {
        // The clock may be set to just before an edge, which is one more period.
        i128::from(forward) + 1
    }
}

const HOUR_US: i128 = 3_600_000_000;

/// A key and its model, side by side.
pub struct Twin<S: Subject> {
    /// The key as a server would hold it.
    pub key: Key,
    /// What it has to answer.
    pub model: S::Model,
}

impl<S: Subject> Default for Twin<S> {
    fn default() -> Self {
        Self { key: Key::default(), model: S::Model::default() }
    }
}

impl<S: Subject> Twin<S> {
    /// Makes a call on both and compares. No answer: both refuse it, and nothing is changed.
    ///
    /// # Errors
    ///
    /// The difference: in a number, in whether something is written, or in the retry promised.
    pub fn call(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Result<Option<Answer>, String> {
        call_both(&mut self.key, &mut self.model, verb, (&S::rule(limits), limits), now, cost)
    }
}

/// See [`Twin::call`].
pub(super) fn call_both(
    key: &mut Key,
    model: &mut dyn AnyOracle,
    verb: Verb,
    (rule, limits): (&Rule, &Limits),
    now: i128,
    cost: i128,
) -> Result<Option<Answer>, String> {
    let before = key.bytes.clone();
    let expected = model.act(verb, limits, now, cost);
    let done = key.carry_out(verb, rule, now, cost).ok();
    let said = match done {
        _ if done != expected => format!("{done:?}, expected {expected:?}"),
        None if key.bytes != before => "it changed what it refused".to_owned(),
        None => return Ok(None),
        Some((_, Wrote::State)) if key.lapses_at <= now => {
            "it stored a state that means nothing".to_owned()
        }
        Some((answer, _)) => match check_retry(key, verb, rule, now, cost, answer) {
            Ok(()) => return Ok(Some(answer)),
            Err(said) => said,
        },
    };
    Err(format!("{verb:?} {cost} at {now} of {limits:?} on {before:02x?}: {said}"))
}

/// Denied until exactly the promised instant, allowed from then on. After a charge or a refund: in
/// debt until then, and no longer.
///
/// # Errors
///
/// What is wrong with the promise.
pub fn check_retry(
    key: &Key,
    verb: Verb,
    rule: &Rule,
    now: i128,
    cost: i128,
    answer: Answer,
) -> Result<(), String> {
    let after_ms = answer.retry_after_ms;
    let retry_at = now + after_ms * 1_000;
    let settles = matches!(verb, Verb::Charge | Verb::Refund);
    let is_done = if settles { after_ms == 0 } else { after_ms < 0 };
    let waits = settles && after_ms > 0;
    let promises_nothing = cost == 0 || is_done || answer.allowed > 0 && !waits;
    if promises_nothing || retry_at > crate::time::Instant::CLOCK_MAX.as_us().into() {
        return Ok(());
    }
    // To charge nothing asks whether there is a debt.
    let (verb, cost) = if settles { (Verb::Charge, 0) } else { (verb, cost) };
    let allowed_at = |at| key.act(verb, rule, at, cost).is_ok_and(|(answer, _)| answer.allowed > 0);
    check_promise(now, after_ms, allowed_at)
}

/// Allowed after so many ms, and not 1 ms earlier.
pub(super) fn check_promise(
    now: i128,
    after_ms: i128,
    allowed_at: impl Fn(i128) -> bool,
) -> Result<(), String> {
    let retry_at = now + after_ms * 1_000;
    if after_ms == 0 {
        Err("denied without a wait".to_owned())
    } else if !allowed_at(retry_at) {
        Err(format!("denied at the promised time, {after_ms} ms later"))
    } else if allowed_at(retry_at - 1_000) {
        Err(format!("allowed 1 ms before the promised {after_ms} ms"))
    } else {
        Ok(())
    }
}

fn limit(units: i128) -> Limit {
    Limit::new(units.try_into().expect("positive")).expect("a limit in bounds")
}

fn period(limits: &Limits) -> Period {
    period_of(limits.period_us)
}

fn period_of(us: i128) -> Period {
    Period::new(Span::from_us(us.try_into().expect("positive"))).expect("in bounds")
}

fn slots(limits: &Limits) -> Slots {
    Slots::new(limits.slots.try_into().expect("small")).expect("in bounds")
}

fn quota(limits: &Limits) -> Refill {
    Refill::new(limit(limits.capacity), limit(limits.rate), period(limits)).expect("in bounds")
}
