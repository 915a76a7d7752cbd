//! Replication: replicas and the append-only file receive the effect of a call, which contains the
//! new value and expiry, never the call itself.
//!
//! The effect is sent even without a replica or an append-only file, because it also triggers
//! `save` points. `KEEPTTL` and `SETRANGE` depend on the receiver's value: they are correct if the
//! receiver got all earlier effects and nothing else has changed the key there.

use crate::api::Refused;
use crate::api::key::WriteKey;
use redis_throttle_engine::state::Change;

/// Sends the effect of `change` on `key`. Without `new_expiry_ms`, the key keeps its expiry.
///
/// # Errors
///
/// [`Refused`] if the server does not accept the effect.
#[inline(always)]
pub fn send(
    key: &WriteKey<'_, '_>,
    change: &Change,
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    match change {
        Change::Whole(bytes) => replicate_whole(key, bytes.as_slice(), new_expiry_ms),
        Change::Rewrite(bytes) => replicate_whole(key, bytes, new_expiry_ms),
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
fn replicate_whole(
    key: &WriteKey<'_, '_>,
    bytes: &[u8],
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    match new_expiry_ms {
        None => key.replicate_set_keepttl(bytes),
        Some(ms) => key.replicate_set_pxat(bytes, ms),
    }
}
