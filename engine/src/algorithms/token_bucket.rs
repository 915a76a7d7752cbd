//! Token bucket: starts full; a call takes tokens out, time puts them back.
//!
//! The state is the instant of the last write and the exact number of tokens left at that instant:
//! whole tokens and a fraction. `bucket` holds the code shared with the leaky bucket.
//!
//! Allows at most `capacity + rate x t` units in any stretch of time `t`.
//!
//! Source: the token bucket of RFC 2697 and RFC 2698, refilled continuously.

use crate::algorithms::bucket::{Bucket, State};
use crate::bounds::{Limit, Refill};
use crate::fields::Field;

/// The rule: a bucket of `capacity` that gains `rate` tokens per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket(pub Refill);

impl Bucket for TokenBucket {
    // A full bucket is not stored, so one token less than the largest capacity is the maximum.
    const UNITS: Field = Field::new("tokens", 0, Limit::MAX - 1);
    const QUEUES: bool = false;

    fn refill(&self) -> &Refill {
        &self.0
    }

    fn used(&self, full: u128, state: &State) -> u128 {
        // A fraction that is not below the period is dropped.
        let fits = state.fraction < self.0.period().as_us();
        let fraction = if fits { u128::from(state.fraction) } else { 0 };
        full.saturating_sub(self.0.parts(state.units) + fraction)
    }

    fn counted(&self, full: u128, used: u128, remaining: u64) -> (u64, u64) {
        let fraction = full - used - self.0.parts(remaining);
        (remaining, u64::try_from(fraction).unwrap_or(0))
    }

    fn is_used(_state: &State) -> bool {
        true
    }
}
