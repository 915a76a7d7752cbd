//! Leaky bucket as a queue: a call joins the queue if there is room, and learns how long to wait.
//!
//! The state is the instant of the last write and the exact length of the queue at that instant:
//! whole units and a fraction. `bucket` holds the code shared with the token bucket.
//!
//! An allowed call waits until the units queued before it have drained. A call of cost 0 returns
//! the same wait and takes nothing.
//!
//! At most `capacity + rate x t` units enter the queue in any stretch of time `t`. Callers that
//! wait for the returned time act at the rate, evenly spaced.
//!
//! Source: Turner, "New directions in communications", 1986, in its form as a queue.

use crate::algorithms::bucket::{Bucket, State};
use crate::bounds::{Limit, Refill};
use crate::fields::Field;

/// The rule: a queue of depth `capacity` that drains `rate` units per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket(pub Refill);

impl Bucket for LeakyBucket {
    const UNITS: Field = Field::new("level", 0, Limit::MAX);
    const QUEUES: bool = true;

    fn refill(&self) -> &Refill {
        &self.0
    }

    fn used(&self, full: u128, state: &State) -> u128 {
        // A fraction that exceeds the period counts as a whole unit. A level above a lowered
        // capacity counts as full.
        let fraction = state.fraction.min(self.0.period().as_us());
        (self.0.parts(state.units) + u128::from(fraction)).min(full)
    }

    fn counted(&self, _full: u128, used: u128, _remaining: u64) -> (u64, u64) {
        self.0.units(used)
    }

    fn is_used(state: &State) -> bool {
        // An empty queue is not stored.
        state.units > 0 || state.fraction > 0
    }
}
