//! One call, the same for every algorithm: the verdict, what is taken, and whether it is stored.
//!
//! An algorithm says where a subject stands at an instant, and where it stands once a cost is
//! taken or given back. What a call makes of these stands here and nowhere else:
//!
//! | call | takes | is written |
//! |---|---|---|
//! | [`decide`] | its cost, where there is room | when it is allowed |
//! | [`decide_partly`] | what is there, up to its cost | when it is allowed |
//! | [`charge`] | its cost, in any case: the subject may be in debt | always |
//! | [`refund`] | gives its cost back, not past the full allowance | when it finds something |
//!
//! Each of them with cost 0 only asks. Each of them but those writes a repair.

use crate::bounds::{Cost, Limit, Refill};
use crate::decision::{Decision, Next, Outcome, Verdict, Write};
use crate::msgpack::NotAState;
use crate::time::{Instant, Span};

/// An algorithm with its limits, for a state that is read where it lies for `'a`.
pub trait Limiter<'a> {
    /// What a key holds, as read.
    type State;
    /// What a key is to hold.
    type NewState;

    /// Where a subject stands at `now`, by what is stored.
    ///
    /// Only a clock that stepped back can put a state further ahead of `now` than its own span:
    /// such a one is re-based on `now`, and says so.
    ///
    /// Inlined wherever it is called, or what it says is written to memory and read again by every
    /// call.
    fn standing(
        &self,
        stored: Option<Self::State>,
        now: Instant,
    ) -> impl Standing<NewState = Self::NewState>;
}

/// Where a subject stands under one rule at one instant.
pub trait Standing: Sized {
    /// What a key is to hold.
    type NewState;

    /// The capacity asked for.
    fn limit(&self) -> Limit;
    /// Whether the state had to be re-based, after a clock that stepped back.
    fn is_repaired(&self) -> bool;
    /// Whether there is room for `cost`; of cost 0 it does not matter what it says.
    fn has_room_for(&self, cost: Cost) -> bool;
    /// How long until there is room for `cost`, which is at most the limit and does not fit now.
    /// Cost 0 does not fit while more is used than the limit.
    fn room_in(&self, cost: Cost) -> Span;
    /// How long an allowed call is to hold back before it acts.
    fn wait(&self) -> Span {
        Span::ZERO
    }
    /// How much is used, in units, rounded up; beyond the limit, the subject is in debt.
    fn used(&self) -> u128;
    /// How much of that a refund can give back.
    fn refundable(&self) -> u128 {
        self.used()
    }
    /// Whether nothing is left that has to be remembered.
    fn is_blank(&self) -> bool {
        self.used() == 0
    }
    /// How long until the subject is out of debt; zero when it is in none.
    fn clear_in(&self) -> Span {
        if self.used() > self.limit().units().into() {
            self.room_in(Cost::ZERO)
        } else {
            Span::ZERO
        }
    }

    /// Takes `cost`, which is not zero, whether or not there is room: what follows is said of the
    /// subject after it.
    fn take(&mut self, cost: Cost);
    /// The same, for a charge: it may be stored more coarsely, on the strict side.
    fn take_charged(&mut self, cost: Cost) {
        self.take(cost);
    }
    /// Gives back `cost`, or what is used if that is less: what follows is said of the subject
    /// after it. Something is used.
    fn give_back(&mut self, cost: Cost);

    /// How much cost would be allowed, rounded down.
    fn remaining(&self) -> u64;
    /// How long until the full allowance is there, rounded up.
    fn reset_after(&self) -> Span;
    /// The state that stands for this, by which the numbers of `decision` were made.
    fn next(self, decision: &Decision) -> Next<Self::NewState>;
}

/// Whether a call takes its cost where there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Take,
    /// It would, but another rule denies it: nothing is taken, and nothing stored but a repair.
    HoldBack,
}

/// Why a cost is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeError {
    /// The key holds the state of another algorithm.
    OtherAlgorithm,
    /// More would be used than [`Cost::TOTAL_MAX`].
    TooManyUnits,
    /// The subject would be whole again only after more than [`Refill::SPAN_MAX`].
    TooLong,
}

impl From<NotAState> for ChargeError {
    fn from(_: NotAState) -> Self {
        Self::OtherAlgorithm
    }
}

/// Decides a call of `cost`: takes it where there is room. Cost 0 only asks: it is allowed, and
/// neither taken nor stored.
#[inline(always)]
pub fn decide<S: Standing>(mut subject: S, cost: Cost, mode: Mode) -> Outcome<S::NewState> {
    let limit = subject.limit();
    let verdict = if cost.units() > limit.units() {
        Verdict::Impossible
    } else if subject.has_room_for(cost) || cost.is_zero() {
        Verdict::Allowed { wait: subject.wait() }
    } else {
        Verdict::Denied { retry_after: subject.room_in(cost) }
    };
    let takes = verdict.is_allowed() && !cost.is_zero() && mode == Mode::Take;
    let repairs = subject.is_repaired() && !cost.is_zero();
    if takes {
        subject.take(cost);
    }
    conclude(subject, verdict, takes || repairs)
}

/// Decides a call that takes what is there, up to `cost` and at least one unit. It is denied when
/// not one is there, until one is. Cost 0 only asks, as in [`decide`].
#[cold]
pub fn decide_partly<S: Standing>(mut subject: S, cost: Cost) -> Outcome<S::NewState> {
    if cost.is_zero() {
        return decide(subject, cost, Mode::Take);
    }
    let granted = cost.at_most(subject.remaining());
    let takes = !granted.is_zero();
    let verdict = if takes {
        Verdict::Granted { units: granted.units(), wait: subject.wait() }
    } else {
        Verdict::Denied { retry_after: subject.room_in(Cost::ONE) }
    };
    let repairs = subject.is_repaired();
    if takes {
        subject.take(granted);
    }
    conclude(subject, verdict, takes || repairs)
}

/// Takes `cost` whether or not there is room.
///
/// The verdict is allowed when there was room, and denied when the subject went, or was already,
/// into debt; its span is the time until the subject is out of debt. Cost 0 only asks whether it is
/// in debt.
///
/// # Errors
///
/// [`ChargeError::TooManyUnits`] first, then [`ChargeError::TooLong`]; only of a cost for which
/// there is no room.
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

/// Gives back `cost`, but never more than is used. What is used up to nothing is forgotten.
///
/// The verdict is allowed when the subject is in no debt after it; otherwise it is denied until it
/// is out of debt. Cost 0 only asks.
#[cold]
pub fn refund<S: Standing>(mut subject: S, cost: Cost) -> Outcome<S::NewState> {
    let asks = cost.is_zero();
    let finds = !asks && subject.refundable() > 0;
    let repairs = !asks && subject.is_repaired();
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
    if forgets { Outcome { next: Write::Forget, ..outcome } } else { outcome }
}

/// The answer that goes with a verdict, and the state where it is written.
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
    let next = if writes { Write::Keep(subject.next(&decision)) } else { Write::Nothing };
    Outcome { decision, next }
}
