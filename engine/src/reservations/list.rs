//! The list of reservations in a state, read where it lies.
//!
//! ```text
//! 93 f5 | f4                             an array of three, the kind in front
//!   9n | dc nnnn                         the list: 1 to 1,024 by their ids, ascending
//!     94 c4 len id  since_us ttl_us held one of it; c0, nothing, is held once it is settled
//!   c4 10 start_us used                  the window: two numbers of 8 bytes, big endian
//! ```
//!
//! The window stands at the end, and its width is always the same: a call that makes no reservation
//! writes these 16 bytes and no others, however long the list is.
//!
//! A reservation is written by `rmp-serde`; those of a list that stay as they are, are copied. They
//! are read by hand: by every call on the key, once ([`Unread`]), and only what is spelled as it
//! would be written is a state. To read a list with `rmp-serde`, and to write it again to see that,
//! takes ten times as long. Tests compare the two.

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
/// What a reservation begins with.
const FIXARRAY_OF_4: u8 = FIXARRAY + 4;

/// The bytes in front of a list: an array of three, and its kind.
pub const FRONT_LEN: usize = 2;
/// The bytes in front of the two numbers of the window: their length as binary.
pub(super) const WINDOW_FRONT: [u8; 2] = [BIN8, 16];

/// A list of reservations as it is stored, not looked at yet. Whoever wants to know what is in it
/// has to read it, and learns only then whether it is one: each call goes through it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread<'a> {
    /// The list with its header.
    bytes: &'a [u8],
}

/// Reservations by their ids, ascending, as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservations<'a> {
    /// The list with its header, known to be well spelled.
    bytes: &'a [u8],
}

/// The reservations of a list that are still to come.
#[derive(Clone, Debug)]
pub struct Iter<'a>(pub(super) &'a [u8]);

impl<'a> Unread<'a> {
    /// None at all.
    pub const NONE: Self = Self { bytes: &[FIXARRAY] };

    /// The reservations, each of which `each` sees with the number of its bytes, also of a list
    /// that turns out to be none further on.
    ///
    /// # Errors
    ///
    /// [`NotAState`] for anything that `write` would not have written.
    #[inline(always)]
    pub fn read(
        self,
        mut each: impl FnMut(Reservation<'a>, usize),
    ) -> Result<Reservations<'a>, NotAState> {
        let (count, mut rest) = split_count(self.bytes).ok_or(NotAState)?;
        let mut last_id: &[u8] = &[];
        for _ in 0..count {
            let (reservation, after) = split_reservation(rest).ok_or(NotAState)?;
            // None is empty, so the first one is above that too.
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
    /// Each of them.
    #[inline]
    pub fn iter(&self) -> Iter<'a> {
        let header_len = if self.bytes.first() == Some(&ARRAY16) { 3 } else { 1 };
        Iter(self.bytes.get(header_len..).unwrap_or_default())
    }

    /// Where the two numbers of the window begin that follows the list.
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

/// The list and the window of a state whose kind was looked at before. Of the list nothing is known
/// yet but that it is not empty.
///
/// # Errors
///
/// [`NotAState`] for anything that `write` would not have written.
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
/// spelled otherwise than by `stored::push`.
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
