//! One entry of a sliding log, and its encoding in twelve bytes.

use crate::time::{Instant, Span};

/// The length of an entry in bytes: six for the microseconds since the base and six for the running
/// total, both big endian.
pub const ENTRY_LEN: usize = 12;

/// One entry as it is stored.
pub type RawEntry = [u8; ENTRY_LEN];

/// The largest number that six bytes hold.
const SIX_BYTES_MAX: u64 = (1 << 48) - 1;

/// An instant and the running total up to and including it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The instant of the calls that share this entry.
    pub instant: Instant,
    /// The cost of all entries up to and including this one.
    pub total: u64,
}

impl Entry {
    /// Encodes the entry relative to `base`, with its total reduced by `passed`. Only a forged log
    /// can hold a number that does not fit in six bytes; the largest number that fits replaces it.
    pub fn pack(self, base: Instant, passed: u64) -> RawEntry {
        let offset_us = self.instant.since(base).as_us().min(SIX_BYTES_MAX);
        let total = self.total.saturating_sub(passed).min(SIX_BYTES_MAX);
        let [_, _, a, b, c, d, e, f] = offset_us.to_be_bytes();
        let [_, _, g, h, i, j, k, l] = total.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Decodes an entry.
    pub(super) fn unpack(raw: &RawEntry, base: Instant) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *raw;
        let offset_us = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        let total = u64::from_be_bytes([0, 0, g, h, i, j, k, l]);
        Self { instant: base.after(Span::from_us(offset_us)), total }
    }

    /// Returns true if both numbers fit in their six bytes.
    pub(super) fn fits(self, base: Instant) -> bool {
        self.instant.since(base).as_us() <= SIX_BYTES_MAX && self.total <= SIX_BYTES_MAX
    }
}
