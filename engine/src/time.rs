//! Time as the limiters see it: an instant and a span, both in whole microseconds.
//!
//! A limiter never reads a clock. It gets one [`Instant`] per call and returns [`Span`]s, so a
//! test, a replay and a server all get the same numbers. The two types cannot be mixed up, and no
//! operation on them panics or wraps: they saturate, far beyond every accepted argument.

/// A point in time: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

/// A length of time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Instant {
    /// The last instant at which a state can be written, in the year 2255: 2^53 - 1 us. Only an
    /// arrival time may be later, by a tolerance or a debt.
    pub const MAX: Self = Self((1 << 53) - 1);
    /// The last instant a clock may show, the first of January 2200. States may lie beyond it.
    pub const CLOCK_MAX: Self = Self(7_258_118_400_000_000);

    /// Returns the instant `us` microseconds after the Unix epoch.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// Returns the microseconds since the Unix epoch.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Returns the milliseconds since the epoch, rounded up: a key with this expiry does not expire
    /// before the instant.
    pub const fn as_ms_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant `span` later.
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the instant `span` earlier; `None` if that is before the epoch.
    pub fn before(self, span: Span) -> Option<Self> {
        self.0.checked_sub(span.0).map(Self)
    }

    /// Returns the latest multiple of `grid`, counted from the epoch, that is not after `self`.
    pub const fn floor_to(self, grid: Span) -> Self {
        match self.0.checked_rem(grid.0) {
            Some(into) => Self(self.0 - into),
            None => self,
        }
    }

    /// Returns the earliest multiple of `grid`, counted from the epoch, that is not before `self`.
    pub const fn ceil_to(self, grid: Span) -> Self {
        let floor = self.floor_to(grid);
        if floor.0 == self.0 { floor } else { floor.after(grid) }
    }
}

impl Span {
    /// The empty span.
    pub const ZERO: Self = Self(0);

    /// Returns a span of `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// Returns a span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// Returns a span of `days` days of 86,400 seconds.
    pub const fn from_days(days: u64) -> Self {
        Self::from_ms(days.saturating_mul(86_400_000))
    }

    /// Returns a span of `us` microseconds, or the longest span if it does not fit.
    pub fn from_us_saturating(us: u128) -> Self {
        Self(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// Returns a span of `ns` nanoseconds, rounded up to the microsecond.
    pub const fn from_ns_ceil(ns: u64) -> Self {
        Self(ns.div_ceil(1_000))
    }

    /// Returns the microseconds.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Returns the milliseconds, rounded up: a caller that waits that long does not come too early.
    pub const fn as_ms_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// Returns an eighth of the span, rounded down to the microsecond.
    pub const fn eighth(self) -> Self {
        Self(self.0 / 8)
    }

    /// Returns the sum of both spans.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns true if the span is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}
