//! The argument of `RL.BLOCK`.

use crate::bounds::Period;
use crate::grammar::error::GrammarError;
use crate::grammar::number;

/// Parses the argument after the key of `RL.BLOCK`: the length of the ban.
///
/// # Errors
///
/// Returns [`GrammarError::BanDuration`] if the length is invalid, and [`GrammarError::Arity`] for
/// another number of arguments.
pub fn ban(args: &[&[u8]]) -> Result<Period, GrammarError> {
    let [duration] = args else {
        return Err(GrammarError::Arity);
    };
    number::period(duration).ok_or(GrammarError::BanDuration)
}
