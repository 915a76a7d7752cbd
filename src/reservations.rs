//! The paths of calls with a reservation: made, committed or cancelled by a rule of the call or by
//! a policy, alone or as one of several rules.
//!
//! A policy differs from a rule of the call in three ways. In shadow mode the reply allows the
//! reservation, and what does not fit is held as 0 units. A policy that is off or blocked does not
//! read the key. A commit and a cancellation act on the key in every mode.

use crate::api::call::Call;
use crate::api::key::{KeyName, ReadKey};
use crate::commands::table::CommandId;
use crate::error::{CommandError, RuleError};
use crate::keyspace::{self, KeyWrite};
use crate::policies::applied::{Applied, Counting};
use crate::{clock, config, ending, reply};
use redis_throttle_engine::algorithms::Rule;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::decision::{Decision, Outcome};
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::reservation::{
    HoldRequest, ReservationRequest, ReservationVerb, RuleSource, hold, packed_hold, reservation,
};
use redis_throttle_engine::grammar::usage::Usage;
use redis_throttle_engine::reservations::window::{Hold, Step};
use redis_throttle_engine::rule_set::Row;
use redis_throttle_engine::time::Instant;

/// Makes, commits or cancels a reservation, and replies with the resulting state.
pub fn run(
    command: CommandId,
    call: &mut Call<'_>,
    verb: ReservationVerb,
) -> Result<(), CommandError> {
    let slots = config::sliding_log_slots();
    let ReservationRequest { id, source, step } = reservation(verb, call.args_after_key(), slots)?;
    let now = clock::now();
    match (step, source) {
        (Step::Reserve(hold), source) => {
            let request = HoldRequest { id, source, hold };
            let reserving = Reserving::new(request, call.key_name(), Counting::Counted, now)?;
            reserving.take(command, call, now)
        }
        (_, RuleSource::Call(rule)) => settle(command, call, &rule, (id, step), now, |_| {}),
        (_, RuleSource::Policy(usage)) => {
            let applied = &reservable(&usage, call.key_name(), Counting::NotCounted, now)?;
            settle(command, call, &applied.request.rule, (id, step), now, |committed| {
                if !committed.is_zero() {
                    applied.count_charge(committed);
                }
            })
        }
    }
}

/// Commits or cancels a reservation under a rule, in every mode of its policy, stores the result
/// and replies. Another algorithm's state never counts as missing. Counts the units that a commit
/// used with `count`.
fn settle(
    command: CommandId,
    call: &mut Call<'_>,
    rule: &Rule,
    (id, step): (&[u8], Step),
    now: Instant,
    count: impl FnOnce(Cost),
) -> Result<(), CommandError> {
    ending::finish(command, call, |key| {
        let Outcome { decision, next } =
            keyspace::act_on(key, |stored| rule.take_step(stored, now, id, step))?;
        let committed = next.kept().map_or(Cost::ZERO, |next| next.state.committed());
        let finished = ending::of(&decision, KeyWrite::of(&next));
        Ok(finished.counted_by(move |_| count(committed)))
    })
}

/// Decides a reservation, which starts with the word `RESERVE`, and stores nothing.
#[cold]
pub fn peek(command: CommandId, call: &Call<'_>) -> Result<(), CommandError> {
    let request = hold(call.args_after_word(), config::sliding_log_slots())?;
    let now = clock::now();
    let reserving = Reserving::new(request, call.key_name(), Counting::NotCounted, now)?;
    let key = reserving.looks().then(|| call.only_key()).transpose()?;
    let key = key.map(KeyName::open_for_reading);
    let (decision, _) = reserving.decide(key.as_ref(), Mode::Take, now)?;
    match reserving.policy() {
        None => {
            let integers = decision.integers();
            ending::answer_unstored(command, call, reply::is_yes(&integers), &integers);
        }
        Some(applied) => {
            let integers = applied.integers(&decision);
            ending::answer_unstored(command, call, reply::is_yes(&integers), &integers);
        }
    }
    Ok(())
}

/// Finds the policy in effect for the key `subject`, whose rule must support reservations.
/// `counting` applies to an error.
fn reservable<'call>(
    usage: &Usage<'call>,
    subject: &[u8],
    counting: Counting,
    now: Instant,
) -> Result<Applied<'call>, RuleError> {
    let applied = Applied::new(usage, subject, counting, now)?;
    if applied.request.rule.is_reservable() {
        return Ok(applied);
    }
    if counting == Counting::Counted {
        applied.count_error();
    }
    Err(RuleError::Grammar(GrammarError::PolicyNotReservable))
}

/// A reservation that is to be made.
pub struct Reserving<'call> {
    source: Source<'call>,
    id: &'call [u8],
    hold: Hold,
}

/// The source of the rule of a reservation.
enum Source<'call> {
    /// The rule is given in the call.
    Call(Rule),
    /// A policy has the rule.
    Policy(Applied<'call>),
}

impl<'call> Reserving<'call> {
    /// Parses a rule that is passed as one argument and starts with `RESERVE`, and looks up its
    /// policy. `counting` applies to an error of the policy.
    #[cold]
    #[inline(never)]
    pub fn read(
        subject: &[u8],
        rule: &'call [u8],
        counting: Counting,
        now: Instant,
    ) -> Result<Self, RuleError> {
        Self::new(packed_hold(rule, config::sliding_log_slots())?, subject, counting, now)
    }

    fn new(
        HoldRequest { id, source, hold }: HoldRequest<'call>,
        subject: &[u8],
        counting: Counting,
        now: Instant,
    ) -> Result<Self, RuleError> {
        Ok(match source {
            RuleSource::Call(rule) => Self { source: Source::Call(rule), id, hold },
            RuleSource::Policy(usage) => {
                let applied = reservable(&usage, subject, counting, now)?;
                let hold = Hold { is_shadow: applied.is_shadow(), ..hold };
                Self { source: Source::Policy(applied), id, hold }
            }
        })
    }

    /// Returns the policy that has the rule; `None` for a rule of the call.
    pub const fn policy(&self) -> Option<&Applied<'call>> {
        match &self.source {
            Source::Call(_) => None,
            Source::Policy(applied) => Some(applied),
        }
    }

    /// Returns true if the reservation reads its key.
    pub fn looks(&self) -> bool {
        self.policy().is_none_or(Applied::looks)
    }

    /// Returns the row of a decision in the reply to a call with several rules.
    pub fn row(&self, decision: Decision) -> Row {
        match &self.source {
            Source::Policy(applied) => applied.row(decision),
            Source::Call(_) => {
                let Hold { cost, leave, .. } = self.hold;
                let left_units = leave.map_or(0, |leave| leave.units(decision.limit));
                Row { decision, cost, left_units, force: None }
            }
        }
    }

    /// Decides the reservation, stores the result and replies.
    fn take(
        &self,
        command: CommandId,
        call: &mut Call<'_>,
        now: Instant,
    ) -> Result<(), CommandError> {
        let decide = |key: Option<&ReadKey<'_, '_>>| Ok(self.decide(key, Mode::Take, now)?);
        match self.policy() {
            Some(applied) => applied.take(command, call, now, decide, Applied::count_reserved),
            None => ending::finish(command, call, |key| {
                let (decision, write) = decide(Some(key))?;
                Ok(ending::of(&decision, write).in_top(self.hold.cost, now))
            }),
        }
    }

    /// Decides the reservation. Returns the decision, and the change to store. `key` is open if the
    /// reservation reads it.
    #[cold]
    #[inline(never)]
    pub fn decide(
        &self,
        key: Option<&ReadKey<'_, '_>>,
        mode: Mode,
        now: Instant,
    ) -> Result<(Decision, Option<KeyWrite>), RuleError> {
        match &self.source {
            Source::Policy(applied) => applied.act_on(key, now, |stored| {
                Ok(applied.request.rule.reserve(mode, stored, now, self.id, self.hold)?)
            }),
            Source::Call(rule) => {
                let key = key.ok_or(RuleError::WrongType)?;
                let reserve = |stored| rule.reserve(mode, stored, now, self.id, self.hold);
                let outcome = keyspace::act_on(key, reserve)?;
                Ok((outcome.decision, KeyWrite::of(&outcome.next)))
            }
        }
    }
}
