//! One call, the same for every algorithm: the verdict, what is taken, and whether it is stored.
//!
//! An algorithm says where a subject stands at an instant, and where it stands once a cost is
//! taken. What a call makes of these two stands here and nowhere else; another way to call, which
//! takes less than its cost or more than there is, would be another function beside [`decide`].

use super::bounds::{Cost, Limit};
use super::decision::{Decision, Next, Outcome, Verdict};
use super::time::{Instant, Span};

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
    /// Whether there is room for `cost`, which is at most the limit.
    fn has_room_for(&self, cost: Cost) -> bool;
    /// How long until there is room for `cost`, which is at most the limit and does not fit now.
    fn room_in(&self, cost: Cost) -> Span;
    /// How long an allowed call is to hold back before it acts.
    fn wait(&self) -> Span {
        Span::ZERO
    }

    /// Takes `cost`, which is not zero: what follows is said of the subject after it.
    fn take(&mut self, cost: Cost);

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

/// Decides a call of `cost`: takes it where there is room. Cost 0 only asks: it is allowed, and
/// neither taken nor stored.
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
    let decision = Decision {
        verdict,
        limit,
        remaining: subject.remaining(),
        reset_after: subject.reset_after(),
    };
    Outcome { decision, next: (takes || repairs).then(|| subject.next(&decision)) }
}
