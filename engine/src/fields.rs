//! A state of fixed size as numbers, each with its name and bounds: what it takes to write it,
//! to read it back, and to show it to people.

use crate::bounds::Period;
use crate::time::Instant;

/// One number of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, with its unit last, as `RL.INSPECT` shows it.
    pub name: &'static str,
    /// The smallest number that is a state.
    pub min: u64,
    /// The largest.
    pub max: u64,
}

impl Field {
    /// A number from `min` to `max`.
    pub const fn new(name: &'static str, min: u64, max: u64) -> Self {
        Self { name, min, max }
    }

    /// An instant in microseconds.
    pub const fn instant(name: &'static str) -> Self {
        Self::new(name, 0, Instant::MAX.as_us())
    }

    /// The numerator of a fraction over a period in microseconds.
    pub const fn fraction(name: &'static str) -> Self {
        Self::new(name, 0, Period::MAX.as_us() - 1)
    }

    /// Whether `number` is within its bounds.
    pub const fn admits(&self, number: u64) -> bool {
        self.min <= number && number <= self.max
    }
}

/// A state, or one form of it, that is `N` numbers, and so borrows nothing.
pub trait Fields<const N: usize> {
    /// The state.
    type Stored;
    /// The numbers, in the order in which they are stored.
    const FIELDS: [Field; N];

    /// What is stored for `state`.
    fn numbers(state: &Self::Stored) -> [u64; N];

    /// The state that numbers within their bounds stand for; `None` when they do not go together.
    fn state(numbers: [u64; N]) -> Option<Self::Stored>;

    /// The state as names and numbers, for people.
    fn shown(state: &Self::Stored) -> Vec<(&'static str, u64)> {
        let names = Self::FIELDS.iter().map(|field| field.name);
        names.zip(Self::numbers(state)).collect()
    }
}
