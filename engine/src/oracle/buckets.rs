//! The models of the two buckets: amounts in whole units and fractions.

use crate::algorithms::{Rule, State, leaky_bucket, token_bucket};
use crate::oracle::model::{
    Limits, Oracle, SPAN_MAX_US, Unexplained, div_ceil, expect_state, smallest,
};
use crate::oracle::subject::{Subject, at_the_rate, earned_in_us, refill};

/// An exact amount: whole units and a fraction over the period of the rule that stored it.
#[derive(Clone, Copy, Default)]
pub(super) struct Amount {
    pub(super) at: i128,
    pub(super) whole: i128,
    pub(super) numerator: i128,
}

/// Returns the capacity in parts. A unit has one part per microsecond of the period.
fn full(limits: &Limits) -> i128 {
    limits.capacity * limits.period_us
}

fn span_us(limits: &Limits) -> i128 {
    div_ceil(full(limits), limits.rate)
}

fn amount(limits: &Limits, at: i128, parts: i128) -> Amount {
    let whole = parts.div_euclid(limits.period_us);
    Amount { at, whole, numerator: parts.rem_euclid(limits.period_us) }
}

/// The model of a token bucket: the tokens left, unless it is full.
#[derive(Clone, Default)]
pub struct TokenBucket {
    pub(super) left: Option<Amount>,
}

impl TokenBucket {
    fn parts(&self, limits: &Limits, now: i128) -> i128 {
        let Some(left) = self.left else {
            return full(limits);
        };
        let fits = left.numerator < limits.period_us;
        let fraction = if fits { left.numerator } else { 0 };
        let held = left.whole * limits.period_us + fraction;
        (held + limits.rate * (now - left.at).max(0)).min(full(limits))
    }
}

impl Oracle for TokenBucket {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let parts = self.parts(limits, now);
        let ahead = self.left.is_some_and(|left| left.at - now > span_us(limits));
        if ahead && parts < full(limits) {
            self.left = Some(amount(limits, now, parts));
        }
        ahead && parts < full(limits)
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        cost * limits.period_us <= self.parts(limits, now)
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        let parts = self.parts(limits, now);
        // A full bucket is not stored, so its old instant does not matter.
        let left = self.left.filter(|_| parts < full(limits));
        let at = left.map_or(now, |left| left.at.max(now));
        self.left = Some(amount(limits, at, parts - cost * limits.period_us));
    }

    fn give(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.take(limits, now, -cost);
        self.left = self.left.filter(|_| self.parts(limits, now) < full(limits));
    }
}

impl TryFrom<State<'_>> for TokenBucket {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, TokenBucket);
        // In debt, the number of tokens is negative.
        let whole = i128::from(state.units) - i128::from(state.debt);
        let numerator = state.fraction.into();
        Ok(Self { left: Some(Amount { at: state.updated.as_us().into(), whole, numerator }) })
    }
}

/// `RL.TOKENBUCKET`
pub struct Token;

impl Subject for Token {
    type Model = TokenBucket;
    fn rule(limits: &Limits) -> Rule {
        Rule::TokenBucket(token_bucket::TokenBucket(refill(limits)))
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::TokenBucket(state) = state else { return None };
        Some(state.updated.as_us())
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

/// The model of a leaky bucket: the queue, unless it is empty.
#[derive(Clone, Default)]
pub struct LeakyBucket {
    pub(super) queued: Option<Amount>,
    /// The units charged beyond the capacity, rounded up; the numerator is the paid part of a unit.
    pub(super) debt: Amount,
}

impl LeakyBucket {
    fn parts(&self, limits: &Limits, now: i128) -> i128 {
        let Some(queued) = self.queued else {
            return 0;
        };
        let fits = queued.numerator < limits.period_us;
        let fraction = if fits { queued.numerator } else { limits.period_us };
        let held = (queued.whole * limits.period_us + fraction).min(full(limits));
        let fits = self.debt.numerator < limits.period_us;
        let paid = if fits { self.debt.numerator } else { 0 };
        let owed = self.debt.whole * limits.period_us - paid;
        (held + owed - limits.rate * (now - queued.at).max(0)).max(0)
    }

    fn holding(limits: &Limits, at: i128, parts: i128) -> Self {
        let queued = Some(amount(limits, at, parts.min(full(limits))));
        let owed = (parts - full(limits)).max(0);
        let whole = div_ceil(owed, limits.period_us);
        let debt = Amount { at, whole, numerator: whole * limits.period_us - owed };
        Self { queued, debt }
    }
}

impl Oracle for LeakyBucket {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let ahead = self.queued.is_some_and(|queued| queued.at - now > span_us(limits));
        if ahead {
            *self = Self::holding(limits, now, self.parts(limits, now));
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        self.parts(limits, now) + cost * limits.period_us <= full(limits)
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        let parts = self.parts(limits, now) + cost * limits.period_us;
        let at = self.queued.map_or(now, |queued| queued.at.max(now));
        *self = Self::holding(limits, at, parts);
    }

    fn give(&mut self, limits: &Limits, now: i128, cost: i128) {
        let parts = self.parts(limits, now) - cost * limits.period_us;
        let at = self.queued.map_or(now, |queued| queued.at.max(now));
        *self = if parts > 0 { Self::holding(limits, at, parts) } else { Self::default() };
    }

    /// Returns the time until the current queue has drained.
    fn wait_us(&self, limits: &Limits, now: i128) -> i128 {
        smallest(SPAN_MAX_US, |us| self.parts(limits, now + us) == 0).unwrap_or(SPAN_MAX_US)
    }
}

impl TryFrom<State<'_>> for LeakyBucket {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, LeakyBucket);
        let (at, whole) = (state.updated.as_us().into(), state.units.into());
        let (debt, fraction) = (state.debt.into(), state.fraction.into());
        let (numerator, paid) = if debt > 0 { (0, fraction) } else { (fraction, 0) };
        Ok(Self {
            queued: Some(Amount { at, whole, numerator }),
            debt: Amount { at, whole: debt, numerator: paid },
        })
    }
}

/// `RL.LEAKYBUCKET`
pub struct Leaky;

impl Subject for Leaky {
    type Model = LeakyBucket;
    fn rule(limits: &Limits) -> Rule {
        Rule::LeakyBucket(leaky_bucket::LeakyBucket(refill(limits)))
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::LeakyBucket(state) = state else { return None };
        Some(state.updated.as_us())
    }
    fn span_us(limits: &Limits) -> i128 {
        earned_in_us(limits, limits.capacity)
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        // If denied, until there is room; if allowed, until the queue before it has drained.
        earned_in_us(limits, cost.max(limits.capacity - cost))
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        at_the_rate(limits, elapsed_us)
    }
}
