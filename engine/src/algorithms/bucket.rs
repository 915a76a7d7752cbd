//! Code shared by the token bucket and the leaky bucket: an amount that is measured exactly and
//! changes at a constant rate.
//!
//! A token bucket counts the units left and gains more; a leaky bucket counts the units used and
//! drains. The code computes both from the amount *used*. This amount is counted in parts: a unit
//! has one part for each microsecond of the period, so exactly `rate` parts drain per microsecond.
//!
//! The state is the instant of the last write, the whole units at that instant, and the remaining
//! fraction of a unit, as a numerator over the period in microseconds. Nothing is lost to rounding.
//! A fraction that a rule with a longer period wrote may be too large for the current period. It
//! then counts as used.
//!
//! Units charged beyond the capacity are debt. Debt is stored separately, so a change of capacity
//! caps the bucket's content and keeps the debt. The debt is stored in whole units, rounded up. The
//! fraction of such a state is the part of one unit of debt that is already paid.
//!
//! Allows at most `capacity + rate x t` units in any stretch of time `t`.

use crate::bounds::{Cost, Limit, Refill};
use crate::call::{Limiter, Standing};
use crate::decision::{Decision, Next};
use crate::fields::{Field, Fields};
use crate::time::{Instant, Span};

/// The stored state of a bucket. An unused bucket has no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The instant at which the units were counted.
    pub updated: Instant,
    /// Whole units: those left in a token bucket, or those in the queue of a leaky bucket.
    pub units: u64,
    /// The remaining fraction of a unit: a numerator over the period in microseconds.
    pub fraction: u64,
    /// Units charged beyond the capacity, rounded up; usually 0. If this is not 0, the token bucket
    /// has no tokens left, the leaky bucket's queue is full, and `fraction` is the paid part of the
    /// debt.
    pub debt: u64,
}

/// The differences between the token bucket and the leaky bucket.
pub trait Bucket {
    /// The field for the whole units of a state, with its range.
    const UNITS: Field;
    /// Whether an allowed call waits until the units used before it have drained.
    const QUEUES: bool;

    /// Returns the capacity and the rate.
    fn refill(&self) -> &Refill;

    /// Returns the parts used according to `state`, without its debt, in a bucket that holds `full`
    /// parts. The result is at most `full`.
    fn used(&self, full: u128, state: &State) -> u128;

    /// Returns the units and the fraction to store when `used` of `full` parts are used.
    /// `remaining` is the number of whole units that are then left.
    fn counted(&self, full: u128, used: u128, remaining: u64) -> (u64, u64);

    /// Returns true if something is used according to `state`. All numbers of `state` are in range.
    fn is_used(state: &State) -> bool;
}

/// A bucket at one instant: `used` parts, which drain from `origin` on.
struct BucketView<'a, B> {
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

    /// Returns the bucket at `now`. Nothing drains before the instant of the stored state. If that
    /// instant lies ahead of `now` by more than the time to drain a full bucket, the clock stepped
    /// back, and the state is re-based on `now`.
    #[inline(always)]
    fn standing(&self, stored: Option<State>, now: Instant) -> impl Standing<NewState = State> {
        let refill = self.refill();
        let full = refill.full();
        let used = stored.map_or(0, |state| match state.debt {
            0 => self.used(full, &state),
            _ => used_in_debt(self, full, &state),
        });
        let view = BucketView { bucket: self, now, full, used, origin: now, repaired: false };
        let Some(state) = stored.filter(|_| used > 0) else {
            // If nothing is used under the current capacity, the bucket counts as new, whatever
            // instant the state has.
            return view;
        };
        let ahead = state.updated.since(now);
        if !ahead.is_zero() && ahead > refill.time_to_fill() {
            return BucketView { repaired: true, ..view };
        }
        let drained = refill.earned(now.since(state.updated));
        BucketView { used: used.saturating_sub(drained), origin: now.max(state.updated), ..view }
    }
}

impl<B: Bucket> BucketView<'_, B> {
    fn parts_of(&self, cost: Cost) -> u128 {
        self.bucket.refill().parts(cost.units())
    }

    /// Returns the state to store for a bucket in debt: one with more used than its capacity.
    #[cold]
    fn in_debt(&self) -> State {
        let period = u128::from(self.bucket.refill().period().as_us());
        let owed = self.used.saturating_sub(self.full);
        let debt = owed.div_ceil(period);
        let (units, _) = self.bucket.counted(self.full, self.full, 0);
        State {
            updated: self.origin,
            units,
            fraction: u64::try_from(debt * period - owed).unwrap_or(0),
            debt: u64::try_from(debt).unwrap_or(u64::MAX),
        }
    }

    /// Returns the time until `parts` have drained.
    fn drained_in(&self, parts: u128) -> Span {
        match parts {
            0 => Span::ZERO,
            _ => self.origin.since(self.now).plus(self.bucket.refill().time_to_earn(parts)),
        }
    }
}

impl<B: Bucket> Standing for BucketView<'_, B> {
    type NewState = State;

    #[inline(always)]
    fn limit(&self) -> Limit {
        self.bucket.refill().capacity()
    }

    #[inline(always)]
    fn is_repaired(&self) -> bool {
        self.repaired
    }

    #[inline(always)]
    fn has_room_for(&self, cost: Cost) -> bool {
        self.used + self.parts_of(cost) <= self.full
    }

    #[inline(always)]
    fn room_in(&self, cost: Cost) -> Span {
        self.drained_in(self.used + self.parts_of(cost) - self.full)
    }

    #[inline(always)]
    fn wait(&self) -> Span {
        if B::QUEUES { self.drained_in(self.used) } else { Span::ZERO }
    }

    fn used(&self) -> u128 {
        self.used.div_ceil(u128::from(self.bucket.refill().period().as_us()))
    }

    #[inline(always)]
    fn take(&mut self, cost: Cost) {
        self.used += self.parts_of(cost);
    }

    fn give_back(&mut self, cost: Cost) {
        self.used = self.used.saturating_sub(self.parts_of(cost));
    }

    #[inline(always)]
    fn remaining(&self) -> u64 {
        self.bucket.refill().units(self.full.saturating_sub(self.used)).0
    }

    #[inline(always)]
    fn reset_after(&self) -> Span {
        self.drained_in(self.used)
    }

    #[inline(always)]
    fn next(self, decision: &Decision) -> Next<State> {
        let state = if self.used <= self.full {
            let (units, fraction) = self.bucket.counted(self.full, self.used, decision.remaining);
            State { updated: self.origin, units, fraction, debt: 0 }
        } else {
            self.in_debt()
        };
        let expires_at = self.now.after(decision.reset_after);
        Next::drifting(expires_at, self.bucket.refill().time_to_fill(), state)
    }
}

/// Returns the parts used in a bucket in debt. A paid fraction that a rule with a longer period
/// wrote may be too large for the current period. It then counts as unpaid.
#[cold]
fn used_in_debt(bucket: &impl Bucket, full: u128, state: &State) -> u128 {
    let refill = bucket.refill();
    let held = bucket.used(full, &State { fraction: 0, ..*state });
    let paid = if state.fraction < refill.period().as_us() { state.fraction } else { 0 };
    held + refill.parts(state.debt) - u128::from(paid)
}

impl<B: Bucket> Fields<3> for B {
    type Stored = State;
    const FIELDS: [Field; 3] =
        [Field::instant("updated_us"), B::UNITS, Field::fraction("fraction")];
    fn numbers(state: &State) -> [u64; 3] {
        [state.updated.as_us(), state.units, state.fraction]
    }

    fn state([updated_us, units, fraction]: [u64; 3]) -> Option<State> {
        let state = State { updated: Instant::from_us(updated_us), units, fraction, debt: 0 };
        B::is_used(&state).then_some(state)
    }

    fn inspect(state: &State) -> Vec<(&'static str, u64)> {
        let units = (B::UNITS.name, state.units);
        let updated = ("updated_us", state.updated.as_us());
        match state.debt {
            0 => vec![units, ("fraction", state.fraction), updated],
            debt => vec![units, ("debt", debt), ("paid_fraction", state.fraction), updated],
        }
    }
}

const DEBT: Field = Field::new("debt", 1, Cost::TOTAL_MAX);

/// The stored form of a token bucket in debt. It has no tokens left.
pub struct TokenDebt;

impl Fields<3> for TokenDebt {
    type Stored = State;
    const FIELDS: [Field; 3] =
        [Field::instant("updated_us"), DEBT, Field::fraction("paid_fraction")];

    fn numbers(state: &State) -> [u64; 3] {
        [state.updated.as_us(), state.debt, state.fraction]
    }

    fn state([updated_us, debt, fraction]: [u64; 3]) -> Option<State> {
        Some(State { updated: Instant::from_us(updated_us), units: 0, fraction, debt })
    }
}

/// The stored form of a leaky bucket in debt. Its level is the capacity at the time of the write.
pub struct LeakyDebt;

impl Fields<4> for LeakyDebt {
    type Stored = State;
    const FIELDS: [Field; 4] = [
        Field::instant("updated_us"),
        Field::new("level", 1, Limit::MAX),
        DEBT,
        Field::fraction("paid_fraction"),
    ];

    fn numbers(state: &State) -> [u64; 4] {
        [state.updated.as_us(), state.units, state.debt, state.fraction]
    }

    fn state([updated_us, units, debt, fraction]: [u64; 4]) -> Option<State> {
        Some(State { updated: Instant::from_us(updated_us), units, fraction, debt })
    }
}
