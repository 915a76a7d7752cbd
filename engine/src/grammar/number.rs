//! Numbers and durations.

use crate::bounds::{Cost, Leave, Limit, Period};
use crate::time::Span;

/// The largest number of digits after the point.
const DECIMALS_MAX: u32 = 6;

/// The largest number of digits whose value always fits into 64 bits.
const DIGITS_FITTING: usize = 19;

/// Parses decimal digits, with leading zeros allowed. Returns `None` if there is no digit or any
/// other byte, or if the value exceeds 64 bits.
pub fn integer(digits: &[u8]) -> Option<u64> {
    let (value, rest) = split_integer(digits)?;
    rest.is_empty().then_some(value)
}

/// Splits `bytes` into the value of its leading digits and the rest. Returns `None` if there is no
/// digit, or if the value exceeds 64 bits.
#[inline(always)]
fn split_integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    if bytes.len() > DIGITS_FITTING {
        return split_long_integer(bytes);
    }
    let mut value = 0_u64;
    let mut rest = bytes;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit.wrapping_sub(b'0')));
        rest = after;
    }
    (rest.len() < bytes.len()).then_some((value, rest))
}

/// Splits as [`split_integer`] does, but checks that the value fits in 64 bits.
#[cold]
fn split_long_integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = bytes;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        rest = after;
    }
    (rest.len() < bytes.len()).then_some((value, rest))
}

/// Parses a limit, burst, capacity or rate.
pub fn limit(digits: &[u8]) -> Option<Limit> {
    Limit::new(integer(digits)?)
}

/// Parses a cost.
pub fn cost(digits: &[u8]) -> Option<Cost> {
    Cost::new(integer(digits)?)
}

/// Parses the units to leave: a number, or a percentage with `%`.
pub fn leave(value: &[u8]) -> Option<Leave> {
    match value.strip_suffix(b"%") {
        None => cost(value).map(Leave::Units),
        Some(digits) => percent(digits).map(Leave::Percent),
    }
}

/// Parses a whole percentage, without its sign.
pub fn percent(digits: &[u8]) -> Option<u8> {
    u8::try_from(integer(digits)?).ok().filter(|percent| *percent <= 100)
}

/// Parses a window or a period.
pub fn period(duration: &[u8]) -> Option<Period> {
    Period::new(span(duration)?)
}

/// Parses a duration: digits, optionally a point and up to six more digits, optionally a unit (by
/// default seconds). Returns `None` if it is invalid or not a whole number of microseconds.
fn span(duration: &[u8]) -> Option<Span> {
    let (whole, rest) = split_integer(duration)?;
    match unit_us(rest) {
        Some(unit_us) => Some(Span::from_us(whole.checked_mul(unit_us)?)),
        None => span_with_decimals(whole, rest),
    }
}

/// Parses the rest of a duration, from the point on. `whole` is the number before the point.
#[cold]
fn span_with_decimals(whole: u64, rest: &[u8]) -> Option<Span> {
    let decimals = rest.strip_prefix(b".")?;
    let (value, unit) = split_integer(decimals)?;
    let unit_us = unit_us(unit)?;
    let decimals_us = fraction_of(value, decimals.len() - unit.len(), unit_us)?;
    Some(Span::from_us(whole.checked_mul(unit_us)?.checked_add(decimals_us)?))
}

/// Returns the length of a unit in microseconds; `None` for an unknown unit.
#[inline(always)]
const fn unit_us(unit: &[u8]) -> Option<u64> {
    match unit {
        b"ms" => Some(1_000),
        b"" | b"s" => Some(1_000_000),
        b"m" => Some(60_000_000),
        b"h" => Some(3_600_000_000),
        b"d" => Some(86_400_000_000),
        _ => None,
    }
}

/// Converts the part of a duration after the point to microseconds. The part has `digits` digits
/// with the value `decimals`, and the unit is `unit_us` long. Returns `None` if the result is not a
/// whole number.
fn fraction_of(decimals: u64, digits: usize, unit_us: u64) -> Option<u64> {
    let digits = u32::try_from(digits).ok().filter(|digits| *digits <= DECIMALS_MAX)?;
    let scale = 10_u64.pow(digits);
    // At most 10^6 x one day in microseconds.
    let scaled = decimals.checked_mul(unit_us)?;
    scaled.is_multiple_of(scale).then_some(scaled / scale)
}
