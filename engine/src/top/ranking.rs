//! Finds the slot with the lowest count: a min-heap in which each node has four children.
//!
//! Counts only grow between two halvings, so the heap may hold old ones: a slot whose old count is
//! the lowest gets its real count and moves down, until the first slot is up to date. Counting an
//! event of a known key then costs nothing here, and moves its slot at most once, later.

/// The number of children of a node.
const CHILDREN: usize = 4;

/// All slots are brought up to date at once when a search has moved one slot in eight.
const MOVES: usize = 8;

/// The number of bits of a slot's number.
const SLOT_BITS: u32 = SLOTS_MAX.trailing_zeros();

/// The largest number of slots.
pub const SLOTS_MAX: usize = 8_192;

/// A slot and its count in one number, ordered by the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u64);

impl Place {
    /// No slot, after all others in order.
    const FREE: Self = Self(u64::MAX);

    /// A slot whose count is not known: it counts as the lowest.
    #[inline(always)]
    const fn unknown(slot: u32) -> Self {
        Self(slot as u64)
    }

    /// Counts above the largest that fits, which is never reached, are equal.
    #[inline(always)]
    fn new(slot: u32, count: u64) -> Self {
        Self(count.min(u64::MAX >> SLOT_BITS) << SLOT_BITS | u64::from(slot))
    }

    #[inline(always)]
    const fn slot(self) -> u32 {
        (self.0 & (SLOTS_MAX as u64 - 1)) as u32
    }
}

/// The slots in use, in the order of a heap.
#[derive(Debug)]
pub struct Ranking {
    /// A place for each slot, and [`CHILDREN`] free places, so that every node has all its children
    /// or none.
    heap: Box<[Place]>,
    /// The number of slots in use. They are the first ones.
    len: usize,
}

impl Ranking {
    /// Creates a ranking of free slots, at most [`SLOTS_MAX`].
    pub fn new(slots: usize) -> Self {
        Self { heap: vec![Place::FREE; slots + CHILDREN].into_boxed_slice(), len: 0 }
    }

    /// Returns the number of slots in use. They are the first ones.
    pub fn in_use(&self) -> usize {
        self.len
    }

    /// Takes a free slot; `None` if no slot is free.
    #[inline]
    pub fn add(&mut self) -> Option<u32> {
        if self.len.wrapping_add(CHILDREN) >= self.heap.len() {
            return None;
        }
        let slot = self.len as u32;
        // An old count may be any lower one: all places above the new one become unknown, too.
        self.set(self.len, Place::unknown(slot));
        let mut at = self.len;
        while let Some(above) = at.checked_sub(1).map(|before| before / CHILDREN) {
            let Some(parent) = self.heap.get_mut(above) else { break };
            let unknown = Place::unknown(parent.slot());
            if *parent == unknown {
                break;
            }
            *parent = unknown;
            at = above;
        }
        self.len += 1;
        Some(slot)
    }

    /// Returns the slot with the lowest count, and puts it first. At least one slot must be in use.
    /// `count_of` returns the count of a slot, which has not fallen since the last
    /// [`Ranking::refresh`].
    #[inline(always)]
    pub fn least(&mut self, count_of: impl Fn(u32) -> u64) -> u32 {
        let slot = self.first().slot();
        if self.first() == Place::new(slot, count_of(slot)) {
            return slot;
        }
        self.search(count_of)
    }

    /// Sets the count of the slot that [`Ranking::least`] has just returned.
    #[inline(always)]
    pub fn raise_least(&mut self, slot: u32, count: u64) {
        self.sink(0, Place::new(slot, count));
    }

    /// Brings first slots up to date until the first one is.
    #[inline(never)]
    fn search(&mut self, count_of: impl Fn(u32) -> u64) -> u32 {
        for _ in 0..=self.len / MOVES {
            let first = self.first();
            let current = Place::new(first.slot(), count_of(first.slot()));
            if current == first {
                return first.slot();
            }
            self.sink(0, current);
        }
        self.refresh(count_of);
        self.first().slot()
    }

    /// Brings all slots up to date.
    #[cold]
    pub fn refresh(&mut self, count_of: impl Fn(u32) -> u64) {
        let current = |place: &Place| Place::new(place.slot(), count_of(place.slot()));
        self.heap.iter_mut().take(self.len).for_each(|place| *place = current(place));
        for at in (0..self.len.div_ceil(CHILDREN)).rev() {
            if let Some(place) = self.heap.get(at).copied() {
                self.sink(at, place);
            }
        }
    }

    /// Frees all slots.
    pub fn clear(&mut self) {
        self.heap.fill(Place::FREE);
        self.len = 0;
    }

    #[inline(always)]
    fn first(&self) -> Place {
        self.heap.first().copied().unwrap_or(Place::FREE)
    }

    /// Puts `sinking` at a place, and moves it down past lower children.
    #[inline(always)]
    fn sink(&mut self, mut at: usize, sinking: Place) {
        let heap = &mut *self.heap;
        loop {
            let first = at.wrapping_mul(CHILDREN).wrapping_add(1);
            let below = heap.get(first..first.wrapping_add(CHILDREN)).and_then(<[_]>::first_chunk);
            let Some(&[a, b, c, d]): Option<&[Place; CHILDREN]> = below else { break };
            let left = if b < a { (b, 1) } else { (a, 0) };
            let right = if d < c { (d, 3) } else { (c, 2) };
            let (least, step) = if right.0 < left.0 { right } else { left };
            if least >= sinking {
                break;
            }
            if let Some(place) = heap.get_mut(at) {
                *place = least;
            }
            at = first.wrapping_add(step);
        }
        self.set(at, sinking);
    }

    #[inline(always)]
    fn set(&mut self, at: usize, place: Place) {
        if let Some(found) = self.heap.get_mut(at) {
            *found = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn ranking_finds_the_lowest_count_however_counts_grow(
            slots in 1_usize..40,
            steps in prop::collection::vec((0_u32..40, 0_u64..5, 0_u32..10), 1..300),
        ) {
            let mut ranking = Ranking::new(slots);
            let mut counts: Vec<u64> = Vec::new();
            for (slot, by, kind) in steps {
                match (counts.get_mut(slot as usize), kind) {
                    (Some(count), 1..) => *count += by,
                    (None, 1..) => {
                        let added = ranking.add();
                        let slot = counts.len() as u32;
                        prop_assert_eq!(added, (slot < slots as u32).then_some(slot));
                        counts.extend(added.map(|_| by));
                    }
                    (_, 0) => {
                        // Halving keeps the order, but may lower a count.
                        counts.iter_mut().for_each(|count| *count = count.div_ceil(2));
                        ranking.refresh(|slot| counts[slot as usize]);
                    }
                }
                prop_assert_eq!(ranking.in_use(), counts.len());
                if by == 0 && !counts.is_empty() {
                    let least = ranking.least(|slot| counts[slot as usize]);
                    prop_assert_eq!(counts.get(least as usize), counts.iter().min());
                }
            }
        }
    }

    #[test]
    fn cleared_ranking_has_every_slot_free() {
        let mut ranking = Ranking::new(2);
        assert_eq!([ranking.add(), ranking.add(), ranking.add()], [Some(0), Some(1), None]);
        ranking.clear();
        assert_eq!(ranking.in_use(), 0);
        assert_eq!([ranking.add(), ranking.add(), ranking.add()], [Some(0), Some(1), None]);
        assert_eq!(ranking.least(|slot| [3, 1][slot as usize]), 1);
    }
}
