//! The name of a rule, in any case.

use crate::algorithms::Algorithm;
use crate::grammar::error::GrammarError;

/// The name of a rule that takes a lease. It has a holder and no cost.
const LEASE: &[u8] = b"LEASE";

/// The name of a rule that a policy defines.
const USE: &[u8] = b"USE";

/// Finds the algorithm of a name.
///
/// # Errors
///
/// [`GrammarError::LeaseNotHere`] for `LEASE`, [`GrammarError::UseNotHere`] for `USE`, and
/// [`GrammarError::Algorithm`] for any other name.
pub fn named(name: &[u8]) -> Result<Algorithm, GrammarError> {
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| name.eq_ignore_ascii_case(algorithm.name().as_bytes()))
        .ok_or_else(|| unnamed(name))
}

/// Returns the error for a name that is no algorithm's.
#[cold]
fn unnamed(name: &[u8]) -> GrammarError {
    if name.eq_ignore_ascii_case(LEASE) {
        GrammarError::LeaseNotHere
    } else if name.eq_ignore_ascii_case(USE) {
        GrammarError::UseNotHere
    } else {
        GrammarError::Algorithm
    }
}
