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

/// The number of digits of the largest state.
const DIGITS_MAX: usize = 19;

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
    if bytes.len() > DIGITS_MAX {
        return Err(NotAState);
    }
    let mut arrival_ns = 0_u64;
    for byte in bytes {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(NotAState);
        }
        // 19 digits always fit.
        arrival_ns = arrival_ns.wrapping_mul(10).wrapping_add(digit.into());
    }
    if arrival_ns > State::ARRIVAL_MAX_NS {
        return Err(NotAState);
    }
    Ok(State { arrival_ns })
}

/// Returns the change of the key's bytes that stores the state of a key of redis-cell.
pub fn encode_decimal(state: &State) -> Change {
    Change::Whole(Array::digits(state.arrival_ns))
}

#[cfg(test)]
mod tests;
