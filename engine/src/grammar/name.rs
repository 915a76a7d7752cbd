//! The name of a rule, in upper or lower case.

use crate::algorithms::{Algorithm, for_algorithms};
use crate::grammar::error::GrammarError;

/// The name of a rule that takes a lease. Such a rule has a holder and no cost.
const LEASE: &[u8] = b"LEASE";

/// The name of a rule that makes a reservation.
const RESERVE: &[u8] = b"RESERVE";

/// The name of a rule that a policy defines.
const USE: &[u8] = b"USE";

/// Returns the algorithm with this name.
///
/// # Errors
///
/// Returns [`GrammarError::LeaseNotHere`] for `LEASE`, [`GrammarError::ReserveNotHere`] for
/// `RESERVE`, [`GrammarError::UseNotHere`] for `USE`, and [`GrammarError::Algorithm`] for any other
/// name.
pub fn named(name: &[u8]) -> Result<Algorithm, GrammarError> {
    algorithm(name).ok_or_else(|| name_error(name))
}

/// Defines the function `algorithm` from the rows of the table.
macro_rules! algorithm {
    ($(
        $(#[$_call:meta])*
        $name:literal $limiter:ident($_arguments:literal: $($_argument:ident)*)
            $_state:ty => $_new_state:ty,
    )*) => {
        /// Returns the algorithm with this name, in upper or lower case.
        fn algorithm(name: &[u8]) -> Option<Algorithm> {
            $(if is_name::<{ $name.len() }>(name, $name) {
                return Some(Algorithm::$limiter);
            })*
            None
        }
    };
}

for_algorithms!(algorithm);

/// Returns true if `word` is `name` in any case. `name` consists of `N` capital letters.
#[inline(always)]
pub fn is_name<const N: usize>(word: &[u8], name: &str) -> bool {
    // Clearing the case bit makes a letter upper case and turns no other byte into a letter.
    const CASE: u8 = 0x20;
    let capitals = <&[u8; N]>::try_from(word).map(|word| word.map(|byte| byte & !CASE));
    capitals.is_ok_and(|capitals| capitals == name.as_bytes())
}

/// Returns the error for a name that no algorithm has.
#[cold]
fn name_error(name: &[u8]) -> GrammarError {
    if name.eq_ignore_ascii_case(LEASE) {
        GrammarError::LeaseNotHere
    } else if name.eq_ignore_ascii_case(RESERVE) {
        GrammarError::ReserveNotHere
    } else if name.eq_ignore_ascii_case(USE) {
        GrammarError::UseNotHere
    } else {
        GrammarError::Algorithm
    }
}
