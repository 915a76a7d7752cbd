//! The state of a key shared with redis-cell: its theoretical arrival time in nanoseconds, as
//! decimal digits and nothing else.
//!
//! ```text
//! 1800000002000000000    at most 19 bytes
//! ```
//!
//! No array begins with a digit, so the two forms are never confused.

use crate::msgpack::{Array, NotAState};
use crate::redis_cell::State;
use crate::state::Change;

/// Reads the state of a key of redis-cell.
///
/// # Errors
///
/// Returns [`NotAState`] for anything but the digits of a number up to [`State::ARRIVAL_MAX_NS`]. A
/// sign or a leading zero is rejected too.
pub fn decode_decimal(bytes: &[u8]) -> Result<State, NotAState> {
    let ([b'0'] | [b'1'..=b'9', ..]) = bytes else {
        return Err(NotAState);
    };
    let number = str::from_utf8(bytes).ok().and_then(|digits| digits.parse().ok());
    let arrival_ns = number.filter(|number| *number <= State::ARRIVAL_MAX_NS).ok_or(NotAState)?;
    Ok(State { arrival_ns })
}

/// Returns the change of the key's bytes that stores the state of a key of redis-cell.
pub fn encode_decimal(state: &State) -> Change {
    Change::Whole(Array::digits(state.arrival_ns))
}

#[cfg(test)]
mod tests;
