//! Finds the slot of a key by its tag: a hash table with linear probing.
//!
//! The table has at least four times as many places as there are slots, so a search soon ends at an
//! empty place. Removing a link moves later ones up, so that no marks of removed links remain.

/// The slot of an empty place.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    tag: u32,
    slot: u32,
}

impl Link {
    const EMPTY: Self = Self { tag: 0, slot: NONE };
}

/// The slots of all keys.
#[derive(Debug)]
pub struct Index {
    links: Box<[Link]>,
    /// The number of places, a power of two, minus one.
    mask: usize,
}

impl Index {
    /// Creates an empty index for this number of slots.
    pub fn new(slots: usize) -> Self {
        let places = slots.saturating_mul(4).next_power_of_two();
        Self { links: vec![Link::EMPTY; places].into_boxed_slice(), mask: places - 1 }
    }

    /// Returns the slot with this tag for which `is_it` returns true.
    #[inline(always)]
    pub fn find(&self, tag: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = tag as usize & self.mask;
        loop {
            let link = self.links.get(at).filter(|link| link.slot != NONE)?;
            if link.tag == tag && is_it(link.slot) {
                return Some(link.slot);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a slot under a tag. The caller adds no more slots than the index was created for.
    #[inline]
    pub fn insert(&mut self, tag: u32, slot: u32) {
        let mut at = tag as usize & self.mask;
        while let Some(link) = self.links.get_mut(at) {
            if link.slot == NONE {
                *link = Link { tag, slot };
                return;
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Removes a slot, which is under this tag.
    #[inline]
    pub fn remove(&mut self, tag: u32, slot: u32) {
        let mut hole = tag as usize & self.mask;
        while let Some(link) = self.links.get(hole) {
            match link.slot {
                NONE => return,
                found if found == slot => break,
                _ => hole = (hole + 1) & self.mask,
            }
        }
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let Some(link) = self.links.get(at).copied().filter(|link| link.slot != NONE) else {
                break;
            };
            // A link may move up to the hole unless its search begins after the hole.
            let from_home = at.wrapping_sub(link.tag as usize) & self.mask;
            let from_hole = at.wrapping_sub(hole) & self.mask;
            if from_home >= from_hole {
                self.set(hole, link);
                hole = at;
            }
        }
        self.set(hole, Link::EMPTY);
    }

    /// Removes all slots.
    pub fn clear(&mut self) {
        self.links.fill(Link::EMPTY);
    }

    #[inline(always)]
    fn set(&mut self, at: usize, link: Link) {
        if let Some(place) = self.links.get_mut(at) {
            *place = link;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn index_finds_exactly_the_slots_that_were_added_and_not_removed(
            steps in prop::collection::vec((0_u32..8, 0_u32..24), 1..200),
        ) {
            // Eight slots and few different tags, so that many searches collide.
            let mut index = Index::new(8);
            let mut model = BTreeMap::new();
            for (slot, tag) in steps {
                match model.remove(&slot) {
                    Some(tag) => index.remove(tag, slot),
                    None => {
                        index.insert(tag, slot);
                        model.insert(slot, tag);
                    }
                }
                for slot in 0..8 {
                    for tag in 0..24 {
                        let found = index.find(tag, |candidate| candidate == slot);
                        let expected = (model.get(&slot) == Some(&tag)).then_some(slot);
                        prop_assert_eq!(found, expected);
                    }
                }
            }
        }
    }
}
