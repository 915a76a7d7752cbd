//! The descriptors of a request, as the decider reads them.

use crate::matching::Match;

/// The hits of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hits {
    /// Not given: one.
    Unset,
    /// Given. 0 checks without taking anything.
    Given(u64),
    /// To be given back.
    Back(u64),
}

/// The match of a descriptor, and its hits.
#[derive(Debug, Clone)]
pub struct DescriptorHits<'a> {
    /// The limit that the descriptor meets, if it meets one.
    pub found: Option<Match<'a>>,
    /// The hits.
    pub hits: Hits,
}
