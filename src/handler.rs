//! The path of a call: parse, load, decide, store, replicate, reply. No code here depends on an
//! algorithm.

use crate::api::call::Call;
use crate::api::key::{KeyKind, ReadKey};
use crate::commands::row::Action;
use crate::commands::table::CommandId;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{self, KeyWrite};
use crate::leases::command as leases;
use crate::policies::applied::{self, Settling};
use crate::policies::{manage as policy_commands, metrics};
use crate::{block, clock, config, ending, info, redis_cell, reply, reservations, rule_set, top};
use redis_throttle_engine::algorithms::{Algorithm, NewState};
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::decision::Outcome;
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::clock::ClockAction;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::request::AnyRequest;
use redis_throttle_engine::grammar::top::TopRequest;
use redis_throttle_engine::time::Instant;

/// Runs command `id`. The command replies once, at its very end.
pub fn run(id: CommandId, call: &mut Call<'_>) {
    fault::point(Point::Parse);
    let result = match id.row().action {
        Action::Decide(algorithm) => decide(id, call, algorithm),
        Action::Use => applied::take(id, call),
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
    apply(id, call, Some((request.options.cost, now)), |key| {
        Ok(keyspace::decide(key, &request, Mode::Take, now)?)
    })
}

/// Charges or refunds the cost of a call and replies with the resulting state.
fn settle(id: CommandId, call: &mut Call<'_>, kind: Settling) -> Result<(), CommandError> {
    let request =
        match grammar::rule::rule_with_cost(call.args_after_key(), config::sliding_log_slots()) {
            Err(GrammarError::UseNotHere) => return applied::settle(id, call, kind),
            request => request?,
        };
    request.options.unconditional()?;
    apply(id, call, None, |key| {
        Ok(keyspace::act_on(key, |stored| kind.act(&request, stored, clock::now()))?)
    })
}

/// The result of a call on the state of a key.
type CallOutcome<'key> = Result<Outcome<NewState<'key>>, CommandError>;

/// Applies `act` to the state of the key, stores the result, and replies. Everything that can fail,
/// the reply included, comes before the key changes. `RL.TOP` counts the call if `counted` gives
/// its cost and its instant.
#[inline(always)]
fn apply(
    id: CommandId,
    call: &mut Call<'_>,
    counted: Option<(Cost, Instant)>,
    act: impl for<'key> FnOnce(&'key ReadKey<'_, '_>) -> CallOutcome<'key>,
) -> Result<(), CommandError> {
    let key = call.only_key()?.open_for_writing();
    let outcome = act(&key)?;
    let decision = outcome.decision;
    let write = KeyWrite::of(&outcome.next);
    let integers = decision.integers();
    let is_allowed = decision.verdict.is_allowed();
    let counts = counted.map(|(cost, now)| top::Decided { cost, denies: !is_allowed, now });
    ending::store(id, key, write)?.finish(call, is_allowed, &integers, counts)
}

/// Decides a call and stores nothing.
fn peek(id: CommandId, call: &Call<'_>) -> Result<(), CommandError> {
    let request = match grammar::rule::rule(call.args_after_key(), config::sliding_log_slots()) {
        Ok(AnyRequest::Units(request)) => request,
        Ok(AnyRequest::Lease(request)) => return leases::peek(id, call, &request),
        Err(GrammarError::UseNotHere) => return applied::peek(id, call),
        Err(GrammarError::ReserveNotHere) => return reservations::peek(id, call),
        Err(error) => return Err(error.into()),
    };
    let key = call.only_key()?.open_for_reading();
    let decision = keyspace::decide(&key, &request, Mode::Take, clock::now())?.decision;
    ending::finish_unstored(id, call, decision.verdict.is_allowed(), &decision.integers());
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
