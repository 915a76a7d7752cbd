//! The algorithms under test: for each the rule, the model, and the documented bounds.

use crate::algorithms::{Argument, Rule, State};
use crate::bounds::{Limit, Period, Refill};
use crate::oracle::key::Key;
use crate::oracle::model::{Limits, Oracle, Unexplained, div_ceil};
use crate::oracle::reply::{AnyOracle, Reply, Verb, Wrote};
use crate::policy::duration::duration_text;
use crate::time::Span;

/// An algorithm under test: its rule for given limits, its model, and its bounds.
pub trait Subject {
    /// The naive model. A stored state can be converted to it.
    type Model: Oracle + for<'a> TryFrom<State<'a>, Error = Unexplained> + 'static;
    /// Whether a charge followed by its refund leaves all later replies as they were.
    const REFUND_UNDOES_CHARGE: bool = true;
    /// Returns the rule of `limits`.
    fn rule(limits: &Limits) -> Rule;
    /// Returns the arguments of that rule, as they follow the algorithm's name in a call.
    fn words(limits: &Limits) -> String {
        let mut numbers = [limits.capacity, limits.rate].into_iter();
        let word = |argument: &Argument| match argument {
            Argument::Number => numbers.next().expect("at most two numbers").to_string(),
            Argument::Duration => duration(limits.period_us),
        };
        let arguments = Self::rule(limits).algorithm().arguments();
        arguments.iter().map(word).collect::<Vec<_>>().join(" ")
    }
    /// Returns the arguments of a small rule: 5 units per hour or per day.
    fn example() -> String {
        Self::words(&SMALL)
    }
    /// Returns one of the instants in a state, in microseconds; `None` for another algorithm's
    /// state.
    fn about_us(state: &State<'_>) -> Option<u64>;
    /// Converts a state for a single deciding call under `limits`. A subject may also accept states
    /// that no calls can have left, for which the model explains this call but no later ones.
    ///
    /// # Errors
    ///
    /// Returns [`Unexplained`] for a state that is not accepted.
    fn explain(state: State<'_>, _limits: &Limits) -> Result<Self::Model, Unexplained> {
        Self::Model::try_from(state)
    }
    /// Converts `cost` to one that the algorithm accepts.
    fn cost(cost: i128) -> i128 {
        cost
    }
    /// Converts `verb` to one that the algorithm accepts.
    fn verb(verb: Verb) -> Verb {
        verb
    }
    /// Returns the longest time by which a state under `limits` may lie ahead of the clock.
    fn span_us(limits: &Limits) -> i128;
    /// Returns the longest time that a call of `cost` may have to wait under a steady clock. `cost`
    /// is at most the capacity.
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128;
    /// Returns the most units that a steady clock allows in a stretch of `elapsed_us`, with the
    /// calls at its start and at its end included; `None` if no bound applies to such a stretch.
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128>;
    /// Returns the largest number of full capacities that one setting of the clock can add.
    /// `forward` is true if the clock is set forward, false if it is set back.
    fn bursts(_limits: &Limits, forward: bool) -> i128 {
        i128::from(forward)
    }
}

/// The limits of [`Subject::example`].
const SMALL: Limits =
    Limits { capacity: 5, rate: 5, period_us: 3_600_000_000, aligned: false, slots: 1_024 };

/// Returns the bound `capacity + rate x t` for a stretch of time `t`.
pub(super) fn at_the_rate(limits: &Limits, elapsed_us: i128) -> Option<i128> {
    Some(limits.capacity + limits.rate * elapsed_us / limits.period_us)
}

/// Returns the time in which `units` refill or drain.
pub(super) fn earned_in_us(limits: &Limits, units: i128) -> i128 {
    div_ceil(units * limits.period_us, limits.rate)
}

/// A key and its model.
pub struct Twin<S: Subject> {
    /// The key as a server would store it.
    pub key: Key,
    /// The model, which gives the expected replies.
    pub model: S::Model,
}

impl<S: Subject> Default for Twin<S> {
    fn default() -> Self {
        Self { key: Key::default(), model: S::Model::default() }
    }
}

impl<S: Subject> Twin<S> {
    /// Makes a call on the key and on the model, and compares them. Returns `None` if both refuse
    /// it and nothing changes.
    ///
    /// # Errors
    ///
    /// Returns the difference: in a number, in a write, or in the promised retry time.
    pub fn call(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Result<Option<Reply>, String> {
        call_both(&mut self.key, &mut self.model, verb, (&S::rule(limits), limits), now, cost)
    }
}

/// Makes a call on a key and on its model, and compares them, as [`Twin::call`] does.
pub(super) fn call_both(
    key: &mut Key,
    model: &mut dyn AnyOracle,
    verb: Verb,
    (rule, limits): (&Rule, &Limits),
    now: i128,
    cost: i128,
) -> Result<Option<Reply>, String> {
    let before = key.bytes.clone();
    let expected = model.act(verb, limits, now, cost);
    let done = key.carry_out(verb, rule, now, cost).ok();
    let said = match done {
        _ if done != expected => format!("{done:?}, expected {expected:?}"),
        None if key.bytes != before => "it changed what it refused".to_owned(),
        None => return Ok(None),
        Some((_, Wrote::State)) if key.expires_at <= now => {
            "it stored a state that means nothing".to_owned()
        }
        // Only a ban lets a charge or a refund wait for something that it does not store.
        Some((reply, Wrote::Nothing)) if cost > 0 && !verb.decides() => return Ok(Some(reply)),
        Some((reply, _)) => match check_retry(key, verb, rule, now, cost, reply) {
            Ok(()) => return Ok(Some(reply)),
            Err(said) => said,
        },
    };
    Err(format!("{verb:?} {cost} at {now} of {limits:?} on {before:02x?}: {said}"))
}

/// Checks that a call is denied before the promised instant, and allowed from then on. After a
/// charge or a refund, checks that the key is in debt before that instant, and no longer from then
/// on.
///
/// # Errors
///
/// Returns a description of the broken promise.
pub fn check_retry(
    key: &Key,
    verb: Verb,
    rule: &Rule,
    now: i128,
    cost: i128,
    reply: Reply,
) -> Result<(), String> {
    let after_ms = reply.retry_after_ms;
    let retry_at = now + after_ms * 1_000;
    let settles = !verb.decides();
    let is_done = if settles { after_ms == 0 } else { after_ms < 0 };
    let waits = settles && after_ms > 0;
    // A call of cost 0 stores no repair, so its wait can start again with each call.
    let promises_nothing = cost == 0 || is_done || reply.allowed > 0 && !waits;
    if promises_nothing || retry_at > crate::time::Instant::CLOCK_MAX.as_us().into() {
        return Ok(());
    }
    // A charge of 0 reports if there is a debt.
    let (verb, cost) = if settles { (Verb::Charge, 0) } else { (verb, cost) };
    let allowed_at = |at| key.act(verb, rule, at, cost).is_ok_and(|(reply, _)| reply.allowed > 0);
    check_promise(now, after_ms, allowed_at)
}

/// Checks that a call is allowed after `after_ms`, and not 1 ms earlier. `allowed_at` makes the
/// call.
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

/// Formats a duration.
pub(super) fn duration(us: i128) -> String {
    duration_text(Span::from_us(us.try_into().expect("positive")))
}

/// Returns the limit of `units`.
pub(super) fn limit(units: i128) -> Limit {
    Limit::new(units.try_into().expect("positive")).expect("a limit in bounds")
}

/// Returns the period of `limits`.
pub(super) fn period(limits: &Limits) -> Period {
    period_of(limits.period_us)
}

/// Returns the period of `us` microseconds.
pub(super) fn period_of(us: i128) -> Period {
    Period::new(Span::from_us(us.try_into().expect("positive"))).expect("in bounds")
}

/// Returns the refill of a bucket under `limits`.
pub(super) fn refill(limits: &Limits) -> Refill {
    Refill::new(limit(limits.capacity), limit(limits.rate), period(limits)).expect("in bounds")
}
