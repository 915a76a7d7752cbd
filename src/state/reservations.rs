//! The list of reservations in a state, read where it lies.
//!
//! ```text
//! 93 f5                                  an array of three, the kind in front
//!   9n | dc nnnn                         the list: 1 to 1,024 by their ids, ascending
//!     94 c4 len id  since_us ttl_us held one of it; c0, nothing, is held once it is settled
//!   c4 10 start_us used                  the window: two numbers of 8 bytes, big endian
//! ```
//!
//! The window stands at the end, and its width is always the same: a call that makes no reservation
//! writes these 16 bytes and no others, however long the list is.
//!
//! A reservation is written by `rmp-serde`; those of a list that stay as they are, are copied. They
//! are read by hand: by every call on the key, and only what is spelled as it would be written is a
//! state. To read a list with `rmp-serde`, and to write it again to see that, takes ten times as
//! long. Tests compare the two.

use super::NotAState;
use super::array::split_number;
use crate::limiter::reserved::{Edit, ListEdit, Place};
use crate::limiter::{Cost, Instant, Period, Reservation, Span};
use serde::ser::{Serialize, SerializeTuple, Serializer};
use std::cmp::Ordering;

#[cfg(test)]
mod tests;

const FIXARRAY: u8 = 0x90;
const FIXARRAY_MAX: usize = 15;
const ARRAY16: u8 = 0xdc;
const BIN8: u8 = 0xc4;
const NIL: u8 = 0xc0;
/// What a reservation begins with.
const FIXARRAY_OF_4: u8 = FIXARRAY + 4;

/// The bytes in front of a list: an array of three, and its kind.
pub const FRONT_LEN: usize = 2;
/// The bytes in front of the two numbers of the window: their length as binary.
const WINDOW_FRONT: [u8; 2] = [BIN8, 16];

/// Reservations by their ids, ascending, as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservations<'a> {
    /// The list with its header, known to be well spelled.
    bytes: &'a [u8],
}

/// The reservations of a list that are still to come.
#[derive(Clone, Debug)]
pub struct Iter<'a>(&'a [u8]);

impl<'a> Reservations<'a> {
    /// None at all.
    pub const NONE: Self = Self { bytes: &[FIXARRAY] };

    /// Each with its bytes.
    #[inline]
    pub fn iter(&self) -> Iter<'a> {
        let header_len = if self.bytes.first() == Some(&ARRAY16) { 3 } else { 1 };
        Iter(self.bytes.get(header_len..).unwrap_or_default())
    }

    /// Where the two numbers of the window begin that follows the list.
    pub(super) const fn window_offset(&self) -> usize {
        FRONT_LEN + self.bytes.len() + WINDOW_FRONT.len()
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Reservation<'a>, &'a [u8]);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0;
        let (reservation, rest) = split_reservation(bytes)?;
        self.0 = rest;
        Some((reservation, bytes.get(..bytes.len() - rest.len())?))
    }
}

/// The list and the window of a state whose kind was looked at before.
///
/// # Errors
///
/// [`NotAState`] for anything that [`write`] would not have written.
pub fn read(bytes: &[u8]) -> Result<(Reservations<'_>, [u64; 2]), NotAState> {
    let ([header, _kind], list) = bytes.split_first_chunk().ok_or(NotAState)?;
    let (count, mut rest) = split_count(list).ok_or(NotAState)?;
    if *header != FIXARRAY + 3 || !(1..=Reservation::COUNT_MAX).contains(&count) {
        return Err(NotAState);
    }
    let mut last_id: &[u8] = &[];
    for _ in 0..count {
        let (reservation, after) = split_reservation(rest).ok_or(NotAState)?;
        // None is empty, so the first one is above that too.
        if reservation.id <= last_id {
            return Err(NotAState);
        }
        (last_id, rest) = (reservation.id, after);
    }
    let list = list.get(..list.len() - rest.len()).ok_or(NotAState)?;
    let numbers = rest.strip_prefix(&WINDOW_FRONT).ok_or(NotAState)?;
    let (numbers, after) = numbers.as_chunks();
    match (numbers, after) {
        ([start_us, used], []) => {
            let numbers = [start_us, used].map(|number| u64::from_be_bytes(*number));
            Ok((Reservations { bytes: list }, numbers))
        }
        _ => Err(NotAState),
    }
}

/// A whole state with its list edited, and the window.
pub fn write(kind: i8, edit: &Edit<'_>, window: [u64; 2]) -> Vec<u8> {
    let [kind] = kind.to_be_bytes();
    // A reservation has at most 68 bytes but its id.
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
    match edit.place {
        Some(place) => edit_at(place, edit, &mut bytes),
        None => edit_all(edit, &mut bytes),
    }
    bytes.extend_from_slice(&WINDOW_FRONT);
    bytes.extend_from_slice(&spelled_window(window));
    bytes
}

/// Writes a list of which one reservation changes, at a place that is known.
fn edit_at(place: Place, edit: &Edit<'_>, bytes: &mut Vec<u8>) {
    let all = edit.stored.iter().0;
    let (before, rest) = all.split_at_checked(place.len_before()).unwrap_or((all, &[]));
    bytes.extend_from_slice(before);
    let mut after = Iter(rest);
    if edit.list != ListEdit::Insert
        && let Some((stored, _)) = after.next()
    {
        push(bytes, edit.made_of(stored));
    }
    push(bytes, edit.put());
    bytes.extend_from_slice(after.0);
}

/// Writes a list of which some have lapsed, or are re-based.
fn edit_all(edit: &Edit<'_>, bytes: &mut Vec<u8>) {
    let mut put = edit.put();
    let mut is_to_come = true;
    for (stored, spelled) in edit.stored.iter() {
        let order = if is_to_come { stored.id.cmp(edit.id) } else { Ordering::Greater };
        if order != Ordering::Less {
            // Put in where it belongs: before the next, or instead of its own.
            is_to_come = false;
            push(bytes, put.take());
        }
        match stored.at(edit.now) {
            Some(seen) if order == Ordering::Equal => push(bytes, edit.made_of(seen)),
            Some(seen) if seen.since == stored.since => bytes.extend_from_slice(spelled),
            changed => push(bytes, changed),
        }
    }
    push(bytes, put);
}

/// The two numbers of a window.
pub fn spelled_window([start_us, used]: [u64; 2]) -> [u8; 16] {
    (u128::from(start_us) << 64 | u128::from(used)).to_be_bytes()
}

/// Writes a reservation, if there is one.
fn push(bytes: &mut Vec<u8>, reservation: Option<Reservation<'_>>) {
    if let Some(reservation) = reservation {
        let written = rmp_serde::encode::write(bytes, &Spelled(&reservation));
        debug_assert!(written.is_ok(), "memory takes it");
    }
}

/// How many there are in the list at the front of `bytes`, and what comes after its header.
fn split_count(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes {
        [ARRAY16, high, low, rest @ ..] => {
            let count = usize::from(u16::from_be_bytes([*high, *low]));
            (count > FIXARRAY_MAX).then_some((count, rest))
        }
        [header @ FIXARRAY..=0x9f, rest @ ..] => Some((usize::from(header - FIXARRAY), rest)),
        _ => None,
    }
}

/// The reservation at the front of `bytes`, and what comes after it; `None` when it is none, or
/// spelled otherwise than by [`push`].
// Inlined, or each is written to memory and read again: half as much time on top.
#[inline(always)]
fn split_reservation(bytes: &[u8]) -> Option<(Reservation<'_>, &[u8])> {
    let [FIXARRAY_OF_4, BIN8, id_len, rest @ ..] = bytes else { return None };
    let (id, rest) = rest.split_at_checked(usize::from(*id_len))?;
    let (since_us, rest) = split_number(rest)?;
    let (ttl_us, rest) = split_number(rest)?;
    let (held, rest) = match rest {
        [NIL, rest @ ..] => (None, rest),
        _ => {
            let (held, rest) = split_number(rest)?;
            (Some(Cost::new(held)?), rest)
        }
    };
    let in_bounds =
        (1..=Reservation::ID_LEN_MAX).contains(&id.len()) && since_us <= Instant::MAX.as_us();
    let ttl = Period::new(Span::from_us(ttl_us))?;
    let since = Instant::from_us(since_us);
    in_bounds.then_some((Reservation { id, since, ttl, held }, rest))
}

/// A reservation as `rmp-serde` takes it.
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

/// Bytes, where a slice would be an array of numbers.
struct Binary<'a>(&'a [u8]);

impl Serialize for Binary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}
