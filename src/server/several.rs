//! The path of a call with several rules: all of them are decided on one `now` before anything is
//! stored, and take all or nothing.

use super::api::{Call, KeyName, ReadKey, WriteKey};
use super::error::{CommandError, RuleError};
use super::fault::{self, Point};
use super::keyspace::{self, CommitError, Committed, WrongType};
use super::{clock, config, holders, info, leases, reply};
use crate::grammar::{self, Asked, GrammarError, LeaseRequest, RULES_MAX};
use crate::limiter::{Cost, Decision, Instant, Mode, Row};
use arrayvec::ArrayVec;

/// One of something for each rule of a call. It is filled where it lies: it has room for all there
/// may be, and to hand it on by value would copy that, some thousand bytes for each.
type Each<T> = ArrayVec<T, RULES_MAX>;

/// What becomes of one key.
enum Write {
    /// A state of an algorithm.
    State(keyspace::Write),
    /// A lease.
    Lease(holders::Write),
}

/// Decides a call by all its rules and stores what follows from it. All that could go wrong, the
/// making of the reply included, comes before the first key is touched.
pub fn decide(index: usize, call: &mut Call<'_>) -> Result<(), CommandError> {
    let mut requests = Each::new();
    read_rules(call, &mut requests)?;
    let mut rows = Each::new();
    let (reply, mut committed);
    {
        let mut keys: Each<_> = Each::new();
        keys.extend(call.take_keys()?.map(KeyName::open_for_writing));
        let mut writes = Each::new();
        decide_each(&mut keys, &requests, &mut rows, &mut writes)?;
        reply = reply::Several::of(&rows);
        committed = Each::new();
        fault::point(Point::Reply);
        if writes.iter().any(Option::is_some) {
            fault::point(Point::Store);
            for (key, write) in keys.drain(..).zip(&writes) {
                committed.extend(write.as_ref().map(|write| commit(key, write)));
            }
        }
    }
    announce_each(&mut committed, call)?;
    info::count_decision(index, reply.is_allowed());
    reply.send(call.context());
    Ok(())
}

fn commit<'call>(key: WriteKey<'_, 'call>, write: &Write) -> Result<Committed<'call>, CommitError> {
    match write {
        Write::State(write) => keyspace::commit(key, write),
        Write::Lease(write) => holders::commit(key, write),
    }
}

/// Tells of every change, once all keys are closed; of what went wrong the first.
fn announce_each<'call>(
    committed: &mut Each<Result<Committed<'call>, CommitError>>,
    call: &mut Call<'call>,
) -> Result<(), CommitError> {
    let mut result = Ok(());
    for committed in committed.drain(..) {
        let announced = committed.and_then(|committed| committed.announce(call));
        result = result.and(announced);
    }
    result
}

/// Decides a call by all its rules and stores nothing.
pub fn peek(index: usize, call: &Call<'_>) -> Result<(), CommandError> {
    let mut requests = Each::new();
    read_rules(call, &mut requests)?;
    let mut keys: Each<_> = Each::new();
    keys.extend(call.take_keys()?.map(KeyName::open_for_reading));
    let (mut rows, mut writes) = (Each::new(), Each::new());
    decide_each(&mut keys, &requests, &mut rows, &mut writes)?;
    let reply = reply::Several::of(&rows);
    fault::point(Point::Reply);
    info::count_decision(index, reply.is_allowed());
    reply.send(call.context());
    Ok(())
}

/// Reads the rules of a call, in its order.
fn read_rules<'call>(
    call: &Call<'call>,
    requests: &mut Each<Asked<'call>>,
) -> Result<(), CommandError> {
    if call.args().len() > 2 * RULES_MAX + 1 {
        return Err(CommandError::Grammar(GrammarError::TooManyRules));
    }
    let slots = config::sliding_log_slots();
    let (pairs, odd_one) = call.args().as_chunks();
    for (at, [_key, rule]) in pairs.iter().enumerate() {
        let request = grammar::packed_rule(rule, slots).and_then(Asked::in_full);
        requests.push(request.map_err(|error| in_rule(at, RuleError::Grammar(error)))?);
    }
    match odd_one {
        [] => Ok(()),
        _ => Err(CommandError::Grammar(GrammarError::Arity)),
    }
}

/// What each rule answers, and what is to be stored for it: everything where all allow, and where
/// one denies nothing but the repairs.
fn decide_each<'open, 'call: 'open, K: AsMut<ReadKey<'open, 'call>>>(
    keys: &mut [K],
    requests: &[Asked<'_>],
    rows: &mut Each<Row>,
    writes: &mut Each<Option<Write>>,
) -> Result<(), CommandError> {
    let now = clock::now();
    for (at, (key, request)) in keys.iter_mut().zip(requests).enumerate() {
        let request = match request {
            Asked::Units(request) => request,
            Asked::Lease(request) => {
                let (decision, write) = lease(at, key.as_mut(), request, Mode::Take, now)?;
                writes.push(write);
                rows.push(Row { decision, cost: Cost::ONE });
                continue;
            }
        };
        let outcome = keyspace::decide(key.as_mut(), request, Mode::Take, now);
        let outcome = outcome.map_err(|WrongType| in_rule(at, RuleError::WrongType))?;
        writes.push(keyspace::Write::of(&outcome.next).map(Write::State));
        rows.push(Row { decision: outcome.decision, cost: request.cost });
    }
    if rows.iter().all(|row| row.decision.verdict.is_allowed()) {
        return Ok(());
    }
    // Those that would have allowed answer what stands when nothing is taken.
    for (at, (row, write)) in rows.iter_mut().zip(writes).enumerate() {
        if let (true, Some(key), Some(request)) =
            (row.decision.verdict.is_allowed(), keys.get_mut(at), requests.get(at))
        {
            let request = match request {
                Asked::Units(request) => request,
                Asked::Lease(request) => {
                    (row.decision, *write) = lease(at, key.as_mut(), request, Mode::HoldBack, now)?;
                    continue;
                }
            };
            let outcome = keyspace::decide(key.as_mut(), request, Mode::HoldBack, now);
            let outcome = outcome.map_err(|WrongType| in_rule(at, RuleError::WrongType))?;
            *write = keyspace::Write::of(&outcome.next).map(Write::State);
            row.decision = outcome.decision;
        }
    }
    Ok(())
}

/// What the lease at this place answers, and what is to be stored for it. It counts as cost 1.
#[cold]
fn lease(
    at: usize,
    key: &mut ReadKey<'_, '_>,
    request: &LeaseRequest<'_>,
    mode: Mode,
    now: Instant,
) -> Result<(Decision, Option<Write>), CommandError> {
    let decided = leases::decide(key, request, mode, now);
    let (decision, write) = decided.map_err(|error| in_rule(at, error.into()))?;
    Ok((decision, write.map(Write::Lease)))
}

/// An error of the rule at `at`, counted from 0.
fn in_rule(at: usize, error: RuleError) -> CommandError {
    CommandError::InRule { number: at + 1, error }
}
