//! A window with reservations: the stored form, as read and as it is to be written.

use crate::algorithms::window::Window;
use crate::bounds::{Cost, Period};
use crate::msgpack::NotAState;
use crate::reservations::list::{
    ARRAY16, FIXARRAY, FIXARRAY_MAX, Iter, Reservations, Unread, WINDOW_FRONT,
};
use crate::reservations::one::Reservation;
use crate::time::{Instant, Span};
use serde::ser::{Serialize, SerializeTuple, Serializer};

/// The algorithms that support reservations.
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
    /// The algorithm.
    pub of: Windowed,
    /// The reservations.
    pub list: Unread<'a>,
    /// The window; if nothing is used, it starts at the epoch.
    pub window: Window,
}

/// A change of a window and its reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// The algorithm.
    pub of: Windowed,
    /// The change of the list.
    pub list: ListEdit,
    /// Whether some reservations in the list have expired or are re-based.
    pub tidies: bool,
    /// The number of reservations in the new list.
    pub count: u16,
    /// The length in bytes of the stored reservations whose ids sort before `id`.
    pub len_before: u32,
    /// The window; if nothing is used, it starts at the epoch.
    pub window: Window,
    /// The list as stored.
    pub stored: Reservations<'a>,
    /// The id of the reservation that changes.
    pub id: &'a [u8],
    /// The time after `now` for which the id is remembered.
    pub ttl: Span,
    /// The units that the reservation will hold; `None` settles it.
    pub held: Option<Cost>,
    /// The units that a commit uses; zero for any other call.
    pub committed: Cost,
    /// The instant of the call: reservations that have expired by then are dropped.
    pub now: Instant,
}

/// A change of a list of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEdit {
    /// The list is removed, since all reservations have expired: a plain state of the algorithm
    /// remains.
    Drop,
    /// The list stays as stored.
    Keep,
    /// Expired reservations are dropped, and those too far ahead are re-based.
    Tidy,
    /// Does what [`Self::Tidy`] does, and inserts a reservation for a new id.
    Insert,
    /// Does what [`Self::Tidy`] does, and rewrites the reservation of the id, open or settled.
    Replace,
    /// Does what [`Self::Tidy`] does, and removes the reservation of the id.
    Remove,
}

impl<'a> Edit<'a> {
    /// Returns the reservation to insert or rewrite.
    pub fn put(&self) -> Option<Reservation<'a>> {
        let Self { id, now: since, held, .. } = *self;
        let puts = matches!(self.list, ListEdit::Insert | ListEdit::Replace);
        let ttl = Period::new(self.ttl).filter(|_| puts)?;
        Some(Reservation { id, since, ttl, held })
    }

    /// Returns true if the stored reservation of the id is rewritten or removed.
    pub const fn changes_own(&self) -> bool {
        matches!(self.list, ListEdit::Replace | ListEdit::Remove)
    }
}

impl State<'_> {
    /// Returns the state at `now` as names and numbers, for `RL.INSPECT`.
    ///
    /// # Errors
    ///
    /// Returns [`NotAState`] if the list is invalid.
    pub fn inspect(&self, now: Instant) -> Result<Vec<(&'static str, u64)>, NotAState> {
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

/// Encodes a whole state with its edited list and the window.
pub fn write(kind: i8, edit: &Edit<'_>, window: [u64; 2]) -> Vec<u8> {
    let [kind] = kind.to_be_bytes();
    // Room for a new reservation, which has at most 30 bytes besides its id, and for the window.
    let len_max = edit.stored.window_offset() + edit.id.len() + 128;
    let mut bytes = Vec::with_capacity(len_max);
    bytes.extend_from_slice(&[FIXARRAY + 3, kind]);
    match u8::try_from(edit.count) {
        Ok(count) if usize::from(count) <= FIXARRAY_MAX => bytes.push(FIXARRAY + count),
        _ => {
            bytes.push(ARRAY16);
            bytes.extend(edit.count.to_be_bytes());
        }
    }
    let all = edit.stored.iter().0;
    let len_before = usize::try_from(edit.len_before).unwrap_or(usize::MAX);
    let (before, rest) = all.split_at_checked(len_before).unwrap_or((all, &[]));
    let mut after = Iter(rest);
    keep(before, edit, &mut bytes);
    if edit.changes_own() {
        after.next();
    }
    push(&mut bytes, edit.put());
    keep(after.0, edit, &mut bytes);
    bytes.extend_from_slice(&WINDOW_FRONT);
    bytes.extend_from_slice(&spelled_window(window));
    bytes
}

/// Copies the reservations of other ids. Drops expired ones, and re-bases those too far ahead.
fn keep(list: &[u8], edit: &Edit<'_>, bytes: &mut Vec<u8>) {
    if !edit.tidies {
        return bytes.extend_from_slice(list);
    }
    let (mut rest, mut kept) = (list, Iter(list));
    while let Some(stored) = kept.next() {
        let (spelled, after) = rest.split_at(rest.len() - kept.0.len());
        match stored.at(edit.now) {
            Some(seen) if seen.since == stored.since => bytes.extend_from_slice(spelled),
            changed => push(bytes, changed),
        }
        rest = after;
    }
}

/// Encodes the two numbers of a window.
pub fn spelled_window([start_us, used]: [u64; 2]) -> [u8; 16] {
    (u128::from(start_us) << 64 | u128::from(used)).to_be_bytes()
}

/// Writes a reservation, if there is one.
pub(super) fn push(bytes: &mut Vec<u8>, reservation: Option<Reservation<'_>>) {
    if let Some(reservation) = reservation {
        let written = rmp_serde::encode::write(bytes, &Spelled(&reservation));
        debug_assert!(written.is_ok(), "memory takes it");
    }
}

/// A reservation in the form that `rmp-serde` encodes.
struct Spelled<'a>(&'a Reservation<'a>);

impl Serialize for Spelled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Reservation { id, since, ttl, held } = self.0;
        let mut tuple = serializer.serialize_tuple(4)?;
        tuple.serialize_element(&Binary(id))?;
        tuple.serialize_element(&since.as_us())?;
        tuple.serialize_element(&ttl.as_us())?;
        tuple.serialize_element(&held.map(Cost::units))?;
        tuple.end()
    }
}

/// Bytes to encode as binary; a slice would become an array of numbers.
struct Binary<'a>(&'a [u8]);

impl Serialize for Binary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}
