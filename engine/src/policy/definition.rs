//! What is said of a policy: its rule, and whether it bites.

use crate::algorithms::Rule;
use crate::policy::name::Name;
use crate::time::{Instant, Span};

/// Whether the rule of a policy bites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// For so many per cent of the subjects, 0 to 100; for the rest it is a shadow.
    Percent(u8),
    /// It decides and counts, and always allows.
    Shadow,
    /// It allows, and nothing is looked up or stored.
    Off,
    /// It denies, and nothing is looked up or stored.
    Block,
}

/// A rule and whether it bites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Whether the rule bites.
    pub enforcement: Enforcement,
    /// The rule.
    pub rule: Rule,
    /// Both as a line of the file has them after the name; equal for what means the same.
    pub text: Box<str>,
}

/// What a policy does with one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// The rule decides.
    Enforced,
    /// The rule decides and counts; the answer is yes.
    Shadow,
    /// The answer is yes.
    Off,
    /// The answer is no, for so long; `None` when nobody knows for how long.
    Blocked(Option<Span>),
}

impl Enforcement {
    /// What it means for a subject of `policy` at `now`, when it ends at `ends_at`.
    #[inline]
    pub fn stance(
        self,
        policy: Name<'_>,
        subject: &[u8],
        ends_at: Option<Instant>,
        now: Instant,
    ) -> Stance {
        match self {
            Self::Percent(100) => Stance::Enforced,
            Self::Percent(percent) if lot(policy, subject) < u64::from(percent) => Stance::Enforced,
            Self::Percent(_) | Self::Shadow => Stance::Shadow,
            Self::Off => Stance::Off,
            Self::Block => Stance::Blocked(ends_at.map(|end| end.since(now))),
        }
    }
}

/// The number from 0 to 99 that a subject has drawn under a policy: the same on every server, and
/// for every variant.
fn lot(policy: Name<'_>, subject: &[u8]) -> u64 {
    fnv_1a(policy.as_bytes().iter().chain(&[0]).chain(subject)) % 100
}

/// The hash FNV-1a of 64 bits. Source: Fowler, Noll and Vo, draft-eastlake-fnv.
pub(super) fn fnv_1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.into_iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}
