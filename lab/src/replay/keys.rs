//! The keys of a log, numbered in the order in which they come: a hash table of numbers over one
//! arena of bytes.

use std::hash::{BuildHasher as _, RandomState};

/// The keys.
#[derive(Debug)]
pub struct Keys {
    hasher: RandomState,
    /// The bytes of all keys, one after the other.
    bytes: Vec<u8>,
    /// The end of each key in the bytes.
    ends: Vec<u32>,
    /// A hash and a number for each key, or [`EMPTY`]; as many as a power of two.
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

/// The most keys.
pub const KEYS_MAX: usize = 16_000_000;

/// The most bytes of all keys together.
pub const BYTES_MAX: usize = 1 << 30;

/// The longest key, in bytes.
pub const KEY_LEN_MAX: usize = 1_024;

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
        let (bytes, ends) = (Vec::new(), Vec::new());
        Self { hasher: RandomState::new(), bytes, ends, slots, keys_max, bytes_max }
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
            let (found, number) = self.slots[at];
            if number == EMPTY.1 {
                break;
            }
            if found == hash && self.key(number) == key {
                return Ok(number);
            }
            at = (at + 1) & mask;
        }
        self.add(key, hash, at)
    }

    fn add(&mut self, key: &[u8], hash: u32, at: usize) -> Result<u32, Full> {
        if self.ends.len() >= self.keys_max {
            return Err(Full::Keys);
        }
        let end = self.bytes.len() + key.len();
        let end = if end <= self.bytes_max { u32::try_from(end).ok() } else { None };
        let end = end.ok_or(Full::Bytes)?;
        // Fewer than 2^32 keys: `keys_max` is less.
        let number = self.ends.len() as u32;
        self.bytes.extend_from_slice(key);
        self.ends.push(end);
        self.slots[at] = (hash, number);
        if self.ends.len() * 4 > self.slots.len() * 3 {
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
        let number = number as usize;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before).copied());
        let end = self.ends.get(number).copied().unwrap_or_default();
        self.bytes.get(start.unwrap_or(0) as usize..end as usize).unwrap_or_default()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the bytes of all keys together.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
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
        let mut keys = Keys::with_bounds(2, 3);
        assert_eq!((keys.number(b"a"), keys.number(b"bcd")), (Ok(0), Err(Full::Bytes)));
        assert_eq!((keys.number(b"bc"), keys.number(b"")), (Ok(1), Err(Full::Keys)));
        assert_eq!(keys.number(b"a"), Ok(0));
    }
}
