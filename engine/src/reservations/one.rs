//! One reservation: an amount held for an id, from an instant on, for a limited time.

use crate::bounds::{Cost, Period};
use crate::time::{Instant, Span};

/// A reservation as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// The id: 1 to [`Self::ID_LEN_MAX`] bytes.
    pub id: &'a [u8],
    /// The instant at which the reservation was made, or settled if it is settled.
    pub since: Instant,
    /// The time after `since` for which the id is remembered.
    pub ttl: Period,
    /// The units that an open reservation holds; `None` once it is settled.
    pub held: Option<Cost>,
}

impl Reservation<'_> {
    /// The longest id in bytes.
    pub const ID_LEN_MAX: usize = 64;
    /// The largest number of reservations remembered for one key at a time.
    pub const COUNT_MAX: usize = 1_024;
    /// The shortest time for which an id is remembered after its commit, unless the ttl is shorter.
    pub const SETTLED_MIN: Span = Span::from_ms(60_000);

    /// Returns the instant from which the id is forgotten, and the units it holds are free again.
    pub const fn expires_at(&self) -> Instant {
        self.since.after(self.ttl.span())
    }

    /// Returns the reservation as seen at `now`; `None` if it has expired. If it starts further
    /// ahead of `now` than its ttl, the clock stepped back: it then starts at `now`.
    #[inline]
    pub fn at(self, now: Instant) -> Option<Self> {
        if self.since.since(now) > self.ttl.span() {
            return Some(Self { since: now, ..self });
        }
        (now < self.expires_at()).then_some(self)
    }

    /// Returns the reservation, settled at `now`. Its id is remembered at least until the
    /// reservation would have expired. It is also remembered, from `now` on, for the shorter of its
    /// ttl and [`Self::SETTLED_MIN`]. A repeated commit therefore finds the id, even if the first
    /// commit was sent just before the reservation expired.
    ///
    /// Only if the clock stepped back would the reservation have expired later than the longest
    /// period after `now`. The id is then remembered for the longest period.
    #[must_use]
    pub fn settled(self, now: Instant) -> Self {
        let left = self.expires_at().since(now);
        let span = left.max(self.ttl.span().min(Self::SETTLED_MIN)).min(Period::MAX);
        Self { since: now, ttl: Period::new(span).unwrap_or(self.ttl), held: None, ..self }
    }
}
