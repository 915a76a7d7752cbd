//! Numbers and durations.

use crate::bounds::{Cost, Limit, Period};
use crate::time::Span;

/// The most digits after the point.
const DECIMALS_MAX: u32 = 6;

/// Digits only, leading zeros included; `None` when there are none, or their value exceeds 64 bits.
pub fn integer(digits: &[u8]) -> Option<u64> {
    let (value, rest) = split_integer(digits)?;
    rest.is_empty().then_some(value)
}

/// The digits in front and what comes after them; `None` as for [`integer`].
fn split_integer(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    let mut rest = bytes;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
        rest = after;
    }
    (rest.len() < bytes.len()).then_some((value, rest))
}

/// A limit, burst, capacity or rate.
pub fn limit(digits: &[u8]) -> Option<Limit> {
    Limit::new(integer(digits)?)
}

/// A cost.
pub fn cost(digits: &[u8]) -> Option<Cost> {
    Cost::new(integer(digits)?)
}

/// A window or a period.
pub fn period(duration: &[u8]) -> Option<Period> {
    Period::new(span(duration)?)
}

/// A duration: digits, perhaps a point and up to six more, perhaps a unit; seconds without one.
/// `None` also when it is no whole number of microseconds.
fn span(duration: &[u8]) -> Option<Span> {
    let (whole, rest) = split_integer(duration)?;
    let (decimals, unit) = match rest {
        [b'.', rest @ ..] => {
            let (decimals, unit) = split_integer(rest)?;
            (Some((decimals, rest.len() - unit.len())), unit)
        }
        unit => (None, unit),
    };
    let unit_us = match unit {
        b"ms" => 1_000,
        b"" | b"s" => 1_000_000,
        b"m" => 60_000_000,
        b"h" => 3_600_000_000,
        b"d" => 86_400_000_000,
        _ => return None,
    };
    let decimals_us = match decimals {
        None => 0,
        Some((decimals, digits)) => fraction_of(decimals, digits, unit_us)?,
    };
    Some(Span::from_us(whole.checked_mul(unit_us)?.checked_add(decimals_us)?))
}

/// What `decimals`, so many digits after the point, is of `unit_us`; `None` when no whole number.
fn fraction_of(decimals: u64, digits: usize, unit_us: u64) -> Option<u64> {
    let digits = u32::try_from(digits).ok().filter(|digits| *digits <= DECIMALS_MAX)?;
    let scale = 10_u64.pow(digits);
    // At most 10^6 x one day in microseconds.
    let scaled = decimals.checked_mul(unit_us)?;
    scaled.is_multiple_of(scale).then_some(scaled / scale)
}
