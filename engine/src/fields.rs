//! The numbers of a state of fixed size, each with its name and bounds. States are written, read
//! and inspected through them.

use crate::bounds::Period;
use crate::time::Instant;

/// One number of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name, ending in its unit, as `RL.INSPECT` shows it.
    pub name: &'static str,
    /// The smallest valid value of this field.
    pub min: u64,
    /// The largest valid value of this field.
    pub max: u64,
}

impl Field {
    /// Makes a field for numbers from `min` to `max`.
    pub const fn new(name: &'static str, min: u64, max: u64) -> Self {
        Self { name, min, max }
    }

    /// Makes a field for an instant in microseconds.
    pub const fn instant(name: &'static str) -> Self {
        Self::new(name, 0, Instant::MAX.as_us())
    }

    /// Makes a field for the numerator of a fraction over a period in microseconds.
    pub const fn fraction(name: &'static str) -> Self {
        Self::new(name, 0, Period::MAX.as_us() - 1)
    }

    /// Returns true if `number` is within the bounds.
    pub const fn admits(&self, number: u64) -> bool {
        self.min <= number && number <= self.max
    }
}

/// A state, or one stored form of it, that consists of `N` numbers and borrows nothing.
pub trait Fields<const N: usize> {
    /// The state.
    type Stored;
    /// The fields, in the order in which they are stored.
    const FIELDS: [Field; N];

    /// Returns the numbers to store for `state`.
    fn numbers(state: &Self::Stored) -> [u64; N];

    /// Returns the state with these numbers, each of which is within its bounds; `None` if they
    /// contradict each other.
    fn state(numbers: [u64; N]) -> Option<Self::Stored>;

    /// Returns the state as names and numbers, for `RL.INSPECT`.
    fn inspect(state: &Self::Stored) -> Vec<(&'static str, u64)> {
        let names = Self::FIELDS.iter().map(|field| field.name);
        names.zip(Self::numbers(state)).collect()
    }
}
