//! A parsed call: its rule and its options.

use super::error::GrammarError;
use super::lease::LeaseRequest;
use crate::algorithms::Rule;
use crate::call::CallOptions;

/// A rule and the options of the call under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The algorithm and its limits.
    pub rule: Rule,
    /// The cost and options of the call.
    pub options: CallOptions,
}

impl Request {
    /// Returns the request unchanged, or an error if it has the option `PARTIAL`.
    ///
    /// # Errors
    ///
    /// Returns the error of [`CallOptions::in_full`].
    pub fn in_full(self) -> Result<Self, GrammarError> {
        self.options.in_full().map(|()| self)
    }

    /// Returns the request, or an error if its options are only for a call that is decided.
    ///
    /// # Errors
    ///
    /// Returns the error of [`CallOptions::unconditional`].
    pub fn unconditional(self) -> Result<Self, GrammarError> {
        self.options.unconditional().map(|()| self)
    }
}

/// A parsed rule: a rule of an algorithm, or a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyRequest<'a> {
    /// A call for units of an algorithm.
    Units(Request),
    /// A lease.
    Lease(LeaseRequest<'a>),
}

impl AnyRequest<'_> {
    /// Returns the rule unchanged, or an error if the call has the option `PARTIAL`.
    ///
    /// # Errors
    ///
    /// Returns the error of [`CallOptions::in_full`].
    pub fn in_full(self) -> Result<Self, GrammarError> {
        match self {
            Self::Units(request) => request.in_full().map(Self::Units),
            Self::Lease(_) => Ok(self),
        }
    }
}
