//! Chooses one call in sixteen, at random.
//!
//! Drawing the number of calls up to the next chosen one costs less than a draw for each call, and
//! a caller cannot predict it.

/// The average number of calls for each one that is chosen.
pub const ONE_IN: u32 = 16;

/// A source of random gaps between chosen calls.
#[derive(Clone, Copy, Debug)]
pub struct Gaps(u64);

impl Gaps {
    /// Creates a source from a random number.
    pub fn new(random: u64) -> Self {
        // An xorshift generator never leaves 0.
        Self(random | 1)
    }

    /// Returns the number of calls from one that is chosen up to and including the next: 1 to 31,
    /// all equally likely, so 16 on average.
    pub fn draw(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let most = u64::from(2 * ONE_IN - 1);
        (((self.0 >> 32) * most) >> 32) as u32 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_1_to_31_each_equally_likely() {
        for random in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let mut gaps = Gaps::new(random);
            let mut counts = [0_u32; 33];
            (0..310_000).for_each(|_| counts[gaps.draw() as usize] += 1);
            assert_eq!((counts[0], counts[32]), (0, 0));
            for (gap, count) in counts.iter().enumerate().skip(1).take(31) {
                assert!((9_400..=10_600).contains(count), "{gap}: {count}");
            }
        }
    }
}
