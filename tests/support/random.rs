//! A source of repeatable random numbers: a failing schedule fails again.

use redis_throttle_engine::oracle::Source;

/// An xorshift generator. Only repeatability matters here, not statistical quality.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// Returns a random element.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len() as u64) as usize]
    }
}

impl Source for Random {
    fn below(&mut self, bound: u64) -> u64 {
        Random::below(self, bound)
    }
}
