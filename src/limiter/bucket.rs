//! What the two buckets share: a fluid that is measured exactly and flows at a rate.
//!
//! A token bucket counts what is left and gains it, a leaky bucket counts what is used and loses
//! it; otherwise they are the same. So both are decided on by what is *used*, in parts: a unit has
//! as many as the period has microseconds, and time drains exactly `rate` parts a microsecond.
//!
//! The state is when it was last written, the whole units counted then, and the fraction of a unit
//! beside them, as a numerator over the period in microseconds: nothing is ever lost to rounding.
//! A fraction that another period wrote, and this one cannot hold, counts as used.
//!
//! Never more than `capacity + rate x t` in any stretch `t`.

use super::bounds::{Cost, Limit, Quota};
use super::decision::{Decision, Next};
use super::fields::{Field, Fields};
use super::standing::{Limiter, Standing};
use super::time::{Instant, Span};

/// A bucket that somebody has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// When the units were counted.
    pub updated: Instant,
    /// Whole units: of a token bucket those that are left, of a leaky bucket those in the queue.
    pub units: u64,
    /// The fraction of a unit beside them: a numerator over the period in microseconds.
    pub fraction: u64,
}

/// In what the two differ: the sign.
pub trait Bucket {
    /// What the whole units of a state count, and how many of them are one.
    const UNITS: Field;
    /// Whether an allowed call waits until what was used before it has drained.
    const QUEUES: bool;

    /// Capacity and rate.
    fn quota(&self) -> &Quota;

    /// What is used in a bucket of `full` parts that was left as `state`; at most all of it.
    fn used(&self, full: u128, state: &State) -> u128;

    /// The units and the fraction that a state counts when so much is used of `full` parts, which
    /// leaves `remaining` whole units.
    fn counted(&self, full: u128, used: u128, remaining: u64) -> (u64, u64);

    /// Whether numbers within their bounds say that something was used.
    fn is_used(state: &State) -> bool;
}

/// What is `used` at `origin`, from where on it drains.
struct View<'a, B> {
    bucket: &'a B,
    now: Instant,
    full: u128,
    used: u128,
    origin: Instant,
    repaired: bool,
}

impl<B: Bucket> Limiter<'_> for B {
    type State = State;
    type NewState = State;

    /// Nothing drains until the state's own instant is reached. Its span is the time to drain a
    /// full bucket.
    fn standing(&self, stored: Option<State>, now: Instant) -> impl Standing<NewState = State> {
        let quota = self.quota();
        let full = quota.full();
        let used = stored.map_or(0, |state| self.used(full, &state));
        let view = View { bucket: self, now, full, used, origin: now, repaired: false };
        let Some(state) = stored.filter(|_| used > 0) else {
            // Also what a lowered capacity makes whole: that is no state at all, whatever its time.
            return view;
        };
        let ahead = state.updated.since(now);
        if !ahead.is_zero() && ahead > quota.refill() {
            return View { repaired: true, ..view };
        }
        let drained = quota.earned(now.since(state.updated));
        View { used: used.saturating_sub(drained), origin: now.max(state.updated), ..view }
    }
}

impl<B: Bucket> View<'_, B> {
    fn asked(&self, cost: Cost) -> u128 {
        self.bucket.quota().parts(cost.units())
    }

    /// How long until so many parts have drained.
    fn drained_in(&self, parts: u128) -> Span {
        match parts {
            0 => Span::ZERO,
            _ => self.origin.since(self.now).plus(self.bucket.quota().time_to_earn(parts)),
        }
    }
}

impl<B: Bucket> Standing for View<'_, B> {
    type NewState = State;

    fn limit(&self) -> Limit {
        self.bucket.quota().capacity()
    }

    fn is_repaired(&self) -> bool {
        self.repaired
    }

    fn has_room_for(&self, cost: Cost) -> bool {
        self.asked(cost) <= self.full - self.used
    }

    fn room_in(&self, cost: Cost) -> Span {
        self.drained_in(self.used + self.asked(cost) - self.full)
    }

    fn wait(&self) -> Span {
        if B::QUEUES { self.drained_in(self.used) } else { Span::ZERO }
    }

    fn take(&mut self, cost: Cost) {
        self.used += self.asked(cost);
    }

    fn remaining(&self) -> u64 {
        self.bucket.quota().units(self.full - self.used).0
    }

    fn reset_after(&self) -> Span {
        self.drained_in(self.used)
    }

    fn next(self, decision: &Decision) -> Next<State> {
        let (units, fraction) = self.bucket.counted(self.full, self.used, decision.remaining);
        let state = State { updated: self.origin, units, fraction };
        let lapses_at = self.now.after(decision.reset_after);
        Next::drifting(lapses_at, self.bucket.quota().refill(), state)
    }
}

impl<B: Bucket> Fields<3> for B {
    const FIELDS: [Field; 3] =
        [Field::instant("updated_us"), B::UNITS, Field::fraction("fraction")];
    const SHOWN_FIRST: usize = 1;

    fn numbers(state: &State) -> [u64; 3] {
        [state.updated.as_us(), state.units, state.fraction]
    }

    fn state([updated_us, units, fraction]: [u64; 3]) -> Option<State> {
        let state = State { updated: Instant::from_us(updated_us), units, fraction };
        B::is_used(&state).then_some(state)
    }
}
