//! The algorithms of rules and the units of quotas.

use std::str::FromStr;

use crate::Error;
use crate::rules::durations::DAY_US;

/// The calendar unit of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday, or from the configured start.
    Week,
    /// From the first day of the month, or from the configured start.
    Month,
    /// Three months.
    Quarter,
    /// From the first of January.
    Year,
}

impl QuotaUnit {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    /// Returns the unit's length, or `None` if it varies.
    pub(crate) fn window_us(self) -> Option<u64> {
        match self {
            Self::Day => Some(DAY_US),
            Self::Week => Some(7 * DAY_US),
            _ => None,
        }
    }
}

impl FromStr for QuotaUnit {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        [Self::Day, Self::Week, Self::Month, Self::Quarter, Self::Year]
            .into_iter()
            .find(|unit| unit.word() == text)
            .ok_or_else(|| Error::invalid("unit", "expected day, week, month, quarter or year"))
    }
}

/// The algorithm of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names of the algorithms are their constructors")]
pub enum Kind {
    Gcra,
    TokenBucket,
    LeakyBucket,
    Fixed,
    Sliding,
    SlidingLog,
    Backoff,
    Quota,
    Lease,
    Policy,
}
