//! Leases: the holder, the number of permits, and the ttl.

use crate::bounds::{Leave, Period};
use crate::grammar::error::GrammarError;
use crate::grammar::number;
use crate::grammar::options::leave_only;
use crate::leases::Lease;

/// The length of the longest id of a holder, in bytes.
const ID_LEN_MAX: usize = 128;

/// A requested lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest<'a> {
    /// The id of the holder.
    pub id: &'a [u8],
    /// The largest number of holders, and the ttl.
    pub rule: Lease,
    /// `LEAVE n` or `LEAVE p%`: the permits that must stay free.
    pub leave: Option<Leave>,
}

/// Parses the arguments after the key of `RL.LEASE`, or after the word `LEASE` in a rule.
///
/// # Errors
///
/// Returns the first error, from left to right.
#[inline(always)]
pub fn lease<'a>(args: &[&'a [u8]]) -> Result<LeaseRequest<'a>, GrammarError> {
    let [id, limit, ttl, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let id = holder(id)?;
    let limit = number::limit(limit)
        .filter(|limit| *limit <= Lease::LIMIT_MAX)
        .ok_or(GrammarError::LeaseLimit)?;
    let ttl = number::period(ttl).ok_or(GrammarError::Ttl)?;
    let leave = if rest.is_empty() { None } else { leave_only(rest)? };
    Ok(LeaseRequest { id, rule: Lease { limit, ttl }, leave })
}

/// Parses the arguments after the key of `RL.RENEW`: the id of the holder, and the ttl, which
/// starts now.
///
/// # Errors
///
/// Returns the first error, from left to right.
pub fn renew<'a>(args: &[&'a [u8]]) -> Result<(&'a [u8], Period), GrammarError> {
    let [id, ttl] = args else {
        return Err(GrammarError::Arity);
    };
    let id = holder(id)?;
    Ok((id, number::period(ttl).ok_or(GrammarError::Ttl)?))
}

/// Parses the argument after the key of `RL.RELEASE`: the id of the holder.
///
/// # Errors
///
/// Returns [`GrammarError::LeaseId`] if the id is invalid.
pub fn release<'a>(args: &[&'a [u8]]) -> Result<&'a [u8], GrammarError> {
    let [id] = args else {
        return Err(GrammarError::Arity);
    };
    holder(id)
}

/// Checks the id of a holder, which may be any bytes. An empty id is refused, because the module
/// uses the empty id as the mark of its sets of holders.
fn holder(id: &[u8]) -> Result<&[u8], GrammarError> {
    if (1..=ID_LEN_MAX).contains(&id.len()) { Ok(id) } else { Err(GrammarError::LeaseId) }
}

#[cfg(test)]
mod tests;
