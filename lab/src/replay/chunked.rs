//! A growing array in chunks: growing never copies, so the peak of memory is what is in use.

/// An array of records of equal length. Records that were never written hold the default value.
#[derive(Clone, Debug)]
pub struct Chunked<T> {
    chunks: Vec<Box<[T]>>,
    /// The number of elements in a record.
    stride: usize,
}

/// The number of records in a chunk.
const CHUNK_LEN: usize = 4_096;

impl<T: Copy + Default> Chunked<T> {
    /// Creates an empty array of records with `stride` elements each.
    pub const fn new(stride: usize) -> Self {
        Self { chunks: Vec::new(), stride }
    }

    /// Returns a record, which exists from then on.
    #[inline]
    pub fn record_mut(&mut self, index: u32) -> &mut [T] {
        let index = index as usize;
        let chunk = index / CHUNK_LEN;
        while self.chunks.len() <= chunk {
            self.chunks.push(vec![T::default(); CHUNK_LEN * self.stride].into());
        }
        let start = index % CHUNK_LEN * self.stride;
        // The chunk exists, and has this record.
        self.chunks
            .get_mut(chunk)
            .and_then(|chunk| chunk.get_mut(start..start + self.stride))
            .unwrap_or_default()
    }

    /// Returns a record; empty if neither it nor a later one was ever written.
    pub fn record(&self, index: u32) -> &[T] {
        let index = index as usize;
        let start = index % CHUNK_LEN * self.stride;
        let chunk = self.chunks.get(index / CHUNK_LEN);
        chunk.and_then(|chunk| chunk.get(start..start + self.stride)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_what_was_written_and_others_hold_the_default() {
        let mut array = Chunked::<u16>::new(3);
        assert!(array.record(0).is_empty());
        array.record_mut(10_000).copy_from_slice(&[1, 2, 3]);
        array.record_mut(4_095)[2] = 7;
        assert_eq!(array.record(10_000), [1, 2, 3]);
        assert_eq!(array.record(4_095), [0, 0, 7]);
        assert_eq!(array.record(9_999), [0, 0, 0]);
        assert!(array.record(4_096 * 3).is_empty());
    }
}
