//! The path of a call with several rules: all of them are decided on one `now` before anything is
//! stored, and take all or nothing.

use crate::api::call::Call;
use crate::api::key::{KeyKind, KeyName, ReadKey, WriteKey};
use crate::error::{CommandError, RuleError};
use crate::fault::{self, Point};
use crate::keyspace::{self, CommitError, Committed, WrongType};
use crate::leases::{command as leases, set as holders};
use crate::policies::r#use::Applied;
use crate::{clock, config, info, reply};
use arrayvec::ArrayVec;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::decision::Decision;
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::lease::LeaseRequest;
use redis_throttle_engine::grammar::packed::RULES_MAX;
use redis_throttle_engine::grammar::request::Asked;
use redis_throttle_engine::grammar::usage::Usage;
use redis_throttle_engine::rule_set::Row;
use redis_throttle_engine::time::Instant;

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

/// The rules of a call.
struct Rules<'call> {
    /// What each of them asks for, also one that is a policy's.
    requests: Each<Asked<'call>>,
    /// Those that are a policy's, in their order.
    policies: Each<OfPolicy<'call>>,
    /// Where they are: a bit for each place.
    places_of_policies: u32,
    /// Where those are among them that do not look at their keys.
    places_unseen: u32,
    /// Whether what becomes of the call is counted.
    counts: bool,
}

/// A rule of a call that is a policy's.
struct OfPolicy<'call> {
    /// Its place among all.
    at: usize,
    applied: Applied<'call>,
    /// Whether what it stores is the first state of its key.
    creates: bool,
}

/// Decides a call by all its rules and stores what follows from it. All that could go wrong, the
/// making of the reply included, comes before the first key is touched.
pub fn decide(index: usize, call: &mut Call<'_>) -> Result<(), CommandError> {
    let now = clock::now();
    let mut rules = Rules::new(true);
    rules.read(call, now)?;
    let mut rows = Each::new();
    let (reply, mut committed);
    {
        let mut keys: Each<_> = Each::new();
        rules.open(call, &mut keys, KeyName::open_for_writing)?;
        let mut writes = Each::new();
        let decided = decide_each(&mut keys, &mut rules, &mut rows, &mut writes, now);
        decided.map_err(|error| rules.count_error(error))?;
        reply = reply::Several::of(&rows);
        committed = Each::new();
        fault::point(Point::Reply);
        if writes.iter().any(Option::is_some) {
            fault::point(Point::Store);
            for (key, write) in keys.drain(..).zip(&writes) {
                if let (Some(key), Some(write)) = (key, write) {
                    committed.push(commit(key, write));
                }
            }
        }
    }
    announce_each(&mut committed, call).map_err(|error| rules.count_error(error.into()))?;
    rules.count(&rows, reply.is_allowed(), now);
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
    let now = clock::now();
    let mut rules = Rules::new(false);
    rules.read(call, now)?;
    let mut keys: Each<_> = Each::new();
    rules.open(call, &mut keys, KeyName::open_for_reading)?;
    let (mut rows, mut writes) = (Each::new(), Each::new());
    decide_each(&mut keys, &mut rules, &mut rows, &mut writes, now)?;
    let reply = reply::Several::of(&rows);
    fault::point(Point::Reply);
    info::count_decision(index, reply.is_allowed());
    reply.send(call.context());
    Ok(())
}

impl<'call> Rules<'call> {
    #[inline(always)]
    fn new(counts: bool) -> Self {
        Self {
            requests: Each::new(),
            policies: Each::new(),
            places_of_policies: 0,
            places_unseen: 0,
            counts,
        }
    }

    /// Reads the rules of a call, in its order.
    fn read(&mut self, call: &Call<'call>, now: Instant) -> Result<(), CommandError> {
        if call.args().len() > 2 * RULES_MAX + 1 {
            return Err(CommandError::Grammar(GrammarError::TooManyRules));
        }
        let slots = config::sliding_log_slots();
        let (pairs, odd_one) = call.args().as_chunks();
        for (at, [key, rule]) in pairs.iter().enumerate() {
            let request = match grammar::packed::packed_rule(rule, slots).and_then(Asked::in_full) {
                Err(GrammarError::UseNotHere) => self.read_use(at, key, rule, now),
                request => request.map_err(RuleError::Grammar),
            };
            self.requests.push(request.map_err(|error| in_rule(at, error))?);
        }
        match odd_one {
            [] => Ok(()),
            _ => Err(CommandError::Grammar(GrammarError::Arity)),
        }
    }

    /// Reads the rule at this place, which is a policy's, and looks up which it is.
    #[cold]
    #[inline(never)]
    fn read_use(
        &mut self,
        at: usize,
        subject: &[u8],
        rule: &'call [u8],
        now: Instant,
    ) -> Result<Asked<'call>, RuleError> {
        let usage = grammar::usage::packed_usage(rule).and_then(Usage::in_full);
        let usage = usage.map_err(RuleError::Grammar)?;
        let applied = Applied::new(&usage, subject, now);
        let applied = applied.map_err(|unfit| unfit.error(self.counts))?;
        let request = Asked::Units(applied.request);
        self.places_of_policies |= 1 << at;
        self.places_unseen |= u32::from(!applied.looks()) << at;
        self.policies.push(OfPolicy { at, applied, creates: false });
        Ok(request)
    }

    /// Counts how the call ended under its policies. What would have allowed one that is denied is
    /// not counted: nothing came of it.
    #[inline(always)]
    fn count(&self, rows: &[Row], is_allowed: bool, now: Instant) {
        for OfPolicy { at, applied, creates } in &self.policies {
            let decision = rows.get(*at).map(|row| row.decision);
            let counts = |decision: &Decision| is_allowed || !decision.verdict.is_allowed();
            if let Some(decision) = decision.filter(counts) {
                applied.count(&decision, *creates, now);
            }
        }
    }

    /// Counts an error under the policy whose rule is in error, or under all of the call.
    #[cold]
    fn count_error(&self, error: CommandError) -> CommandError {
        for OfPolicy { at, applied, .. } in &self.policies {
            match error {
                CommandError::InRule { number, .. } if number != at + 1 => {}
                _ => applied.count_error(),
            }
        }
        error
    }

    /// Opens the keys that are looked at.
    #[inline(always)]
    fn open<'open, K>(
        &self,
        call: &'open Call<'call>,
        keys: &mut Each<Option<K>>,
        open: impl Fn(KeyName<'open, 'call>) -> K,
    ) -> Result<(), CommandError> {
        let mut unseen = self.places_unseen;
        for name in call.take_keys()? {
            keys.push((unseen & 1 == 0).then(|| open(name)));
            unseen >>= 1;
        }
        Ok(())
    }
}

/// What each rule answers, and what is to be stored for it: everything where all allow, and where
/// one denies nothing but the repairs.
fn decide_each<'open, 'call: 'open, K: AsMut<ReadKey<'open, 'call>>>(
    keys: &mut [Option<K>],
    rules: &mut Rules<'_>,
    rows: &mut Each<Row>,
    writes: &mut Each<Option<Write>>,
    now: Instant,
) -> Result<(), CommandError> {
    let Rules { requests, policies, places_of_policies, .. } = rules;
    let is_policy = |at: usize| *places_of_policies & 1 << at != 0;
    for (at, (key, request)) in keys.iter_mut().zip(&*requests).enumerate() {
        if is_policy(at) {
            let (row, write) = by_policy(at, key, policies, Mode::Take, now)?;
            writes.push(write);
            rows.push(row);
            continue;
        }
        let Some(key) = key else { continue };
        let request = match request {
            Asked::Units(request) => request,
            Asked::Lease(request) => {
                let (decision, write) = lease(at, key.as_mut(), request, Mode::Take, now)?;
                writes.push(write);
                rows.push(Row { decision, cost: Cost::ONE, force: None });
                continue;
            }
        };
        let outcome = keyspace::decide(key.as_mut(), request, Mode::Take, now);
        let outcome = outcome.map_err(|WrongType| in_rule(at, RuleError::WrongType))?;
        writes.push(keyspace::Write::of(&outcome.next).map(Write::State));
        rows.push(Row { decision: outcome.decision, cost: request.cost, force: None });
    }
    if !rows.iter().any(Row::denies) {
        return Ok(());
    }
    // Those that would have allowed answer what stands when nothing is taken.
    for (at, (row, write)) in rows.iter_mut().zip(writes).enumerate() {
        if !row.decision.verdict.is_allowed() {
            continue;
        }
        let Some(key) = keys.get_mut(at) else { continue };
        if is_policy(at) {
            (*row, *write) = by_policy(at, key, policies, Mode::HoldBack, now)?;
            continue;
        }
        if let (Some(key), Some(request)) = (key, requests.get(at)) {
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

/// What the policy at this place answers, and what is to be stored for it.
#[cold]
#[inline(never)]
fn by_policy<'open, 'call: 'open, K: AsMut<ReadKey<'open, 'call>>>(
    at: usize,
    key: &mut Option<K>,
    policies: &mut [OfPolicy<'_>],
    mode: Mode,
    now: Instant,
) -> Result<(Row, Option<Write>), CommandError> {
    let found = policies.iter_mut().find(|policy| policy.at == at);
    let Some(OfPolicy { applied, creates, .. }) = found else {
        return Err(in_rule(at, RuleError::NoPolicy));
    };
    if let Some(decision) = applied.decide_unseen(mode, now) {
        return Ok((applied.row(decision), None));
    }
    let Some(key) = key else { return Err(in_rule(at, RuleError::WrongType)) };
    let key = key.as_mut();
    let outcome = applied.decide(key, mode, now);
    let outcome = outcome.map_err(|WrongType| in_rule(at, RuleError::WrongType))?;
    let write = keyspace::Write::of(&outcome.next).map(Write::State);
    *creates = write.is_some() && key.kind() == KeyKind::Missing;
    Ok((applied.row(outcome.decision), write))
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
