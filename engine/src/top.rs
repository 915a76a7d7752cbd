//! The keys that are counted most, in memory that never grows: a Space-Saving sketch whose counts
//! decay.
//!
//! A sketch has a fixed number of slots, one for each key that it holds. A key that it does not
//! hold takes the slot with the lowest count and continues from that count. So a count is never too
//! low, and too high by at most the count of the key that held the slot before: the error. The
//! counts add up to the total, so the lowest is at most total / slots: a key with a larger share of
//! the total is always in the sketch.
//!
//! Counts and total halve once per half-life, all at the same instant. They have eight fractional
//! bits and are rounded up, so that the bounds hold for decayed counts too: each count, and with it
//! the share that a key needs to be in the sketch, is too high by less than 1/256 for the rounding.
//! The sure part of a count, which is the count less its error, is rounded down.
//!
//! Source: Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements
//! in Data Streams", 2005.

pub mod index;
pub mod name;
pub mod ranking;
pub mod sampling;

#[cfg(test)]
mod tests;

use crate::time::{Instant, Span};
use crate::top::index::Index;
use crate::top::name::{NAME_MAX, Seed};
use crate::top::ranking::{Ranking, SLOTS_MAX};
use std::cmp::Reverse;

/// One counted event, in the fixed-point numbers of the sketch.
const UNIT: u64 = 256;

/// The instant of the next halving if counts never halve. It is later than any, so a half-life that
/// is set then begins at the next command.
const HALVES_NEVER_US: u64 = u64::MAX;

/// The largest number of halvings at once that makes a difference.
const HALVINGS_MAX: u64 = 63;

/// The number of keys in the first and in the second share of [`Sketch::shares`].
const SHARES_OF: [usize; 2] = [1, 10];

/// The time after which all counts halve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfLife {
    us: u64,
}

impl HalfLife {
    /// Counts never halve.
    pub const NEVER: Self = Self { us: 0 };
    /// The default: ten minutes.
    pub const DEFAULT: Self = Self { us: 600_000_000 };
    /// The shortest: one second.
    pub const MIN: Span = Span::from_ms(1_000);
    /// The longest: one day.
    pub const MAX: Span = Span::from_days(1);

    /// Returns a half-life of `span`; `None` if it is out of bounds.
    pub fn new(span: Span) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&span).then_some(Self { us: span.as_us() })
    }

    /// Returns the microseconds; 0 if counts never halve.
    pub const fn as_us(self) -> u64 {
        self.us
    }

    /// Returns the half-life of which [`HalfLife::as_us`] returned these microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self { us }
    }
}

/// The instant of a count or a question, and the half-life that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The instant of the command.
    pub now: Instant,
    /// The half-life.
    pub half_life: HalfLife,
}

/// A key of a sketch with its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key, or the short form of a long key.
    pub name: &'a [u8],
    /// The count, rounded down.
    pub count: u64,
    /// The largest amount by which the count may be too high, rounded up.
    pub error: u64,
}

/// The key in a slot.
#[derive(Clone, Copy, Debug)]
struct Owner {
    count: u64,
    /// The part of the count that is not certain: the count when the key took the slot.
    error: u64,
    database: u32,
    tag: u32,
    len: u16,
    name: [u8; NAME_MAX],
}

impl Owner {
    const NONE: Self =
        Self { count: 0, error: 0, database: 0, tag: 0, len: 0, name: [0; NAME_MAX] };

    #[inline(always)]
    fn name(&self) -> &[u8] {
        self.name.get(..usize::from(self.len)).unwrap_or_default()
    }

    #[inline(always)]
    fn is(&self, database: u32, name: &[u8]) -> bool {
        self.database == database
            && usize::from(self.len) == name.len()
            && self.name.get(..name.len()) == Some(name)
    }

    /// Returns the part of the count that is certain: events since the key took the slot.
    fn sure(&self) -> u64 {
        self.count.saturating_sub(self.error)
    }
}

/// Counts events by database and key.
#[derive(Debug)]
pub struct Sketch {
    seed: Seed,
    index: Index,
    ranking: Ranking,
    owners: Box<[Owner]>,
    total: u64,
    /// The instant of the next halving, in microseconds.
    halves_at_us: u64,
}

impl Sketch {
    /// Creates a sketch with 1 to [`SLOTS_MAX`] slots; a number out of bounds counts as the nearest
    /// within them. Only this allocates memory, about 330 bytes per slot.
    pub fn new(slots: usize, seed: Seed) -> Self {
        let slots = slots.clamp(1, SLOTS_MAX);
        Self {
            seed,
            index: Index::new(slots),
            ranking: Ranking::new(slots),
            owners: vec![Owner::NONE; slots].into_boxed_slice(),
            total: 0,
            halves_at_us: 0,
        }
    }

    /// Counts an event of a key.
    #[inline(always)]
    pub fn count(&mut self, database: u32, key: &[u8], at: Moment) {
        self.decay(at);
        let short;
        let name = if key.len() <= NAME_MAX {
            key
        } else {
            short = self.seed.shorten(key);
            &short
        };
        let tag = self.seed.tag(database, name);
        // 2^56 events would overflow it.
        self.total = self.total.wrapping_add(UNIT);
        let owners = &mut self.owners;
        let known = self.index.find(tag, |slot| {
            owners.get(slot as usize).is_some_and(|owner| owner.is(database, name))
        });
        match known {
            None => self.take_slot(tag, database, name),
            Some(slot) => {
                if let Some(owner) = owners.get_mut(slot as usize) {
                    owner.count = owner.count.wrapping_add(UNIT);
                }
            }
        }
    }

    /// Gives a slot to a key that has none: a free slot, or the one with the lowest count.
    #[inline(never)]
    fn take_slot(&mut self, tag: u32, database: u32, name: &[u8]) {
        let owners = &mut self.owners;
        let (slot, is_free) = match self.ranking.add() {
            Some(slot) => (slot, true),
            None => (self.ranking.least(|slot| count_of(owners, slot)), false),
        };
        let Some(owner) = owners.get_mut(slot as usize) else { return };
        owner.error = if is_free { 0 } else { owner.count };
        owner.count = owner.error.wrapping_add(UNIT);
        if !is_free {
            self.index.remove(owner.tag, slot);
            self.ranking.raise_least(slot, owner.count);
        }
        self.index.insert(tag, slot);
        (owner.database, owner.tag) = (database, tag);
        if let Some(place) = owner.name.get_mut(..name.len()) {
            place.copy_from_slice(name);
            owner.len = name.len() as u16;
        }
    }

    /// Forgets all keys and counts.
    pub fn reset(&mut self) {
        self.index.clear();
        self.ranking.clear();
        self.total = 0;
    }

    /// Returns the `most` keys of a database with the highest counts, highest first, without keys
    /// whose count is below 1. Each event counts `weight` times, a power of two up to 256.
    pub fn top(&mut self, database: u32, most: usize, weight: u64, at: Moment) -> Vec<Row<'_>> {
        self.decay(at);
        let one = (UNIT / weight.clamp(1, UNIT)).max(1);
        let is_listed = |owner: &&Owner| owner.database == database && owner.count >= one;
        let mut owners: Vec<_> = self.in_use().filter(is_listed).collect();
        if most < owners.len() {
            owners.select_nth_unstable_by_key(most, |owner| (Reverse(owner.count), owner.name()));
            owners.truncate(most);
        }
        owners.sort_unstable_by_key(|owner| (Reverse(owner.count), owner.name()));
        let rows = owners.into_iter().map(|owner| {
            let count = owner.count / one;
            let error = (count * one).saturating_sub(owner.sure()).div_ceil(one);
            Row { name: owner.name(), count, error }
        });
        rows.collect()
    }

    /// Returns the shares of the total that the first key and the first ten keys have for certain,
    /// in millionths, rounded down. Errors are not part of them; 0 if less than one event is left.
    pub fn shares(&mut self, at: Moment) -> [u64; 2] {
        self.decay(at);
        if self.total < UNIT {
            return [0; 2];
        }
        let mut most = [0_u64; SHARES_OF[1]];
        for owner in self.in_use() {
            let mut sure = owner.sure();
            // Inserts into the sorted list, and drops the smallest number.
            for place in &mut most {
                if sure > *place {
                    std::mem::swap(place, &mut sure);
                }
            }
        }
        SHARES_OF.map(|keys| {
            let sum: u128 = most.iter().take(keys).map(|sure| u128::from(*sure)).sum();
            let millionths = (sum * 1_000_000).checked_div(self.total.into()).unwrap_or(0);
            u64::try_from(millionths).unwrap_or(u64::MAX)
        })
    }

    /// Halves all counts once for each half-life that has ended since the last halving.
    #[inline(always)]
    fn decay(&mut self, at: Moment) {
        // Wraps to a large number if the instant of the halving is reached.
        let left_us = self.halves_at_us.wrapping_sub(at.now.as_us()).wrapping_sub(1);
        if left_us >= at.half_life.us {
            self.move_on(at);
        }
    }

    /// Halves what is due, and sets the instant of the next halving: one half-life from now if
    /// nothing was counted, the clock stepped back, or the half-life became shorter.
    #[cold]
    fn move_on(&mut self, Moment { now, half_life }: Moment) {
        let (now_us, span_us) = (now.as_us(), half_life.us.max(1));
        self.halves_at_us = match now_us.checked_sub(self.halves_at_us) {
            _ if half_life == HalfLife::NEVER => HALVES_NEVER_US,
            Some(late_us) if self.total > 0 => {
                self.halve((late_us / span_us).saturating_add(1));
                (now_us - late_us % span_us).saturating_add(span_us)
            }
            _ => now_us.saturating_add(span_us),
        };
    }

    fn halve(&mut self, times: u64) {
        let times = times.min(HALVINGS_MAX) as u32;
        let rounded_up = |count: u64| count.checked_sub(1).map_or(0, |below| (below >> times) + 1);
        for owner in self.owners.iter_mut().take(self.ranking.in_use()) {
            let sure = owner.sure() >> times;
            owner.count = rounded_up(owner.count);
            owner.error = owner.count.saturating_sub(sure);
        }
        self.ranking.refresh(|slot| count_of(&self.owners, slot));
        self.total = rounded_up(self.total);
    }

    /// Returns the slots in use.
    fn in_use(&self) -> impl Iterator<Item = &Owner> {
        self.owners.iter().take(self.ranking.in_use())
    }
}

/// Returns the count of a slot.
#[inline(always)]
fn count_of(owners: &[Owner], slot: u32) -> u64 {
    owners.get(slot as usize).map_or(0, |owner| owner.count)
}
