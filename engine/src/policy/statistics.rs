//! What became of the calls of each policy.
//!
//! The counters of all policies lie in one list, and a key is a place in it: a call that has found
//! its policy counts without looking for the name again. A place that is given up gets another
//! generation, so that a key of what was deleted counts nothing for whoever has the place now.
//!
//! Names arrive from callers too, by `DEFAULT`: only so many are kept apart, and a flood of
//! invented ones ends in one set of counters for all of them, [`OTHER`].

#[cfg(test)]
mod tests;

use crate::time::Instant;
use std::collections::HashMap;

/// Under what the calls are counted that have no counters of their own: the name of no policy.
pub const OTHER: &str = "(other)";

/// How many policies that are known from a `DEFAULT` only have counters of their own.
pub const DEFAULTS_MAX: usize = 1024;

/// Where the calls of one policy are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    place: u32,
    generation: u32,
}

impl Key {
    /// Where the calls under [`OTHER`] are counted, those among them that name no policy at all.
    pub const OTHER: Self = Self { place: u32::MAX, generation: 0 };
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It was allowed, and would have been if that had been enforced.
    Allowed,
    /// It was denied.
    Denied,
    /// It was allowed, and would not have been if that had been enforced.
    ShadowDenied,
}

/// What is counted of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How it ended.
    pub ending: Ending,
    /// The limit that it had.
    pub limit_units: u64,
    /// What was left after it.
    pub remaining_units: u64,
    /// What it took; 0 when it was allowed without a look at the limit.
    pub taken_units: u64,
    /// Whether it stored the first state of its subject.
    pub created: bool,
}

impl Counted {
    /// Whether it was allowed and left less than so many per cent of the limit. Exact; a call that
    /// took nothing left what was there.
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
    /// Calls that were allowed and would not have been.
    pub shadow_denied: u64,
    /// Allowed calls that left little.
    pub near_limit: u64,
    /// Calls that stored the first state of their subject.
    pub created: u64,
    /// Units taken; stops at the largest number.
    pub units: u64,
    /// Calls that ended in an error.
    pub errors: u64,
    /// When it last denied, in microseconds of Unix time; 0 when it never did.
    pub last_denied_us: u64,
}

impl Counters {
    /// Whether nothing was counted yet.
    pub fn are_untouched(&self) -> bool {
        *self == Self::default()
    }
}

/// The counters of all policies.
#[derive(Debug, Default)]
pub struct Statistics {
    places: Vec<Place>,
    /// The places that nobody has.
    free: Vec<u32>,
    by_name: HashMap<Box<[u8]>, Key>,
    /// How many of the names are known from a `DEFAULT` only.
    defaults: usize,
    other: Counters,
}

#[derive(Debug, Default)]
struct Place {
    /// Of whoever has it now; a place that was given up has the next one.
    generation: u32,
    /// Whether its name is known from a `DEFAULT` only.
    is_default: bool,
    /// Whether a `DEFAULT` has named it, be it in the table or not.
    has_default: bool,
    counters: Counters,
}

impl Statistics {
    /// Counts a call at `now`; it was near the limit with less than `near_limit_percent` left.
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

    /// Counts units that were taken afterwards.
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

    /// Where calls of a policy are counted that is in the table, by its full name. What was counted
    /// while it was known from a `DEFAULT` stays.
    pub fn key_of_policy(&mut self, name: &[u8]) -> Key {
        let Some(key) = self.by_name.get(name).copied() else { return self.add(name, false) };
        if let Some(place) = self.place_mut(key) {
            let was_default = std::mem::replace(&mut place.is_default, false);
            self.defaults -= usize::from(was_default);
        }
        key
    }

    /// Where calls of a policy are counted that is known from a `DEFAULT` only: under its name, or
    /// under [`OTHER`] when there are [`DEFAULTS_MAX`] such names already.
    ///
    /// `name` is a policy's, without a variant. Only a name that is kept takes memory.
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

    /// Drops the counters of a policy that is gone, by its full name. If a `DEFAULT` has named it,
    /// they stay as those of any such name, within [`DEFAULTS_MAX`].
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

    /// Begins anew: all counters are 0, and names that are known from a `DEFAULT` are unknown.
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

    /// The counters under a full name, or under [`OTHER`] once those are touched.
    pub fn of(&self, name: &[u8]) -> Option<&Counters> {
        if name == OTHER.as_bytes() {
            return (!self.other.are_untouched()).then_some(&self.other);
        }
        let place = self.places.get(self.by_name.get(name)?.place as usize)?;
        Some(&place.counters)
    }

    /// All counters, sorted by their names: those of the policies of the table, of the names that
    /// are known from a `DEFAULT`, and [`OTHER`] once it is touched.
    pub fn all(&self) -> Vec<(&[u8], &Counters)> {
        let names = self.by_name.keys().map(|name| &**name).chain([OTHER.as_bytes()]);
        let mut all: Vec<_> = names.filter_map(|name| Some((name, self.of(name)?))).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// Gives a name counters of its own.
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

    /// The place of a key, while it is still that of its policy.
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
