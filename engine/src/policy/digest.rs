//! A digest of the settings in force on a server: one number to compare across a cluster.

use crate::policy::definition::{Setting, fnv_1a};
use crate::policy::name::FullName;

/// Returns the part of one setting in the digest. A setting that expires (`ends`) has another part
/// than the same setting without an end. The digest of a table is the sum of the parts of its
/// settings, in any order.
pub fn part(name: &FullName, setting: &Setting, ends: bool) -> u64 {
    let until: &[u8] = if ends { b" EX " } else { b" " };
    let line = name.as_bytes().iter().chain(until).chain(setting.text.as_bytes());
    mix(fnv_1a(line))
}

/// Spreads each bit of a hash over all bits: sums of plain hashes of similar lines would collide
/// too often. Source: Stafford's variant 13 of the finaliser of MurmurHash3, as in SplitMix64.
const fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
