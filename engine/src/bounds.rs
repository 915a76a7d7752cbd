//! The arguments of the limiters. Each kind of argument has a type that enforces its bounds.
//!
//! Every value is in range by its type, so later arithmetic cannot overflow and needs no checks.
//! The largest products, `rate x elapsed` with 10^12 x 2^53 us and a sliding window's `previous x
//! overlap` with 10^15 x 3.2 x 10^13 us, fit a `u128` with room to spare.

use crate::time::Span;

/// The size of a window, a bucket or a burst, or the units of a rate: 1 to 10^12 units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(u64);

/// The units one call takes: 0 to 10^12, or more than any limit. Cost 0 takes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

/// The units that must remain after a call, for callers with a higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// A number of units, at most [`Cost::MAX`].
    Units(Cost),
    /// A percentage of the limit, from 0 to 100.
    Percent(u8),
}

/// The length of a window, or the time a rate refers to: 1 ms to 366 days, in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(Span);

/// The number of slots into which a sliding log divides its window. The log uses slots only if its
/// limit exceeds their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots(u32);

/// The rule of a bucket: a capacity that is refilled (or drained) at `rate` units per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    capacity: Limit,
    rate: Limit,
    period: Period,
}

/// The reason why three values, each in range, do not form a valid [`Refill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefillError {
    /// `rate / period` is above [`Refill::RATE_MAX_PER_US`].
    RateTooHigh,
    /// The refill from empty would take longer than [`Refill::SPAN_MAX`].
    RefillTooLong,
}

impl Limit {
    /// The smallest limit.
    pub const MIN: u64 = 1;
    /// The largest limit.
    pub const MAX: u64 = 1_000_000_000_000;
    /// The largest number of free attempts, and of lease holders.
    pub const ATTEMPTS_MAX: Self = Self(1_000_000);

    /// Returns a limit of `units`; `None` if out of bounds.
    pub fn new(units: u64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&units).then_some(Self(units))
    }

    /// Returns the number of units.
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl Cost {
    /// The largest cost. A cost above the limit is never allowed in full.
    pub const MAX: u64 = Limit::MAX;
    /// The largest number of used units to which charges may bring a key.
    pub const TOTAL_MAX: u64 = 2 * Limit::MAX;
    /// The cost of a call that takes nothing.
    pub const ZERO: Self = Self(0);
    /// The default cost.
    pub const ONE: Self = Self(1);
    /// A cost above every limit, which is never allowed: the bound of `TOKENS` is not 10^12.
    pub const ABOVE_EVERY_LIMIT: Self = Self(Limit::MAX + 1);

    /// Returns a cost of `units`; `None` if out of bounds.
    pub fn new(units: u64) -> Option<Self> {
        (units <= Self::MAX).then_some(Self(units))
    }

    /// Returns the number of units.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Returns the cost, or `units` if that is less.
    pub fn at_most(self, units: u64) -> Self {
        Self(self.0.min(units))
    }

    /// Returns this cost and the units to leave after it, as one cost: at most twice [`Self::MAX`].
    #[must_use]
    pub const fn plus(self, left_units: u64) -> Self {
        Self(self.0 + left_units)
    }

    /// Returns true if the call takes nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Leave {
    /// Returns the number of units under `limit`. A percentage is rounded down.
    pub const fn units(self, limit: Limit) -> u64 {
        match self {
            Self::Units(units) => units.units(),
            Self::Percent(percent) => limit.units() * percent as u64 / 100,
        }
    }
}

impl Period {
    /// The shortest period.
    pub const MIN: Span = Span::from_ms(1);
    /// The longest period.
    pub const MAX: Span = Span::from_days(366);

    /// Returns a period as long as `span`; `None` if out of bounds.
    pub fn new(span: Span) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&span).then_some(Self(span))
    }

    /// Returns the length.
    pub const fn span(self) -> Span {
        self.0
    }

    /// Returns the length in microseconds.
    pub const fn as_us(self) -> u64 {
        self.0.as_us()
    }
}

impl Slots {
    /// The fewest slots: a unit then counts at most a sixteenth of the window too long.
    pub const MIN: u32 = 16;
    /// The most slots: a state of about 800 kB, or half as much again before dead entries are
    /// dropped.
    pub const MAX: u32 = 65_536;
    /// The default number of slots.
    pub const DEFAULT: Self = Self(1_024);

    /// Returns a number of slots; `None` if out of bounds.
    pub fn new(slots: u32) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&slots).then_some(Self(slots))
    }

    /// Returns the number of slots.
    pub const fn count(self) -> u64 {
        self.0 as u64
    }
}

impl Refill {
    /// The highest rate, in units per microsecond: 10^9 units per second.
    pub const RATE_MAX_PER_US: u64 = 1_000;
    /// The longest time that a refill from empty may take.
    pub const SPAN_MAX: Span = Span::from_days(36_525);

    /// Makes the refill of `capacity` at `rate` units per `period`.
    ///
    /// # Errors
    ///
    /// Returns [`RefillError::RateTooHigh`] or, checked next, [`RefillError::RefillTooLong`].
    pub fn new(capacity: Limit, rate: Limit, period: Period) -> Result<Self, RefillError> {
        if rate.units() > Self::RATE_MAX_PER_US * period.as_us() {
            return Err(RefillError::RateTooHigh);
        }
        let refill = Self { capacity, rate, period };
        let longest = u128::from(Self::SPAN_MAX.as_us()) * u128::from(rate.units());
        if refill.full() > longest {
            return Err(RefillError::RefillTooLong);
        }
        Ok(refill)
    }

    /// Returns the capacity.
    pub const fn capacity(&self) -> Limit {
        self.capacity
    }

    /// Returns the units per period.
    pub const fn rate(&self) -> Limit {
        self.rate
    }

    /// Returns the time the rate refers to.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// Returns the capacity in *parts*, in which both kinds of bucket count exactly: a unit has as
    /// many parts as the period has microseconds, so one microsecond refills exactly `rate` parts.
    pub fn full(&self) -> u128 {
        self.parts(self.capacity.units())
    }

    /// Returns `units` in parts.
    pub fn parts(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.period.as_us())
    }

    /// Returns the parts refilled in `elapsed`.
    pub fn earned(&self, elapsed: Span) -> u128 {
        u128::from(self.rate.units()) * u128::from(elapsed.as_us())
    }

    /// Returns the time to refill `parts`, rounded up to the microsecond.
    pub fn time_to_earn(&self, parts: u128) -> Span {
        Span::from_us_saturating(div_ceil(parts, self.rate.units()))
    }

    /// Returns the time to refill from empty, rounded up to the microsecond.
    pub fn time_to_fill(&self) -> Span {
        self.time_to_earn(self.full())
    }

    /// Returns the whole units in `parts`, rounded down, and the rest in parts. Divides in 64 bits
    /// if possible, and not at all for less than a unit.
    pub fn units(&self, parts: u128) -> (u64, u64) {
        let period = self.period.as_us();
        if let Ok(parts) = u64::try_from(parts) {
            return if parts < period { (0, parts) } else { (parts / period, parts % period) };
        }
        let period = u128::from(period);
        let units = u64::try_from(parts / period).unwrap_or(u64::MAX);
        let left = u64::try_from(parts % period).unwrap_or(u64::MAX);
        (units, left)
    }
}

/// Returns `dividend / divisor`, rounded up. Divides in 64 bits if possible: only extreme arguments
/// need 128.
pub fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(short) => u128::from(short.div_ceil(divisor)),
        Err(_) => dividend.div_ceil(u128::from(divisor)),
    }
}
