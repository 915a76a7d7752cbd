//! Numbers and durations.

use crate::limiter::{Cost, Limit, Period, Span};

/// The units of a duration and what one is worth, in microseconds.
const UNITS: [(&[u8], u64); 6] = [
    (b"", 1_000_000),
    (b"ms", 1_000),
    (b"s", 1_000_000),
    (b"m", 60_000_000),
    (b"h", 3_600_000_000),
    (b"d", 86_400_000_000),
];

/// The most digits after the point.
const DECIMALS_MAX: u32 = 6;

/// Digits only, leading zeros included; `None` when there are none, or their value exceeds 64 bits.
pub fn integer(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
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
    let is_unit = |byte: &u8| byte.is_ascii_lowercase();
    let number_len = duration.iter().position(is_unit).unwrap_or(duration.len());
    let (number, unit) = duration.split_at(number_len);
    let (_, unit_us) = UNITS.into_iter().find(|(name, _)| *name == unit)?;

    let point = number.iter().position(|byte| *byte == b'.');
    let (whole, decimals) = match point {
        Some(point) => (number.get(..point)?, Some(number.get(point + 1..)?)),
        None => (number, None),
    };
    let whole_us = integer(whole)?.checked_mul(unit_us)?;
    let decimals_us = decimals.map_or(Some(0), |digits| fraction_of(digits, unit_us))?;
    Some(Span::from_us(whole_us.checked_add(decimals_us)?))
}

/// `0.digits x unit_us`; `None` when that is no whole number.
fn fraction_of(digits: &[u8], unit_us: u64) -> Option<u64> {
    let count = u32::try_from(digits.len()).ok().filter(|count| *count <= DECIMALS_MAX)?;
    let scale = 10_u64.pow(count);
    // At most 10^6 x one day in microseconds.
    let scaled = integer(digits)?.checked_mul(unit_us)?;
    scaled.is_multiple_of(scale).then_some(scaled / scale)
}
