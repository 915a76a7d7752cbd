//! What replicas and the append-only file get: the effect in absolute terms, never the command.
//!
//! It is sent also when nobody seems to listen: that is what makes `save` points fire.

use super::ffi::Call;
use crate::limiter::sliding_log::RawEntry;

/// The key now holds `bytes` and expires when it did before.
pub fn replaced(call: &Call<'_>, bytes: &[u8]) {
    call.replicate_set_keepttl(bytes);
}

/// The key now holds `bytes` until `expire_at_ms`.
pub fn replaced_until(call: &Call<'_>, bytes: &[u8], expire_at_ms: u64) {
    call.replicate_set_pxat(bytes, expire_at_ms);
}

/// A log now ends with `entry` at `offset`.
pub fn patched(call: &Call<'_>, offset: usize, entry: &RawEntry) {
    call.replicate_setrange(offset, entry);
}

/// The key now lives until `expire_at_ms`.
pub fn extended(call: &Call<'_>, expire_at_ms: u64) {
    call.replicate_pexpireat(expire_at_ms);
}
