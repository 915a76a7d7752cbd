//! Growing delays: some attempts are free, and each further one waits longer than the one before.
//!
//! The state is the number of attempts allowed or charged, and the instant of the last one. Once
//! all free attempts are used, the next attempt is allowed `base` after the last one. The delay
//! then doubles with each attempt, up to `max`. The state expires `forget` after the last attempt.
//!
//! ```text
//! attempts 3, base 1 s, max 8 s:   0 0 0   1   3       7               15       23 s ...
//!                                  free    +1  +2      +4              +8       +8
//! ```
//!
//! Attempts are counted one by one: a call has no cost. A denied attempt changes nothing. To count
//! a denied attempt too, the caller charges it, which restarts the delay. A refund takes one
//! attempt off the count and keeps the instant of the last one.
//!
//! In any stretch of time shorter than `forget`, at most `attempts` calls are allowed, plus one for
//! each delay that has passed. In the example, 5 calls are allowed from 0 s to 3 s: 3 free ones,
//! and one after each of two delays.
//!
//! Source: the truncated exponential backoff of Ethernet, IEEE 802.3. There, senders delay
//! themselves; here, the rule denies attempts that come too early.

use crate::bounds::{Cost, Limit, Period};
use crate::call::{Limiter, Standing};
use crate::decision::{Decision, Next};
use crate::fields::{Field, Fields};
use crate::time::{Instant, Span};

/// The rule: `attempts` are free, then delays grow from `base` to `max`. The count expires after
/// `forget`.
///
/// Packed, so that it does not enlarge the rules of the other algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(4))]
pub struct Backoff {
    attempts: u32,
    base: Period,
    max: Period,
    forget: Period,
}

/// The reason why four values, each in range, do not form a valid [`Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackoffError {
    /// There are more than [`Backoff::ATTEMPTS_MAX`] free attempts.
    TooManyAttempts,
    /// `base` is above `max`.
    BaseAboveMax,
    /// `max` is not below `forget`.
    MaxNotBelowForget,
}

/// The stored count of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The instant of the last attempt.
    pub last: Instant,
    /// The number of attempts, at least 1: a count of 0 is not stored.
    pub count: u64,
}

impl State {
    /// The largest count; further attempts do not raise it. The delay reaches `max` long before.
    pub const COUNT_MAX: u64 = u32::MAX as u64;
}

/// The attempts as seen at one instant.
struct AttemptsView<'a> {
    rule: &'a Backoff,
    now: Instant,
    last: Instant,
    count: u64,
    repaired: bool,
}

impl Limiter<'_> for Backoff {
    type State = State;
    type NewState = State;

    /// Returns the attempts at `now`. If the clock stepped back, the last attempt may lie after
    /// `now`: it still counts, but is moved to `now` if it lies ahead by more than `forget`.
    #[inline(always)]
    fn standing(&self, stored: Option<State>, now: Instant) -> impl Standing<NewState = State> {
        let none = AttemptsView { rule: self, now, last: now, count: 0, repaired: false };
        let forget = { self.forget }.span();
        match stored {
            Some(State { last, count }) if last.since(now) > forget => {
                AttemptsView { last: now, count, repaired: true, ..none }
            }
            Some(State { last, count }) if now < last.after(forget) => {
                AttemptsView { last, count, ..none }
            }
            _ => none,
        }
    }
}

impl Standing for AttemptsView<'_> {
    type NewState = State;

    fn limit(&self) -> Limit {
        self.rule.attempts()
    }

    fn is_repaired(&self) -> bool {
        self.repaired
    }

    fn has_room_for(&self, _cost: Cost) -> bool {
        self.clear_in().is_zero()
    }

    fn room_in(&self, _cost: Cost) -> Span {
        self.clear_in()
    }

    fn used(&self) -> u128 {
        self.count.into()
    }

    /// Returns the time until the next attempt is allowed.
    fn clear_in(&self) -> Span {
        match self.count.checked_sub(self.rule.attempts.into()) {
            Some(paid) => self.last.after(self.rule.delay(paid)).since(self.now),
            None => Span::ZERO,
        }
    }

    fn take(&mut self, cost: Cost) {
        self.count = self.count.saturating_add(cost.units()).min(State::COUNT_MAX);
        // If the clock was set back, the later instant stays, so that the delay is not shortened.
        self.last = self.last.max(self.now);
    }

    fn give_back(&mut self, cost: Cost) {
        self.count = self.count.saturating_sub(cost.units());
    }

    fn remaining(&self) -> u64 {
        u64::from(self.rule.attempts).saturating_sub(self.count)
    }

    fn reset_after(&self) -> Span {
        match self.count {
            0 => Span::ZERO,
            _ => self.last.after({ self.rule.forget }.span()).since(self.now),
        }
    }

    fn next(self, _decision: &Decision) -> Next<State> {
        let forget = { self.rule.forget }.span();
        let state = State { last: self.last, count: self.count };
        Next::drifting(self.last.after(forget), forget, state)
    }
}

impl Fields<2> for Backoff {
    type Stored = State;
    const FIELDS: [Field; 2] =
        [Field::instant("last_us"), Field::new("attempts", 1, State::COUNT_MAX)];

    fn numbers(state: &State) -> [u64; 2] {
        [state.last.as_us(), state.count]
    }

    fn state([last_us, count]: [u64; 2]) -> Option<State> {
        Some(State { last: Instant::from_us(last_us), count })
    }
}

impl Backoff {
    /// The largest number of free attempts.
    pub const ATTEMPTS_MAX: Limit = Limit::ATTEMPTS_MAX;

    /// Makes a rule with `attempts` free attempts and delays from `base` to `max`, whose state
    /// expires after `forget`.
    ///
    /// # Errors
    ///
    /// Returns the first [`BackoffError`] that applies, in the order of its variants.
    pub fn new(
        attempts: Limit,
        base: Period,
        max: Period,
        forget: Period,
    ) -> Result<Self, BackoffError> {
        let few = u32::try_from(attempts.units()).ok().filter(|_| attempts <= Self::ATTEMPTS_MAX);
        let Some(attempts) = few else {
            return Err(BackoffError::TooManyAttempts);
        };
        if base > max {
            Err(BackoffError::BaseAboveMax)
        } else if max >= forget {
            Err(BackoffError::MaxNotBelowForget)
        } else {
            Ok(Self { attempts, base, max, forget })
        }
    }

    fn attempts(&self) -> Limit {
        Limit::new(self.attempts.into()).unwrap_or(Self::ATTEMPTS_MAX)
    }

    /// Returns the delay between the last attempt and the next one. `paid` is the number of
    /// attempts that already waited for a delay.
    fn delay(&self, paid: u64) -> Span {
        let base_us = { self.base }.as_us();
        // Stops doubling where the delay would overflow 64 bits.
        let doubled_us = match u32::try_from(paid) {
            Ok(paid) if paid < base_us.leading_zeros() => base_us << paid,
            _ => u64::MAX,
        };
        { self.max }.span().min(Span::from_us(doubled_us))
    }
}
