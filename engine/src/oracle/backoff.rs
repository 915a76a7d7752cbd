//! The model of growing delays: the attempts that count, and the instant of the last one.

use crate::algorithms::{Rule, State, backoff};
use crate::oracle::model::{Limits, Oracle, Unexplained, div_ceil, expect_state};
use crate::oracle::reply::Verb;
use crate::oracle::subject::{Subject, duration, limit, period_of};

/// Derives free attempts, base, max and forget from any limits.
pub fn delays(limits: &Limits) -> (i128, i128, i128, i128) {
    let attempts = limits.capacity.min(1_000_000);
    let forget_us = limits.period_us.max(1_001);
    let base_us = (forget_us / (limits.rate % 97 + 2)).max(1_000);
    let longest_us = forget_us - 1;
    let max_us = if limits.aligned { longest_us } else { base_us * (limits.slots % 13 + 1) };
    (attempts, base_us, max_us.clamp(base_us, longest_us), forget_us)
}

/// The attempts that were allowed or charged, and the instant of the last one.
#[derive(Clone, Default)]
pub struct Backoff {
    pub(super) count: i128,
    pub(super) last: i128,
}

impl Backoff {
    /// Returns the number of attempts that are not forgotten.
    fn remembered(&self, limits: &Limits, now: i128) -> i128 {
        let (.., forget_us) = delays(limits);
        if now < self.last + forget_us { self.count } else { 0 }
    }

    /// Returns the time from which the next attempt may be made.
    fn next_at(&self, limits: &Limits, now: i128) -> i128 {
        let (attempts, base_us, max_us, _) = delays(limits);
        let paid = self.remembered(limits, now) - attempts;
        if paid < 0 {
            return now;
        }
        let mut delay_us = base_us;
        for _ in 0..paid {
            delay_us = (delay_us * 2).min(max_us);
            if delay_us == max_us {
                break;
            }
        }
        self.last + delay_us.min(max_us)
    }
}

impl Oracle for Backoff {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let (.., forget_us) = delays(limits);
        let ahead = self.count > 0 && self.last - now > forget_us;
        if ahead {
            self.last = now;
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, _cost: i128) -> bool {
        self.next_at(limits, now) <= now
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        let remembered = self.remembered(limits, now);
        self.last = if remembered > 0 { self.last.max(now) } else { now };
        self.count = (remembered + cost).min(u32::MAX.into());
    }

    fn give(&mut self, _limits: &Limits, _now: i128, cost: i128) {
        self.count -= cost.min(self.count);
    }

    fn limit(limits: &Limits) -> i128 {
        delays(limits).0
    }

    fn is_unused(&self, limits: &Limits, now: i128) -> bool {
        self.remembered(limits, now) == 0
    }

    fn remaining(&self, limits: &Limits, now: i128) -> i128 {
        (Self::limit(limits) - self.remembered(limits, now)).max(0)
    }

    fn uses_more_than(&self, limits: &Limits, now: i128, units: i128) -> bool {
        self.remembered(limits, now) > units
    }
}

impl TryFrom<State<'_>> for Backoff {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, Backoff);
        Ok(Self { count: state.count.into(), last: state.last.as_us().into() })
    }
}

/// `RL.BACKOFF`
pub struct Delays;

impl Subject for Delays {
    type Model = Backoff;
    /// A refund keeps the instant of the charge, from which delays are counted.
    const REFUND_UNDOES_CHARGE: bool = false;
    fn rule(limits: &Limits) -> Rule {
        let (attempts, base_us, max_us, forget_us) = delays(limits);
        let [base, max, forget] = [base_us, max_us, forget_us].map(period_of);
        let rule = backoff::Backoff::new(limit(attempts), base, max, forget).expect("in bounds");
        Rule::Backoff(rule)
    }
    fn words(limits: &Limits) -> String {
        let (attempts, base_us, max_us, forget_us) = delays(limits);
        let [base, max, forget] = [base_us, max_us, forget_us].map(duration);
        format!("{attempts} {base} {max} {forget}")
    }
    fn example() -> String {
        "5 10m 20m 1h".to_owned()
    }
    fn cost(cost: i128) -> i128 {
        cost.min(1)
    }
    fn verb(verb: Verb) -> Verb {
        if verb.decides() { Verb::Decide } else { verb }
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::Backoff(state) = state else { return None };
        Some(state.last.as_us())
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
        // A clock set forward forgets attempts too early: all free attempts and all short delays
        // are then available again.
        let (attempts, base_us, max_us, _) = delays(limits);
        let short = (0..64).take_while(|doublings| base_us << doublings < max_us).count();
        let again = attempts + short as i128 + 1;
        i128::from(forward) * div_ceil(again, limits.capacity)
    }
}
