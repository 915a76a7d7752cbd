//! The use of a policy by a call: its name, the cost, the variants to try first, and the rule to
//! apply if there is no such policy.

use crate::algorithms::{Algorithm, Rule};
use crate::grammar::error::GrammarError;
use crate::grammar::name::named;
use crate::grammar::options::GivenOptions;
use crate::grammar::packed::split;
use crate::grammar::policy::rule_of_policy;
use crate::grammar::request::Request;
use crate::policy::name::Name;

/// The largest number of variants in a call; a look-up tries them and then the policy itself.
const VARIANTS_MAX: usize = 2;

/// The largest number of words that are parsed. The longest use has fewer: `USE`, a policy, all
/// options of a call, two variants and a `DEFAULT` with all of `QUOTA`. Errors are found from left
/// to right, so a use with more words has an error among the words that are parsed.
const WORDS_MAX: usize = 28;

/// The use of a policy by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage<'a> {
    /// The policy.
    pub policy: Name<'a>,
    /// The variants whose limits apply if they exist, in order of precedence.
    pub variants: [Option<Name<'a>>; VARIANTS_MAX],
    /// The options that the call gives.
    pub given: GivenOptions,
    /// The rule to apply if there is no such policy.
    pub default: Option<Rule>,
}

impl Usage<'_> {
    /// Returns the usage unchanged, or an error if the call is partial.
    ///
    /// # Errors
    ///
    /// Returns the error of [`CallOptions::in_full`].
    ///
    /// [`CallOptions::in_full`]: crate::call::CallOptions::in_full
    pub fn in_full(self) -> Result<Self, GrammarError> {
        self.given.or_default().in_full().map(|()| self)
    }

    /// Returns the usage, or an error if its options are only for a call that is decided.
    ///
    /// # Errors
    ///
    /// Returns the error of [`CallOptions::unconditional`].
    ///
    /// [`CallOptions::unconditional`]: crate::call::CallOptions::unconditional
    pub fn unconditional(self) -> Result<Self, GrammarError> {
        self.given.or_default().unconditional().map(|()| self)
    }

    /// Returns the request for a call under `rule`, with the given options.
    ///
    /// # Errors
    ///
    /// Returns [`GrammarError::CostOfBackoff`] if the rule is `BACKOFF` and the call gives options.
    pub fn request(&self, rule: Rule) -> Result<Request, GrammarError> {
        if rule.algorithm() == Algorithm::Backoff && self.given.is_any() {
            return Err(GrammarError::CostOfBackoff);
        }
        Ok(Request { rule, options: self.given.or_default() })
    }
}

/// Parses the arguments after the key of `RL.USE`, or after the word `USE` in a rule.
///
/// # Errors
///
/// Returns the first error, from left to right.
#[inline]
pub fn usage<'a>(args: &[&'a [u8]]) -> Result<Usage<'a>, GrammarError> {
    let [policy, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let policy = Name::new(policy).ok_or(GrammarError::UsedPolicy)?;
    let mut usage = Usage {
        policy,
        variants: [None; VARIANTS_MAX],
        given: GivenOptions::default(),
        default: None,
    };
    if !rest.is_empty() {
        read_options(&mut usage, rest)?;
    }
    Ok(usage)
}

fn read_options<'a>(usage: &mut Usage<'a>, mut args: &[&'a [u8]]) -> Result<(), GrammarError> {
    while let [name, rest @ ..] = args {
        args = rest;
        if usage.given.read(name, &mut args)? {
            continue;
        }
        if name.eq_ignore_ascii_case(b"FOR") {
            args = add_variant(usage, args)?;
        } else if name.eq_ignore_ascii_case(b"DEFAULT") {
            usage.default = Some(default(args)?);
            break;
        } else {
            return Err(GrammarError::OptionOfUse);
        }
    }
    usage.given.check().map(|_| ())
}

/// Adds the variant that follows `FOR`, and returns the arguments after it.
fn add_variant<'a, 'b>(
    usage: &mut Usage<'a>,
    args: &'b [&'a [u8]],
) -> Result<&'b [&'a [u8]], GrammarError> {
    let free = usage.variants.iter_mut().find(|variant| variant.is_none());
    let free = free.ok_or(GrammarError::RepeatedFor)?;
    let [variant, rest @ ..] = args else {
        return Err(GrammarError::MissingVariant);
    };
    *free = Some(Name::new(variant).ok_or(GrammarError::Variant)?);
    Ok(rest)
}

/// Parses the rule that follows `DEFAULT`.
fn default(args: &[&[u8]]) -> Result<Rule, GrammarError> {
    let (name, args) = args.split_first().ok_or(GrammarError::MissingDefault)?;
    let algorithm = named(name).map_err(|_| GrammarError::AlgorithmOfPolicy)?;
    rule_of_policy(algorithm, args)
}

/// Parses a use of a policy that is passed as one argument and starts with `USE`. Words are
/// separated as in [`packed_rule`].
///
/// # Errors
///
/// Returns the first error, from left to right; [`GrammarError::UseArity`] for too few words.
///
/// [`packed_rule`]: super::packed::packed_rule
#[cold]
pub fn packed_usage(rule: &[u8]) -> Result<Usage<'_>, GrammarError> {
    let mut words = [[].as_slice(); WORDS_MAX];
    let len = split(rule, &mut words);
    usage(words.get(1..len).unwrap_or_default()).map_err(|error| match error {
        GrammarError::Arity => GrammarError::UseArity,
        error => error,
    })
}

#[cfg(test)]
mod tests;
