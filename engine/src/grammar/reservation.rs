//! The arguments of a reservation command: the id, the ttl of a new reservation, and the rule.

use crate::algorithms::{Algorithm, Rule};
use crate::bounds::Slots;
use crate::call::CallOptions;
use crate::grammar::error::GrammarError;
use crate::grammar::name::named;
use crate::grammar::number;
use crate::grammar::options::GivenOptions;
use crate::grammar::request::Request;
use crate::grammar::rule::request;
use crate::reservations::one::Reservation;
use crate::reservations::window::Step;

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
    /// The algorithm and its limits.
    pub rule: Rule,
    /// The step to take.
    pub step: Step,
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
    let (id, args) = args.split_first().ok_or(GrammarError::Arity)?;
    if !(1..=Reservation::ID_LEN_MAX).contains(&id.len()) {
        return Err(GrammarError::ReservationId);
    }
    let (step, request) = match verb {
        ReservationVerb::Reserve => {
            let (ttl, args) = args.split_first().ok_or(GrammarError::Arity)?;
            let ttl = number::period(ttl).ok_or(GrammarError::Ttl)?;
            let request = request_of(args, slots)?;
            let CallOptions { cost, leave, .. } = request.in_full()?.options;
            (Step::Reserve { ttl, cost, leave }, request)
        }
        ReservationVerb::Commit => {
            let request = request_of(args, slots)?.unconditional()?;
            // In valid arguments, the word `COST` can only be the option.
            let is_given = GivenOptions::give_cost(args);
            (Step::Commit { cost: is_given.then_some(request.options.cost) }, request)
        }
        ReservationVerb::Cancel => (Step::Cancel, request_of(args, slots)?.unconditional()?),
    };
    Ok(ReservationRequest { id, rule: request.rule, step })
}

/// Parses a rule that supports reservations.
fn request_of(args: &[&[u8]], slots: Slots) -> Result<Request, GrammarError> {
    let (name, args) = args.split_first().ok_or(GrammarError::Arity)?;
    match named(name) {
        Ok(algorithm @ (Algorithm::FixedWindow | Algorithm::CalendarQuota)) => {
            request(algorithm, args, slots)
        }
        _ => Err(GrammarError::NotReservable),
    }
}
