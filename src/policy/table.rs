//! All policies of a server, and which one a call gets.

use super::statistics::Key;
use super::{Enforcement, FullName, Setting, Statistics};
use crate::limiter::{Instant, Rule};
use std::collections::HashMap;

/// The policies of a server.
#[derive(Debug, Default)]
pub struct Policies {
    by_name: HashMap<Box<[u8]>, Entry>,
    /// What became of their calls.
    pub statistics: Statistics,
}

/// One policy, or one variant of it.
#[derive(Debug)]
struct Entry {
    /// What holds when no override does; `None` when there is only an override.
    base: Option<Setting>,
    /// What holds until then instead.
    override_until: Option<(Setting, Instant)>,
    /// Where its calls are counted.
    statistics: Key,
}

/// What a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whether the rule bites.
    pub enforcement: Enforcement,
    /// The rule.
    pub rule: Rule,
    /// When that ends, if it is an override.
    pub ends_at: Option<Instant>,
    /// Where the call is counted.
    pub statistics: Key,
}

impl Policies {
    /// What applies under `name` at `now`; `None` when nothing does. One hash of the name.
    pub fn find(&self, name: &FullName, now: Instant) -> Option<Found> {
        let entry = self.by_name.get(name.as_bytes())?;
        let found = |setting: &Setting, ends_at| Found {
            enforcement: setting.enforcement,
            rule: setting.rule,
            ends_at,
            statistics: entry.statistics,
        };
        match &entry.override_until {
            Some((setting, end)) if now < *end => Some(found(setting, Some(*end))),
            _ => entry.base.as_ref().map(|setting| found(setting, None)),
        }
    }
}
