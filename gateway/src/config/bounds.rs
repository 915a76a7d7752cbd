//! The bounds of files.

/// The most files of a folder.
pub(crate) const FILES_MAX: usize = 1_000;
/// The most limits of a file, and the most descriptors of its tree.
pub(crate) const LIMITS_MAX: usize = 10_000;
/// The most entries of a descriptor, which is the depth of a tree.
pub(crate) const ENTRIES_MAX: usize = 16;
/// The most bytes of a domain's name.
pub(crate) const DOMAIN_BYTES_MAX: usize = 255;
/// The most bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 256;
/// The most bytes of a value.
pub(crate) const VALUE_BYTES_MAX: usize = 1_024;
/// The most units of one hit.
pub(crate) const COST_MAX: u64 = 1_000_000_000_000;
