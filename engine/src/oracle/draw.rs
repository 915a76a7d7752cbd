//! Limits, clock steps and costs drawn from any source of numbers: a seed, or a fuzzer's bytes.

use crate::bounds::{Cost, Leave, Limit, Refill};
use crate::oracle::model::{Limits, div_ceil};
use crate::oracle::reply::Verb;
use crate::time::Instant;

/// The largest limit, rate or cost, in units.
pub const UNITS_MAX: i128 = Limit::MAX as i128;
/// The last time a clock shows, in microseconds.
pub const CLOCK_MAX_US: i128 = Instant::CLOCK_MAX.as_us() as i128;
/// A day in microseconds.
pub const DAY_US: i128 = 86_400_000_000;

/// A source of numbers.
pub trait Source {
    /// Returns a number from 0 to `bound - 1`.
    fn below(&mut self, bound: u64) -> u64;

    /// Returns a number from `from` to `to`, both included.
    fn between(&mut self, from: i128, to: i128) -> i128 {
        let bound = u64::try_from(to - from + 1).expect("a range of 64 bits that is not empty");
        from + i128::from(self.below(bound))
    }
}

/// A fuzzer's bytes. Each number consumes as many bytes as its range needs. After the end, all
/// numbers are 0.
impl Source for &[u8] {
    fn below(&mut self, bound: u64) -> u64 {
        let wanted = usize::try_from((bound - 1).max(1).ilog2() / 8 + 1).expect("at most 8");
        let (used, rest) = self.split_at(wanted.min(self.len()));
        *self = rest;
        used.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) % bound
    }
}

/// A move of the clock.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A number of sixteenths of the rule's span, plus some microseconds.
    By {
        /// The number of sixteenths.
        sixteenths: i128,
        /// The microseconds added.
        us: i128,
    },
    /// A number of days.
    Days(i128),
}

impl Step {
    /// Returns the length in microseconds, under a rule with the span `span_us`.
    pub fn us(self, span_us: i128) -> i128 {
        match self {
            Self::By { sixteenths, us } => span_us * sixteenths / 16 + us,
            Self::Days(days) => days * DAY_US,
        }
    }
}

/// A cost in sixteenths of the capacity, plus some units.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Sixteenths of the capacity.
    pub sixteenths: i128,
    /// The units added.
    pub units: i128,
}

impl Share {
    /// Returns the cost in units.
    pub fn of(self, limits: &Limits) -> i128 {
        (limits.capacity * self.sixteenths / 16 + self.units).min(UNITS_MAX)
    }
}

impl Limits {
    /// Returns limits that every algorithm accepts: if a bucket would refuse them, moves the rate
    /// into bounds, and the capacity too if that is not enough.
    pub fn in_bounds(self) -> Self {
        let fastest = (self.period_us * i128::from(Refill::RATE_MAX_PER_US)).min(UNITS_MAX);
        let longest_us = i128::from(Refill::SPAN_MAX.as_us());
        let slowest = div_ceil(self.capacity * self.period_us, longest_us).max(1);
        let rate = self.rate.clamp(slowest.min(fastest), fastest);
        let capacity = self.capacity.min(longest_us * rate / self.period_us).max(1);
        Self { capacity, rate, ..self }
    }

    /// Draws any limits, small ones more often.
    pub fn draw(source: &mut impl Source) -> Self {
        Self {
            capacity: units(source),
            rate: units(source),
            period_us: match source.below(8) {
                0..4 => source.between(1, 120) * 1_000_000,
                4..6 => source.between(1_000, 2_000_000),
                6 => source.between(1_000, 366 * DAY_US),
                _ => [1_000, 366 * DAY_US][usize::from(source.below(2) == 1)],
            },
            aligned: source.below(2) == 1,
            slots: [16, 1_024, 65_536][source.between(0, 2) as usize],
        }
        .in_bounds()
    }
}

fn units(source: &mut impl Source) -> i128 {
    match source.below(10) {
        0..6 => source.between(1, 12),
        6..8 => source.between(1, 5_000),
        8 => source.between(1, UNITS_MAX),
        _ => UNITS_MAX,
    }
}

impl Step {
    /// Draws a step of a steady clock, which may be off by 2 us. The step is often 0, and often
    /// near a multiple of a sixteenth of the span.
    pub fn draw_good(source: &mut impl Source) -> Self {
        let (sixteenths, us) = match source.below(13) {
            0..4 => (0, 0),
            4..10 => (source.between(0, 8), source.between(-2, 1_000)),
            _ => (source.between(0, 40), source.between(-1, 1)),
        };
        Self::By { sixteenths, us }
    }

    /// Draws a step, forward or back, of up to 2.5 spans or 10 years. Only setting a clock can
    /// cause such a step.
    pub fn draw_set(source: &mut impl Source) -> Self {
        match source.below(3) {
            0 => Self::Days(source.between(-3_653, 3_653)),
            _ => Self::By { sixteenths: source.between(-40, 40), us: source.between(-1, 1) },
        }
    }
}

impl Verb {
    /// Draws a kind of call: in half of all cases a plain one, [`Self::Decide`].
    pub fn draw(source: &mut impl Source) -> Self {
        match source.below(10) {
            0..4 => Self::Decide,
            4 => Self::Partly,
            5 => Self::Charge,
            6..8 => Self::Refund,
            8 => Self::Leaving(Leave::draw(source)),
            _ => Self::PartlyLeaving(Leave::draw(source)),
        }
    }
}

impl Leave {
    /// Draws a few units, a percentage, or any number of units.
    pub fn draw(source: &mut impl Source) -> Self {
        let up_to = |most: u64, source: &mut _| Source::below(source, most + 1);
        match source.below(8) {
            0..3 => Self::Percent(up_to(100, source).try_into().expect("at most 100")),
            3..7 => Self::Units(Cost::new(up_to(12, source)).expect("a cost")),
            _ => Self::Units(Cost::new(up_to(Cost::MAX, source)).expect("a cost")),
        }
    }
}

impl Share {
    /// Draws a cost: usually one, sometimes a part of the capacity, zero, or more than the
    /// capacity.
    pub fn draw(source: &mut impl Source) -> Self {
        let (sixteenths, units) = match source.below(13) {
            0..8 => (0, 1),
            8..11 => (source.between(0, 16), source.between(0, 3)),
            11 => (0, 0),
            _ => (17, 1),
        };
        Self { sixteenths, units }
    }
}
