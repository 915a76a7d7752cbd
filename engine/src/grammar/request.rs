//! What a call asks for, once it is read.

use super::error::GrammarError;
use super::lease::LeaseRequest;
use super::options::CallOptions;
use crate::algorithms::Rule;
use crate::bounds::Cost;

/// A call as it is meant: the rule and the cost. The key is none of the grammar's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The algorithm and its limits.
    pub rule: Rule,
    /// What the call takes. One of `BACKOFF` counts one.
    pub cost: Cost,
    /// Whether it takes what is there, up to its cost, which is then at least one.
    pub partial: bool,
}

impl Request {
    /// A call under `rule`.
    #[inline(always)]
    pub const fn new(rule: Rule, CallOptions { cost, partial }: CallOptions) -> Self {
        Self { rule, cost, partial }
    }

    /// The same, where it cannot be granted in part.
    ///
    /// # Errors
    ///
    /// [`GrammarError::PartialNotHere`] when it asks for that.
    pub fn in_full(self) -> Result<Self, GrammarError> {
        if self.partial { Err(GrammarError::PartialNotHere) } else { Ok(self) }
    }
}

/// What a rule asks for, wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// Units, by an algorithm.
    Units(Request),
    /// A lease.
    Lease(LeaseRequest<'a>),
}

impl Asked<'_> {
    /// The same, where it cannot be granted in part.
    ///
    /// # Errors
    ///
    /// [`GrammarError::PartialNotHere`] when it asks for that.
    pub fn in_full(self) -> Result<Self, GrammarError> {
        match self {
            Self::Units(Request { partial: true, .. }) => Err(GrammarError::PartialNotHere),
            asked => Ok(asked),
        }
    }
}
