//! One reservation: so much is held for an id, from an instant on and for a while.

use crate::bounds::{Cost, Period};
use crate::time::{Instant, Span};

/// What is remembered of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation<'a> {
    /// Whose it is: 1 to [`Self::ID_LEN_MAX`] bytes.
    pub id: &'a [u8],
    /// When it was made.
    pub since: Instant,
    /// For how long from then on the id is remembered.
    pub ttl: Period,
    /// How much it holds, while it is open; `None` once it is settled.
    pub held: Option<Cost>,
}

impl Reservation<'_> {
    /// The longest id in bytes.
    pub const ID_LEN_MAX: usize = 64;
    /// How many are remembered for one key at a time.
    pub const COUNT_MAX: usize = 1_024;
    /// The least time after its commit for which an id is remembered, unless its ttl is shorter.
    pub const SETTLED_MIN: Span = Span::from_ms(60_000);

    /// When the id is forgotten, and what it holds is free again.
    pub const fn lapses_at(&self) -> Instant {
        self.since.after(self.ttl.span())
    }

    /// The same as it stands at `now`; `None` when it has lapsed. Only a clock that stepped back
    /// can put it further ahead of `now` than it lasts: it then begins at `now`.
    #[inline]
    pub fn at(self, now: Instant) -> Option<Self> {
        if self.since.since(now) > self.ttl.span() {
            return Some(Self { since: now, ..self });
        }
        (now < self.lapses_at()).then_some(self)
    }

    /// Returns the reservation as settled at `now`: remembered until its old end or until
    /// [`Self::SETTLED_MIN`] has passed, its own ttl at most, whichever is later. A repeated commit
    /// then finds the id, also one that is sent just before the old end.
    ///
    /// Only a clock that stepped back puts the old end further than a period ahead; the id is then
    /// remembered for the longest period.
    #[must_use]
    pub fn settled(self, now: Instant) -> Self {
        let left = self.lapses_at().since(now);
        let span = left.max(self.ttl.span().min(Self::SETTLED_MIN)).min(Period::MAX);
        Self { since: now, ttl: Period::new(span).unwrap_or(self.ttl), held: None, ..self }
    }
}
