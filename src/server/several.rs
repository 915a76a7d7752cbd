//! The path of a call with several rules: all of them are decided on one `now` before anything is
//! stored, and take all or nothing.

use super::api::{Call, KeyName, ReadKey};
use super::error::{CommandError, RuleError};
use super::fault::{self, Point};
use super::keyspace::{self, CommitError, Committed, Write, WrongType};
use super::{clock, config, info, reply};
use crate::grammar::{self, GrammarError, RULES_MAX, Request};
use crate::limiter::{Mode, Row};
use arrayvec::ArrayVec;

/// One of something for each rule of a call.
type Each<T> = ArrayVec<T, RULES_MAX>;

/// Decides a call by all its rules and stores what follows from it. All that could go wrong, the
/// making of the reply included, comes before the first key is touched.
pub fn decide(index: usize, call: &mut Call<'_>) -> Result<(), CommandError> {
    let requests = requests(call)?;
    let keys: Each<_> = call.take_keys()?.map(KeyName::open_for_writing).collect();
    let (rows, writes) = decide_each(&keys, &requests)?;
    let reply = reply::Several::of(&rows);
    fault::point(Point::Reply);
    if writes.iter().any(Option::is_some) {
        fault::point(Point::Store);
        let pairs = keys.into_iter().zip(writes);
        let committed: Each<_> =
            pairs.filter_map(|(key, write)| Some(keyspace::commit(key, &write?))).collect();
        announce_each(committed, call)?;
    }
    info::count_decision(index, reply.is_allowed());
    reply.send(call.context());
    Ok(())
}

/// Tells of every change, once all keys are closed; of what went wrong the first.
fn announce_each<'call>(
    committed: Each<Result<Committed<'call>, CommitError>>,
    call: &mut Call<'call>,
) -> Result<(), CommitError> {
    let mut result = Ok(());
    for committed in committed {
        let announced = committed.and_then(|committed| committed.announce(call));
        result = result.and(announced);
    }
    result
}

/// Decides a call by all its rules and stores nothing.
pub fn peek(index: usize, call: &Call<'_>) -> Result<(), CommandError> {
    let requests = requests(call)?;
    let keys: Each<_> = call.take_keys()?.map(KeyName::open_for_reading).collect();
    let (rows, _) = decide_each(&keys, &requests)?;
    let reply = reply::Several::of(&rows);
    fault::point(Point::Reply);
    info::count_decision(index, reply.is_allowed());
    reply.send(call.context());
    Ok(())
}

/// The rules of a call, in its order.
fn requests(call: &Call<'_>) -> Result<Each<Request>, CommandError> {
    if call.args().len() > 2 * RULES_MAX + 1 {
        return Err(CommandError::Grammar(GrammarError::TooManyRules));
    }
    let slots = config::sliding_log_slots();
    let (pairs, odd_one) = call.args().as_chunks();
    let mut requests = Each::new();
    for (at, [_key, rule]) in pairs.iter().enumerate() {
        let request = grammar::packed_rule(rule, slots).and_then(Request::in_full);
        requests.push(request.map_err(|error| in_rule(at, RuleError::Grammar(error)))?);
    }
    match odd_one {
        [] => Ok(requests),
        _ => Err(CommandError::Grammar(GrammarError::Arity)),
    }
}

/// What each rule answers, and what is to be stored for it: everything where all allow, and where
/// one denies nothing but the repairs.
fn decide_each<'open, 'call: 'open, K: AsRef<ReadKey<'open, 'call>>>(
    keys: &[K],
    requests: &[Request],
) -> Result<(Each<Row>, Each<Option<Write>>), CommandError> {
    let now = clock::now();
    let (mut rows, mut writes) = (Each::<Row>::new(), Each::new());
    let mut mode = Mode::Take;
    loop {
        for (at, (key, request)) in keys.iter().zip(requests).enumerate() {
            let outcome = keyspace::decide(key.as_ref(), request, mode, now);
            let outcome = outcome.map_err(|WrongType| in_rule(at, RuleError::WrongType))?;
            writes.push(Write::of(&outcome.next));
            rows.push(Row { decision: outcome.decision, cost: request.cost });
        }
        let all_allow = rows.iter().all(|row| row.decision.verdict.is_allowed());
        if all_allow || mode == Mode::HoldBack {
            return Ok((rows, writes));
        }
        // Once more, for what stands when nothing is taken.
        mode = Mode::HoldBack;
        rows.clear();
        writes.clear();
    }
}

/// An error of the rule at `at`, counted from 0.
fn in_rule(at: usize, error: RuleError) -> CommandError {
    CommandError::InRule { number: at + 1, error }
}
