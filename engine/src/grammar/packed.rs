//! A rule in one argument, as `RL.ALL` has them: its words with spaces between them.

use crate::bounds::Slots;
use crate::grammar::error::GrammarError;
use crate::grammar::lease::lease;
use crate::grammar::name::named;
use crate::grammar::request::Asked;
use crate::grammar::rule::request;

/// How many rules one call may have.
pub const RULES_MAX: usize = 16;

/// The most words that are read. The longest rule has ten and errors are found from left to right,
/// so a rule with more words has an error before the cut.
const WORDS_MAX: usize = 12;

/// Reads a rule whose words are separated by one or more spaces; spaces around it are ignored, and
/// nothing is quoted.
///
/// # Errors
///
/// The first thing wrong, from left to right; [`GrammarError::RuleArity`] for too few words.
#[inline]
pub fn packed_rule(rule: &[u8], slots: Slots) -> Result<Asked<'_>, GrammarError> {
    let mut words = [[].as_slice(); WORDS_MAX];
    let len = split(rule, &mut words);
    let Some([name, args @ ..]) = words.get(..len) else {
        return Err(GrammarError::Algorithm);
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

/// Fills `words` with the first words of `text` and returns the number found.
#[inline]
pub(super) fn split<'a>(text: &'a [u8], words: &mut [&'a [u8]]) -> usize {
    let (mut len, mut start) = (0, 0);
    let mut end_word = |end| {
        if let (Some(word @ [_, ..]), Some(place)) = (text.get(start..end), words.get_mut(len)) {
            *place = word;
            len += 1;
        }
        start = end + 1;
    };
    for (at, byte) in (0..text.len()).zip(text) {
        if *byte == b' ' {
            end_word(at);
        }
    }
    end_word(text.len());
    len
}

#[cfg(test)]
mod tests;
