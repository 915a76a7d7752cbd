//! The arguments of a reservation: the id, the ttl of a new reservation, and the rule or policy.

use crate::algorithms::{Algorithm, Rule};
use crate::bounds::{Period, Slots};
use crate::call::CallOptions;
use crate::grammar::error::GrammarError;
use crate::grammar::name::named;
use crate::grammar::number;
use crate::grammar::options::GivenOptions;
use crate::grammar::packed::split;
use crate::grammar::rule::request;
use crate::grammar::usage::{Usage, usage};
use crate::reservations::one::Reservation;
use crate::reservations::window::{Hold, Step};

/// The largest number of words that are parsed in one argument. The longest reservation has fewer:
/// `RESERVE`, an id, a ttl, and a use of a policy with all options of a call, two variants and a
/// `DEFAULT` with all of `QUOTA`. Errors are found from left to right, so a reservation with more
/// words has an error among the words that are parsed.
const WORDS_MAX: usize = 28;

/// The three reservation commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationVerb {
    /// `RL.RESERVE key id ttl rule...`
    Reserve,
    /// `RL.COMMIT key id rule...`
    Commit,
    /// `RL.CANCEL key id rule...`
    Cancel,
}

/// A parsed reservation command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationRequest<'a> {
    /// The id of the reservation.
    pub id: &'a [u8],
    /// The rule, or the policy that has it.
    pub source: RuleSource<'a>,
    /// The step to take.
    pub step: Step,
}

/// The source of a reservation's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleSource<'a> {
    /// The rule is given in the call, and supports reservations.
    Call(Rule),
    /// A policy has the rule. The policy's algorithm is not known to support reservations.
    Policy(Usage<'a>),
}

/// A parsed reservation to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldRequest<'a> {
    /// The id of the reservation.
    pub id: &'a [u8],
    /// The rule, or the policy that has it.
    pub source: RuleSource<'a>,
    /// The reservation.
    pub hold: Hold,
}

/// Parses the arguments after the key.
///
/// # Errors
///
/// Returns the first error, from left to right.
pub fn reservation<'a>(
    verb: ReservationVerb,
    args: &[&'a [u8]],
    slots: Slots,
) -> Result<ReservationRequest<'a>, GrammarError> {
    if verb == ReservationVerb::Reserve {
        let HoldRequest { id, source, hold } = hold(args, slots)?;
        return Ok(ReservationRequest { id, source, step: Step::Reserve(hold) });
    }
    let (id, args) = id_and_rest(args)?;
    let (source, given) = source_of(args, slots)?;
    given.or_default().unconditional()?;
    let step = match verb {
        ReservationVerb::Commit => Step::Commit { cost: given.cost },
        _ => Step::Cancel,
    };
    Ok(ReservationRequest { id, source, step })
}

/// Parses the arguments after the key of `RL.RESERVE`, or after the word `RESERVE` in a rule.
///
/// # Errors
///
/// Returns the first error, from left to right.
pub fn hold<'a>(args: &[&'a [u8]], slots: Slots) -> Result<HoldRequest<'a>, GrammarError> {
    let (id, args) = id_and_rest(args)?;
    let (ttl, args) = ttl_and_rest(args)?;
    let (source, given) = source_of(args, slots)?;
    let options = given.or_default();
    options.in_full()?;
    let CallOptions { cost, leave, .. } = options;
    Ok(HoldRequest { id, source, hold: Hold { ttl, cost, leave, is_shadow: false } })
}

/// Parses a reservation that is passed as one argument and starts with `RESERVE`. Words are
/// separated as in [`packed_rule`].
///
/// # Errors
///
/// Returns the first error, from left to right; for too few words, the error that names those of
/// the reservation, or of its rule if that has begun.
///
/// [`packed_rule`]: super::packed::packed_rule
#[cold]
pub fn packed_hold(rule: &[u8], slots: Slots) -> Result<HoldRequest<'_>, GrammarError> {
    let mut words = [[].as_slice(); WORDS_MAX];
    let len = split(rule, &mut words);
    let words = words.get(..len).unwrap_or_default();
    hold(words.get(1..).unwrap_or_default(), slots).map_err(|error| match (error, words.get(3)) {
        (GrammarError::Arity, Some(name)) => match named(name) {
            Ok(algorithm) => GrammarError::RuleArity(algorithm),
            Err(_) => GrammarError::UseArity,
        },
        (GrammarError::Arity, None) => GrammarError::ReserveArity,
        (error, _) => error,
    })
}

fn id_and_rest<'a, 'b>(args: &'b [&'a [u8]]) -> Result<(&'a [u8], &'b [&'a [u8]]), GrammarError> {
    let (id, rest) = args.split_first().ok_or(GrammarError::Arity)?;
    if (1..=Reservation::ID_LEN_MAX).contains(&id.len()) {
        Ok((id, rest))
    } else {
        Err(GrammarError::ReservationId)
    }
}

fn ttl_and_rest<'a, 'b>(args: &'b [&'a [u8]]) -> Result<(Period, &'b [&'a [u8]]), GrammarError> {
    let (ttl, rest) = args.split_first().ok_or(GrammarError::Arity)?;
    Ok((number::period(ttl).ok_or(GrammarError::Ttl)?, rest))
}

/// Parses a rule that supports reservations, or the use of a policy, and the options of the call.
fn source_of<'a>(
    args: &[&'a [u8]],
    slots: Slots,
) -> Result<(RuleSource<'a>, GivenOptions), GrammarError> {
    let (name, args) = args.split_first().ok_or(GrammarError::Arity)?;
    match named(name) {
        Ok(algorithm @ (Algorithm::FixedWindow | Algorithm::CalendarQuota)) => {
            let request = request(algorithm, args, slots)?;
            let CallOptions { cost, partial, leave } = request.options;
            // In valid arguments, the word `COST` can only be the option.
            let cost = GivenOptions::give_cost(args).then_some(cost);
            Ok((RuleSource::Call(request.rule), GivenOptions { cost, partial, leave }))
        }
        Err(GrammarError::UseNotHere) => {
            let usage = usage(args)?;
            Ok((RuleSource::Policy(usage), usage.given))
        }
        _ => Err(GrammarError::NotReservable),
    }
}

#[cfg(test)]
mod tests;
