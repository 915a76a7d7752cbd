//! All policies of a server, and the look-up of the policy for a call.
//!
//! A name has a base setting, an override that expires, or both. The next change of the table drops
//! expired overrides, and the counters of names that are left without a setting.

#[cfg(test)]
mod tests;

use crate::algorithms::Rule;
use crate::policy::definition::{Enforcement, Setting};
use crate::policy::digest;
use crate::policy::duration::duration_text;
use crate::policy::families::{COUNT_MAX, Families, Refusal};
use crate::policy::file_set::FileSet;
use crate::policy::name::{FullName, Name};
use crate::policy::pattern::Pattern;
use crate::policy::statistics::{Key, Statistics};
use crate::time::{Instant, Span};
use std::collections::HashMap;

/// The policies of a server.
#[derive(Debug, Default)]
pub struct Policies {
    by_name: HashMap<Box<[u8]>, Entry>,
    families: Families,
    /// The end of the first override to expire. If an entry is left without a setting, the epoch,
    /// so that the next change drops that entry.
    first_end: Option<Instant>,
    /// The counters of the calls under these policies.
    pub statistics: Statistics,
}

/// One policy, or one variant of it.
#[derive(Debug)]
struct Entry {
    name: FullName,
    /// The setting without an override; `None` if there is only an override.
    base: Option<Held>,
    /// The override, which applies in place of the base, and the instant at which it expires.
    override_until: Option<(Held, Instant)>,
    /// The key of the policy's counters.
    statistics: Key,
}

/// A setting, and its part of the digest.
#[derive(Clone, Debug)]
struct Held {
    setting: Setting,
    digest: u64,
}

/// The result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The mode.
    pub enforcement: Enforcement,
    /// The rule.
    pub rule: Rule,
    /// The instant at which the setting expires, if it is an override.
    pub ends_at: Option<Instant>,
    /// The key of the call's counters.
    pub statistics: Key,
}

/// A change of one policy, in words for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The policy.
    pub name: FullName,
    /// The old setting; `none` if there was none.
    pub before: String,
    /// The new setting; `none` if there is none.
    pub after: String,
}

/// The text of `before` or `after` if no policy applies.
const NONE: &str = "none";

impl Change {
    /// Returns true if no policy applied under the name before.
    pub fn is_addition(&self) -> bool {
        self.before == NONE
    }

    /// Returns true if no policy applies under the name any more.
    pub fn is_removal(&self) -> bool {
        self.after == NONE
    }
}

impl Policies {
    /// Returns the setting at `now` of `policy`, or of its `variant` if one is given; `None` if
    /// there is no such setting. Hashes the name once. An override that was found expired stays
    /// expired, even if the clock steps back.
    #[inline]
    pub fn find(
        &mut self,
        policy: Name<'_>,
        variant: Option<Name<'_>>,
        now: Instant,
    ) -> Option<Found> {
        let entry = match variant {
            // Most calls name no variant, so no full name has to be built.
            None => self.by_name.get_mut(policy.as_bytes()),
            Some(_) => self.by_name.get_mut(FullName::new(policy, variant).as_bytes()),
        };
        let entry = entry?;
        if entry.override_until.as_ref().is_some_and(|(_, end)| *end <= now) {
            entry.override_until = None;
            if entry.base.is_none() {
                // The entry is empty: the next change drops it, even if the clock steps back.
                self.first_end = Some(Instant::from_us(0));
                return None;
            }
        }
        let (Held { setting, .. }, ends_at) = entry.at(now)?;
        let (enforcement, rule) = (setting.enforcement, setting.rule);
        Some(Found { enforcement, rule, ends_at, statistics: entry.statistics })
    }

    /// Returns the number of settings at `now`, variants included, and their digest. Two tables
    /// with equal settings have equal digests, whatever the order of their changes and the time
    /// left to their overrides.
    pub fn count_and_digest(&self, now: Instant) -> (usize, u64) {
        let held = self.by_name.values().filter_map(|entry| entry.at(now));
        held.fold((0, 0), |(count, digest), (held, _)| {
            (count + 1, digest.wrapping_add(held.digest))
        })
    }

    /// Returns true if no policy applies at `now`.
    pub fn is_empty(&self, now: Instant) -> bool {
        self.by_name.values().all(|entry| entry.at(now).is_none())
    }

    /// Returns the setting of `name` at `now`, as `SET` takes it: `search EX 1m OFF GCRA 2 1 1m`.
    pub fn get(&self, name: &FullName, now: Instant) -> Option<String> {
        let entry = self.by_name.get(name.as_bytes())?;
        let (held, ends_at) = entry.at(now)?;
        let text = match ends_at {
            None => held.setting.text.to_string(),
            Some(end) => with_end(held, end, now),
        };
        Some(format!("{} {text}", name.as_str()))
    }

    /// Returns the base settings whose names match, sorted by name.
    pub fn settings(&self, pattern: Pattern<'_>) -> Vec<(&FullName, &Setting)> {
        let entries = self.by_name.values().filter(|entry| pattern.matches(entry.name.as_bytes()));
        let bases = entries.filter_map(|entry| Some((&entry.name, &entry.base.as_ref()?.setting)));
        let mut bases: Vec<_> = bases.collect();
        bases.sort_unstable_by_key(|(name, _)| name.as_bytes());
        bases
    }

    /// Returns [`settings`](Self::settings) as lines of a policy file.
    pub fn list(&self, pattern: Pattern<'_>) -> Vec<String> {
        let bases = self.settings(pattern).into_iter();
        bases.map(|(name, setting)| format!("{} {}", name.as_str(), setting.text)).collect()
    }

    /// Sets the policy `name`. With `ends_at`, sets an override over the base until then. Without,
    /// replaces both the base and the override.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the policy is not set.
    pub fn set(
        &mut self,
        name: &FullName,
        setting: Setting,
        ends_at: Option<Instant>,
        now: Instant,
    ) -> Result<Change, Refusal> {
        self.drop_what_is_over(now);
        let algorithm = setting.rule.algorithm();
        let old = self.by_name.get(name.as_bytes());
        let is_member = old.is_some();
        let kept = old.and_then(|old| old.base.as_ref()).filter(|_| ends_at.is_some());
        if kept.is_some_and(|base| base.setting.rule.algorithm() != algorithm)
            || !self.families.admit(name, is_member, algorithm)
        {
            return Err(Refusal::OtherAlgorithm);
        }
        if !is_member && self.by_name.len() >= COUNT_MAX {
            return Err(Refusal::TooMany);
        }
        let before = describe(old, now);
        let held = Held::new(name, setting, ends_at.is_some());
        let (base, override_until) = match ends_at {
            None => (Some(held), None),
            Some(end) => (kept.cloned(), Some((held, end))),
        };
        let statistics = match old {
            Some(old) => old.statistics,
            None => self.statistics.key_of_policy(name.as_bytes()),
        };
        let entry = Entry { name: *name, base, override_until, statistics };
        let after = describe(Some(&entry), now);
        self.families.put(name, is_member, algorithm);
        self.first_end = self.first_end.into_iter().chain(ends_at).min();
        self.by_name.insert(name.as_bytes().into(), entry);
        Ok(Change { name: *name, before, after })
    }

    /// Sets the mode of `name`, like [`Self::set`], with the rule of its base setting. A variant
    /// without one takes the rule of its policy.
    ///
    /// # Errors
    ///
    /// Returns [`Refusal::NoRule`] if there is no such base setting, and the errors of
    /// [`Self::set`].
    pub fn set_mode(
        &mut self,
        name: &FullName,
        enforcement: Enforcement,
        ends_at: Option<Instant>,
        now: Instant,
    ) -> Result<Change, Refusal> {
        let base = |name: &[u8]| self.by_name.get(name)?.base.as_ref();
        let base = base(name.as_bytes()).or_else(|| base(name.policy())).ok_or(Refusal::NoRule)?;
        let setting = base.setting.in_mode(enforcement);
        self.set(name, setting, ends_at, now)
    }

    /// Deletes the policies `names`, and returns the changes.
    pub fn delete(&mut self, names: &[FullName], now: Instant) -> Vec<Change> {
        self.drop_what_is_over(now);
        let deleted = names.iter().filter_map(|name| {
            let entry = self.by_name.remove(name.as_bytes())?;
            self.families.remove(name);
            self.statistics.forget(name.as_bytes());
            Some(Change {
                name: *name,
                before: describe(Some(&entry), now),
                after: describe(None, now),
            })
        });
        deleted.collect()
    }

    /// Replaces all policies, overrides included, by `bases`, and returns the changes, sorted by
    /// name.
    pub fn load(&mut self, bases: FileSet, now: Instant) -> Vec<Change> {
        self.drop_what_is_over(now);
        let gone = self.by_name.values().filter(|entry| !bases.has(&entry.name));
        let mut changes: Vec<_> = gone
            .map(|entry| {
                let before = describe(Some(entry), now);
                Change { name: entry.name, before, after: describe(None, now) }
            })
            .collect();
        for change in &changes {
            self.statistics.forget(change.name.as_bytes());
        }
        let (bases, families) = bases.into_parts();
        let mut by_name = HashMap::new();
        for (name, setting) in bases {
            let before = describe(self.by_name.get(name.as_bytes()), now);
            let statistics = self.statistics.key_of_policy(name.as_bytes());
            let base = Some(Held::new(&name, setting, false));
            let entry = Entry { name, base, override_until: None, statistics };
            let after = describe(Some(&entry), now);
            if before != after {
                changes.push(Change { name, before, after });
            }
            by_name.insert(name.as_bytes().into(), entry);
        }
        (self.by_name, self.families, self.first_end) = (by_name, families, None);
        changes.sort_unstable_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
        changes
    }

    /// Drops the expired overrides.
    fn drop_what_is_over(&mut self, now: Instant) {
        if self.first_end.is_none_or(|end| now < end) {
            return;
        }
        let Self { by_name, families, first_end, statistics } = self;
        by_name.retain(|_, entry| {
            entry.override_until.take_if(|(_, end)| *end <= now);
            let stays = entry.base.is_some() || entry.override_until.is_some();
            if !stays {
                families.remove(&entry.name);
                statistics.forget(entry.name.as_bytes());
            }
            stays
        });
        let ends = by_name.values().filter_map(|entry| entry.override_until.as_ref());
        *first_end = ends.map(|(_, end)| *end).min();
    }
}

impl Entry {
    /// Returns the setting at `now`, and its end if it is an override.
    fn at(&self, now: Instant) -> Option<(&Held, Option<Instant>)> {
        match &self.override_until {
            Some((held, end)) if now < *end => Some((held, Some(*end))),
            _ => self.base.as_ref().map(|held| (held, None)),
        }
    }
}

impl Held {
    fn new(name: &FullName, setting: Setting, ends: bool) -> Self {
        let digest = digest::part(name, &setting, ends);
        Self { setting, digest }
    }
}

/// Returns a policy at `now` in words: `EX 1m OFF GCRA 2 1 1m over GCRA 2 1 1m`.
fn describe(entry: Option<&Entry>, now: Instant) -> String {
    let Some((entry, (held, ends_at))) = entry.and_then(|entry| Some((entry, entry.at(now)?)))
    else {
        return NONE.to_owned();
    };
    match (ends_at, &entry.base) {
        (None, _) => held.setting.text.to_string(),
        (Some(end), None) => with_end(held, end, now),
        (Some(end), Some(base)) => {
            format!("{} over {}", with_end(held, end, now), base.setting.text)
        }
    }
}

/// Returns the text of an override with the time left, rounded up to the millisecond.
fn with_end(held: &Held, end: Instant, now: Instant) -> String {
    let left = Span::from_ms(end.since(now).as_ms_ceil());
    format!("EX {} {}", duration_text(left), held.setting.text)
}
