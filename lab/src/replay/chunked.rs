//! A growing array in pages: growing never copies, so the peak of memory is what is in use.

/// An array of records of equal length. Records that were never written hold the default value.
#[derive(Clone, Debug)]
pub struct Paged<T> {
    pages: Vec<Box<[T]>>,
    /// The number of elements in a record.
    stride: usize,
}

/// The number of records in a page.
const PAGE: usize = 4_096;

impl<T: Copy + Default> Paged<T> {
    /// Makes an empty array of records with `stride` elements each.
    pub const fn new(stride: usize) -> Self {
        Self { pages: Vec::new(), stride }
    }

    /// Returns a record, which exists from then on.
    #[inline]
    pub fn record_mut(&mut self, index: u32) -> &mut [T] {
        let index = index as usize;
        let page = index / PAGE;
        while self.pages.len() <= page {
            self.pages.push(vec![T::default(); PAGE * self.stride].into());
        }
        let start = index % PAGE * self.stride;
        // The page exists, and has this record.
        self.pages
            .get_mut(page)
            .and_then(|page| page.get_mut(start..start + self.stride))
            .unwrap_or_default()
    }

    /// Returns a record; empty if neither it nor a later one was ever written.
    pub fn record(&self, index: u32) -> &[T] {
        let index = index as usize;
        let start = index % PAGE * self.stride;
        let page = self.pages.get(index / PAGE);
        page.and_then(|page| page.get(start..start + self.stride)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_what_was_written_and_others_hold_the_default() {
        let mut paged = Paged::<u16>::new(3);
        assert!(paged.record(0).is_empty());
        paged.record_mut(10_000).copy_from_slice(&[1, 2, 3]);
        paged.record_mut(4_095)[2] = 7;
        assert_eq!(paged.record(10_000), [1, 2, 3]);
        assert_eq!(paged.record(4_095), [0, 0, 7]);
        assert_eq!(paged.record(9_999), [0, 0, 0]);
        assert!(paged.record(4_096 * 3).is_empty());
    }
}
