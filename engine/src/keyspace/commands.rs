//! The commands, with the replies of the module.

use std::convert::Infallible;

use crate::algorithms::State;
use crate::ban::Ban;
use crate::bounds::{Cost, Slots};
use crate::call::{CallOptions, Mode};
use crate::grammar::ban::ban as duration_of_ban;
use crate::grammar::error::GrammarError;
use crate::grammar::lease::{self, LeaseRequest};
use crate::grammar::name::named;
use crate::grammar::packed::{RULES_MAX, packed_rule};
use crate::grammar::request::{AnyRequest, Request};
use crate::grammar::reservation::{
    ReservationRequest, ReservationVerb, hold, packed_hold, reservation,
};
use crate::grammar::rule::{request, rule, rule_with_cost};
use crate::grammar::usage::{Usage, packed_usage, usage};
use crate::leases::{self, Holders as _};
use crate::rule_set::{Force, Row};
use crate::time::Instant;

use super::keys::{Effect, Keys};
use super::refused::Refused;
use super::reply::{Reply, array, integer, row_reply, rows_reply};
use super::reserving::{Reserving, rule_of};

/// The slots of a sliding window, as in the module's default settings.
const SLOTS: Slots = Slots::DEFAULT;

/// One rule of a command.
struct Part<'a> {
    request: PartRequest<'a>,
    /// Set only for the default rule of a policy.
    force: Option<Force>,
}

/// A call under one rule: for units, a permit or a reservation.
enum PartRequest<'a> {
    Units(Request),
    Permit(LeaseRequest<'a>),
    Reservation(Reserving<'a>),
}

impl<'a> Part<'a> {
    fn plain(request: AnyRequest<'a>) -> Self {
        let request = match request {
            AnyRequest::Units(request) => PartRequest::Units(request),
            AnyRequest::Lease(request) => PartRequest::Permit(request),
        };
        Self { request, force: None }
    }

    /// Reads the words of a policy call. There are no policies, so only a default rule applies.
    fn of_policy(usage: &Usage<'_>) -> Result<Self, Refused> {
        let request = usage.request(usage.default.ok_or(Refused::NoPolicy)?.with_slots(SLOTS))?;
        Ok(Self { request: PartRequest::Units(request), force: Some(Force::Enforced) })
    }

    fn reserving(reserving: Reserving<'a>) -> Self {
        let force = reserving.force;
        Self { request: PartRequest::Reservation(reserving), force }
    }
}

/// Runs a command whose first argument is a key.
type Run = fn(&mut Call<'_>, &[u8], &[&[u8]]) -> Result<Reply, Refused>;

/// Runs a command. `words` begins with the command's name.
pub fn run(keys: &mut Keys, now: Instant, words: &[&[u8]]) -> Result<Reply, Refused> {
    let [command, args @ ..] = words else { return Err(Refused::UnknownCommand) };
    let command = command.to_ascii_uppercase();
    let Some(name) = command.strip_prefix(b"RL.") else {
        return server_command(keys, now, &command, args);
    };
    let run: Run = match name {
        b"ALL" => return Call { keys, now }.all(args, true),
        b"PEEKALL" => return Call { keys, now }.all(args, false),
        b"PEEK" => |call, key, args| call.peek(key, args),
        b"RESERVE" => |call, key, args| {
            call.one(key, &Part::reserving(Reserving::new(hold(args, SLOTS)?)?), true)
        },
        b"COMMIT" => |call, key, args| call.end(key, args, ReservationVerb::Commit),
        b"CANCEL" => |call, key, args| call.end(key, args, ReservationVerb::Cancel),
        b"BLOCK" => |call, key, args| call.block(key, args),
        b"CHARGE" => |call, key, args| call.settle(key, args, true),
        b"REFUND" => |call, key, args| call.settle(key, args, false),
        b"USE" => |call, key, args| call.one(key, &Part::of_policy(&usage(args)?)?, true),
        b"LEASE" => |call, key, args| {
            call.one(key, &Part::plain(AnyRequest::Lease(lease::lease(args)?)), true)
        },
        b"RENEW" => |call, key, args| call.renew(key, args),
        b"RELEASE" => |call, key, args| call.release(key, args),
        _ => {
            let algorithm = named(name).map_err(|_| Refused::UnknownCommand)?;
            let (key, args) = args.split_first().ok_or(GrammarError::Arity)?;
            let part = Part::plain(AnyRequest::Units(request(algorithm, args, SLOTS)?));
            return Call { keys, now }.one(key, &part, true);
        }
    };
    let (key, args) = args.split_first().ok_or(GrammarError::Arity)?;
    run(&mut Call { keys, now }, key, args)
}

/// Runs a command of the server itself.
fn server_command(
    keys: &mut Keys,
    now: Instant,
    command: &[u8],
    args: &[&[u8]],
) -> Result<Reply, Refused> {
    let count = |found: usize| Ok(Reply::Integer(integer(found as u64)));
    match (command, args) {
        (b"DEL", [_, ..]) => count(args.iter().filter(|key| keys.delete(key, now)).count()),
        (b"EXISTS", [_, ..]) => count(args.iter().filter(|key| keys.exists(key, now)).count()),
        (b"PTTL", [key]) => Ok(Reply::Integer(keys.ttl_ms(key, now).map_or(-2, integer))),
        (b"FLUSHALL", _) => {
            *keys = Keys::default();
            Ok(Reply::Okay)
        }
        (b"DEL" | b"EXISTS" | b"PTTL", _) => Err(GrammarError::Arity.into()),
        _ => Err(Refused::UnknownCommand),
    }
}

/// A command at one instant.
struct Call<'a> {
    keys: &'a mut Keys,
    now: Instant,
}

impl Call<'_> {
    /// Decides one rule on one key, without storing anything.
    fn decide(&self, key: &[u8], part: &Part<'_>, mode: Mode) -> Decided {
        let Self { now, .. } = *self;
        match &part.request {
            PartRequest::Permit(request) => self.decide_lease(key, request, mode),
            PartRequest::Units(Request { rule, options }) => {
                let outcome = rule.decide_call(mode, self.stored(key, part)?, now, *options)?;
                let decision = outcome.decision;
                let left_units = options.left_units(decision.limit);
                let row = Row { decision, cost: options.cost, left_units, force: part.force };
                Ok((row, Effect::of(&outcome.next)))
            }
            PartRequest::Reservation(reserving) => {
                let Reserving { rule, id, hold, force } = reserving;
                let outcome = rule.reserve(mode, self.stored(key, part)?, now, id, *hold)?;
                let decision = outcome.decision;
                let left_units = hold.leave.map_or(0, |leave| leave.units(decision.limit));
                let row = Row { decision, cost: hold.cost, left_units, force: *force };
                Ok((row, Effect::of(&outcome.next)))
            }
        }
    }

    fn decide_lease(&self, key: &[u8], request: &LeaseRequest<'_>, mode: Mode) -> Decided {
        let leave = request.leave;
        let (decision, effect) = if let Some(ban) = self.keys.ban(key, self.now) {
            let options = CallOptions { leave, ..CallOptions::of_cost(Cost::ONE) };
            (ban.decide(request.rule.limit, options, mode).decision, None)
        } else {
            let mut holders = self.keys.holders(key, request.id, self.now)?;
            let Ok((decision, grant)) = request.rule.decide(&mut holders, leave, self.now, mode);
            let effect = grant.map(|grant| Effect::Hold { id: request.id.to_vec(), grant });
            (decision, effect)
        };
        let left_units = leave.map_or(0, |leave| leave.units(decision.limit));
        Ok((Row { decision, cost: Cost::ONE, left_units, force: None }, effect))
    }

    /// Returns the state of a key. For a policy's rule, `None` if the state is of another
    /// algorithm.
    fn stored(&self, key: &[u8], part: &Part<'_>) -> Result<Option<State<'_>>, Refused> {
        let stored = self.keys.state(key, self.now)?;
        let algorithm = match &part.request {
            PartRequest::Units(request) => request.rule.algorithm(),
            PartRequest::Reservation(reserving) => reserving.rule.algorithm(),
            PartRequest::Permit(_) => return Ok(stored),
        };
        match (stored, part.force) {
            (Some(state), Some(_)) => {
                state.under(algorithm, self.now).map_err(|_| Refused::WrongType)
            }
            (stored, _) => Ok(stored),
        }
    }

    fn store(&mut self, key: &[u8], effect: Option<Effect>) {
        if let Some(effect) = effect {
            self.keys.store(key, effect, self.now);
        }
    }

    /// Runs a command with one rule.
    fn one(&mut self, key: &[u8], part: &Part<'_>, stores: bool) -> Result<Reply, Refused> {
        let (row, effect) = self.decide(key, part, Mode::Take)?;
        if stores {
            self.store(key, effect);
        }
        Ok(row_reply(&row.decision, row.force))
    }

    fn peek(&mut self, key: &[u8], args: &[&[u8]]) -> Result<Reply, Refused> {
        let after_name = args.get(1..).unwrap_or_default();
        let part = match rule(args, SLOTS) {
            Err(GrammarError::UseNotHere) => Part::of_policy(&usage(after_name)?)?,
            Err(GrammarError::ReserveNotHere) => {
                Part::reserving(Reserving::new(hold(after_name, SLOTS)?)?)
            }
            request => Part::plain(request?),
        };
        self.one(key, &part, false)
    }

    /// Runs a command with several rules.
    fn all(&mut self, args: &[&[u8]], stores: bool) -> Result<Reply, Refused> {
        if args.len() > 2 * RULES_MAX + 1 {
            return Err(GrammarError::TooManyRules.into());
        }
        let (pairs, odd_one) = args.as_chunks();
        let mut parts = Vec::new();
        for (at, [_, words]) in pairs.iter().enumerate() {
            parts.push(parse_packed(words).map_err(in_rule(at))?);
        }
        if pairs.is_empty() || !odd_one.is_empty() {
            return Err(GrammarError::Arity.into());
        }
        for (at, [key, _]) in pairs.iter().enumerate() {
            if pairs[..at].iter().any(|[other, _]| other == key) {
                return Err(in_rule(at)(Refused::RepeatedKey));
            }
        }
        let mut decided = Vec::new();
        for (at, ([key, _], part)) in pairs.iter().zip(&parts).enumerate() {
            decided.push(self.decide(key, part, Mode::Take).map_err(in_rule(at))?);
        }
        if decided.iter().any(|(row, _)| row.denies()) {
            for (at, ([key, _], part)) in pairs.iter().zip(&parts).enumerate() {
                if decided[at].0.decision.verdict.is_allowed() {
                    decided[at] = self.decide(key, part, Mode::TakeNothing).map_err(in_rule(at))?;
                }
            }
        }
        let (rows, effects): (Vec<_>, Vec<_>) = decided.into_iter().unzip();
        for ([key, _], effect) in pairs.iter().zip(effects).filter(|_| stores) {
            self.store(key, effect);
        }
        Ok(rows_reply(&rows))
    }

    /// Runs a charge or a refund.
    fn settle(&mut self, key: &[u8], args: &[&[u8]], charges: bool) -> Result<Reply, Refused> {
        let part = match rule_with_cost(args, SLOTS) {
            Err(GrammarError::UseNotHere) => {
                Part::of_policy(&usage(args.get(1..).unwrap_or_default())?.unconditional()?)?
            }
            request => Part::plain(AnyRequest::Units(request?.unconditional()?)),
        };
        let PartRequest::Units(Request { rule, options: CallOptions { cost, .. } }) = part.request
        else {
            return Err(GrammarError::LeaseNotHere.into());
        };
        let stored = self.stored(key, &part)?;
        let outcome = if charges {
            rule.charge(stored, self.now, cost)?
        } else {
            rule.refund(stored, self.now, cost)?
        };
        let (decision, effect) = (outcome.decision, Effect::of(&outcome.next));
        self.store(key, effect);
        Ok(array(&decision.integers()))
    }

    /// Commits or cancels a reservation.
    fn end(&mut self, key: &[u8], args: &[&[u8]], verb: ReservationVerb) -> Result<Reply, Refused> {
        let ReservationRequest { id, source, step } = reservation(verb, args, SLOTS)?;
        let (rule, _) = rule_of(source)?;
        let outcome = rule.take_step(self.keys.state(key, self.now)?, self.now, id, step)?;
        let (decision, effect) = (outcome.decision, Effect::of(&outcome.next));
        self.store(key, effect);
        Ok(array(&decision.integers()))
    }

    fn renew(&mut self, key: &[u8], args: &[&[u8]]) -> Result<Reply, Refused> {
        let (id, ttl) = lease::renew(args)?;
        if self.keys.ban(key, self.now).is_some() {
            return Ok(Reply::Integer(0));
        }
        let mut holders = self.keys.holders(key, id, self.now)?;
        let Ok::<_, Infallible>(grant) = leases::renew(&mut holders, ttl, self.now);
        self.store(key, grant.map(|grant| Effect::Hold { id: id.to_vec(), grant }));
        Ok(Reply::Integer(grant.is_some().into()))
    }

    /// Replaces every state of a key by a ban.
    fn block(&mut self, key: &[u8], args: &[&[u8]]) -> Result<Reply, Refused> {
        let ban = Ban::new(self.now, duration_of_ban(args)?);
        self.keys.delete(key, self.now);
        self.store(key, Some(Effect::of_ban(&ban)));
        Ok(Reply::Okay)
    }

    fn release(&mut self, key: &[u8], args: &[&[u8]]) -> Result<Reply, Refused> {
        let id = lease::release(args)?;
        if self.keys.ban(key, self.now).is_some() {
            return Ok(Reply::Integer(0));
        }
        let Ok::<_, Infallible>(mine) = self.keys.holders(key, id, self.now)?.mine();
        self.store(key, mine.map(|_| Effect::Release { id: id.to_vec() }));
        Ok(Reply::Integer(mine.is_some().into()))
    }
}

/// The row of one rule and its effect, or the refusal of its command.
type Decided = Result<(Row, Option<Effect>), Refused>;

/// Reads one rule of `RL.ALL`.
fn parse_packed(words: &[u8]) -> Result<Part<'_>, Refused> {
    match packed_rule(words, SLOTS).and_then(AnyRequest::in_full) {
        Err(GrammarError::UseNotHere) => Part::of_policy(&packed_usage(words)?.in_full()?),
        Err(GrammarError::ReserveNotHere) => {
            Ok(Part::reserving(Reserving::new(packed_hold(words, SLOTS)?)?))
        }
        request => Ok(Part::plain(request?)),
    }
}

fn in_rule(at: usize) -> impl Fn(Refused) -> Refused {
    move |error| Refused::InRule { number: at + 1, error: Box::new(error) }
}
