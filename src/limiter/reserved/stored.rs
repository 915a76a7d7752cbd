//! A window with reservations as it is stored: as read, and as it is to be.

use crate::limiter::window::Window;
use crate::limiter::{Cost, Instant, Period, Reservation, Span};
use crate::state::{NotAState, Reservations, Unread};

/// The algorithms that can have reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windowed {
    /// `FIXED`
    Fixed,
    /// `QUOTA`
    Quota,
}

/// A window with at least one reservation, as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State<'a> {
    /// Whose window it is.
    pub of: Windowed,
    /// The reservations.
    pub list: Unread<'a>,
    /// The window; with nothing used, it starts at the epoch.
    pub window: Window,
}

/// What becomes of a window and its reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// Whose window it is.
    pub of: Windowed,
    /// What becomes of the list.
    pub list: ListEdit,
    /// Whether some in it have lapsed, or are re-based.
    pub tidies: bool,
    /// How many are in it then.
    pub count: u16,
    /// How many bytes of reservations come before that of the id, or would.
    pub len_before: u32,
    /// The window; with nothing used, it starts at the epoch.
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

    /// Whether the list has one of the id, which does not stay as it is.
    pub const fn changes_own(&self) -> bool {
        matches!(self.list, ListEdit::Replace | ListEdit::Settle | ListEdit::Remove)
    }

    /// What becomes of that of the id; `None` when it is replaced or taken out.
    pub fn made_of(&self, own: Reservation<'a>) -> Option<Reservation<'a>> {
        let settles = self.list == ListEdit::Settle;
        own.at(self.now).filter(|_| settles).map(|own| Reservation { held: None, ..own })
    }
}

impl State<'_> {
    /// The state at `now` as names and numbers, for people.
    ///
    /// # Errors
    ///
    /// [`NotAState`] when its list is none.
    pub fn shown(&self, now: Instant) -> Result<Vec<(&'static str, u64)>, NotAState> {
        let (mut reserved, mut open, mut settled) = (0, 0, 0);
        self.list.read(|stored, _| match stored.at(now).map(|seen| seen.held) {
            Some(Some(held)) => (reserved, open) = (reserved + held.units(), open + 1),
            Some(None) => settled += 1,
            None => {}
        })?;
        let start_us = match self.of {
            Windowed::Fixed => "window_start_us",
            Windowed::Quota => "period_start_us",
        };
        Ok(vec![
            (start_us, self.window.start.as_us()),
            ("used", self.window.used),
            ("reserved", reserved),
            ("reservations_open", open),
            ("reservations_settled", settled),
        ])
    }
}
