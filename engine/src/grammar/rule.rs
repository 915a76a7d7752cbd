//! A rule as given in a call: the name of an algorithm, its arguments and options.
//!
//! Positional arguments are parsed from left to right, then checked against each other; then come
//! the options in any order.

use super::error::GrammarError;
use super::lease::lease;
use super::name::named;
use super::options::{Options, options};
use super::request::{AnyRequest, Request};
use super::{number, quota, sliding_log};
use crate::algorithms::backoff::{Backoff, BackoffError};
use crate::algorithms::fixed_window::FixedWindow;
use crate::algorithms::gcra::Gcra;
use crate::algorithms::leaky_bucket::LeakyBucket;
use crate::algorithms::sliding_log::SlidingLog;
use crate::algorithms::sliding_window::SlidingWindow;
use crate::algorithms::token_bucket::TokenBucket;
use crate::algorithms::{Algorithm, Rule};
use crate::bounds::{Limit, Period, Refill, RefillError, Slots};
use crate::call::CallOptions;

/// Parses the arguments after the key of `RL.PEEK`: the name of a rule, then its arguments.
///
/// # Errors
///
/// Returns the first error, from left to right; [`GrammarError::UseNotHere`] for a policy, and
/// [`GrammarError::ReserveNotHere`] for a reservation.
#[inline]
pub fn rule<'a>(args: &[&'a [u8]], slots: Slots) -> Result<AnyRequest<'a>, GrammarError> {
    match rule_with_cost(args, slots) {
        Err(GrammarError::LeaseNotHere) => {
            lease(args.get(1..).unwrap_or_default()).map(AnyRequest::Lease)
        }
        request => request.map(AnyRequest::Units),
    }
}

/// Parses the arguments after the key of a charge or refund: an algorithm's name and its arguments.
///
/// # Errors
///
/// Returns the first error, from left to right; [`GrammarError::LeaseNotHere`] for a lease, and
/// [`GrammarError::UseNotHere`] for a policy.
#[inline]
pub fn rule_with_cost(args: &[&[u8]], slots: Slots) -> Result<Request, GrammarError> {
    let (name, args) = args.split_first().ok_or(GrammarError::Arity)?;
    request(named(name)?, args, slots)
}

/// Parses the arguments after the key of a deciding command. `slots` applies to a sliding log that
/// does not set its own.
///
/// # Errors
///
/// Returns the first error, from left to right.
#[inline]
pub fn request(
    algorithm: Algorithm,
    args: &[&[u8]],
    slots: Slots,
) -> Result<Request, GrammarError> {
    match algorithm {
        Algorithm::FixedWindow => {
            let (limit, window, rest) = limit_and_window(args)?;
            let Options { call, aligned } = options(rest, true)?;
            let rule = Rule::FixedWindow(FixedWindow { limit, window, aligned });
            Ok(Request { rule, options: call })
        }
        Algorithm::SlidingWindow => {
            let (limit, window, rest) = limit_and_window(args)?;
            let Options { call, .. } = options(rest, false)?;
            let rule = Rule::SlidingWindow(SlidingWindow { limit, window });
            Ok(Request { rule, options: call })
        }
        Algorithm::SlidingLog => {
            let (limit, window, rest) = limit_and_window(args)?;
            let (call, own_slots) = sliding_log::options(rest)?;
            let (slots, has_own_slots) = (own_slots.unwrap_or(slots), own_slots.is_some());
            let rule = Rule::SlidingLog(SlidingLog { limit, window, slots, has_own_slots });
            Ok(Request { rule, options: call })
        }
        Algorithm::TokenBucket => {
            let (quota, Options { call, .. }) = quota_and_options(args, CAPACITY)?;
            Ok(Request { rule: Rule::TokenBucket(TokenBucket(quota)), options: call })
        }
        Algorithm::LeakyBucket => {
            let (quota, Options { call, .. }) = quota_and_options(args, CAPACITY)?;
            Ok(Request { rule: Rule::LeakyBucket(LeakyBucket(quota)), options: call })
        }
        Algorithm::Gcra => {
            let (quota, Options { call, .. }) = quota_and_options(args, BURST)?;
            Ok(Request { rule: Rule::Gcra(Gcra::new(quota)), options: call })
        }
        Algorithm::Backoff => {
            Ok(Request { rule: Rule::Backoff(backoff(args)?), options: CallOptions::NONE })
        }
        Algorithm::CalendarQuota => quota::request(args),
    }
}

/// The two errors about the capacity of a [`Refill`]: one for a capacity out of bounds, one for a
/// capacity that takes too long to refill. Each command has its own name for the capacity.
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

fn quota_and_options(args: &[&[u8]], size: SizeErrors) -> Result<(Refill, Options), GrammarError> {
    let [capacity, rate, period, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let (out_of_bounds, refill_too_long) = size;
    let capacity = number::limit(capacity).ok_or(out_of_bounds)?;
    let rate = number::limit(rate).ok_or(GrammarError::Rate)?;
    let period = number::period(period).ok_or(GrammarError::Period)?;
    let quota = Refill::new(capacity, rate, period).map_err(|error| match error {
        RefillError::RateTooHigh => GrammarError::RateTooHigh,
        RefillError::RefillTooLong => refill_too_long,
    })?;
    Ok((quota, options(rest, false)?))
}

/// Parses all arguments of `BACKOFF`.
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
