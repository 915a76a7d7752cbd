//! The only argument parser: byte slices in, a [`Request`] or a static error text out.
//!
//! Positional arguments are read from left to right, then checked against each other, then come
//! the options in any order. Numbers are plain digits: no sign, no space, no exponent.

mod clock;
mod error;
mod lease;
mod number;
mod packed;
mod policy;
mod policy_file;
mod quota;
mod redis_cell;
mod reservation;
mod rule_text;
mod usage;

#[cfg(test)]
mod tests;

pub use crate::limiter::Algorithm;
pub use clock::ClockAction;
pub use error::GrammarError;
pub use lease::{LeaseRequest, lease, release, renew};
pub use packed::{RULES_MAX, packed_rule};
pub use policy::{Definition, definition, policy_name};
pub use policy_file::{FILE_LEN_MAX, LineError, LineFault, policy_file};
pub use redis_cell::{ThrottleRequest, throttle};
pub use reservation::{ReservationRequest, ReservationVerb, reservation};
pub use usage::{Usage, packed_usage, usage};

use crate::limiter::{
    Backoff, BackoffError, Cost, FixedWindow, Gcra, LeakyBucket, Limit, Period, Quota, QuotaError,
    Rule, SlidingLog, SlidingWindow, Slots, TokenBucket,
};

/// A call as it is meant: the rule and the cost. The key is none of the grammar's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The algorithm and its limits.
    pub rule: Rule,
    /// What the call takes. One of `BACKOFF` counts one.
    pub cost: Cost,
    /// Whether it takes what is there, up to its cost, which is then at least one.
    pub partial: bool,
}

impl Request {
    /// The same, where it cannot be granted in part.
    ///
    /// # Errors
    ///
    /// [`GrammarError::PartialNotHere`] when it asks for that.
    pub fn in_full(self) -> Result<Self, GrammarError> {
        if self.partial { Err(GrammarError::PartialNotHere) } else { Ok(self) }
    }
}

/// What a rule asks for, wherever it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// Units, by an algorithm.
    Units(Request),
    /// A lease.
    Lease(LeaseRequest<'a>),
}

impl Asked<'_> {
    /// The same, where it cannot be granted in part.
    ///
    /// # Errors
    ///
    /// [`GrammarError::PartialNotHere`] when it asks for that.
    pub fn in_full(self) -> Result<Self, GrammarError> {
        match self {
            Self::Units(Request { partial: true, .. }) => Err(GrammarError::PartialNotHere),
            asked => Ok(asked),
        }
    }
}

/// The name of the rule that is no algorithm: it has a holder, and no cost.
const LEASE: &[u8] = b"LEASE";

/// What may follow the positional arguments.
struct Options {
    cost: Cost,
    partial: bool,
    aligned: bool,
}

/// Reads what follows the key of `RL.PEEK`: the name of a rule, then its arguments.
///
/// # Errors
///
/// The first thing wrong, from left to right; [`GrammarError::UseNotHere`] for a policy.
#[inline]
pub fn rule<'a>(args: &[&'a [u8]], slots: Slots) -> Result<Asked<'a>, GrammarError> {
    match rule_with_cost(args, slots) {
        Err(GrammarError::LeaseNotHere) => {
            lease(args.get(1..).unwrap_or_default()).map(Asked::Lease)
        }
        request => request.map(Asked::Units),
    }
}

/// Reads what follows the key where a cost is settled: an algorithm's name, then its arguments.
///
/// # Errors
///
/// The first thing wrong, from left to right; [`GrammarError::LeaseNotHere`] for a lease, and
/// [`GrammarError::UseNotHere`] for a policy.
pub fn rule_with_cost(args: &[&[u8]], slots: Slots) -> Result<Request, GrammarError> {
    let (name, args) = args.split_first().ok_or(GrammarError::Arity)?;
    request(named(name)?, args, slots)
}

/// Reads what follows the key of a deciding command. A sliding log will round to `slots`.
///
/// # Errors
///
/// The first thing wrong, from left to right.
pub fn request(
    algorithm: Algorithm,
    args: &[&[u8]],
    slots: Slots,
) -> Result<Request, GrammarError> {
    match algorithm {
        Algorithm::FixedWindow => {
            let (limit, window, rest) = limit_and_window(args)?;
            let Options { cost, partial, aligned } = options(rest, true)?;
            let rule = Rule::FixedWindow(FixedWindow { limit, window, aligned });
            Ok(Request { rule, cost, partial })
        }
        Algorithm::SlidingWindow => {
            let (limit, window, rest) = limit_and_window(args)?;
            let Options { cost, partial, .. } = options(rest, false)?;
            let rule = Rule::SlidingWindow(SlidingWindow { limit, window });
            Ok(Request { rule, cost, partial })
        }
        Algorithm::SlidingLog => {
            let (limit, window, rest) = limit_and_window(args)?;
            let Options { cost, partial, .. } = options(rest, false)?;
            let rule = Rule::SlidingLog(SlidingLog { limit, window, slots });
            Ok(Request { rule, cost, partial })
        }
        Algorithm::TokenBucket => {
            let (quota, Options { cost, partial, .. }) = quota_and_options(args, CAPACITY)?;
            Ok(Request { rule: Rule::TokenBucket(TokenBucket(quota)), cost, partial })
        }
        Algorithm::LeakyBucket => {
            let (quota, Options { cost, partial, .. }) = quota_and_options(args, CAPACITY)?;
            Ok(Request { rule: Rule::LeakyBucket(LeakyBucket(quota)), cost, partial })
        }
        Algorithm::Gcra => {
            let (quota, Options { cost, partial, .. }) = quota_and_options(args, BURST)?;
            Ok(Request { rule: Rule::Gcra(Gcra::new(quota)), cost, partial })
        }
        Algorithm::Backoff => {
            Ok(Request { rule: Rule::Backoff(backoff(args)?), cost: Cost::ONE, partial: false })
        }
        Algorithm::CalendarQuota => quota::request(args),
    }
}

fn named(name: &[u8]) -> Result<Algorithm, GrammarError> {
    Algorithm::ALL
        .into_iter()
        .find(|algorithm| name.eq_ignore_ascii_case(algorithm.name().as_bytes()))
        .ok_or_else(|| unnamed(name))
}

/// What is wrong with a name that is no algorithm's.
#[cold]
fn unnamed(name: &[u8]) -> GrammarError {
    if name.eq_ignore_ascii_case(LEASE) {
        GrammarError::LeaseNotHere
    } else if name.eq_ignore_ascii_case(usage::USE) {
        GrammarError::UseNotHere
    } else {
        GrammarError::Algorithm
    }
}

/// The two errors about a quota's size, under the name the command gives it.
type SizeErrors = (GrammarError, GrammarError);
const CAPACITY: SizeErrors = (GrammarError::Capacity, GrammarError::CapacityRefill);
const BURST: SizeErrors = (GrammarError::Burst, GrammarError::BurstRefill);

fn limit_and_window<'a, 'b>(
    args: &'b [&'a [u8]],
) -> Result<(Limit, Period, &'b [&'a [u8]]), GrammarError> {
    let [limit, window, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let limit = number::limit(limit).ok_or(GrammarError::Limit)?;
    let window = number::period(window).ok_or(GrammarError::Window)?;
    Ok((limit, window, rest))
}

fn quota_and_options(args: &[&[u8]], size: SizeErrors) -> Result<(Quota, Options), GrammarError> {
    let [capacity, rate, period, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let (out_of_bounds, refill_too_long) = size;
    let capacity = number::limit(capacity).ok_or(out_of_bounds)?;
    let rate = number::limit(rate).ok_or(GrammarError::Rate)?;
    let period = number::period(period).ok_or(GrammarError::Period)?;
    let quota = Quota::new(capacity, rate, period).map_err(|error| match error {
        QuotaError::RateTooHigh => GrammarError::RateTooHigh,
        QuotaError::RefillTooLong => refill_too_long,
    })?;
    Ok((quota, options(rest, false)?))
}

/// All there is of `BACKOFF`.
fn backoff(args: &[&[u8]]) -> Result<Backoff, GrammarError> {
    let [attempts, base, max, forget, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let attempts = number::limit(attempts)
        .filter(|attempts| *attempts <= Backoff::ATTEMPTS_MAX)
        .ok_or(GrammarError::Attempts)?;
    let base = number::period(base).ok_or(GrammarError::Base)?;
    let max = number::period(max).ok_or(GrammarError::Max)?;
    let forget = number::period(forget).ok_or(GrammarError::Forget)?;
    let rule = Backoff::new(attempts, base, max, forget).map_err(|error| match error {
        BackoffError::TooManyAttempts => GrammarError::Attempts,
        BackoffError::BaseAboveMax => GrammarError::BaseAboveMax,
        BackoffError::MaxNotBelowForget => GrammarError::MaxNotBelowForget,
    })?;
    if rest.is_empty() { Ok(rule) } else { Err(GrammarError::NoOption) }
}

/// The options, of which most calls have none.
#[inline(always)]
fn options(args: &[&[u8]], may_align: bool) -> Result<Options, GrammarError> {
    if args.is_empty() {
        return Ok(Options { cost: Cost::ONE, partial: false, aligned: false });
    }
    some_options(args, may_align)
}

fn some_options(mut args: &[&[u8]], may_align: bool) -> Result<Options, GrammarError> {
    let mut cost = None;
    let (mut partial, mut aligned) = (false, false);
    while let [name, rest @ ..] = args {
        args = rest;
        if name.eq_ignore_ascii_case(b"COST") {
            args = set_cost(&mut cost, args)?;
        } else if name.eq_ignore_ascii_case(b"PARTIAL") {
            if partial {
                return Err(GrammarError::RepeatedPartial);
            }
            partial = true;
        } else if may_align && name.eq_ignore_ascii_case(b"ALIGNED") {
            if aligned {
                return Err(GrammarError::RepeatedAligned);
            }
            aligned = true;
        } else if may_align {
            return Err(GrammarError::OptionOrAligned);
        } else {
            return Err(GrammarError::Option);
        }
    }
    let cost = cost_of(cost, partial)?;
    Ok(Options { cost, partial, aligned })
}

/// Takes the number that follows `COST`; what is left are the arguments after it.
#[inline(always)]
fn set_cost<'a, 'b>(
    cost: &mut Option<Cost>,
    args: &'b [&'a [u8]],
) -> Result<&'b [&'a [u8]], GrammarError> {
    if cost.is_some() {
        return Err(GrammarError::RepeatedCost);
    }
    let [value, rest @ ..] = args else {
        return Err(GrammarError::MissingCost);
    };
    *cost = Some(number::cost(value).ok_or(GrammarError::Cost)?);
    Ok(rest)
}

/// The cost of a call, of which nothing can be no part.
#[inline(always)]
fn cost_of(cost: Option<Cost>, partial: bool) -> Result<Cost, GrammarError> {
    let cost = cost.unwrap_or(Cost::ONE);
    if partial && cost.is_zero() { Err(GrammarError::PartialOfNothing) } else { Ok(cost) }
}
