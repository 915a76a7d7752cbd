//! The behavior of a rule if the server gives no answer.

use std::str::FromStr;

use crate::Error;

/// The decision on a call if the server gives no answer. `Deny` is stricter than `Local`, and
/// `Local` than `Allow`: of several rules the strictest decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OnError {
    /// Open: the call is allowed, and its decision is marked as degraded.
    #[default]
    Allow,
    /// This process enforces the rule, or the share of it that the rule sets.
    Local,
    /// Closed: the call is denied until the server answers again.
    Deny,
}

impl FromStr for OnError {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "allow" => Ok(Self::Allow),
            "local" => Ok(Self::Local),
            "deny" => Ok(Self::Deny),
            _ => Err(Error::invalid("on_error", "expected allow, deny or local")),
        }
    }
}
