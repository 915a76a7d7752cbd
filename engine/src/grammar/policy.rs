//! What follows `RL.POLICY SET`, and each line of the file: a name, a mode, and a rule.

#[cfg(test)]
mod tests;

use crate::algorithms::{Algorithm, Rule};
use crate::bounds::Slots;
use crate::grammar::error::GrammarError;
use crate::grammar::name::named;
use crate::grammar::number;
use crate::grammar::options::GivenOptions;
use crate::grammar::rule::request;
use crate::grammar::rule_text::rule_text;
use crate::policy::definition::{Enforcement, Setting};
use crate::policy::name::FullName;
use crate::time::Span;

/// A policy as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its name.
    pub name: FullName,
    /// Its rule, and whether that bites.
    pub setting: Setting,
    /// For how long; `None` when it stays.
    pub lasts: Option<Span>,
}

/// Reads `name[@variant] [SHADOW | OFF | BLOCK | ENFORCE percent] [EX duration] rule...`, mode and
/// EX in either order. Words are upper or lower case, names are not.
///
/// # Errors
///
/// The first thing wrong, from left to right.
pub fn definition(words: &[&[u8]]) -> Result<Definition, GrammarError> {
    let (name, mut words) = words.split_first().ok_or(GrammarError::Arity)?;
    let name = policy_name(name)?;
    let (mut enforcement, mut lasts) = (None, None);
    loop {
        let (word, rest) = words.split_first().ok_or(GrammarError::MissingPolicyRule)?;
        if let Ok(algorithm) = named(word) {
            let rule = rule_of_policy(algorithm, rest)?;
            let enforcement = enforcement.unwrap_or(Enforcement::Percent(100));
            let text = format!("{}{}", mode_text(enforcement), rule_text(&rule, rest));
            let setting = Setting { enforcement, rule, text: text.into() };
            return Ok(Definition { name, setting, lasts });
        }
        words = rest;
        if word.eq_ignore_ascii_case(b"EX") {
            if lasts.is_some() {
                return Err(GrammarError::RepeatedEx);
            }
            let (duration, rest) = words.split_first().ok_or(GrammarError::Ex)?;
            lasts = Some(number::period(duration).ok_or(GrammarError::Ex)?.span());
            words = rest;
            continue;
        }
        let mode = if word.eq_ignore_ascii_case(b"SHADOW") {
            Enforcement::Shadow
        } else if word.eq_ignore_ascii_case(b"OFF") {
            Enforcement::Off
        } else if word.eq_ignore_ascii_case(b"BLOCK") {
            Enforcement::Block
        } else if word.eq_ignore_ascii_case(b"ENFORCE") {
            let (percent, rest) = words.split_first().ok_or(GrammarError::Percent)?;
            words = rest;
            Enforcement::Percent(self::percent(percent).ok_or(GrammarError::Percent)?)
        } else {
            return Err(GrammarError::PolicyRule);
        };
        if enforcement.replace(mode).is_some() {
            return Err(GrammarError::RepeatedMode);
        }
    }
}

/// Reads the name of a policy, or of a variant of one.
///
/// # Errors
///
/// [`GrammarError::PolicyName`] when it is none.
pub fn policy_name(name: &[u8]) -> Result<FullName, GrammarError> {
    FullName::parse(name).ok_or(GrammarError::PolicyName)
}

/// Reads the rule of a policy, which leaves the cost to each call. A sliding log has the default
/// slots: how many there are is settled by each call.
pub(super) fn rule_of_policy(algorithm: Algorithm, args: &[&[u8]]) -> Result<Rule, GrammarError> {
    use GrammarError::{
        Arity, CostOfPolicy, Option, OptionOfPolicy, OptionOfQuota, OptionOrAligned, RuleArity,
    };
    let request = request(algorithm, args, Slots::DEFAULT).map_err(|error| match error {
        Arity => RuleArity(algorithm),
        Option | OptionOrAligned | OptionOfQuota => OptionOfPolicy,
        error if GivenOptions::explain(error) => CostOfPolicy,
        error => error,
    })?;
    // In a rule that was read, no other word is one of these, and none of its numbers.
    let mut options = args.iter().skip(algorithm.arguments().len());
    if options.any(|word| GivenOptions::has(word)) { Err(CostOfPolicy) } else { Ok(request.rule) }
}

fn percent(digits: &[u8]) -> Option<u8> {
    u8::try_from(number::integer(digits)?).ok().filter(|percent| *percent <= 100)
}

/// The words of a mode and the space after them; none for what needs none.
fn mode_text(enforcement: Enforcement) -> String {
    match enforcement {
        Enforcement::Percent(100) => String::new(),
        Enforcement::Percent(percent) => format!("ENFORCE {percent} "),
        Enforcement::Shadow => "SHADOW ".to_owned(),
        Enforcement::Off => "OFF ".to_owned(),
        Enforcement::Block => "BLOCK ".to_owned(),
    }
}
