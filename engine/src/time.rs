//! Time as the limiters see it: an instant and a span, both in whole microseconds.
//!
//! A limiter never reads a clock. It is told one [`Instant`] per call and answers in [`Span`]s, so
//! that a test, a replay and a server all get the same numbers. The two types cannot be mixed up,
//! and no operation on them panics or wraps: they saturate, far beyond every accepted argument.

/// A point in time: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

/// A length of time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(u64);

impl Instant {
    /// The last instant at which a state may have been written, in the year 2255: 2^53 - 1 us.
    /// Only an arrival time may lie later, by a tolerance.
    pub const MAX: Self = Self((1 << 53) - 1);
    /// The last instant a clock may show, the first of January 2200. States reach past it.
    pub const CLOCK_MAX: Self = Self(7_258_118_400_000_000);

    /// The instant `us` microseconds after the Unix epoch.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Milliseconds since the Unix epoch, rounded up: a key that expires here outlives the instant.
    pub const fn as_ms_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// How long it is from `earlier` to `self`; nothing when `earlier` is in fact the later one.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The instant `span` later.
    pub const fn after(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The instant `span` earlier; `None` when that is before the epoch.
    pub fn before(self, span: Span) -> Option<Self> {
        self.0.checked_sub(span.0).map(Self)
    }

    /// The latest multiple of `grid`, counted from the epoch, that is not after `self`.
    pub const fn floor_to(self, grid: Span) -> Self {
        match self.0.checked_rem(grid.0) {
            Some(into) => Self(self.0 - into),
            None => self,
        }
    }

    /// The earliest multiple of `grid`, counted from the epoch, that is not before `self`.
    pub const fn ceil_to(self, grid: Span) -> Self {
        let floor = self.floor_to(grid);
        if floor.0 == self.0 { floor } else { floor.after(grid) }
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Self(us)
    }

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// A span of `days` days of 86,400 seconds.
    pub const fn from_days(days: u64) -> Self {
        Self::from_ms(days.saturating_mul(86_400_000))
    }

    /// A span of `us` microseconds, or the longest there is when it does not fit.
    pub fn from_us_saturating(us: u128) -> Self {
        Self(u64::try_from(us).unwrap_or(u64::MAX))
    }

    /// The shortest span that is not shorter than `ns` nanoseconds.
    pub const fn from_ns_ceil(ns: u64) -> Self {
        Self(ns.div_ceil(1_000))
    }

    /// Whole microseconds.
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// Milliseconds, rounded up: who waits that long has waited long enough.
    pub const fn as_ms_ceil(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// An eighth of the span, rounded down to the microsecond.
    pub const fn eighth(self) -> Self {
        Self(self.0 / 8)
    }

    /// Both spans, one after the other.
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Whether this is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}
