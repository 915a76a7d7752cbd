//! The codec between states and MessagePack; `msgpack`, `decimal` and `reservations` hold its
//! parts.
//!
//! A state is an ordinary Redis string that holds one array, whose first element is the kind:
//!
//! ```text
//! FIXED        93 ff  start_us used                     at most 20 bytes
//! SLIDING      94 fe  start_us previous current         at most 29
//! SLIDINGLOG   93 fd  base_us  slot_us  entry entry ..  at most 20, and 12 per entry
//! TOKENBUCKET  94 fc  updated_us tokens fraction        at most 29
//! LEAKYBUCKET  94 fb  updated_us level  fraction        at most 29
//! GCRA         93 fa  arrival_ns tolerance_log2         at most 12
//! BACKOFF      93 f7  last_us attempts                  at most 16
//! QUOTA        93 f6  period_start_us used              at most 20
//!
//! with reservations:
//! FIXED        93 f5  reservations, start_us and used   see `reservations`
//! QUOTA        93 f4  the same
//!
//! a ban, in place of any state:
//! BLOCKED      93 f3  until_us duration_us              at most 20
//!
//! in debt, which only a charge leaves behind:
//! TOKENBUCKET  94 f9  updated_us debt paid_fraction         at most 29
//! LEAKYBUCKET  95 f8  updated_us level debt paid_fraction   at most 38
//! ```
//!
//! A key of redis-cell holds a number in decimal digits instead of an array: see `decimal`.
//!
//! The kind is a negative fixint, which an array of another program is unlikely to start with; a
//! new layout of an algorithm gets a new kind. Decoding is strict: it rejects encodings that this
//! module does not write, numbers out of the limiters' bounds, and trailing bytes. In a log, only
//! the first and last entries are checked; otherwise the cost of a call would grow with the length
//! of the log. A list of reservations is checked when it is used, in one pass
//! ([`Unread`](list::Unread)).
//!
//! The use of `rmp-serde`: flat arrays of a few numbers (all of the above, and the header of a log)
//! are read and written by the hand-written [`Array`], because every call needs them; `msgpack`
//! says how much time that saves. The nested list of reservations is written by `rmp-serde`,
//! because its shape is too complex to write by hand; `reservations::list` says why it is
//! nevertheless read by hand. A key without reservations keeps a flat kind. Both encoders write a
//! number in the same way; tests compare them.

use crate::algorithms::backoff::Backoff;
use crate::algorithms::bucket::{LeakyDebt, TokenDebt};
use crate::algorithms::fixed_window::FixedWindow;
use crate::algorithms::gcra::Gcra;
use crate::algorithms::leaky_bucket::LeakyBucket;
use crate::algorithms::quota::CalendarQuota;
use crate::algorithms::sliding_log::{Edit, Entry, Log, RawEntry, SlidingLog};
use crate::algorithms::sliding_window::SlidingWindow;
use crate::algorithms::token_bucket::TokenBucket;
use crate::algorithms::window::Window;
use crate::algorithms::{NewState, State};
use crate::ban::Ban;
use crate::bounds::Cost;
use crate::fields::{Field, Fields};
use crate::msgpack::{Array, NotAState, long_array, split_numbers};
use crate::reservations::list;
use crate::reservations::stored::{self, ListEdit, Windowed};
use crate::time::{Instant, Span};

pub mod decimal;
#[cfg(test)]
pub(crate) mod tests;

const FIXED_WINDOW: i8 = -1;
const SLIDING_WINDOW: i8 = -2;
const SLIDING_LOG: i8 = -3;
const TOKEN_BUCKET: i8 = -4;
const LEAKY_BUCKET: i8 = -5;
const GCRA: i8 = -6;
const TOKEN_DEBT: i8 = -7;
const LEAKY_DEBT: i8 = -8;
const BACKOFF: i8 = -9;
const CALENDAR_QUOTA: i8 = -10;
const FIXED_RESERVED: i8 = -11;
const QUOTA_RESERVED: i8 = -12;
const BAN: i8 = -13;

/// A change of a key's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replaces all bytes by this array: a state of fixed size.
    Whole(Array),
    /// Replaces all bytes by these: a log that is new, shorter or on another base, a leaky bucket
    /// in debt, or a changed list of reservations.
    Rewrite(Vec<u8>),
    /// Replaces the bytes from `offset` on by this entry. `offset` is at most their length.
    Patch {
        /// The offset of the entry.
        offset: usize,
        /// The entry.
        entry: RawEntry,
    },
    /// Replaces the bytes from `offset` on: by copies of an entry after a refund of a log, or by
    /// the window that follows a list of reservations.
    Tail {
        /// The offset of the first entry.
        offset: usize,
        /// The new bytes.
        entries: Vec<u8>,
    },
}

impl Change {
    /// Applies the change to the bytes of a key. A new key has none.
    ///
    /// The change must have been computed from these bytes.
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Whole(whole) => overwrite(bytes, 0, whole.as_slice()),
            Self::Rewrite(whole) => overwrite(bytes, 0, whole),
            Self::Patch { offset, entry } => overwrite(bytes, *offset, entry),
            Self::Tail { offset, entries } => overwrite(bytes, *offset, entries),
        }
    }
}

/// Replaces everything from `offset` on. A server uses `SETRANGE`, which pads a gap with zeros and
/// cannot shorten a string: a debug build panics on a change that needs either.
fn overwrite(bytes: &mut Vec<u8>, offset: usize, patch: &[u8]) {
    debug_assert!(offset <= bytes.len(), "a patch leaves no gap");
    debug_assert!(
        offset == 0 || offset + patch.len() >= bytes.len(),
        "a patch leaves no old bytes"
    );
    bytes.truncate(offset);
    bytes.extend_from_slice(patch);
}

/// Reads a state in place.
///
/// # Errors
///
/// Returns [`NotAState`] for anything that [`encode`] would not have written. The middle of a log
/// is not checked, and a list of reservations only when it is read.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<State<'_>, NotAState> {
    let kind = bytes.get(1).ok_or(NotAState)?;
    match i8::from_be_bytes([*kind]) {
        FIXED_WINDOW => read::<FixedWindow, _>(bytes).map(State::FixedWindow),
        SLIDING_WINDOW => read::<SlidingWindow, _>(bytes).map(State::SlidingWindow),
        SLIDING_LOG => read_log(bytes).map(State::SlidingLog),
        TOKEN_BUCKET => read::<TokenBucket, _>(bytes).map(State::TokenBucket),
        LEAKY_BUCKET => read::<LeakyBucket, _>(bytes).map(State::LeakyBucket),
        GCRA => read::<Gcra, _>(bytes).map(State::Gcra),
        BACKOFF => read::<Backoff, _>(bytes).map(State::Backoff),
        CALENDAR_QUOTA => read::<CalendarQuota, _>(bytes).map(State::CalendarQuota),
        TOKEN_DEBT => read::<TokenDebt, _>(bytes).map(State::TokenBucket),
        LEAKY_DEBT => read::<LeakyDebt, _>(bytes).map(State::LeakyBucket),
        FIXED_RESERVED => read_reserved(Windowed::Fixed, bytes).map(State::Reserved),
        QUOTA_RESERVED => read_reserved(Windowed::Quota, bytes).map(State::Reserved),
        BAN => read::<Ban, _>(bytes).map(State::Banned),
        _ => Err(NotAState),
    }
}

/// Returns the change of the key's bytes that stores `state`.
#[inline]
pub fn encode(state: &NewState<'_>) -> Change {
    match state {
        NewState::FixedWindow(state) => write::<FixedWindow, _>(FIXED_WINDOW, state),
        NewState::SlidingWindow(state) => write::<SlidingWindow, _>(SLIDING_WINDOW, state),
        NewState::SlidingLog(edit) => write_log(edit),
        NewState::TokenBucket(state) => match state.debt {
            0 => write::<TokenBucket, _>(TOKEN_BUCKET, state),
            _ => write::<TokenDebt, _>(TOKEN_DEBT, state),
        },
        NewState::LeakyBucket(state) => match state.debt {
            0 => write::<LeakyBucket, _>(LEAKY_BUCKET, state),
            _ => Change::Rewrite(long_array(LEAKY_DEBT, LeakyDebt::numbers(state))),
        },
        NewState::Gcra(state) => write::<Gcra, _>(GCRA, state),
        NewState::Backoff(state) => write::<Backoff, _>(BACKOFF, state),
        NewState::CalendarQuota(state) => write::<CalendarQuota, _>(CALENDAR_QUOTA, state),
        NewState::Reserved(edit) => write_reserved(edit),
        NewState::Banned(ban) => encode_ban(ban),
    }
}

/// Returns the change of the key's bytes that stores a ban.
#[cold]
pub fn encode_ban(ban: &Ban) -> Change {
    write::<Ban, _>(BAN, ban)
}

/// Decodes a state of fixed size that fills `bytes`, and checks the bounds of each number.
fn read<L: Fields<N>, const N: usize>(bytes: &[u8]) -> Result<L::Stored, NotAState> {
    let (numbers, rest) = split_fields(&L::FIELDS, bytes)?;
    if !rest.is_empty() {
        return Err(NotAState);
    }
    L::state(numbers).ok_or(NotAState)
}

fn write<L: Fields<N>, const N: usize>(kind: i8, state: &L::Stored) -> Change {
    Change::Whole(Array::new(kind, L::numbers(state)))
}

/// Returns the numbers of the array at the front of `bytes`, each within its bounds, and the rest.
// Inlined; otherwise every call looks up the bounds of its kind.
#[inline(always)]
fn split_fields<'a, const N: usize>(
    fields: &[Field; N],
    bytes: &'a [u8],
) -> Result<([u64; N], &'a [u8]), NotAState> {
    let (numbers, rest) = split_numbers(bytes)?;
    let in_bounds = fields.iter().zip(numbers).all(|(field, number)| field.admits(number));
    if in_bounds { Ok((numbers, rest)) } else { Err(NotAState) }
}

/// Reads the header and borrows the entries. Checks only the first and last entries: arithmetic on
/// the others must not fail, whatever they hold.
fn read_log(bytes: &[u8]) -> Result<Log<'_>, NotAState> {
    let ([base_us, slot_us], rest) = split_fields(&SlidingLog::HEADER, bytes)?;
    let (entries, cut_off) = rest.as_chunks();
    let log = Log { base: Instant::from_us(base_us), slot: Span::from_us(slot_us), entries };
    let (first, last) = (log.entry(0), log.last());
    let ordered = first.instant == log.base && first.total <= last.total && first.total > 0;
    if entries.is_empty() || !cut_off.is_empty() || !ordered || last.instant > Instant::MAX {
        return Err(NotAState);
    }
    Ok(log)
}

fn write_log(edit: &Edit<'_>) -> Change {
    let header = |base: Instant| Array::new(SLIDING_LOG, [base.as_us(), edit.slot.as_us()]);
    let Some(log) = edit.log else {
        let base = edit.last.instant;
        let entry = edit.last.pack(base, 0);
        return Change::Rewrite([header(base).as_slice(), &entry].concat());
    };
    if let Some(count) = edit.overwritten() {
        let offset = header(log.base).as_slice().len() + edit.kept.end * size_of::<RawEntry>();
        let entry = edit.last.pack(log.base, 0);
        return match count {
            0 | 1 => Change::Patch { offset, entry },
            _ => Change::Tail { offset, entries: entry.repeat(count) },
        };
    }
    // Entries between the ends of a log are not checked, so those of a forged log may be out of
    // order. The written log must decode again: no entry precedes its front or follows its last
    // entry.
    let passed = log.total_before(edit.kept.start);
    let last = Entry { total: edit.last.total.max(passed.saturating_add(1)), ..edit.last };
    let kept = edit.kept.clone().map(|index| log.entry(index)).map(|entry| Entry {
        instant: entry.instant.min(last.instant),
        total: entry.total.max(passed.saturating_add(1)).min(last.total),
    });
    // Of entries with the same instant, the last one holds the total of all.
    let following = kept.clone().skip(1).chain([last]);
    let last_of_each = kept.zip(following).filter(|(entry, next)| entry.instant != next.instant);
    let entries = last_of_each.map(|(entry, _)| entry).chain([last]);
    let base = entries.clone().next().unwrap_or(last).instant;
    let mut bytes = header(base).as_slice().to_vec();
    bytes.reserve_exact((edit.kept.len() + 1) * size_of::<RawEntry>());
    for entry in entries {
        bytes.extend_from_slice(&entry.pack(base, passed));
    }
    Change::Rewrite(bytes)
}

/// Reads a window with reservations.
#[cold]
fn read_reserved(of: Windowed, bytes: &[u8]) -> Result<stored::State<'_>, NotAState> {
    let (list, [start_us, used]) = list::split(bytes)?;
    let window = Window { start: Instant::from_us(start_us), used };
    // If nothing is used, there is no window: its two numbers are 0.
    let is_open = (1..=Cost::TOTAL_MAX).contains(&used) && window.start <= Instant::MAX;
    if is_open || (start_us, used) == (0, 0) {
        Ok(stored::State { of, list, window })
    } else {
        Err(NotAState)
    }
}

#[cold]
fn write_reserved(edit: &stored::Edit<'_>) -> Change {
    let Window { start, used } = edit.window;
    let window = [start.as_us(), used];
    let (plain, kind) = match edit.of {
        Windowed::Fixed => (FIXED_WINDOW, FIXED_RESERVED),
        Windowed::Quota => (CALENDAR_QUOTA, QUOTA_RESERVED),
    };
    if edit.list == ListEdit::Drop {
        return Change::Whole(Array::new(plain, window));
    }
    if edit.list == ListEdit::Keep {
        let offset = edit.stored.window_offset();
        return Change::Tail { offset, entries: stored::spelled_window(window).to_vec() };
    }
    Change::Rewrite(stored::write(kind, edit, window))
}
