//! The path of a call with several rules. All rules decide at the same instant `now` before
//! anything is stored, and the call takes from every key or from none.

use crate::api::call::Call;
use crate::api::key::{KeyName, ReadKey, WriteKey};
use crate::commands::table::CommandId;
use crate::error::{CommandError, RuleError};
use crate::fault::{self, Point};
use crate::keyspace::{self, CommitError, Committed};
use crate::leases::{command as leases, set as holders};
use crate::policies::applied::{Applied, Counting, UnderPolicy as _};
use crate::reservations::Reserving;
use crate::{clock, config, ending, reply, top};
use arrayvec::ArrayVec;
use redis_throttle_engine::algorithms::OtherAlgorithm;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::decision::Outcome;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::lease::LeaseRequest;
use redis_throttle_engine::grammar::packed::{PackedRules, RULES_MAX};
use redis_throttle_engine::grammar::request::{AnyRequest, Request};
use redis_throttle_engine::grammar::usage::{Usage, packed_usage};
use redis_throttle_engine::rule_set::Row;
use redis_throttle_engine::time::Instant;
use std::sync::{Mutex, PoisonError};

/// A list with one item for each rule of a call. It is filled in place, because moving it copies
/// the space for all items, up to some thousand bytes.
type Each<T> = ArrayVec<T, RULES_MAX>;

/// The parsed rules of recent calls. Commands run one at a time; only the compiler demands the
/// lock. A panic leaves the rules consistent, because each rule is stored in one step.
static PACKED_RULES: Mutex<PackedRules> = Mutex::new(PackedRules::NONE);

/// A change to one key.
enum Write {
    /// A change of a state of an algorithm.
    State(keyspace::KeyWrite),
    /// A change of a set of holders.
    Lease(holders::HolderWrite),
}

/// A rule of the set.
enum Rule<'call> {
    /// A rule that is written in the call.
    Counted(Request),
    /// A lease.
    Lease(LeaseRequest<'call>),
    /// A rule that a policy defines.
    ByPolicy(Applied<'call>),
    /// A reservation.
    Reserve(Reserving<'call>),
}

/// A decision and the change that it makes to the key.
type Decided = Result<(Row, Option<Write>), RuleError>;

/// Decides a call under all its rules and stores the result. Everything that can fail, the reply
/// included, comes before the first key changes.
pub fn decide(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let now = clock::now();
    let mut rules = Each::new();
    read(&mut rules, call, Counting::Counted, now)?;
    let mut rows = Each::new();
    let (reply, mut committed);
    {
        let mut keys: Each<_> = Each::new();
        open(&rules, call, &mut keys, KeyName::open_for_writing)?;
        let mut writes = Each::new();
        let decided = decide_each(&rules, &mut keys, &mut rows, &mut writes, now);
        decided.map_err(|error| count_error(&rules, error))?;
        reply = reply::Several::of(&rows);
        committed = Each::new();
        fault::point(Point::Reply);
        if writes.iter().any(Option::is_some) {
            fault::point(Point::Store);
            for (key, write) in keys.drain(..).zip(&writes) {
                if let (Some(key), Some(write)) = (key, write) {
                    committed.push(commit(id, key, write));
                }
            }
        }
    }
    announce_each(&mut committed, call).map_err(|error| count_error(&rules, error.into()))?;
    count(call, &rules, &rows, reply.is_allowed(), now);
    ending::count_and_reply(id, call, reply.is_allowed(), &reply);
    Ok(())
}

/// Decides a call under all its rules and stores nothing.
pub fn peek(id: CommandId, call: &Call<'_>) -> Result<(), CommandError> {
    let now = clock::now();
    let mut rules = Each::new();
    read(&mut rules, call, Counting::NotCounted, now)?;
    let mut keys: Each<_> = Each::new();
    open(&rules, call, &mut keys, KeyName::open_for_reading)?;
    let (mut rows, mut writes) = (Each::new(), Each::new());
    decide_each(&rules, &mut keys, &mut rows, &mut writes, now)?;
    let reply = reply::Several::of(&rows);
    ending::finish_unstored(id, call, reply.is_allowed(), &reply);
    Ok(())
}

/// Reads the rules in the call's order. `counting` applies to an error of a policy.
fn read<'call>(
    rules: &mut Each<Rule<'call>>,
    call: &Call<'call>,
    counting: Counting,
    now: Instant,
) -> Result<(), CommandError> {
    if call.args().len() > 2 * RULES_MAX + 1 {
        return Err(CommandError::Grammar(GrammarError::TooManyRules));
    }
    let slots = config::sliding_log_slots();
    let mut packed_rules = PACKED_RULES.lock().unwrap_or_else(PoisonError::into_inner);
    let (pairs, odd_one) = call.args().as_chunks();
    for (at, [key, rule]) in pairs.iter().enumerate() {
        match packed_rules.read(rule, slots).and_then(AnyRequest::in_full) {
            Ok(AnyRequest::Units(request)) => rules.push(Rule::Counted(request)),
            Ok(AnyRequest::Lease(request)) => rules.push(Rule::Lease(request)),
            Err(GrammarError::UseNotHere) => {
                let found = read_usage(key, rule, counting, now);
                rules.push(Rule::ByPolicy(found.map_err(|error| in_rule(at, error))?));
            }
            Err(GrammarError::ReserveNotHere) => {
                let read = Reserving::read(key, rule, counting, now);
                rules.push(Rule::Reserve(read.map_err(|error| in_rule(at, error))?));
            }
            Err(error) => return Err(in_rule(at, RuleError::Grammar(error))),
        }
    }
    match odd_one {
        [] => Ok(()),
        _ => Err(CommandError::Grammar(GrammarError::Arity)),
    }
}

/// Opens the key of each rule that reads its key.
#[inline(always)]
fn open<'open, 'call, K>(
    rules: &[Rule<'call>],
    call: &'open Call<'call>,
    keys: &mut Each<Option<K>>,
    open: impl Fn(KeyName<'open, 'call>) -> K,
) -> Result<(), CommandError> {
    for (name, rule) in call.take_keys()?.zip(rules) {
        keys.push(rule.looks().then(|| open(name)));
    }
    Ok(())
}

/// Fills `rows` with the decision of each rule and `writes` with the change to each key. If a rule
/// denies the call, the only changes are repairs after the clock stepped back.
fn decide_each<'open, 'call: 'open, K: AsMut<ReadKey<'open, 'call>>>(
    rules: &[Rule<'_>],
    keys: &mut [Option<K>],
    rows: &mut Each<Row>,
    writes: &mut Each<Option<Write>>,
    now: Instant,
) -> Result<(), CommandError> {
    let mut first_denial = None;
    for (at, (rule, key)) in rules.iter().zip(&mut *keys).enumerate() {
        let mode = if first_denial.is_none() { Mode::Take } else { Mode::TakeNothing };
        rule.decide(key, mode, now, rows, writes).map_err(|error| in_rule(at, error))?;
        if first_denial.is_none() && rows.last().is_some_and(Row::denies) {
            first_denial = Some(at);
        }
    }
    // A denial is the same in both modes, so only rules that allowed the call before it decide
    // again, and rules in shadow mode: a reservation that does not fit is held there as 0 units.
    let earlier = rules.iter().zip(keys).take(first_denial.unwrap_or(0));
    for (at, ((rule, key), (row, write))) in earlier.zip(rows.iter_mut().zip(writes)).enumerate() {
        if row.decision.verdict.is_allowed() || !row.is_enforced() {
            let (mut row_again, mut repair) = (ArrayVec::<_, 1>::new(), ArrayVec::<_, 1>::new());
            let decided = rule.decide(key, Mode::TakeNothing, now, &mut row_again, &mut repair);
            decided.map_err(|error| in_rule(at, error))?;
            row_again.into_iter().zip(repair).for_each(|decided| (*row, *write) = decided);
        }
    }
    Ok(())
}

fn commit<'call>(
    id: CommandId,
    key: WriteKey<'_, 'call>,
    write: &Write,
) -> Result<Committed<'call>, CommitError> {
    match write {
        Write::State(write) => keyspace::commit_out_of_line(Some(id), key, write),
        Write::Lease(write) => holders::commit(id, key, write),
    }
}

/// Announces every change once all keys are closed. Returns the first error.
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

/// Counts the decisions of policies, and each rule's key for `RL.TOP`. In a denied call, a policy
/// that allows the call is not counted.
#[inline(always)]
fn count(call: &Call<'_>, rules: &[Rule<'_>], rows: &[Row], is_allowed: bool, now: Instant) {
    for (key, row) in call.args().iter().step_by(2).zip(rows) {
        top::count(call, key, row.cost, row.denies(), now);
    }
    for (rule, Row { decision, .. }) in rules.iter().zip(rows) {
        if !is_allowed && decision.verdict.is_allowed() {
            continue;
        }
        match rule {
            Rule::ByPolicy(applied) => applied.count(decision, now),
            Rule::Reserve(Reserving::ByPolicy(reserving)) => reserving.count(decision, now),
            Rule::Counted(_) | Rule::Lease(_) | Rule::Reserve(Reserving::ByRule { .. }) => {}
        }
    }
}

/// Counts an error of one rule for its policy, and any other error for all policies of the call.
#[cold]
fn count_error(rules: &[Rule<'_>], error: CommandError) -> CommandError {
    for (at, rule) in rules.iter().enumerate() {
        match (rule, error) {
            (_, CommandError::InRule { number, .. }) if number != at + 1 => {}
            (Rule::ByPolicy(applied), _) => applied.count_error(),
            (Rule::Reserve(reserving), _) => {
                reserving.policy().into_iter().for_each(Applied::count_error);
            }
            (Rule::Counted(_) | Rule::Lease(_), _) => {}
        }
    }
    error
}

impl Rule<'_> {
    /// Returns true if the rule reads its key.
    fn looks(&self) -> bool {
        match self {
            Self::Counted(_) | Self::Lease(_) => true,
            Self::ByPolicy(applied) => applied.looks(),
            Self::Reserve(reserving) => reserving.looks(),
        }
    }

    /// Decides the call under this rule and appends the result to `rows` and `writes`. `key` is
    /// open if the rule reads it.
    #[inline(always)]
    fn decide<'open, 'call: 'open, K: AsMut<ReadKey<'open, 'call>>, const N: usize>(
        &self,
        key: &mut Option<K>,
        mode: Mode,
        now: Instant,
        rows: &mut ArrayVec<Row, N>,
        writes: &mut ArrayVec<Option<Write>, N>,
    ) -> Result<(), RuleError> {
        let (row, write) = match (self, key.as_mut().map(AsMut::as_mut)) {
            // Most rules are of this kind. Their outcome is read in place: moving it copies 160
            // bytes.
            (Self::Counted(request), Some(key)) => {
                match &keyspace::decide(key, request, mode, now) {
                    Err(OtherAlgorithm) => return Err(RuleError::WrongType),
                    Ok(Outcome { decision, next }) => {
                        rows.push(Row {
                            decision: *decision,
                            cost: request.options.cost,
                            left_units: request.options.left_units(decision.limit),
                            force: None,
                        });
                        writes.push(keyspace::KeyWrite::of(next).map(Write::State));
                        return Ok(());
                    }
                }
            }
            (Self::Lease(request), Some(key)) => decide_lease(request, key, mode, now)?,
            (Self::ByPolicy(applied), key) => {
                of_state(applied.decide(key.as_deref(), mode, now)?)
            }
            (Self::Reserve(reserving), key) => {
                of_state(reserving.decide(key.as_deref(), mode, now)?)
            }
            (_, None) => return Err(RuleError::WrongType),
        };
        rows.push(row);
        writes.push(write);
        Ok(())
    }
}

/// Decides the call under a lease, which has cost 1.
#[cold]
#[inline(never)]
fn decide_lease(
    request: &LeaseRequest<'_>,
    key: &mut ReadKey<'_, '_>,
    mode: Mode,
    now: Instant,
) -> Decided {
    let (decision, write) = match leases::decide(key, request, mode, now) {
        Ok((decision, write)) => (decision, write.map(Write::Lease)),
        Err(error) => {
            let (denial, repair) = leases::decide_banned(key, request, mode, now, error)?;
            (denial, repair.map(Write::State))
        }
    };
    let left_units = request.leave.map_or(0, |leave| leave.units(decision.limit));
    Ok((Row { decision, cost: Cost::ONE, left_units, force: None }, write))
}

/// Parses the words of `USE` and looks up the policy.
#[cold]
#[inline(never)]
fn read_usage<'call>(
    subject: &[u8],
    rule: &'call [u8],
    counting: Counting,
    now: Instant,
) -> Result<Applied<'call>, RuleError> {
    let usage = packed_usage(rule).and_then(Usage::in_full)?;
    Applied::new(&usage, subject, counting, now)
}

/// Converts the decision on the state of an algorithm.
fn of_state((row, write): (Row, Option<keyspace::KeyWrite>)) -> (Row, Option<Write>) {
    (row, write.map(Write::State))
}

/// Returns the error of the rule at place `at`, counted from 0.
fn in_rule(at: usize, error: RuleError) -> CommandError {
    CommandError::InRule { number: at + 1, error }
}
