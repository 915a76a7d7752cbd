//! The definition of a policy: its rule and its mode.

use crate::algorithms::Rule;
use crate::policy::name::Name;
use crate::time::{Instant, Span};
use std::borrow::Cow;

/// The mode of a policy: the way its rule is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// Enforced for this percentage of the keys, 0 to 100; in shadow mode for the rest.
    Percent(u8),
    /// Decides and counts, and always allows.
    Shadow,
    /// Allows; no state is read or stored.
    Off,
    /// Denies; no state is read or stored.
    Block,
}

/// A rule and its mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The mode.
    pub enforcement: Enforcement,
    /// The rule.
    pub rule: Rule,
    /// The mode and the rule, written as in a policy file after the name. Equal settings have equal
    /// texts.
    pub text: Box<str>,
}

impl Setting {
    /// Makes a setting. `rule_text` is the canonical text of `rule`.
    pub fn new(enforcement: Enforcement, rule: Rule, rule_text: &str) -> Self {
        Self { enforcement, rule, text: format!("{}{rule_text}", enforcement.words()).into() }
    }

    /// Returns the setting with the same rule in another mode.
    #[must_use]
    pub fn in_mode(&self, enforcement: Enforcement) -> Self {
        let rule_text = self.text.strip_prefix(&*self.enforcement.words()).unwrap_or(&self.text);
        Self::new(enforcement, self.rule, rule_text)
    }
}

/// The effect of a policy on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
    /// The rule decides.
    Enforced,
    /// The rule decides and counts; the call is allowed.
    Shadow,
    /// The call is allowed.
    Off,
    /// The call is denied. The policy expires after this time; `None` if it does not expire.
    Blocked(Option<Span>),
}

impl Enforcement {
    /// Returns the words of the mode and the space after them; empty for `ENFORCE 100`.
    fn words(self) -> Cow<'static, str> {
        match self {
            Self::Percent(100) => "".into(),
            Self::Percent(percent) => format!("ENFORCE {percent} ").into(),
            Self::Shadow => "SHADOW ".into(),
            Self::Off => "OFF ".into(),
            Self::Block => "BLOCK ".into(),
        }
    }

    /// Returns the effect of `policy` on the key `subject` at `now`. The policy expires at
    /// `ends_at`.
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

/// Maps a key under a policy to a number from 0 to 99. The number is the same on every server, and
/// for every variant. A percentage enforces the policy for the keys whose number is below it.
fn lot(policy: Name<'_>, subject: &[u8]) -> u64 {
    fnv_1a(policy.as_bytes().iter().chain(&[0]).chain(subject)) % 100
}

/// The hash FNV-1a of 64 bits. Source: Fowler, Noll and Vo, draft-eastlake-fnv.
pub(super) fn fnv_1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    bytes.into_iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}
