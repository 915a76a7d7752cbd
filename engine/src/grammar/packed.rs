//! A rule in one argument, as `RL.ALL` has them: its words with spaces between them.

use crate::bounds::Slots;
use crate::grammar::error::GrammarError;
use crate::grammar::lease::lease;
use crate::grammar::name::named;
use crate::grammar::request::Asked;
use crate::grammar::rule::request;

/// How many rules one call may have.
pub const RULES_MAX: usize = 16;

/// How many words are looked at. The longest rule has ten, so that one cut off here is in error
/// before.
const WORDS_MAX: usize = 12;

/// Reads a rule whose words are separated by one or more spaces; spaces around it are ignored, and
/// nothing is quoted.
///
/// # Errors
///
/// The first thing wrong, from left to right; [`GrammarError::RuleArity`] for too few words.
pub fn packed_rule(rule: &[u8], slots: Slots) -> Result<Asked<'_>, GrammarError> {
    let mut words = [[].as_slice(); WORDS_MAX];
    let found = rule.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let len = words.iter_mut().zip(found).map(|(place, word)| *place = word).count();
    let (name, args) = match words.get(..len) {
        Some([name, args @ ..]) => (*name, args),
        _ => return Err(GrammarError::Algorithm),
    };
    let algorithm = match named(name) {
        Ok(algorithm) => algorithm,
        Err(GrammarError::LeaseNotHere) => {
            let lease = lease(args).map(Asked::Lease);
            return lease.map_err(|error| match error {
                GrammarError::Arity => GrammarError::LeaseArity,
                error => error,
            });
        }
        Err(error) => return Err(error),
    };
    request(algorithm, args, slots).map(Asked::Units).map_err(|error| match error {
        GrammarError::Arity => GrammarError::RuleArity(algorithm),
        error => error,
    })
}
