//! A rule in one argument, as `RL.ALL` takes its rules: words separated by spaces.

use crate::bounds::Slots;
use crate::grammar::error::GrammarError;
use crate::grammar::lease::lease;
use crate::grammar::name::named;
use crate::grammar::request::{AnyRequest, Request};
use crate::grammar::rule::request;

/// The largest number of rules in one call.
pub const RULES_MAX: usize = 16;

/// The largest number of words that are parsed. The longest rule, a `QUOTA` with all options, has
/// fewer. Errors are found from left to right, so a rule with more words has an error among the
/// words that are parsed.
const WORDS_MAX: usize = 16;

/// Parses a rule whose words are separated by one or more spaces. Spaces before and after the rule
/// are ignored; there is no quoting.
///
/// # Errors
///
/// Returns the first error, from left to right; [`GrammarError::RuleArity`] for too few words,
/// [`GrammarError::UseNotHere`] for a policy, and [`GrammarError::ReserveNotHere`] for a
/// reservation.
#[inline]
pub fn packed_rule(rule: &[u8], slots: Slots) -> Result<AnyRequest<'_>, GrammarError> {
    let mut words = [[].as_slice(); WORDS_MAX];
    let len = split(rule, &mut words);
    let Some([name, args @ ..]) = words.get(..len) else {
        return Err(GrammarError::Algorithm);
    };
    let algorithm = match named(name) {
        Ok(algorithm) => algorithm,
        Err(GrammarError::LeaseNotHere) => {
            let lease = lease(args).map(AnyRequest::Lease);
            return lease.map_err(|error| match error {
                GrammarError::Arity => GrammarError::LeaseArity,
                error => error,
            });
        }
        Err(error) => return Err(error),
    };
    request(algorithm, args, slots).map(AnyRequest::Units).map_err(|error| match error {
        GrammarError::Arity => GrammarError::RuleArity(algorithm),
        error => error,
    })
}

/// A cache of parsed rules. A program sends the same few texts again and again, and comparing a
/// text takes a tenth of the time of parsing it.
pub struct PackedRules([Option<KeptRule>; KEPT_MAX]);

/// A rule and its text.
#[derive(Clone, Copy)]
struct KeptRule {
    text: [u8; KEPT_TEXT_MAX],
    len: usize,
    slots: Slots,
    request: Request,
}

/// The number of places in the cache. The text of a rule determines its place.
const KEPT_MAX: usize = 1 << KEPT_BITS;
const KEPT_BITS: u32 = 6;

/// The longest text that is kept, in bytes.
const KEPT_TEXT_MAX: usize = 48;

impl PackedRules {
    /// The cache without any rules.
    pub const NONE: Self = Self([None; KEPT_MAX]);

    /// Parses a rule, as [`packed_rule`] does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`packed_rule`].
    #[inline]
    pub fn read<'a>(
        &mut self,
        rule: &'a [u8],
        slots: Slots,
    ) -> Result<AnyRequest<'a>, GrammarError> {
        let Some(place) = place_of(rule).and_then(|place| self.0.get_mut(place)) else {
            return packed_rule(rule, slots);
        };
        match place {
            Some(kept) if kept.text.get(..kept.len) == Some(rule) && kept.slots == slots => {
                Ok(AnyRequest::Units(kept.request))
            }
            _ => read_into(place, rule, slots),
        }
    }
}

/// Parses a rule and keeps it at `place`, unless it is a lease.
#[inline(never)]
fn read_into<'a>(
    place: &mut Option<KeptRule>,
    rule: &'a [u8],
    slots: Slots,
) -> Result<AnyRequest<'a>, GrammarError> {
    let parsed = packed_rule(rule, slots)?;
    let mut text = [0; KEPT_TEXT_MAX];
    if let (AnyRequest::Units(request), Some(room)) = (parsed, text.get_mut(..rule.len())) {
        room.copy_from_slice(rule);
        *place = Some(KeptRule { text, len: rule.len(), slots, request });
    }
    Ok(parsed)
}

/// Returns the place of a rule in the cache; `None` if its text is too short or too long to keep.
#[inline(always)]
fn place_of(rule: &[u8]) -> Option<usize> {
    // An odd number without a pattern: 2^64 divided by the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    if rule.len() > KEPT_TEXT_MAX {
        return None;
    }
    let (eights, _) = rule.as_chunks();
    let mix = |mixed: u64, eight: &[u8; 8]| {
        (mixed.rotate_left(5) ^ u64::from_le_bytes(*eight)).wrapping_mul(SPREAD)
    };
    let mixed = mix(eights.iter().fold(0, mix), rule.last_chunk()?);
    usize::try_from(mixed >> (u64::BITS - KEPT_BITS)).ok()
}

/// Fills `words` with the first words of `text` and returns the number found.
///
/// Processes eight bytes at a time: a rule has about twenty, and a call up to sixteen rules.
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
    let mut at = 0;
    let mut end_words = |eight: [u8; 8]| {
        let mut spaces = spaces_in(eight);
        while spaces != 0 {
            end_word(at + (spaces.trailing_zeros() / 8) as usize);
            spaces &= spaces - 1;
        }
        at += 8;
    };
    let (eights, rest) = text.as_chunks();
    eights.iter().for_each(|eight| end_words(*eight));
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(place, byte)| *place = *byte);
    end_words(last);
    end_word(text.len());
    len
}

/// Returns a mask in which the highest bit of a byte is set if that byte of `eight` is a space. The
/// first byte of `eight` is the lowest byte of the mask.
const fn spaces_in(eight: [u8; 8]) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const SPACES: u64 = 0x2020_2020_2020_2020;
    let differing = u64::from_le_bytes(eight) ^ SPACES;
    // The highest bit is clear in both the sum and the byte only if the byte is zero.
    !(((differing & LOW) + LOW) | differing | LOW)
}

#[cfg(test)]
mod tests;
