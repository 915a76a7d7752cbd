//! The responses that count under a rule.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;

use ::http::response::Parts;

use crate::Error;

/// The status from which a response is a failure.
const FAILURE_MIN: u16 = 400;

/// The responses that count under a rule. Middleware gives the units of others back.
#[derive(Clone, Default, PartialEq)]
pub struct Count(Which);

#[derive(Clone, Default)]
enum Which {
    #[default]
    All,
    Failures,
    If(Arc<dyn Fn(&Parts) -> bool + Send + Sync>),
}

impl PartialEq for Which {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) | (Self::Failures, Self::Failures) => true,
            (Self::If(one), Self::If(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Count {
    /// Every response, and every request without one.
    pub const ALL: Self = Self(Which::All);
    /// A response with a status of 400 or more, and every request without a response, because the
    /// service failed or the client was gone before.
    pub const FAILURES: Self = Self(Which::Failures);

    /// Creates the count of the responses for which the predicate is true, and of every request
    /// without a response. A predicate that panics counts the response. Two counts are equal if
    /// they are clones of one.
    pub fn when(predicate: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        Self(Which::If(Arc::new(predicate)))
    }

    /// Returns true if a response with this head counts.
    #[must_use]
    pub fn counts(&self, head: &Parts) -> bool {
        match &self.0 {
            Which::All => true,
            Which::Failures => head.status.as_u16() >= FAILURE_MIN,
            // After a panic the response counts, and its request is not disturbed.
            Which::If(predicate) => {
                catch_unwind(AssertUnwindSafe(|| predicate(head))).unwrap_or(true)
            }
        }
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.0 {
            Which::All => "all",
            Which::Failures => "failures",
            Which::If(_) => "a predicate",
        })
    }
}

impl FromStr for Count {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "all" => Ok(Self::ALL),
            "failures" => Ok(Self::FAILURES),
            _ => Err(Error::invalid("count", "expected all, failures or a predicate")),
        }
    }
}
