//! A window with reservations as it is stored: as read, and as it is to be.

use crate::limiter::{Cost, Instant, Period, Reservation, Span};
use crate::state::Reservations;
use std::num::NonZeroU32;

/// The algorithms that can have reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windowed {
    /// `FIXED`
    Fixed,
    /// `QUOTA`
    Quota,
}

/// A window as it is stored; with nothing used, it starts at the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it opened.
    pub start: Instant,
    /// How much is used in it.
    pub used: u64,
}

/// A window with at least one reservation, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<'a> {
    /// Whose window it is.
    pub of: Windowed,
    /// The reservations.
    pub list: Reservations<'a>,
    /// The window.
    pub window: Window,
}

/// What becomes of a window and its reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// Whose window it is.
    pub of: Windowed,
    /// What becomes of the list.
    pub list: ListEdit,
    /// How many are in it then.
    pub count: u16,
    /// Where in it that of the id is, or belongs; `None` where others change too.
    pub place: Option<Place>,
    /// The window.
    pub window: Window,
    /// The list as it is stored.
    pub stored: Reservations<'a>,
    /// Whose reservation changes.
    pub id: &'a [u8],
    /// For how long it is to hold something from `now` on.
    pub ttl: Span,
    /// How much it is to hold.
    pub held: Cost,
    /// What has lapsed by then is dropped.
    pub now: Instant,
}

/// A place in a list, as so many bytes of reservations before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(NonZeroU32);

impl Place {
    /// The place after so many bytes.
    pub fn after(len: usize) -> Option<Self> {
        u32::try_from(len).ok()?.checked_add(1).and_then(NonZeroU32::new).map(Self)
    }

    /// So many bytes come before it.
    pub const fn len_before(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// What becomes of a list of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEdit {
    /// It is gone, for all have lapsed: the state is the plain one of the algorithm.
    Drop,
    /// It stays as it is stored.
    Keep,
    /// What has lapsed is dropped, and what is too far ahead re-based.
    Tidy,
    /// The same, and that of the id is put in, where none is.
    Insert,
    /// The same, and that of the id is made anew.
    Replace,
    /// The same, and that of the id is settled.
    Settle,
    /// The same, and that of the id is taken out.
    Remove,
}

impl<'a> Edit<'a> {
    /// The reservation that is put in.
    pub fn put(&self) -> Option<Reservation<'a>> {
        let Self { id, now: since, held, .. } = *self;
        let puts = matches!(self.list, ListEdit::Insert | ListEdit::Replace);
        let ttl = Period::new(self.ttl).filter(|_| puts)?;
        Some(Reservation { id, since, ttl, held: Some(held) })
    }

    /// What becomes of that of the id, which has not lapsed; `None` when it is replaced or taken out.
    pub fn made_of(&self, seen: Reservation<'a>) -> Option<Reservation<'a>> {
        match self.list {
            ListEdit::Insert | ListEdit::Replace | ListEdit::Remove => None,
            ListEdit::Settle => Some(Reservation { held: None, ..seen }),
            ListEdit::Drop | ListEdit::Keep | ListEdit::Tidy => Some(seen),
        }
    }
}

impl State<'_> {
    /// The state at `now` as names and numbers, for people.
    pub fn shown(&self, now: Instant) -> Vec<(&'static str, u64)> {
        let seen = self.list.iter().filter_map(|(reservation, _)| reservation.at(now));
        let (mut reserved, mut open, mut settled) = (0, 0, 0);
        for reservation in seen {
            match reservation.held {
                Some(held) => (reserved, open) = (reserved + held.units(), open + 1),
                None => settled += 1,
            }
        }
        let start_us = match self.of {
            Windowed::Fixed => "window_start_us",
            Windowed::Quota => "period_start_us",
        };
        vec![
            (start_us, self.window.start.as_us()),
            ("used", self.window.used),
            ("reserved", reserved),
            ("reservations_open", open),
            ("reservations_settled", settled),
        ]
    }
}
