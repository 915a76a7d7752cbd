//! The arguments of redis-cell's command: numbers, by position.

use crate::bounds::{Cost, Limit, Period, Refill, RefillError};
use crate::grammar::error::GrammarError;
use crate::grammar::number;
use crate::redis_cell::RedisCell;
use crate::time::Span;

/// A parsed call of `CL.THROTTLE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleRequest {
    /// The limits.
    pub rule: RedisCell,
    /// The units the call takes.
    pub quantity: Cost,
}

/// Parses the arguments after the key of `CL.THROTTLE`.
///
/// # Errors
///
/// Returns the first error, from left to right.
pub fn throttle(args: &[&[u8]]) -> Result<ThrottleRequest, GrammarError> {
    let ([max_burst, count, period] | [max_burst, count, period, _]) = args else {
        return Err(GrammarError::Arity);
    };
    let limit = number::integer(max_burst).and_then(|burst| Limit::new(burst.checked_add(1)?));
    let limit = limit.ok_or(GrammarError::MaxBurst)?;
    let count = number::limit(count).ok_or(GrammarError::CountPerPeriod)?;
    let period = number::integer(period).and_then(seconds).ok_or(GrammarError::PeriodInSeconds)?;
    let quantity = match args.get(3) {
        Some(quantity) => number::cost(quantity).ok_or(GrammarError::Quantity)?,
        None => Cost::ONE,
    };
    let quota = Refill::new(limit, count, period).map_err(|error| match error {
        RefillError::RateTooHigh => GrammarError::CountTooHigh,
        RefillError::RefillTooLong => GrammarError::MaxBurstRefill,
    })?;
    Ok(ThrottleRequest { rule: RedisCell::new(quota), quantity })
}

/// Converts seconds to a period; `None` if they are out of bounds.
fn seconds(seconds: u64) -> Option<Period> {
    Period::new(Span::from_ms(seconds.checked_mul(1_000)?))
}

#[cfg(test)]
mod tests;
