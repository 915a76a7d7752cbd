//! A source of repeatable random numbers: the same seed gives the same traffic on every machine.

/// The generator `SplitMix64`.
///
/// Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators (2014).
pub struct Random(u64);

impl Random {
    /// Creates the generator of a seed.
    pub fn new(seed: u32) -> Self {
        Self(seed.into())
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `bound - 1`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.draw()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// Returns a number from 0 up to but not including 1.
    pub fn part(&mut self) -> f64 {
        // The highest 53 bits, which a float represents exactly.
        (self.draw() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn random_returns_the_numbers_of_splitmix64() {
        // The first numbers of the published generator for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!([(); 3].map(|()| random.draw()), expected);
    }

    #[test]
    fn random_stays_below_its_bound() {
        let mut random = Random::new(7);
        for _ in 0..10_000 {
            assert!(random.below(3) < 3);
            assert!((0.0..1.0).contains(&random.part()));
        }
        assert_eq!(random.below(0), 0);
    }
}
