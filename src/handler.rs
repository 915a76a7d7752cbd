//! The path of a call: parse, load, decide, store, replicate, reply. No code here depends on an
//! algorithm.

use crate::api::call::Call;
use crate::api::key::KeyKind;
use crate::commands::row::Action;
use crate::commands::table::{COMMANDS, CommandId};
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{self, KeyWrite};
use crate::leases::command as leases;
use crate::policies::applied::Settling;
use crate::policies::{applied as policies, manage as policy_commands, metrics};
use crate::{block, clock, config, ending, info, redis_cell, reply, reservations, rule_set, top};
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::clock::ClockAction;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::request::Asked;
use redis_throttle_engine::grammar::top::TopRequest;

/// Runs a command. The command replies once, at its very end.
pub fn run(id: CommandId, call: &mut Call<'_>) {
    fault::point(Point::Parse);
    let result = match COMMANDS[id as usize].action {
        Action::Decide(algorithm) => decide(id, call, algorithm),
        Action::Use => policies::take(id, call),
        Action::Peek => peek(id, call),
        Action::Charge => settle(id, call, Settling::Charge),
        Action::Refund => settle(id, call, Settling::Refund),
        Action::Reserve(verb) => reservations::run(id, call, verb),
        Action::DecideAll => rule_set::decide(id, call),
        Action::PeekAll => rule_set::peek(id, call),
        Action::Lease => leases::take(id, call),
        Action::Renew => leases::renew(id, call),
        Action::Release => leases::release(id, call),
        Action::Block => block::block(id, call),
        Action::Throttle => redis_cell::throttle(id, call),
        Action::ThrottleAsRedis => redis_cell::throttle_as_redis(id, call),
        Action::Inspect => inspect(call),
        Action::Metrics => show_metrics(call),
        Action::Top => show_top(call),
        Action::Debug => debug(call),
        Action::Container => policy_commands::find(call),
        Action::Policy(verb) => policy_commands::run(verb, call),
    };
    if let Err(error) = result {
        info::count_error();
        error.reply(call.context());
    }
}

/// Decides a call and stores the result.
fn decide(id: CommandId, call: &mut Call<'_>, algorithm: Algorithm) -> Result<(), CommandError> {
    let request =
        grammar::rule::request(algorithm, call.args_after_key(), config::sliding_log_slots())?;
    let now = clock::now();
    ending::finish(id, call, |key| {
        let outcome = keyspace::decide(key, &request, Mode::Take, now)?;
        let finished = ending::of(&outcome.decision, KeyWrite::of(&outcome.next));
        Ok(finished.in_top(request.options.cost, now))
    })
}

/// Charges or refunds the cost of a call and replies with the resulting state.
fn settle(id: CommandId, call: &mut Call<'_>, kind: Settling) -> Result<(), CommandError> {
    let request =
        match grammar::rule::rule_with_cost(call.args_after_key(), config::sliding_log_slots()) {
            Err(GrammarError::UseNotHere) => return policies::settle(id, call, kind),
            request => request?,
        };
    request.options.unconditional()?;
    ending::finish(id, call, |key| {
        let act = |stored| kind.act(&request, stored, clock::now());
        let outcome = keyspace::act_on(key, act)?;
        Ok(ending::of(&outcome.decision, KeyWrite::of(&outcome.next)))
    })
}

/// Decides a call and stores nothing.
fn peek(id: CommandId, call: &Call<'_>) -> Result<(), CommandError> {
    let request = match grammar::rule::rule(call.args_after_key(), config::sliding_log_slots()) {
        Ok(Asked::Units(request)) => request,
        Ok(Asked::Lease(request)) => return leases::peek(id, call, &request),
        Err(GrammarError::UseNotHere) => return policies::peek(id, call),
        Err(GrammarError::ReserveNotHere) => return reservations::peek(id, call),
        Err(error) => return Err(error.into()),
    };
    let key = call.only_key()?.open_for_reading();
    let decision = keyspace::decide(&key, &request, Mode::Take, clock::now())?.decision;
    let is_allowed = decision.verdict.is_allowed();
    ending::answer_unstored(id, call, is_allowed, &decision.integers());
    Ok(())
}

/// Shows the state of a key.
fn inspect(call: &Call<'_>) -> Result<(), CommandError> {
    let key = call.only_key()?.open_for_reading();
    if key.kind() == KeyKind::SortedSet {
        return leases::inspect(call, key);
    }
    let now = clock::now();
    let state = keyspace::load(&key)?.and_then(|state| state.at(now));
    let pairs = state.map(|state| reply::state(&state, now)).transpose()?;
    fault::point(Point::Reply);
    match pairs {
        Some(pairs) => call.context().reply_map(&pairs),
        None => call.context().reply_null(),
    }
    Ok(())
}

/// Shows all counters.
#[cold]
fn show_metrics(call: &Call<'_>) -> Result<(), CommandError> {
    let text = metrics::text();
    fault::point(Point::Reply);
    call.context().reply_text(&text);
    Ok(())
}

/// Shows the keys of the selected database with the highest counts, or forgets all keys.
#[cold]
fn show_top(call: &Call<'_>) -> Result<(), CommandError> {
    let request = grammar::top::top(call.args())?;
    let forgets = request == TopRequest::Reset;
    if forgets {
        fault::point(Point::Reply);
    }
    let rows = top::rows(request, call.context().database()).ok_or(CommandError::TopDisabled)?;
    if forgets {
        call.context().reply_ok();
        return Ok(());
    }
    fault::point(Point::Reply);
    call.context().reply_rows(&rows);
    Ok(())
}

/// Freezes, moves or resumes the clock, and replies with its time.
fn debug(call: &Call<'_>) -> Result<(), CommandError> {
    if !config::debug_commands() {
        return Err(CommandError::DebugDisabled);
    }
    if fault::obeys(call) {
        return Ok(());
    }
    let now = clock::apply(ClockAction::parse(call.args())?)?;
    call.context().reply_integer(i64::try_from(now.as_us()).unwrap_or(i64::MAX));
    Ok(())
}
