//! Rates as text: `10/minute`, `5 per 2 hours`, `20/90s`.

use std::str::FromStr;
use std::time::Duration;

use crate::rules::durations::{DAY_US, SECOND_US, Span, checked_us};
use crate::rules::rule::UNITS_MAX;
use crate::{Error, Rule};

const EXPECTED: &str = "expected text such as 10/minute, 5 per 2 hours or 20/90s";

/// A number of units per period, read from text such as `10/minute`. Its methods make rules, so
/// that a limit can come from a configuration.
///
/// ```
/// use redis_throttle_client::{Rate, Rule};
///
/// let rate: Rate = "100/minute".parse()?;
/// assert_eq!(rate.gcra("api", 20)?, Rule::gcra("api", 20, 100, "1m")?);
/// assert_eq!(rate.fixed("api")?, Rule::fixed("api", 100, "1m")?);
/// # Ok::<(), redis_throttle_client::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    units: u64,
    period: Duration,
}

impl Rate {
    /// Reads a rate: the units, a slash or ` per `, and the period.
    ///
    /// The units are a whole number from 1 to 10^12. The period is a word, also with a whole number
    /// before it (`minute`, `2 hours`), or a duration with its unit (`90s`, `1.5h`, `250ms`), from
    /// 1 ms to 366 days. The words are `second`, `sec`, `s`, `minute`, `min`, `m`, `hour`, `hr`,
    /// `h`, `day`, `d`, and `seconds`, `minutes`, `hours` and `days`. The slash may have a space on
    /// each side.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redis_throttle_client::Rate;
    ///
    /// let rate = Rate::parse("5 per 2 hours")?;
    /// assert_eq!((rate.units(), rate.period()), (5, Duration::from_secs(7200)));
    /// assert!(Rate::parse("10/month").is_err()); // use Rule::quota
    /// # Ok::<(), redis_throttle_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for any other text. Months and years have no fixed length:
    /// [`Rule::quota`] counts them.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let parts = || {
            let (units, period) = match text.split_once(" per ") {
                Some(parts) => parts,
                None => {
                    let (units, period) = text.split_once('/')?;
                    let period = period.strip_prefix(' ').unwrap_or(period);
                    (units.strip_suffix(' ').unwrap_or(units), period)
                }
            };
            Some((whole(units).filter(|units| *units <= UNITS_MAX)?, period))
        };
        let (units, period) = parts().ok_or_else(|| Error::invalid("rate", EXPECTED))?;
        let us = period_us(period)?;
        checked_us(&Duration::from_micros(us), "rate")?;
        Ok(Self { units, period: Duration::from_micros(us) })
    }

    /// Returns the units per period.
    #[must_use]
    pub fn units(self) -> u64 {
        self.units
    }

    /// Returns the period.
    #[must_use]
    pub fn period(self) -> Duration {
        self.period
    }

    /// Creates a GCRA rule: `burst` at once, then this rate.
    ///
    /// # Errors
    /// The same as [`Rule::gcra`].
    pub fn gcra(self, name: &str, burst: u64) -> Result<Rule, Error> {
        Rule::gcra(name, burst, self.units, self.period)
    }

    /// Creates a token bucket that refills at this rate.
    ///
    /// # Errors
    /// The same as [`Rule::gcra`].
    pub fn token_bucket(self, name: &str, capacity: u64) -> Result<Rule, Error> {
        Rule::token_bucket(name, capacity, self.units, self.period)
    }

    /// Creates a leaky bucket that drains at this rate.
    ///
    /// # Errors
    /// The same as [`Rule::gcra`].
    pub fn leaky_bucket(self, name: &str, capacity: u64) -> Result<Rule, Error> {
        Rule::leaky_bucket(name, capacity, self.units, self.period)
    }

    /// Creates a fixed window: the units per window of the period.
    ///
    /// # Errors
    /// The same as [`Rule::fixed`].
    pub fn fixed(self, name: &str) -> Result<Rule, Error> {
        Rule::fixed(name, self.units, self.period)
    }

    /// Creates a sliding window: about the units in any period.
    ///
    /// # Errors
    /// The same as [`Rule::fixed`].
    pub fn sliding(self, name: &str) -> Result<Rule, Error> {
        Rule::sliding(name, self.units, self.period)
    }

    /// Creates a sliding log: never more than the units in any period.
    ///
    /// # Errors
    /// The same as [`Rule::fixed`].
    pub fn sliding_log(self, name: &str) -> Result<Rule, Error> {
        Rule::sliding_log(name, self.units, self.period)
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

/// Reads a whole number from 1 of ASCII digits.
fn whole(text: &str) -> Option<u64> {
    let is_whole = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_whole.then(|| text.parse().ok())?.filter(|number| *number > 0)
}

/// Returns the microseconds of a period.
fn period_us(text: &str) -> Result<u64, Error> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, word) = text.split_at(digits);
    let (count, word) = match count {
        "" => (Some(1), word),
        count => (whole(count), word.strip_prefix(' ').unwrap_or(word)),
    };
    let unit_us = match word {
        "second" | "seconds" | "sec" | "s" => SECOND_US,
        "minute" | "minutes" | "min" | "m" => 60 * SECOND_US,
        "hour" | "hours" | "hr" | "h" => 3600 * SECOND_US,
        "day" | "days" | "d" => DAY_US,
        "month" | "months" | "year" | "years" => {
            let expected =
                "expected seconds, minutes, hours or days: a quota counts months and years";
            return Err(Error::invalid("rate", expected));
        }
        _ => {
            // Seconds without a unit are a duration, but no period: `10/60` has two meanings.
            let duration = text.ends_with(|char: char| char.is_ascii_alphabetic()).then_some(text);
            let us = duration.and_then(|text| text.whole_us());
            return us.ok_or_else(|| Error::invalid("rate", EXPECTED));
        }
    };
    count
        .and_then(|count| count.checked_mul(unit_us))
        .ok_or_else(|| Error::invalid("rate", EXPECTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_month_names_the_quota() {
        for text in ["10/month", "5 per 2 years"] {
            let error = Rate::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("invalid rate: ") && error.contains("quota"), "{error}");
        }
        assert!(Rate::parse("10/60").is_err(), "a number without a unit is no period");
    }

    #[test]
    fn rules_of_a_rate_are_those_of_its_numbers() {
        let rate = Rate::parse("10/minute").unwrap();
        for (found, wanted) in [
            (rate.gcra("api", 5), Rule::gcra("api", 5, 10, "1m")),
            (rate.token_bucket("api", 5), Rule::token_bucket("api", 5, 10, "1m")),
            (rate.leaky_bucket("api", 5), Rule::leaky_bucket("api", 5, 10, "1m")),
            (rate.fixed("api"), Rule::fixed("api", 10, "1m")),
            (rate.sliding("api"), Rule::sliding("api", 10, "1m")),
            (rate.sliding_log("api"), Rule::sliding_log("api", 10, "1m")),
        ] {
            assert_eq!(found.unwrap(), wanted.unwrap());
        }
    }
}
