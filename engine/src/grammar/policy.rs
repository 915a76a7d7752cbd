//! The words that follow `RL.POLICY SET`, and those of a line in the policy file: a name, a mode,
//! and a rule.

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

/// A policy with its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The name.
    pub name: FullName,
    /// The rule and its mode.
    pub setting: Setting,
    /// The lifetime; `None` if the policy does not expire.
    pub lasts: Option<Span>,
}

/// A new mode for a policy, which keeps its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChange {
    /// The name.
    pub name: FullName,
    /// The mode.
    pub enforcement: Enforcement,
    /// The lifetime; `None` if the mode does not expire.
    pub lasts: Option<Span>,
}

/// The arguments of `RL.POLICY SET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assignment {
    /// A policy with its rule.
    Whole(Definition),
    /// A mode without a rule.
    Mode(ModeChange),
}

/// Parses `name[@variant] [SHADOW | OFF | BLOCK | ENFORCE percent] [EX duration] rule...`, mode and
/// EX in either order. Names are case sensitive, other words are not.
///
/// # Errors
///
/// Returns the first error, from left to right.
pub fn definition(words: &[&[u8]]) -> Result<Definition, GrammarError> {
    match assignment(words)? {
        Assignment::Whole(definition) => Ok(definition),
        Assignment::Mode(_) => Err(GrammarError::MissingPolicyRule),
    }
}

/// Parses like [`definition`], but the rule may be left out after a mode.
///
/// # Errors
///
/// Returns the first error, from left to right.
pub fn assignment(words: &[&[u8]]) -> Result<Assignment, GrammarError> {
    let (name, mut words) = words.split_first().ok_or(GrammarError::Arity)?;
    let name = policy_name(name)?;
    let (mut enforcement, mut lasts) = (None, None);
    loop {
        let Some((word, rest)) = words.split_first() else {
            let enforcement = enforcement.ok_or(GrammarError::MissingPolicyRule)?;
            return Ok(Assignment::Mode(ModeChange { name, enforcement, lasts }));
        };
        if let Ok(algorithm) = named(word) {
            let rule = rule_of_policy(algorithm, rest)?;
            let enforcement = enforcement.unwrap_or(Enforcement::Percent(100));
            let setting = Setting::new(enforcement, rule, &rule_text(&rule, rest));
            return Ok(Assignment::Whole(Definition { name, setting, lasts }));
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
            Enforcement::Percent(number::percent(percent).ok_or(GrammarError::Percent)?)
        } else {
            return Err(GrammarError::PolicyRule);
        };
        if enforcement.replace(mode).is_some() {
            return Err(GrammarError::RepeatedMode);
        }
    }
}

/// Parses the name of a policy or variant.
///
/// # Errors
///
/// Returns [`GrammarError::PolicyName`] if the name is invalid.
pub fn policy_name(name: &[u8]) -> Result<FullName, GrammarError> {
    FullName::parse(name).ok_or(GrammarError::PolicyName)
}

/// Parses the rule of a policy. The rule has no cost: each call gives its own. A sliding log
/// without `SLOTS` gets the default number of slots; each call replaces that number by the
/// configured one.
pub(super) fn rule_of_policy(algorithm: Algorithm, args: &[&[u8]]) -> Result<Rule, GrammarError> {
    use GrammarError::{
        Arity, CostOfPolicy, Option, OptionOfLog, OptionOfPolicy, OptionOfQuota, OptionOrAligned,
        RuleArity,
    };
    let request = request(algorithm, args, Slots::DEFAULT).map_err(|error| match error {
        Arity => RuleArity(algorithm),
        Option | OptionOrAligned | OptionOfQuota | OptionOfLog => OptionOfPolicy,
        error if GivenOptions::explain(error) => CostOfPolicy,
        error => error,
    })?;
    // The rule is valid, so a word that names an option of a call is that option here, not a number
    // or the value of another option.
    let mut options = args.iter().skip(algorithm.arguments().len());
    if options.any(|word| GivenOptions::has(word)) { Err(CostOfPolicy) } else { Ok(request.rule) }
}
