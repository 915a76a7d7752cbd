//! The keys of a sketch: their tags, and the short forms of long keys.
//!
//! A tag comes from a multiplying hash whose seed is drawn at load, so a caller who chooses keys
//! does not know which of them share a place.

/// The longest key that is held in full, in bytes.
pub const NAME_MAX: usize = 256;

/// The number of bytes at the start of a long key that its short form keeps.
const START: usize = 200;

/// The bytes between the start of a long key and its hash.
const MARK: &[u8] = "…".as_bytes();

/// The length of a short form, in bytes: the start, the mark and 16 hexadecimal digits.
const SHORT: usize = START + MARK.len() + 16;

/// The secret numbers of a hash.
#[derive(Clone, Copy, Debug)]
pub struct Seed([u64; 3]);

impl Seed {
    /// Derives the secret numbers from a random one.
    pub fn new(random: u64) -> Self {
        let mut state = random;
        Self([(); 3].map(|()| {
            // SplitMix64: spreads every bit of the random number.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        }))
    }

    /// Returns the tag of a name in a database.
    #[inline(always)]
    pub fn tag(&self, database: u32, name: &[u8]) -> u32 {
        (self.hash(u64::from(database), name) >> 32) as u32
    }

    /// Returns the short form of a key longer than [`NAME_MAX`] bytes: its first 200 bytes, `…`,
    /// and the hash of the whole key as 16 hexadecimal digits.
    #[cold]
    pub fn shorten(&self, key: &[u8]) -> [u8; SHORT] {
        let hash = self.hash(u64::MAX, key);
        let digits = (0..16).map(|place| {
            let half_byte = (hash >> (60 - 4 * place)) as u32 & 0xf;
            char::from_digit(half_byte, 16).map_or(b'0', |digit| digit as u8)
        });
        let start = key.iter().copied().take(START);
        let mut bytes = start.chain(MARK.iter().copied()).chain(digits);
        [(); SHORT].map(|()| bytes.next().unwrap_or(0))
    }

    /// Hashes bytes, 16 at a time, by multiplying with the secret numbers.
    #[inline(always)]
    fn hash(&self, start: u64, bytes: &[u8]) -> u64 {
        let Self([of_start, of_words, of_end]) = *self;
        let mut hash = of_start;
        let mut rest = bytes;
        while let Some((words, after)) = rest.split_first_chunk::<16>().filter(|_| rest.len() > 16)
        {
            let (low, high) = halves(words);
            hash = fold(low ^ of_words, high ^ hash);
            rest = after;
        }
        // The last 16 bytes, some of them once more; or all, if there are fewer.
        let (low, high) = match (bytes.last_chunk::<16>(), rest) {
            (Some(words), _) => halves(words),
            (None, short) => ends(short),
        };
        hash = fold(low ^ of_words, high ^ hash);
        // The length of a key has at most 32 bits, as the number of a database has.
        fold(hash ^ of_end, of_words ^ bytes.len() as u64 ^ start.rotate_left(32))
    }
}

/// Multiplies, and combines both halves of the product.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn halves(words: &[u8; 16]) -> (u64, u64) {
    let all = u128::from_le_bytes(*words);
    (all as u64, (all >> 64) as u64)
}

/// Returns two numbers that hold every byte of at most 15 bytes. Together with their length, the
/// bytes follow from the numbers.
#[inline(always)]
fn ends(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    let low = bytes.iter().fold(0, |low, byte| low << 8 | u64::from(*byte));
    (low, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn hash_depends_on_every_byte_the_length_the_database_and_the_seed() {
        let seed = Seed::new(7);
        let mut hashes = BTreeSet::new();
        let mut count = 0;
        for len in 0..=70 {
            let zeros = vec![0; len];
            for database in [0, 1, 15] {
                hashes.insert(seed.hash(database, &zeros));
                count += 1;
            }
            for at in 0..len {
                let mut bytes = zeros.clone();
                bytes[at] = 1;
                hashes.insert(seed.hash(0, &bytes));
                hashes.insert(Seed::new(8).hash(0, &bytes));
                count += 2;
            }
        }
        assert_eq!(hashes.len(), count);
    }

    #[test]
    fn tags_of_similar_keys_spread_evenly() {
        // A million keys in 1,024 places: 977 each on average, with a deviation of 31.
        for random in 0..3 {
            let seed = Seed::new(random);
            let mut places = [0_u32; 1_024];
            for number in 0..1_000_000 {
                let key = format!("user:{number}");
                places[seed.tag(0, key.as_bytes()) as usize & 1_023] += 1;
            }
            let fewest = places.iter().min().expect("places");
            let most = places.iter().max().expect("places");
            assert!(*fewest > 977 - 200 && *most < 977 + 200, "{fewest} to {most}");
        }
    }

    #[test]
    fn short_form_is_the_start_a_mark_and_the_hash_of_the_whole_key() {
        let seed = Seed::new(1);
        let key = vec![b'k'; 1_000];
        let short = seed.shorten(&key);
        let text = std::str::from_utf8(&short).expect("ASCII and the mark");
        let (start, digits) = text.split_once('…').expect("the mark");
        assert_eq!(start, "k".repeat(200));
        assert_eq!(digits.len(), 16);
        assert_eq!(u64::from_str_radix(digits, 16), Ok(seed.hash(u64::MAX, &key)));
        assert_ne!(seed.shorten(&key[1..]), short);
        assert!(short.len() <= NAME_MAX);
    }
}
