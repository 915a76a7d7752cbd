//! The steps of one call, shared by all algorithms: the verdict, the units taken, and the state to
//! store.
//!
//! An algorithm implements [`Standing`]: the usage of a key at an instant, and how it changes when
//! a cost is taken or given back. Each kind of call is built on that here, and nowhere else:
//!
//! | call | takes | stores |
//! |---|---|---|
//! | [`decide`] | its cost, if there is room | if allowed |
//! | [`decide_with`] | the same, but leaves some units, or takes the units left | if allowed |
//! | [`charge`] | its cost, always: the key may go into debt | always |
//! | [`refund`] | gives its cost back, up to the full allowance | if anything was used |
//!
//! A call of cost 0 takes and stores nothing. Any other call also stores a state that had to be
//! repaired.

use crate::bounds::{Cost, Leave, Limit, Refill};
use crate::decision::{Decision, Next, Outcome, StateWrite, Verdict};
use crate::msgpack::NotAState;
use crate::time::{Instant, Span};

/// An algorithm with its limits, for a state that is read in place and borrowed for `'a`.
pub trait Limiter<'a> {
    /// The content of a key, as read.
    type State;
    /// The content to store at a key.
    type NewState;

    /// Returns the view of a key at `now`, given its stored state.
    ///
    /// Every algorithm bounds the time by which a state may lie ahead of `now`. Only a clock that
    /// stepped back puts a state further ahead: it is then re-based on `now`, and
    /// [`Standing::is_repaired`] returns true.
    ///
    /// Implementations are always inlined; otherwise every call writes the result to memory and
    /// reads it back.
    fn standing(
        &self,
        stored: Option<Self::State>,
        now: Instant,
    ) -> impl Standing<NewState = Self::NewState>;
}

/// A key under one rule at one instant.
pub trait Standing: Sized {
    /// The content to store at the key.
    type NewState;

    /// Returns the rule's limit or capacity.
    fn limit(&self) -> Limit;
    /// Returns true if the state had to be re-based because the clock stepped back.
    fn is_repaired(&self) -> bool;
    /// Returns true if there is room for `cost`. The result for cost 0 is not used.
    fn has_room_for(&self, cost: Cost) -> bool;
    /// Returns the time until there is room for `cost`, which is at most the limit and for which
    /// there is no room now. For cost 0, which is passed only in debt, returns the time until the
    /// debt is paid.
    fn room_in(&self, cost: Cost) -> Span;
    /// Returns the time that an allowed call has to wait before it acts.
    fn wait(&self) -> Span {
        Span::ZERO
    }
    /// Returns the units used, rounded up; if above the limit, the key is in debt.
    fn used(&self) -> u128;
    /// Returns the units that a refund can give back.
    fn refundable(&self) -> u128 {
        self.used()
    }
    /// Returns true if nothing is left to store.
    fn is_blank(&self) -> bool {
        self.used() == 0
    }
    /// Returns the time until the debt is paid; zero without debt.
    fn clear_in(&self) -> Span {
        if self.used() > self.limit().units().into() {
            self.room_in(Cost::ZERO)
        } else {
            Span::ZERO
        }
    }

    /// Takes `cost`, which is not zero, even if there is no room. The other methods then include
    /// it.
    fn take(&mut self, cost: Cost);
    /// Takes `cost` for a charge, like [`Self::take`], but may store it more coarsely, in favour of
    /// the limit.
    fn take_charged(&mut self, cost: Cost) {
        self.take(cost);
    }
    /// Gives back `cost`, or the units used if there are fewer. The other methods then include it.
    /// Called only if something is used.
    fn give_back(&mut self, cost: Cost);

    /// Returns the largest cost that would be allowed, rounded down.
    fn remaining(&self) -> u64;
    /// Returns the time until the full allowance is back, rounded up.
    fn reset_after(&self) -> Span;
    /// Returns the state to store; `decision` holds the numbers computed from it.
    fn next(self, decision: &Decision) -> Next<Self::NewState>;
}

/// The options of a call, for every rule that counts units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// `COST n`: the units the call takes; 1 by default. A call of `BACKOFF` takes one.
    pub cost: Cost,
    /// `PARTIAL`: whether the call takes the units left, up to its cost, which is then at least
    /// one.
    pub partial: bool,
    /// `LEAVE n` or `LEAVE p%`: the units that must remain after the call.
    pub leave: Option<Leave>,
}

impl CallOptions {
    /// Returns the options of a call that gives nothing but its cost.
    pub const fn of_cost(cost: Cost) -> Self {
        Self { cost, partial: false, leave: None }
    }

    /// Returns the units that must remain after the call, under `limit`.
    #[inline(always)]
    pub fn left_units(&self, limit: Limit) -> u64 {
        self.leave.map_or(0, |leave| leave.units(limit))
    }
}

/// The effect of an allowed call on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The call takes its cost.
    Take,
    /// The call takes nothing, because another rule denies it. Only a repair is stored.
    TakeNothing,
}

/// The reason why a cost is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeError {
    /// The key holds the state of another algorithm.
    OtherAlgorithm,
    /// More than [`Cost::TOTAL_MAX`] units would be used.
    TooManyUnits,
    /// The full allowance would be back only after more than [`Refill::SPAN_MAX`].
    TooLong,
}

impl From<NotAState> for ChargeError {
    fn from(_: NotAState) -> Self {
        Self::OtherAlgorithm
    }
}

/// Decides a call of `cost`, and takes it if there is room. A call of cost 0 is allowed; it takes
/// and stores nothing.
#[inline(always)]
pub fn decide<S: Standing>(subject: S, cost: Cost, mode: Mode) -> Outcome<S::NewState> {
    decide_leaving(subject, cost, 0, mode)
}

/// Decides a call with any options. Under [`Mode::TakeNothing`], `PARTIAL` has no effect.
pub fn decide_with<S: Standing>(
    subject: S,
    options: CallOptions,
    mode: Mode,
) -> Outcome<S::NewState> {
    let CallOptions { cost, partial, .. } = options;
    let left_units = options.left_units(subject.limit());
    if partial && mode == Mode::Take && !cost.is_zero() {
        decide_partly(subject, cost, left_units)
    } else {
        decide_leaving(subject, cost, left_units, mode)
    }
}

/// Decides a call of `cost`, and takes it if `left_units` remain afterwards. A call of cost 0
/// takes and stores nothing, and is denied if fewer units remain.
#[inline(always)]
fn decide_leaving<S: Standing>(
    mut subject: S,
    cost: Cost,
    left_units: u64,
    mode: Mode,
) -> Outcome<S::NewState> {
    let limit = subject.limit();
    let needed = cost.plus(left_units);
    let verdict = if needed.units() > limit.units() {
        Verdict::Impossible
    } else if subject.has_room_for(needed) || needed.is_zero() {
        Verdict::Allowed { wait: subject.wait() }
    } else {
        Verdict::Denied { retry_after: subject.room_in(needed) }
    };
    let takes = verdict.is_allowed() && !cost.is_zero() && mode == Mode::Take;
    let repairs = subject.is_repaired() && !cost.is_zero();
    if takes {
        subject.take(cost);
    }
    conclude(subject, verdict, takes || repairs)
}

/// Decides a call that takes the units left above `left_units`, up to `cost`. If that is less than
/// one whole unit, the call is denied until there is one. `cost` is not zero.
fn decide_partly<S: Standing>(mut subject: S, cost: Cost, left_units: u64) -> Outcome<S::NewState> {
    let granted = cost.at_most(subject.remaining().saturating_sub(left_units));
    let takes = !granted.is_zero();
    let verdict = if takes {
        Verdict::Granted { units: granted.units(), wait: subject.wait() }
    } else if left_units >= subject.limit().units() {
        Verdict::Impossible
    } else {
        Verdict::Denied { retry_after: subject.room_in(Cost::ONE.plus(left_units)) }
    };
    let repairs = subject.is_repaired();
    if takes {
        subject.take(granted);
    }
    conclude(subject, verdict, takes || repairs)
}

/// Takes `cost` even if there is no room.
///
/// The verdict is allowed if there was room. It is denied if the key goes into debt or was in debt
/// already; `retry_after` is then the time until the debt is paid. A call of cost 0 only reports if
/// the key is in debt.
///
/// # Errors
///
/// Returns [`ChargeError::TooManyUnits`] or, checked next, [`ChargeError::TooLong`], but only if
/// there was no room for the cost.
#[cold]
pub fn charge<S: Standing>(
    mut subject: S,
    cost: Cost,
) -> Result<Outcome<S::NewState>, ChargeError> {
    let takes = !cost.is_zero();
    let fits = if takes { subject.has_room_for(cost) } else { subject.clear_in().is_zero() };
    if takes {
        subject.take_charged(cost);
        if !fits && subject.used() > Cost::TOTAL_MAX.into() {
            return Err(ChargeError::TooManyUnits);
        }
        if !fits && subject.reset_after() > Refill::SPAN_MAX {
            return Err(ChargeError::TooLong);
        }
    }
    let clear_in = subject.clear_in();
    let verdict = if fits {
        Verdict::Allowed { wait: clear_in }
    } else {
        Verdict::Denied { retry_after: clear_in }
    };
    Ok(conclude(subject, verdict, takes))
}

/// Gives back `cost`, but at most the units used. Deletes a key that is unused afterwards.
///
/// The verdict is allowed if no debt is left; otherwise it is denied until the debt is paid. A call
/// of cost 0 changes nothing.
#[cold]
pub fn refund<S: Standing>(mut subject: S, cost: Cost) -> Outcome<S::NewState> {
    let is_query = cost.is_zero();
    let finds = !is_query && subject.refundable() > 0;
    let repairs = !is_query && subject.is_repaired();
    if finds {
        subject.give_back(cost);
    }
    let clear_in = subject.clear_in();
    let verdict = if clear_in.is_zero() {
        Verdict::ALLOWED
    } else {
        Verdict::Denied { retry_after: clear_in }
    };
    let forgets = finds && subject.is_blank();
    let outcome = conclude(subject, verdict, !forgets && (finds || repairs));
    if forgets { Outcome { next: StateWrite::Forget, ..outcome } } else { outcome }
}

/// Returns the decision for a verdict, with the new state if it is stored.
#[inline(always)]
pub(super) fn conclude<S: Standing>(
    subject: S,
    verdict: Verdict,
    writes: bool,
) -> Outcome<S::NewState> {
    let decision = Decision {
        verdict,
        limit: subject.limit(),
        remaining: subject.remaining(),
        reset_after: subject.reset_after(),
    };
    let next = if writes { StateWrite::Keep(subject.next(&decision)) } else { StateWrite::Nothing };
    Outcome { decision, next }
}
