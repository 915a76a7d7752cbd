//! The list of reservations in a state, read in place.
//!
//! ```text
//! 93 f5 | f4                             an array of three, the kind in front
//!   9n | dc nnnn                         the list: 1 to 1,024 reservations, ascending by id
//!     94 c4 len id  since_us ttl_us held one reservation; once it is settled, held is c0 (nil)
//!   c4 10 start_us used                  the window: two numbers of 8 bytes, big endian
//! ```
//!
//! The window comes last and has a fixed width: a call that changes no reservation writes only
//! these 16 bytes, however long the list is.
//!
//! A reservation is written by `rmp-serde`; reservations that do not change are copied. Every call
//! on the key reads the list once, by hand ([`Unread`]), and accepts only the exact bytes that
//! would be written. Reading the list with `rmp-serde`, and writing it again for that check, takes
//! ten times as long. Tests compare the two.

use crate::bounds::{Cost, Period};
use crate::msgpack::{NotAState, split_number};
use crate::reservations::one::Reservation;
use crate::time::{Instant, Span};

#[cfg(test)]
mod tests;

pub(super) const FIXARRAY: u8 = 0x90;
pub(super) const FIXARRAY_MAX: usize = 15;
pub(super) const ARRAY16: u8 = 0xdc;
const BIN8: u8 = 0xc4;
const NIL: u8 = 0xc0;
/// The first byte of a reservation.
const FIXARRAY_OF_4: u8 = FIXARRAY + 4;

/// The bytes in front of a list: the header of an array of three, and its kind.
pub const FRONT_LEN: usize = 2;
/// The bytes in front of the window's two numbers: the header of 16 bytes of binary data.
pub(super) const WINDOW_FRONT: [u8; 2] = [BIN8, 16];

/// A stored list of reservations that has not been checked yet. Only [`Self::read`] reports if it
/// is valid; each call reads it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread<'a> {
    /// The list with its header.
    bytes: &'a [u8],
}

/// The stored reservations, in ascending order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservations<'a> {
    /// The list with its header, known to be valid.
    bytes: &'a [u8],
}

/// The remaining reservations of a list.
#[derive(Clone, Debug)]
pub struct Iter<'a>(pub(super) &'a [u8]);

impl<'a> Unread<'a> {
    /// The empty list.
    pub const NONE: Self = Self { bytes: &[FIXARRAY] };

    /// Reads the reservations, and calls `each` with each of them and its length in bytes. If the
    /// list turns out to be invalid, `each` was already called for the reservations before the
    /// error.
    ///
    /// # Errors
    ///
    /// Returns [`NotAState`] for anything that `write` would not have written.
    #[inline(always)]
    pub fn read(
        self,
        mut each: impl FnMut(Reservation<'a>, usize),
    ) -> Result<Reservations<'a>, NotAState> {
        let (count, mut rest) = split_count(self.bytes).ok_or(NotAState)?;
        let mut last_id: &[u8] = &[];
        for _ in 0..count {
            let (reservation, after) = split_reservation(rest).ok_or(NotAState)?;
            // No id is empty, so the id of the first reservation is above the initial, empty
            // `last_id` too.
            if reservation.id <= last_id {
                return Err(NotAState);
            }
            each(reservation, rest.len() - after.len());
            (last_id, rest) = (reservation.id, after);
        }
        if rest.is_empty() { Ok(Reservations { bytes: self.bytes }) } else { Err(NotAState) }
    }
}

impl<'a> Reservations<'a> {
    /// Returns an iterator over the reservations.
    #[inline]
    pub fn iter(&self) -> Iter<'a> {
        let header_len = if self.bytes.first() == Some(&ARRAY16) { 3 } else { 1 };
        Iter(self.bytes.get(header_len..).unwrap_or_default())
    }

    /// Returns the offset of the two numbers of the window, which follows the list.
    pub const fn window_offset(&self) -> usize {
        FRONT_LEN + self.bytes.len() + WINDOW_FRONT.len()
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Reservation<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let (reservation, rest) = split_reservation(self.0)?;
        self.0 = rest;
        Some(reservation)
    }
}

/// Splits a state, whose kind is known, into its list and the two numbers of its window. Checks
/// only the length of the list: 1 to [`Reservation::COUNT_MAX`].
///
/// # Errors
///
/// Returns [`NotAState`] for anything that `write` would not have written.
pub fn split(bytes: &[u8]) -> Result<(Unread<'_>, [u64; 2]), NotAState> {
    let ([header, _kind], rest) = bytes.split_first_chunk().ok_or(NotAState)?;
    let (rest, numbers) = rest.split_last_chunk::<16>().ok_or(NotAState)?;
    let list = rest.strip_suffix(&WINDOW_FRONT).ok_or(NotAState)?;
    let (count, _) = split_count(list).ok_or(NotAState)?;
    if *header != FIXARRAY + 3 || !(1..=Reservation::COUNT_MAX).contains(&count) {
        return Err(NotAState);
    }
    let numbers = u128::from_be_bytes(*numbers);
    Ok((Unread { bytes: list }, [(numbers >> 64) as u64, numbers as u64]))
}

/// Returns the number of reservations in the list at the front of `bytes`, and the bytes after the
/// header of the list.
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

/// Returns the reservation at the front of `bytes`, and the rest; `None` if it is invalid or in an
/// encoding that `stored::push` does not write.
// Inlined; otherwise each reservation is written to memory and read back, which takes 50 % longer.
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
