//! What a call asks for, once it is read.

use super::error::GrammarError;
use super::lease::LeaseRequest;
use super::options::CallOptions;
use crate::algorithms::Rule;

/// A rule and the options of the call under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The algorithm and its limits.
    pub rule: Rule,
    /// What the call takes, and how.
    pub options: CallOptions,
}

impl Request {
    /// Returns the request, if it takes its cost in full.
    ///
    /// # Errors
    ///
    /// As for [`CallOptions::in_full`].
    pub fn in_full(self) -> Result<Self, GrammarError> {
        self.options.in_full().map(|()| self)
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
    /// Returns the same, if it takes its cost in full.
    ///
    /// # Errors
    ///
    /// As for [`CallOptions::in_full`].
    pub fn in_full(self) -> Result<Self, GrammarError> {
        match self {
            Self::Units(request) => request.in_full().map(Self::Units),
            Self::Lease(_) => Ok(self),
        }
    }
}
