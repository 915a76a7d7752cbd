//! What the limiters accept: every argument has a type, and every type its bounds.
//!
//! A value that exists is in range, so the arithmetic behind it cannot overflow and needs no checks
//! of its own. The largest products, `rate x elapsed` with 10^12 x 2^53 us and a sliding window's
//! `previous x overlap` with 10^15 x 3.2 x 10^13 us, fit a `u128` with room to spare.

use crate::time::Span;

/// How much a window, a bucket or a burst holds, and how much a rate brings: 1 to 10^12 units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Limit(u64);

/// How much one call takes: 0 to 10^12 units. Cost 0 asks without taking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(u64);

/// The length of a window or the time a rate refers to: 1 ms to 366 days, in whole microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(Span);

/// Into how many slots a sliding log divides its window once its limit is larger than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots(u32);

/// The rule of a bucket: a capacity that is refilled (or drained) at `rate` units per `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    capacity: Limit,
    rate: Limit,
    period: Period,
}

/// Why three values in range do not make a [`Refill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefillError {
    /// `rate / period` is above [`Refill::RATE_MAX_PER_US`].
    RateTooHigh,
    /// To refill from empty would take longer than [`Refill::SPAN_MAX`].
    RefillTooLong,
}

impl Limit {
    /// The smallest limit.
    pub const MIN: u64 = 1;
    /// The largest limit.
    pub const MAX: u64 = 1_000_000_000_000;
    /// The largest number of free attempts, and of holders.
    pub const ATTEMPTS_MAX: Self = Self(1_000_000);

    /// A limit of `units`; `None` when out of bounds.
    pub fn new(units: u64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&units).then_some(Self(units))
    }

    /// The number of units.
    pub const fn units(self) -> u64 {
        self.0
    }
}

impl Cost {
    /// The largest cost. A cost may be above a limit; it is then never allowed as a whole.
    pub const MAX: u64 = Limit::MAX;
    /// The most that charges may bring the total of a subject to.
    pub const TOTAL_MAX: u64 = 2 * Limit::MAX;
    /// What a call costs that only asks.
    pub const ZERO: Self = Self(0);
    /// What a call costs that does not say.
    pub const ONE: Self = Self(1);

    /// A cost of `units`; `None` when out of bounds.
    pub fn new(units: u64) -> Option<Self> {
        (units <= Self::MAX).then_some(Self(units))
    }

    /// The number of units.
    pub const fn units(self) -> u64 {
        self.0
    }

    /// As much of it as there is.
    pub fn at_most(self, units: u64) -> Self {
        Self(self.0.min(units))
    }

    /// Whether the call only asks: it is always allowed and never written.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Period {
    /// The shortest period.
    pub const MIN: Span = Span::from_ms(1);
    /// The longest period.
    pub const MAX: Span = Span::from_days(366);

    /// A period as long as `span`; `None` when out of bounds.
    pub fn new(span: Span) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&span).then_some(Self(span))
    }

    /// Its length.
    pub const fn span(self) -> Span {
        self.0
    }

    /// Its length in microseconds.
    pub const fn as_us(self) -> u64 {
        self.0.as_us()
    }
}

impl Slots {
    /// The fewest slots: a unit is held at most a sixteenth of the window too long.
    pub const MIN: u32 = 16;
    /// The most slots: a state of some 800 kB, and half as much again before the dead are dropped.
    pub const MAX: u32 = 65_536;
    /// The default.
    pub const DEFAULT: Self = Self(1_024);

    /// A number of slots; `None` when out of bounds.
    pub fn new(slots: u32) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&slots).then_some(Self(slots))
    }

    /// The number of slots.
    pub const fn count(self) -> u64 {
        self.0 as u64
    }
}

impl Refill {
    /// The highest rate: 10^9 units a second.
    pub const RATE_MAX_PER_US: u64 = 1_000;
    /// The longest time a refill from empty may take.
    pub const SPAN_MAX: Span = Span::from_days(36_525);

    /// A capacity and the rate it is refilled at.
    ///
    /// # Errors
    ///
    /// [`RefillError::RateTooHigh`] first, then [`RefillError::RefillTooLong`].
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

    /// How much the bucket holds.
    pub const fn capacity(&self) -> Limit {
        self.capacity
    }

    /// Units per period.
    pub const fn rate(&self) -> Limit {
        self.rate
    }

    /// The time the rate refers to.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The capacity in *parts*, the exact currency of both buckets: a unit has as many parts as
    /// the period has microseconds, so that one microsecond is worth exactly `rate` parts.
    pub fn full(&self) -> u128 {
        self.parts(self.capacity.units())
    }

    /// `units` in parts.
    pub fn parts(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.period.as_us())
    }

    /// What `elapsed` is worth, in parts.
    pub fn earned(&self, elapsed: Span) -> u128 {
        u128::from(self.rate.units()) * u128::from(elapsed.as_us())
    }

    /// How long it takes to earn `parts`, rounded up to the microsecond.
    pub fn time_to_earn(&self, parts: u128) -> Span {
        Span::from_us_saturating(div_ceil(parts, self.rate.units()))
    }

    /// How long it takes to refill from empty, rounded up to the microsecond.
    pub fn time_to_fill(&self) -> Span {
        self.time_to_earn(self.full())
    }

    /// The whole units in `parts` (rounded down) and what is left over, in parts. Takes the short
    /// division where it can, and none for less than a unit.
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

/// `dividend / divisor`, rounded up. Takes the short division where it can: only extreme arguments
/// need the long one.
pub fn div_ceil(dividend: u128, divisor: u64) -> u128 {
    match u64::try_from(dividend) {
        Ok(short) => u128::from(short.div_ceil(divisor)),
        Err(_) => dividend.div_ceil(u128::from(divisor)),
    }
}
