//! Leases: who asks, for which of so many permits, and for how long.

use crate::bounds::Period;
use crate::grammar::error::GrammarError;
use crate::grammar::number;
use crate::leases::Lease;

/// The longest id of a holder.
const ID_LEN_MAX: usize = 128;

/// A lease that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseRequest<'a> {
    /// The holder.
    pub id: &'a [u8],
    /// How many there may be, and for how long.
    pub rule: Lease,
}

/// Reads what follows the key of `RL.LEASE`, or the name of the rule.
///
/// # Errors
///
/// The first thing wrong, from left to right.
pub fn lease<'a>(args: &[&'a [u8]]) -> Result<LeaseRequest<'a>, GrammarError> {
    let [id, limit, ttl, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let id = holder(id)?;
    let limit = number::limit(limit)
        .filter(|limit| *limit <= Lease::LIMIT_MAX)
        .ok_or(GrammarError::LeaseLimit)?;
    let ttl = number::period(ttl).ok_or(GrammarError::Ttl)?;
    if !rest.is_empty() {
        return Err(GrammarError::LeaseOption);
    }
    Ok(LeaseRequest { id, rule: Lease { limit, ttl } })
}

/// Reads what follows the key of `RL.RENEW`: the holder, and for how long from now on.
///
/// # Errors
///
/// The first thing wrong, from left to right.
pub fn renew<'a>(args: &[&'a [u8]]) -> Result<(&'a [u8], Period), GrammarError> {
    let [id, ttl] = args else {
        return Err(GrammarError::Arity);
    };
    let id = holder(id)?;
    Ok((id, number::period(ttl).ok_or(GrammarError::Ttl)?))
}

/// Reads what follows the key of `RL.RELEASE`: the holder.
///
/// # Errors
///
/// [`GrammarError::LeaseId`] when it is none.
pub fn release<'a>(args: &[&'a [u8]]) -> Result<&'a [u8], GrammarError> {
    let [id] = args else {
        return Err(GrammarError::Arity);
    };
    holder(id)
}

/// The id of a holder: any bytes. An empty one would be the mark of the set that holds them.
fn holder(id: &[u8]) -> Result<&[u8], GrammarError> {
    if (1..=ID_LEN_MAX).contains(&id.len()) { Ok(id) } else { Err(GrammarError::LeaseId) }
}

#[cfg(test)]
mod tests;
