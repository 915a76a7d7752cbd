//! Durations as the server reads them: from 1 ms to 366 days, in whole microseconds.

use std::time::Duration;

use crate::Error;

pub(crate) const SECOND_US: u64 = 1_000_000;
pub(crate) const DAY_US: u64 = 86_400 * SECOND_US;
const DECIMALS_MAX: usize = 6;

/// A duration of a rule: a [`Duration`], or text with a unit (`"500ms"`, `"1.5s"`, `"60"`, `"1h"`,
/// `"7d"`).
pub trait Span: sealed::Sealed {
    /// Returns the microseconds, or `None` if the duration is not a whole number of them.
    #[doc(hidden)]
    fn whole_us(&self) -> Option<u64>;
}

mod sealed {
    #[allow(unnameable_types, reason = "a sealed trait is not named")]
    pub trait Sealed {}
    impl Sealed for std::time::Duration {}
    impl Sealed for &str {}
}

impl Span for Duration {
    fn whole_us(&self) -> Option<u64> {
        self.subsec_nanos().is_multiple_of(1000).then(|| u64::try_from(self.as_micros()).ok())?
    }
}

impl Span for &str {
    fn whole_us(&self) -> Option<u64> {
        let unit_at = self.find(|char: char| char.is_ascii_alphabetic()).unwrap_or(self.len());
        let (number, unit) = self.split_at(unit_at);
        let unit_us = match unit {
            "ms" => 1000,
            "" | "s" => SECOND_US,
            "m" => 60 * SECOND_US,
            "h" => 3600 * SECOND_US,
            "d" => DAY_US,
            _ => return None,
        };
        let (whole, decimals) = match number.split_once('.') {
            Some((_, "")) => return None,
            Some(parts) => parts,
            None => (number, ""),
        };
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS_MAX
        {
            return None;
        }
        let parts: u128 = format!("{whole}{decimals}").parse().ok()?;
        let scale = 10_u128.pow(u32::try_from(decimals.len()).ok()?);
        let scaled = parts.checked_mul(u128::from(unit_us))?;
        scaled.is_multiple_of(scale).then(|| u64::try_from(scaled / scale).ok())?
    }
}

/// Returns the microseconds of a duration in the server's range.
pub(crate) fn checked_us(span: &impl Span, argument: &'static str) -> Result<u64, Error> {
    span.whole_us().filter(|us| (1000..=366 * DAY_US).contains(us)).ok_or_else(|| {
        Error::invalid(argument, "expected a duration of whole microseconds, from 1ms to 366d")
    })
}

/// Formats a duration as the server reads it: in whole seconds if possible, otherwise in
/// milliseconds.
pub(crate) fn text(us: u64) -> String {
    if us.is_multiple_of(SECOND_US) {
        return (us / SECOND_US).to_string();
    }
    let (whole, decimals) = (us / 1000, us % 1000);
    if decimals == 0 {
        return format!("{whole}ms");
    }
    format!("{whole}.{}ms", format!("{decimals:03}").trim_end_matches('0'))
}

/// Converts a span to whole milliseconds, rounded up.
pub(crate) fn ceil_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
