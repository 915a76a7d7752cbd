//! What replicas and the append-only file get: the effect in absolute terms, never the command.
//!
//! It is sent also when nobody seems to listen: that is what makes `save` points fire. `KEEPTTL`
//! and `SETRANGE` rest on what the receiver holds already: they are right where it has received
//! everything before, and nothing else has changed the key there.

use crate::api::Refused;
use crate::api::key::WriteKey;
use redis_throttle_engine::state::Change;

/// Sends the effect of `change` on `key`, which expires at `new_expiry_ms` from now on, or when it
/// did before.
///
/// # Errors
///
/// [`Refused`] when the server does not take it.
#[inline(always)]
pub fn send(
    key: &WriteKey<'_, '_>,
    change: &Change,
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    match change {
        Change::Whole(bytes) => replaced(key, bytes.as_slice(), new_expiry_ms),
        Change::Rewrite(bytes) => replaced(key, bytes, new_expiry_ms),
        Change::Patch { offset, entry } => overwritten(key, *offset, entry, new_expiry_ms),
        Change::Tail { offset, entries } => overwritten(key, *offset, entries, new_expiry_ms),
    }
}

#[inline(always)]
fn overwritten(
    key: &WriteKey<'_, '_>,
    offset: usize,
    bytes: &[u8],
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    key.replicate_setrange(offset, bytes)?;
    new_expiry_ms.map_or(Ok(()), |ms| key.replicate_pexpireat(ms))
}

#[inline(always)]
fn replaced(
    key: &WriteKey<'_, '_>,
    bytes: &[u8],
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    match new_expiry_ms {
        None => key.replicate_set_keepttl(bytes),
        Some(ms) => key.replicate_set_pxat(bytes, ms),
    }
}
