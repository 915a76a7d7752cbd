//! The options of `SLIDINGLOG`: those of every call, and the number of slots.

#[cfg(test)]
mod tests;

use crate::bounds::Slots;
use crate::call::CallOptions;
use crate::grammar::error::GrammarError;
use crate::grammar::name::is_name;
use crate::grammar::number;
use crate::grammar::options::GivenOptions;

/// Parses the options after the limit and the window. Returns those of the call, and the slots if
/// `SLOTS` is given. Most calls have no options.
#[inline(always)]
pub fn options(args: &[&[u8]]) -> Result<(CallOptions, Option<Slots>), GrammarError> {
    if args.is_empty() { Ok((CallOptions::NONE, None)) } else { some_options(args) }
}

fn some_options(mut args: &[&[u8]]) -> Result<(CallOptions, Option<Slots>), GrammarError> {
    let (mut given, mut slots) = (GivenOptions::default(), None);
    while let [name, rest @ ..] = args {
        args = rest;
        if given.read(name, &mut args)? {
            continue;
        }
        if !is_name::<5>(name, "SLOTS") {
            return Err(GrammarError::OptionOfLog);
        }
        if slots.is_some() {
            return Err(GrammarError::RepeatedSlots);
        }
        let [count, rest @ ..] = args else {
            return Err(GrammarError::MissingSlots);
        };
        slots = Some(slots_of(count).ok_or(GrammarError::Slots)?);
        args = rest;
    }
    Ok((given.check()?, slots))
}

/// Parses a number of slots; `None` if it is out of bounds.
fn slots_of(count: &[u8]) -> Option<Slots> {
    Slots::new(u32::try_from(number::integer(count)?).ok()?)
}
