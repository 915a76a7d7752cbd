//! The subset of MessagePack for states: a short array of a kind and unsigned numbers. Each number
//! is written in its shortest encoding, and only that encoding is accepted.
//!
//! This codec is written by hand because every call needs it. Decoding takes a fifth of the
//! instructions of a generic decoder whose result is encoded again to check the encoding. Tests
//! compare the two.

use std::io::Write as _;

/// The error for bytes that are not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotAState;

/// The length in bytes of the longest array, a kind and three numbers: 1 + 1 + 3 x 9.
const LEN_MAX: usize = 29;

/// The header of an empty array. The number of elements is added to it.
const FIXARRAY: u8 = 0x90;
/// The largest number that is encoded as one byte.
const FIXINT_MAX: u8 = 0x7f;
const UINT8: u8 = 0xcc;
const UINT16: u8 = 0xcd;
const UINT32: u8 = 0xce;
const UINT64: u8 = 0xcf;

/// An encoded array, held without an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    bytes: [u8; LEN_MAX],
    len: usize,
}

impl Array {
    /// Encodes the array of a kind, which is a negative fixint, and at most three numbers.
    #[inline(always)]
    pub fn new<const N: usize>(kind: i8, numbers: [u64; N]) -> Self {
        const { assert!(2 + N * 9 <= LEN_MAX, "an array has room for a kind and three numbers") };
        let [kind] = kind.to_be_bytes();
        let mut array = Self { bytes: [0; LEN_MAX], len: 0 };
        array.push([FIXARRAY + 1 + N as u8, kind]);
        for number in numbers {
            array.push_number(number);
        }
        array
    }

    /// Encodes a number as decimal digits instead of an array.
    pub fn digits(number: u64) -> Self {
        let mut bytes = [0; LEN_MAX];
        let mut rest = bytes.as_mut_slice();
        // There is room for more than the twenty digits of the largest number.
        let _ = write!(rest, "{number}");
        let len = LEN_MAX - rest.len();
        Self { bytes, len }
    }

    /// Returns the bytes.
    #[inline(always)]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    #[inline(always)]
    fn push_number(&mut self, number: u64) {
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        match number {
            0..=0x7f => self.push([h]),
            0x80..=0xff => self.push([UINT8, h]),
            0x100..=0xffff => self.push([UINT16, g, h]),
            0x1_0000..=0xffff_ffff => self.push([UINT32, e, f, g, h]),
            _ => self.push([UINT64, a, b, c, d, e, f, g, h]),
        }
    }

    #[inline(always)]
    fn push<const N: usize>(&mut self, spelling: [u8; N]) {
        if let Some(room) = self.bytes.get_mut(self.len..).and_then(<[u8]>::first_chunk_mut) {
            *room = spelling;
            self.len += N;
        }
    }
}

/// Encodes the array of a kind and more numbers than fit in an [`Array`]. Such an array is rarely
/// written, and a larger [`Array`] would slow down every call, which copies it.
#[cold]
pub fn long_array<const N: usize>(kind: i8, numbers: [u64; N]) -> Vec<u8> {
    let [kind_byte] = kind.to_be_bytes();
    let mut bytes = vec![FIXARRAY + 1 + N as u8, kind_byte];
    for number in numbers {
        let spelled = Array::new(kind, [number]);
        bytes.extend(spelled.as_slice().iter().skip(2));
    }
    bytes
}

/// Returns the numbers of the array at the front of `bytes`, whose kind is known, and the rest.
///
/// # Errors
///
/// Returns [`NotAState`] if the array does not hold `N` numbers, or if one is not encoded as
/// [`Array::new`] encodes it.
#[inline(always)]
pub fn split_numbers<const N: usize>(bytes: &[u8]) -> Result<([u64; N], &[u8]), NotAState> {
    let ([header, _kind], mut rest) = bytes.split_first_chunk().ok_or(NotAState)?;
    if *header != FIXARRAY + 1 + N as u8 {
        return Err(NotAState);
    }
    let mut numbers = [0; N];
    for number in &mut numbers {
        (*number, rest) = split_number(rest).ok_or(NotAState)?;
    }
    Ok((numbers, rest))
}

/// Splits the number off the front of `bytes`; `None` if they do not start with a number, or if
/// that number has a shorter encoding.
#[inline(always)]
pub fn split_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    // Numbers up to `too_small` have a shorter encoding, which the module writes instead.
    let (number, too_small, rest) = match *first {
        number @ ..=FIXINT_MAX => return Some((number.into(), rest)),
        UINT8 => {
            let (number, rest) = rest.split_first_chunk()?;
            (u8::from_be_bytes(*number).into(), u64::from(FIXINT_MAX), rest)
        }
        UINT16 => {
            let (number, rest) = rest.split_first_chunk()?;
            (u16::from_be_bytes(*number).into(), u64::from(u8::MAX), rest)
        }
        UINT32 => {
            let (number, rest) = rest.split_first_chunk()?;
            (u32::from_be_bytes(*number).into(), u64::from(u16::MAX), rest)
        }
        UINT64 => {
            let (number, rest) = rest.split_first_chunk()?;
            (u64::from_be_bytes(*number), u64::from(u32::MAX), rest)
        }
        _ => return None,
    };
    (number > too_small).then_some((number, rest))
}
