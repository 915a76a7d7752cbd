//! The counters of the calls of each policy.
//!
//! The counters of all policies are in one list, and a [`Key`] is a place in it: a call that has
//! found its policy counts without another look-up by name. A freed place gets a new generation, so
//! the key of a deleted policy never counts for the next policy at its place.
//!
//! Callers can invent names too, with `DEFAULT`: only [`DEFAULTS_MAX`] of these names have counters
//! of their own. All others are counted together under [`OTHER`].

#[cfg(test)]
mod tests;

use crate::time::Instant;
use std::collections::HashMap;

/// The name under which calls without counters of their own are counted. No policy can have it.
pub const OTHER: &str = "(other)";

/// The largest number of names that are known only from a `DEFAULT` and have counters of their own.
pub const DEFAULTS_MAX: usize = 1024;

/// The place of one policy's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// The key of the calls under [`OTHER`], which include calls that name no policy.
    pub const OTHER: Self = Self { place: u32::MAX, generation: 0 };
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The call was allowed, and would also be allowed if the policy were enforced.
    Allowed,
    /// The call was denied.
    Denied,
    /// The call was allowed, but would be denied if the policy were enforced.
    ShadowDenied,
}

/// The data counted for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The outcome.
    pub ending: Ending,
    /// The limit.
    pub limit_units: u64,
    /// The units left after the call.
    pub remaining_units: u64,
    /// The units taken; 0 if the call was allowed without checking the limit.
    pub taken_units: u64,
    /// Whether the call stored the first state of its key.
    pub created: bool,
}

impl Counted {
    /// Returns true if the call was allowed, took units, and left less than `percent` per cent of
    /// the limit. The comparison is exact.
    const fn is_near_limit(&self, percent: u8) -> bool {
        let left = self.remaining_units as u128 * 100;
        matches!(self.ending, Ending::Allowed)
            && self.taken_units > 0
            && left < self.limit_units as u128 * percent as u128
    }
}

/// The counters of one policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls that were allowed.
    pub allowed: u64,
    /// Calls that were denied.
    pub denied: u64,
    /// Calls that were allowed, but would be denied if the policy were enforced.
    pub shadow_denied: u64,
    /// Allowed calls that left little of the limit.
    pub near_limit: u64,
    /// Calls that stored the first state of their key.
    pub created: u64,
    /// Units taken. The counter stops at the largest number.
    pub units: u64,
    /// Calls that ended in an error.
    pub errors: u64,
    /// The instant of the last denial, in microseconds of Unix time; 0 if there was none.
    pub last_denied_us: u64,
}

impl Counters {
    /// Returns true if nothing was counted yet.
    pub fn are_untouched(&self) -> bool {
        *self == Self::default()
    }
}

/// The counters of all policies.
#[derive(Debug, Default)]
pub struct Statistics {
    places: Vec<Place>,
    /// The free places.
    free: Vec<u32>,
    by_name: HashMap<Box<[u8]>, Key>,
    /// The number of names known only from a `DEFAULT`.
    defaults: usize,
    other: Counters,
}

#[derive(Debug, Default)]
struct Place {
    /// The generation of the current owner; freeing the place increments it.
    generation: u32,
    /// Whether the name is known only from a `DEFAULT`.
    is_default: bool,
    /// Whether a call has given the name with a `DEFAULT`, even if the policy is in the table.
    has_default: bool,
    counters: Counters,
}

impl Statistics {
    /// Counts a call at `now`. The call is near the limit if less than `near_limit_percent` per
    /// cent of the limit is left.
    #[inline]
    pub fn count(&mut self, key: Key, call: &Counted, near_limit_percent: u8, now: Instant) {
        let Some(counters) = self.counters_mut(key) else { return };
        match call.ending {
            Ending::Allowed => counters.allowed += 1,
            Ending::Denied => {
                counters.denied += 1;
                counters.last_denied_us = now.as_us();
            }
            Ending::ShadowDenied => counters.shadow_denied += 1,
        }
        counters.near_limit += u64::from(call.is_near_limit(near_limit_percent));
        counters.created += u64::from(call.created);
        counters.units = counters.units.saturating_add(call.taken_units);
    }

    /// Counts a reservation like [`Self::count`], but not its units: those of its commit count.
    #[cold]
    pub fn count_reserved(
        &mut self,
        key: Key,
        call: &Counted,
        near_limit_percent: u8,
        now: Instant,
    ) {
        let is_near = call.is_near_limit(near_limit_percent);
        self.count(key, &Counted { taken_units: 0, ..*call }, near_limit_percent, now);
        if let Some(counters) = self.counters_mut(key) {
            counters.near_limit += u64::from(is_near);
        }
    }

    /// Counts units that a charge or a commit took.
    pub fn charge(&mut self, key: Key, units: u64) {
        if let Some(counters) = self.counters_mut(key) {
            counters.units = counters.units.saturating_add(units);
        }
    }

    /// Counts a call that ended in an error.
    pub fn count_error(&mut self, key: Key) {
        if let Some(counters) = self.counters_mut(key) {
            counters.errors += 1;
        }
    }

    /// Returns the key of a policy in the table, by its full name. Keeps the counts from before the
    /// policy was set, when its name was known only from a `DEFAULT`.
    pub fn key_of_policy(&mut self, name: &[u8]) -> Key {
        let Some(key) = self.by_name.get(name).copied() else { return self.add(name, false) };
        if let Some(place) = self.place_mut(key) {
            let was_default = std::mem::replace(&mut place.is_default, false);
            self.defaults -= usize::from(was_default);
        }
        key
    }

    /// Returns the key of a policy known only from a `DEFAULT`: that of its name, or [`Key::OTHER`]
    /// if there are [`DEFAULTS_MAX`] such names already.
    ///
    /// `name` is the name of a policy, without a variant. Only a name that is kept takes memory.
    #[inline]
    pub fn key_of_default(&mut self, name: &[u8]) -> Key {
        match self.by_name.get(name).copied() {
            Some(key) => {
                if let Some(place) = self.place_mut(key) {
                    place.has_default = true;
                }
                key
            }
            None if self.defaults < DEFAULTS_MAX => self.add(name, true),
            None => Key::OTHER,
        }
    }

    /// Drops the counters of a deleted policy, by its full name. If a `DEFAULT` has named the
    /// policy, they are kept as for any such name, as long as there are fewer than
    /// [`DEFAULTS_MAX`].
    pub fn forget(&mut self, name: &[u8]) {
        let Some(key) = self.by_name.get(name).copied() else { return };
        let has_room = self.defaults < DEFAULTS_MAX;
        let place = self.place_mut(key).filter(|place| place.has_default && !place.is_default);
        match place {
            Some(place) if has_room => {
                place.is_default = true;
                self.defaults += 1;
            }
            _ => self.give_up(name),
        }
    }

    fn give_up(&mut self, name: &[u8]) {
        let Some(key) = self.by_name.remove(name) else { return };
        let Some(place) = self.place_mut(key) else { return };
        let generation = place.generation.wrapping_add(1);
        let given_up = std::mem::replace(place, Place { generation, ..Place::default() });
        self.defaults -= usize::from(given_up.is_default);
        self.free.push(key.place);
    }

    /// Sets all counters to 0 and forgets the names known only from a `DEFAULT`.
    pub fn reset(&mut self) {
        let defaults = self.by_name.iter().filter(|(_, key)| {
            self.places.get(key.place as usize).is_some_and(|place| place.is_default)
        });
        let defaults: Vec<_> = defaults.map(|(name, _)| name.clone()).collect();
        for name in defaults {
            self.give_up(&name);
        }
        for place in &mut self.places {
            place.counters = Counters::default();
            place.has_default = false;
        }
        self.other = Counters::default();
    }

    /// Returns the counters under a full name. Returns those of [`OTHER`] only if a call was
    /// counted there.
    pub fn of(&self, name: &[u8]) -> Option<&Counters> {
        if name == OTHER.as_bytes() {
            return (!self.other.are_untouched()).then_some(&self.other);
        }
        let place = self.places.get(self.by_name.get(name)?.place as usize)?;
        Some(&place.counters)
    }

    /// Returns all counters, sorted by name: those of the policies in the table, of the names known
    /// from a `DEFAULT`, and of [`OTHER`] if a call was counted there.
    pub fn all(&self) -> Vec<(&[u8], &Counters)> {
        let names = self.by_name.keys().map(|name| &**name).chain([OTHER.as_bytes()]);
        let mut all: Vec<_> = names.filter_map(|name| Some((name, self.of(name)?))).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// Adds counters for a name.
    #[cold]
    fn add(&mut self, name: &[u8], is_default: bool) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        let mut key = Key { place, generation: 0 };
        if let Some(taken) = self.places.get_mut(place as usize) {
            (taken.is_default, taken.has_default) = (is_default, is_default);
            key.generation = taken.generation;
        }
        self.by_name.insert(name.into(), key);
        self.defaults += usize::from(is_default);
        key
    }

    /// Returns the place of a key; `None` if the place now belongs to another policy.
    #[inline]
    fn place_mut(&mut self, key: Key) -> Option<&mut Place> {
        let place = self.places.get_mut(key.place as usize)?;
        (place.generation == key.generation).then_some(place)
    }

    #[inline]
    fn counters_mut(&mut self, key: Key) -> Option<&mut Counters> {
        if key == Key::OTHER {
            return Some(&mut self.other);
        }
        self.place_mut(key).map(|place| &mut place.counters)
    }
}
