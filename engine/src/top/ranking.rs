//! The slots by count: a min-heap in which each node has four children, and the place of each slot
//! in it.
//!
//! Raising a count moves its slot down only past children with lower counts, so a heavy key near
//! the bottom moves rarely.

/// The number of children of a node.
const CHILDREN: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Place {
    count: u64,
    slot: u32,
}

impl Place {
    /// Fills the places of slots that are free, and those after the last slot.
    const FREE: Self = Self { count: u64::MAX, slot: u32::MAX };
}

/// The counts of all slots.
#[derive(Debug)]
pub struct Ranking {
    /// A place for each slot, then [`CHILDREN`] free places.
    heap: Box<[Place]>,
    /// The place of each slot.
    place_of: Box<[u32]>,
    /// The number of slots in use.
    len: usize,
}

impl Ranking {
    /// Creates a ranking of free slots.
    pub fn new(slots: usize) -> Self {
        Self {
            heap: vec![Place::FREE; slots + CHILDREN].into_boxed_slice(),
            place_of: vec![0; slots].into_boxed_slice(),
            len: 0,
        }
    }

    /// Takes a free slot with this count; `None` if no slot is free.
    #[inline]
    pub fn add(&mut self, count: u64) -> Option<u32> {
        let slot = u32::try_from(self.len).ok().filter(|_| self.len < self.place_of.len())?;
        let mut at = self.len;
        self.len += 1;
        // Moves up past parents with higher counts.
        while let Some(above) = at.checked_sub(1).map(|before| before / CHILDREN) {
            let Some(parent) = self.heap.get(above).copied().filter(|it| it.count > count) else {
                break;
            };
            self.set(at, parent);
            at = above;
        }
        self.set(at, Place { count, slot });
        Some(slot)
    }

    /// Returns the slot with the lowest count, or slot 0 if all are free.
    #[inline]
    pub fn least(&self) -> u32 {
        self.heap.first().filter(|_| self.len > 0).map_or(0, |place| place.slot)
    }

    /// Adds to the count of a slot in use.
    #[inline(always)]
    pub fn raise(&mut self, slot: u32, by: u64) {
        let Some(at) = self.place_of.get(slot as usize) else { return };
        let mut at = *at as usize;
        let Some(raised) = self.heap.get_mut(at) else { return };
        raised.count = raised.count.saturating_add(by);
        let raised = *raised;
        // Moves down past children with lower counts.
        loop {
            let first = at * CHILDREN + 1;
            let below = self.heap.get(first..).and_then(<[_]>::first_chunk::<CHILDREN>);
            let Some([a, b, c, d]) = below else { break };
            let (left, left_at) = if b.count < a.count { (b, 1) } else { (a, 0) };
            let (right, right_at) = if d.count < c.count { (d, 3) } else { (c, 2) };
            let is_right = right.count < left.count;
            let (least, step) = if is_right { (right, right_at) } else { (left, left_at) };
            if least.count >= raised.count {
                break;
            }
            let least = *least;
            self.set(at, least);
            at = first + step;
        }
        self.set(at, raised);
    }

    /// Returns the slots in use, each with its count, in no particular order.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.heap.iter().take(self.len).map(|place| (place.slot, place.count))
    }

    /// Changes all counts by a function that does not change their order.
    pub fn change(&mut self, change: impl Fn(u64) -> u64) {
        let in_use = self.heap.iter_mut().take(self.len);
        in_use.for_each(|place| place.count = change(place.count));
    }

    /// Frees all slots.
    pub fn clear(&mut self) {
        self.heap.fill(Place::FREE);
        self.len = 0;
    }

    #[inline(always)]
    fn set(&mut self, at: usize, place: Place) {
        if let Some(found) = self.heap.get_mut(at) {
            *found = place;
        }
        if let Some(found) = self.place_of.get_mut(place.slot as usize) {
            *found = at as u32;
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
        fn ranking_keeps_each_count_and_knows_the_lowest(
            slots in 1_usize..40,
            steps in prop::collection::vec((0_u32..40, 0_u64..5), 1..200),
        ) {
            let mut ranking = Ranking::new(slots);
            let mut model: Vec<u64> = Vec::new();
            for (slot, by) in steps {
                if let Some(count) = model.get_mut(slot as usize) {
                    *count += by;
                    ranking.raise(slot, by);
                } else {
                    let added = ranking.add(by);
                    prop_assert_eq!(added.is_some(), model.len() < slots);
                    model.extend(added.map(|_| by));
                }
                let mut counts: Vec<_> = ranking.counts().collect();
                counts.sort_unstable();
                let expected: Vec<_> = (0..).zip(model.iter().copied()).collect();
                prop_assert_eq!(counts, expected);
                let lowest = model.iter().min();
                prop_assert_eq!(model.get(ranking.least() as usize), lowest);
            }
        }
    }

    #[test]
    fn cleared_ranking_has_every_slot_free() {
        let mut ranking = Ranking::new(2);
        assert_eq!([ranking.add(3), ranking.add(1), ranking.add(2)], [Some(0), Some(1), None]);
        ranking.clear();
        assert_eq!(ranking.counts().count(), 0);
        assert_eq!([ranking.add(3), ranking.add(1), ranking.add(2)], [Some(0), Some(1), None]);
        assert_eq!(ranking.least(), 1);
    }
}
