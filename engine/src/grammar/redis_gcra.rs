//! The arguments of Redis' `GCRA`: `max-burst tokens-per-period period [TOKENS count]`.
//!
//! Clients know the errors of Redis, so the order of the checks and the texts are those of Redis.
//! Its integers have no leading zero and no `+`. A period is digits, optionally followed by a point
//! and more digits; Redis also reads an exponent.

use crate::bounds::{Cost, Limit};
use crate::grammar::number;
use crate::grammar::redis_cell::ThrottleRequest;
use crate::redis_cell::RedisCell;
use crate::time::Span;
use std::ffi::CStr;
use std::num::NonZeroU64;

/// A parsed call of `GCRA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcraRequest {
    /// The limits; `None` if they are beyond what the module counts.
    rule: Option<RedisCell>,
    /// The units the call takes.
    tokens: Cost,
}

/// An error in the arguments of `GCRA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcraError {
    /// Too few or too many arguments; the server has its own text for that.
    Arity,
    /// An invalid burst.
    MaxBurst,
    /// Tokens that are not an integer of 64 bits.
    NotAnInteger,
    /// No token, or less.
    Tokens,
    /// A period that is not a decimal number.
    NotANumber,
    /// A period of zero, below zero, or of 10^12 seconds or more.
    Period,
    /// A word other than `TOKENS` after the period.
    Syntax,
    /// `TOKENS` without a number.
    MissingTokens,
    /// Valid numbers that are beyond what the module counts.
    Beyond,
}

impl GcraError {
    /// Returns the text of the error reply; `None` if the server's own text applies.
    pub const fn text(self) -> Option<&'static CStr> {
        Some(match self {
            Self::Arity => return None,
            Self::MaxBurst => c"ERR value is out of range, must be positive",
            Self::NotAnInteger => c"ERR value is not an integer or out of range",
            Self::Tokens => {
                c"ERR value is out of range, value must between 1 and 9223372036854775807"
            }
            Self::NotANumber => c"ERR value is not a valid float",
            Self::Period => c"ERR period must be > 0 and < 1e12",
            Self::Syntax => c"ERR syntax error",
            Self::MissingTokens => c"ERR Missing TOKENS value",
            Self::Beyond => {
                c"ERR invalid max-burst, tokens-per-period or period: expected max-burst up to 999999999999, up to 1000000000 tokens per second, and up to 36525d to refill max-burst + 1 tokens"
            }
        })
    }
}

/// Parses the arguments after the key of `GCRA`.
///
/// # Errors
///
/// Returns the first error, from left to right. Limits beyond what the module counts are an error
/// of [`GcraRequest::counted`], which Redis reports after the type of the key.
pub fn gcra(args: &[&[u8]]) -> Result<GcraRequest, GcraError> {
    let [max_burst, per_period, seconds, option @ ..] = args else {
        return Err(GcraError::Arity);
    };
    if option.len() > 2 {
        return Err(GcraError::Arity);
    }
    let max_burst = integer(max_burst).and_then(|burst| u64::try_from(burst).ok());
    let max_burst = max_burst.ok_or(GcraError::MaxBurst)?;
    let per_period = tokens(per_period)?;
    let period = period(seconds)?;
    let tokens = match option {
        [] => Cost::ONE,
        [name, ..] if !name.eq_ignore_ascii_case(b"TOKENS") => return Err(GcraError::Syntax),
        [_, count, ..] => Cost::new(tokens(count)?.get()).unwrap_or(Cost::ABOVE_EVERY_LIMIT),
        [_] => return Err(GcraError::MissingTokens),
    };
    // The burst is at most 2^63 - 1.
    let limit = Limit::new(max_burst.saturating_add(1));
    let rule = limit.and_then(|limit| RedisCell::of_any_period(limit, per_period, period));
    Ok(GcraRequest { rule, tokens })
}

impl GcraRequest {
    /// Returns the call, if the module counts as far as its limits need.
    ///
    /// # Errors
    ///
    /// Returns [`GcraError::Beyond`] if it does not.
    pub fn counted(self) -> Result<ThrottleRequest, GcraError> {
        let rule = self.rule.ok_or(GcraError::Beyond)?;
        Ok(ThrottleRequest { rule, quantity: self.tokens })
    }
}

/// Parses an integer as Redis does: without a `+`, a space, a leading zero or `-0`.
fn integer(text: &[u8]) -> Option<i64> {
    match text {
        [b'0'] | [b'1'..=b'9', ..] => i64::try_from(number::integer(text)?).ok(),
        [b'-', b'1'..=b'9', ..] => str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// Parses a number of tokens, at least one.
fn tokens(text: &[u8]) -> Result<NonZeroU64, GcraError> {
    let tokens = integer(text).ok_or(GcraError::NotAnInteger)?;
    u64::try_from(tokens).ok().and_then(NonZeroU64::new).ok_or(GcraError::Tokens)
}

/// The bound of a period, in seconds: a period is shorter.
const PERIOD_BOUND_S: u64 = 1_000_000_000_000;

/// The digits after the point that are counted. Any further one, unless it is 0, counts as one more
/// microsecond.
const DECIMALS: usize = 6;

/// Parses a period in seconds, rounded up to the microsecond.
fn period(text: &[u8]) -> Result<Span, GcraError> {
    match number::integer(text) {
        Some(seconds @ 1..PERIOD_BOUND_S) => Ok(Span::from_us(seconds * 1_000_000)),
        _ => long_period(text),
    }
}

/// Parses a period that is not a whole number of seconds within its bounds.
#[cold]
fn long_period(text: &[u8]) -> Result<Span, GcraError> {
    let number = text.strip_prefix(b"-").unwrap_or(text);
    let mut parts = number.splitn(2, |byte| *byte == b'.');
    let (whole, decimals) = (parts.next().unwrap_or_default(), parts.next().unwrap_or(b"0"));
    let is_number = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    if !is_number(whole) || !is_number(decimals) {
        return Err(GcraError::NotANumber);
    }
    let (counted, further) = decimals.split_at(decimals.len().min(DECIMALS));
    let padding = [b'0'; DECIMALS];
    let microseconds = value(counted.iter().chain(&padding[counted.len()..]))
        + u64::from(further.iter().any(|digit| *digit != b'0'));
    let seconds = value(whole);
    let is_positive = number.len() == text.len() && (seconds, microseconds) != (0, 0);
    if !is_positive || seconds >= PERIOD_BOUND_S {
        return Err(GcraError::Period);
    }
    // At most 10^18, since the seconds are below their bound.
    Ok(Span::from_us(seconds * 1_000_000 + microseconds))
}

/// Returns the value of digits, or the largest number if it does not fit.
fn value<'a>(digits: impl IntoIterator<Item = &'a u8>) -> u64 {
    let append = |value: u64, digit: &u8| {
        value.saturating_mul(10).saturating_add(u64::from(digit.saturating_sub(b'0')))
    };
    digits.into_iter().fold(0, append)
}

#[cfg(test)]
mod tests;
