//! The calls of a scenario, before any rule decides them.
//!
//! The same scenario gives the same calls on every machine.

pub mod profile;
pub mod random;

#[cfg(test)]
mod tests;

use self::profile::Profile;
use self::random::Random;

/// The largest number of calls of a scenario, and of those that one choice decides.
pub const CALLS_MAX: usize = 100_000;

/// The largest number of keys.
pub const KEYS_MAX: u8 = 20;

/// The number of bursts or herds on a time line.
const BURSTS: u32 = 12;

/// The rate of each hour of a day. A day begins at midnight; its busiest hours are 11 to 12 and 20
/// to 21.
const DAY: [f64; 25] = [
    0.30, 0.20, 0.12, 0.10, 0.10, 0.15, 0.30, 0.60, 1.00, 1.40, 1.70, 1.85, 1.70, 1.60, 1.65, 1.60,
    1.50, 1.40, 1.45, 1.70, 1.85, 1.50, 0.95, 0.55, 0.30,
];

/// One call in this number is of a key other than the abuser's.
const OTHERS: u64 = 5;

/// The traffic of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// The pattern of the calls.
    pub shape: Shape,
    /// The length of the time line.
    pub duration_ms: u64,
    /// The seed of the random numbers.
    pub seed: u32,
    /// The number of keys, from 1 to [`KEYS_MAX`].
    pub keys: u8,
}

/// The pattern of the calls. A rate is the mean number of calls per second of all keys together,
/// except for [`Shape::Greedy`].
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A line through points: the part of the duration, and the calls per second.
    Drawn(Vec<(f64, f64)>),
    /// Even gaps. The keys take turns.
    Steady(f64),
    /// Short bursts with pauses between them.
    Bursty(f64),
    /// Clients that call in even gaps, each at this rate.
    Greedy(f64),
    /// Clients that all wait for the same instants, the first at 0.
    Herd(f64),
    /// The curve of a day, stretched to the duration.
    Day(f64),
    /// Random calls: four of five are of the first key.
    Abuser(f64),
}

/// A call that a client makes by itself, and not as a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The instant, in microseconds after the start of the time line.
    pub at_us: u64,
    /// The number of the key, counted from 0.
    pub key: u8,
}

/// The traffic has more than [`CALLS_MAX`] calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyCalls;

impl Traffic {
    /// Returns the length of the time line in microseconds.
    pub const fn duration_us(&self) -> u64 {
        self.duration_ms.saturating_mul(1_000)
    }

    /// Returns the calls in order of time.
    ///
    /// # Errors
    ///
    /// Returns [`TooManyCalls`] if there are too many.
    pub fn calls(&self) -> Result<Vec<Call>, TooManyCalls> {
        let mut random = Random::new(self.seed);
        match &self.shape {
            Shape::Drawn(points) => {
                let profile = Profile::new(points.iter().copied());
                let count = self.count(profile.mean())?;
                Ok(self.scattered(&profile, count, &mut random))
            }
            Shape::Steady(rate) => Ok(self.steady(self.count(*rate)?)),
            Shape::Bursty(rate) => {
                let (count, profile) = (self.count(*rate)?, bursts());
                Ok(self.scattered(&profile, count, &mut random))
            }
            Shape::Greedy(rate) => self.greedy(*rate, &mut random),
            Shape::Herd(rate) => Ok(self.herds(self.count(*rate)?)),
            Shape::Day(rate) => {
                let hours = DAY.iter().enumerate();
                let profile = Profile::new(hours.map(|(hour, rate)| (hour as f64 / 24.0, *rate)));
                let count = self.count(*rate)?;
                Ok(self.scattered(&profile, count, &mut random))
            }
            Shape::Abuser(rate) => Ok(self.abused(self.count(*rate)?, &mut random)),
        }
    }

    /// Returns the number of calls at a mean rate.
    fn count(&self, rate: f64) -> Result<usize, TooManyCalls> {
        let count = (rate * self.duration_ms as f64 / 1_000.0).round();
        // Also refuses a rate that is not a number.
        let fits = (0.0..=CALLS_MAX as f64).contains(&count);
        if fits { Ok(count as usize) } else { Err(TooManyCalls) }
    }

    /// Returns the instant of one of `count` calls in even gaps.
    fn even_us(&self, call: usize, count: usize) -> u64 {
        let product = u128::from(self.duration_us()) * call as u128;
        u64::try_from(product / count.max(1) as u128).unwrap_or(u64::MAX)
    }

    /// Returns the key whose turn it is at one of the calls.
    fn key_in_turn(&self, call: usize) -> u8 {
        u8::try_from(call % usize::from(self.keys.max(1))).unwrap_or(0)
    }

    fn random_key(&self, random: &mut Random) -> u8 {
        u8::try_from(random.below(self.keys.into())).unwrap_or(0)
    }

    fn steady(&self, count: usize) -> Vec<Call> {
        let call = |call| Call { at_us: self.even_us(call, count), key: self.key_in_turn(call) };
        (0..count).map(call).collect()
    }

    fn scattered(&self, profile: &Profile, count: usize, random: &mut Random) -> Vec<Call> {
        let instants = profile.instants(count, self.duration_us(), random);
        let call = |at_us| Call { at_us, key: self.random_key(random) };
        instants.into_iter().map(call).collect()
    }

    /// Returns the calls of clients in even gaps. The first client begins at 0, each other one
    /// within its first gap.
    fn greedy(&self, rate: f64, random: &mut Random) -> Result<Vec<Call>, TooManyCalls> {
        let count = self.count(rate)?;
        if count * usize::from(self.keys) > CALLS_MAX {
            return Err(TooManyCalls);
        }
        let mut calls = Vec::with_capacity(count * usize::from(self.keys));
        for key in 0..self.keys {
            let offset_us = if key == 0 { 0 } else { random.below(self.even_us(1, count)) };
            let call = |call| Call { at_us: self.even_us(call, count) + offset_us, key };
            calls.extend((0..count).map(call));
        }
        calls.sort_unstable();
        Ok(calls)
    }

    fn herds(&self, count: usize) -> Vec<Call> {
        let herds = BURSTS as usize;
        let calls_of = |herd| count * herd / herds..count * (herd + 1) / herds;
        let herd = |herd| {
            let at_us = self.even_us(herd, herds);
            calls_of(herd).map(move |call| Call { at_us, key: self.key_in_turn(call) })
        };
        (0..herds).flat_map(herd).collect()
    }

    fn abused(&self, count: usize, random: &mut Random) -> Vec<Call> {
        let profile = Profile::new([(0.0, 1.0), (1.0, 1.0)]);
        let instants = profile.instants(count, self.duration_us(), random);
        let others = u64::from(self.keys.saturating_sub(1));
        let mut key = || match random.below(OTHERS) {
            0 if others > 0 => u8::try_from(1 + random.below(others)).unwrap_or(0),
            _ => 0,
        };
        instants.into_iter().map(|at_us| Call { at_us, key: key() }).collect()
    }
}

/// Creates the profile of bursts: each takes the first tenth of its part of the time line.
fn bursts() -> Profile {
    let edges = |burst: u32| {
        let at = |tenths: f64| (f64::from(burst) + tenths / 10.0) / f64::from(BURSTS);
        [(at(0.0), 0.0), (at(0.0), 10.0), (at(1.0), 10.0), (at(1.0), 0.0)]
    };
    Profile::new((0..BURSTS).flat_map(edges))
}
