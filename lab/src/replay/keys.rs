//! The keys of a log, numbered in the order in which they come: a hash table of numbers over one
//! arena of bytes.

use super::failure::Failure;
use std::hash::{BuildHasher as _, RandomState};

/// The keys.
#[derive(Debug)]
pub struct Keys {
    hasher: RandomState,
    /// The entries of all keys, one after the other: the number and the length, then the key.
    /// Together, so that finding a key reads one place in memory.
    entries: Vec<u8>,
    /// The start of each key's entry.
    starts: Vec<u32>,
    /// A hash and the start of an entry for each key, or [`EMPTY`]; as many as a power of two.
    slots: Vec<(u32, u32)>,
    keys_max: usize,
    bytes_max: usize,
}

/// The reason why a key is not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// There are [`KEYS_MAX`] keys.
    Keys,
    /// The keys have [`BYTES_MAX`] bytes.
    Bytes,
}

impl Full {
    /// Returns the failure of a replay that needs room for another key.
    pub fn failure(self) -> Failure {
        Failure::usage(match self {
            Self::Keys => format!(
                "the log has more than {KEYS_MAX} keys: use a coarser --key such as \
                 '$remote_addr/24/56', or leave lines out with --where"
            ),
            Self::Bytes => format!(
                "the keys have more than {BYTES_MAX} bytes: use a shorter --key, or leave lines \
                 out with --where"
            ),
        })
    }
}

/// The most keys.
pub const KEYS_MAX: usize = 16_000_000;

/// The most bytes of all keys together, with their numbers and lengths.
pub const BYTES_MAX: usize = 1 << 30;

/// The longest key, in bytes.
pub const KEY_LEN_MAX: usize = 1_024;

/// The bytes of an entry before the key.
const ENTRY_HEAD: usize = 6;

/// A slot without a key.
const EMPTY: (u32, u32) = (0, u32::MAX);

impl Default for Keys {
    fn default() -> Self {
        Self::with_bounds(KEYS_MAX, BYTES_MAX)
    }
}

impl Keys {
    fn with_bounds(keys_max: usize, bytes_max: usize) -> Self {
        let slots = vec![EMPTY; 1_024];
        let (entries, starts) = (Vec::new(), Vec::new());
        Self { hasher: RandomState::new(), entries, starts, slots, keys_max, bytes_max }
    }

    /// Returns the number of a key. Adds the key if it is new.
    ///
    /// # Errors
    ///
    /// [`Full`] if the key is new and there is no room for it.
    pub fn number(&mut self, key: &[u8]) -> Result<u32, Full> {
        let hash = self.hasher.hash_one(key) as u32;
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let (found, start) = self.slots[at];
            if start == EMPTY.1 {
                break;
            }
            if found == hash {
                let (number, bytes) = self.entry(start);
                if bytes == key {
                    return Ok(number);
                }
            }
            at = (at + 1) & mask;
        }
        self.add(key, hash, at)
    }

    /// Returns the number and the bytes of the key whose entry starts there.
    fn entry(&self, start: u32) -> (u32, &[u8]) {
        let entry = self.entries.get(start as usize..).unwrap_or_default();
        let Some(([a, b, c, d, e, f], rest)) = entry.split_first_chunk() else { return (0, &[]) };
        let number = u32::from_le_bytes([*a, *b, *c, *d]);
        let len = u16::from_le_bytes([*e, *f]);
        (number, rest.get(..len.into()).unwrap_or_default())
    }

    fn add(&mut self, key: &[u8], hash: u32, at: usize) -> Result<u32, Full> {
        if self.starts.len() >= self.keys_max {
            return Err(Full::Keys);
        }
        let len = u16::try_from(key.len()).map_err(|_| Full::Bytes)?;
        let start = self.entries.len();
        let end = start + ENTRY_HEAD + key.len();
        // A start is less than [`BYTES_MAX`], and never that of an empty slot.
        let start = u32::try_from(start).ok().filter(|_| end <= self.bytes_max);
        let start = start.ok_or(Full::Bytes)?;
        // Fewer than 2^32 keys: `keys_max` is less.
        let number = self.starts.len() as u32;
        self.entries.extend_from_slice(&number.to_le_bytes());
        self.entries.extend_from_slice(&len.to_le_bytes());
        self.entries.extend_from_slice(key);
        self.starts.push(start);
        self.slots[at] = (hash, start);
        if self.starts.len() * 4 > self.slots.len() * 3 {
            self.grow();
        }
        Ok(number)
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        let mut slots = vec![EMPTY; mask + 1];
        for slot in self.slots.iter().filter(|slot| slot.1 != EMPTY.1) {
            let mut at = slot.0 as usize & mask;
            while slots[at].1 != EMPTY.1 {
                at = (at + 1) & mask;
            }
            slots[at] = *slot;
        }
        self.slots = slots;
    }

    /// Returns the bytes of a key.
    pub fn key(&self, number: u32) -> &[u8] {
        self.starts.get(number as usize).map_or(&[], |start| self.entry(*start).1)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the bytes of all keys together.
    pub fn bytes_len(&self) -> usize {
        self.entries.len() - self.starts.len() * ENTRY_HEAD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_get_a_number_once_and_keep_their_bytes() {
        let mut keys = Keys::default();
        for round in 0..2 {
            for index in 0..10_000_u32 {
                let number = keys.number(format!("user:{index}").as_bytes());
                assert_eq!(number, Ok(index), "round {round}");
            }
        }
        assert_eq!(keys.number(b""), Ok(10_000));
        assert_eq!((keys.key(0), keys.key(9_999)), (&b"user:0"[..], &b"user:9999"[..]));
        assert_eq!((keys.key(10_000), keys.len()), (&b""[..], 10_001));
    }

    #[test]
    fn a_new_key_without_room_is_refused_and_a_known_one_is_found() {
        let mut keys = Keys::with_bounds(2, 15);
        assert_eq!((keys.number(b"a"), keys.number(b"bcd")), (Ok(0), Err(Full::Bytes)));
        assert_eq!((keys.number(b"bc"), keys.number(b"")), (Ok(1), Err(Full::Keys)));
        assert_eq!(keys.number(b"a"), Ok(0));
    }
}
