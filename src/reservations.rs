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
use crate::policies::applied::{Applied, Charged, Counting, UnderPolicy};
use crate::{clock, config, ending, reply, top};
use redis_throttle_engine::algorithms::{NewState, Rule, State};
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::decision::{Decision, Outcome};
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::reservation::{
    HoldRequest, ReservationRequest, ReservationVerb, RuleSource, hold, packed_hold, reservation,
};
use redis_throttle_engine::grammar::usage::Usage;
use redis_throttle_engine::reservations::window::{Hold, ReservationError, Step};
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
    match (source, step) {
        (RuleSource::Call(rule), _) => take_step(command, call, &rule, id, step, now, None),
        (RuleSource::Policy(usage), Step::Reserve(hold)) => {
            let subject = call.key_name();
            ByPolicy::new(&usage, subject, id, hold, Counting::Counted, now)?
                .take(command, call, now)
        }
        (RuleSource::Policy(usage), _) => settle(command, call, &usage, id, step, now),
    }
}

/// Applies a step to the reservation `id` under a rule, stores the result and replies. Everything
/// that can fail, the reply included, comes before the key changes. The units that a commit used
/// are counted for `policy`.
fn take_step(
    command: CommandId,
    call: &mut Call<'_>,
    rule: &Rule,
    id: &[u8],
    step: Step,
    now: Instant,
    policy: Option<&Applied<'_>>,
) -> Result<(), CommandError> {
    let key = call.only_key()?.open_for_writing();
    let Outcome { decision, next } =
        keyspace::act_on(&key, |stored| rule.take_step(stored, now, id, step))?;
    let committed = next.kept().map_or(Cost::ZERO, |next| next.state.committed());
    let write = KeyWrite::of(&next);
    let (is_allowed, integers) = (decision.verdict.is_allowed(), decision.integers());
    let charged = policy.filter(|_| !committed.is_zero());
    let charged = charged.map(|policy| Charged { policy, units: committed });
    let decided = match step {
        Step::Reserve(Hold { cost, .. }) => Some(top::Decided { cost, denies: !is_allowed, now }),
        Step::Commit { .. } | Step::Cancel => None,
    };
    ending::store(command, key, write)?.finish(call, is_allowed, &integers, (charged, decided))
}

/// Decides a reservation, which starts with the word `RESERVE`, and stores nothing.
#[cold]
pub fn peek(command: CommandId, call: &Call<'_>) -> Result<(), CommandError> {
    let request = hold(call.args_after_word(), config::sliding_log_slots())?;
    let now = clock::now();
    let reserving = Reserving::new(request, call.key_name(), Counting::NotCounted, now)?;
    let key = reserving.looks().then(|| call.only_key()).transpose()?;
    let key = key.map(KeyName::open_for_reading);
    let decision = reserving.decide(key.as_ref(), Mode::Take, now)?.0.decision;
    match reserving.policy() {
        None => {
            let integers = decision.integers();
            ending::finish_unstored(command, call, reply::is_yes(&integers), &integers);
        }
        Some(applied) => {
            let integers = applied.integers(&decision);
            ending::finish_unstored(command, call, reply::is_yes(&integers), &integers);
        }
    }
    Ok(())
}

/// Commits or cancels the reservation `id` under the rule of a policy, in every mode of the policy.
/// Another algorithm's state never counts as missing. The units of a commit are counted.
#[cold]
fn settle(
    command: CommandId,
    call: &mut Call<'_>,
    usage: &Usage<'_>,
    id: &[u8],
    step: Step,
    now: Instant,
) -> Result<(), CommandError> {
    let applied = reservable(usage, call.key_name(), Counting::NotCounted, now)?;
    take_step(command, call, &applied.request.rule, id, step, now, Some(&applied))
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

/// A reservation to make by a rule of the call or by a policy.
pub enum Reserving<'call> {
    /// The rule is given in the call.
    ByRule {
        /// The rule.
        rule: Rule,
        /// The id of the reservation.
        id: &'call [u8],
        /// The reservation.
        hold: Hold,
    },
    /// A policy has the rule.
    ByPolicy(ByPolicy<'call>),
}

/// A reservation to make by the rule of a policy.
pub struct ByPolicy<'call> {
    applied: Applied<'call>,
    id: &'call [u8],
    hold: Hold,
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
        request: HoldRequest<'call>,
        subject: &[u8],
        counting: Counting,
        now: Instant,
    ) -> Result<Self, RuleError> {
        let HoldRequest { id, source, hold } = request;
        Ok(match source {
            RuleSource::Call(rule) => Self::ByRule { rule, id, hold },
            RuleSource::Policy(usage) => {
                Self::ByPolicy(ByPolicy::new(&usage, subject, id, hold, counting, now)?)
            }
        })
    }

    /// Returns the policy that has the rule; `None` for a rule of the call.
    pub const fn policy(&self) -> Option<&Applied<'call>> {
        match self {
            Self::ByRule { .. } => None,
            Self::ByPolicy(ByPolicy { applied, .. }) => Some(applied),
        }
    }

    /// Returns true if the reservation reads its key.
    pub fn looks(&self) -> bool {
        self.policy().is_none_or(Applied::looks)
    }

    /// Decides the reservation as one of several rules. Returns its row, and the change to store.
    /// `key` is open if the reservation reads it.
    #[cold]
    #[inline(never)]
    pub fn decide(
        &self,
        key: Option<&ReadKey<'_, '_>>,
        mode: Mode,
        now: Instant,
    ) -> Result<(Row, Option<KeyWrite>), RuleError> {
        let (rule, id, hold) = match self {
            Self::ByPolicy(by_policy) => return by_policy.decide(key, mode, now),
            Self::ByRule { rule, id, hold } => (rule, *id, *hold),
        };
        let key = key.ok_or(RuleError::WrongType)?;
        let Outcome { decision, next } =
            keyspace::act_on(key, |stored| rule.reserve(mode, stored, now, id, hold))?;
        let left_units = hold.leave.map_or(0, |leave| leave.units(decision.limit));
        let row = Row { decision, cost: hold.cost, left_units, force: None };
        Ok((row, KeyWrite::of(&next)))
    }
}

impl<'call> ByPolicy<'call> {
    fn new(
        usage: &Usage<'call>,
        subject: &[u8],
        id: &'call [u8],
        hold: Hold,
        counting: Counting,
        now: Instant,
    ) -> Result<Self, RuleError> {
        let applied = reservable(usage, subject, counting, now)?;
        let hold = Hold { is_shadow: applied.is_shadow(), ..hold };
        Ok(Self { applied, id, hold })
    }
}

impl<'call> UnderPolicy<'call> for ByPolicy<'call> {
    type Error = ReservationError;

    fn applied(&self) -> &Applied<'call> {
        &self.applied
    }

    fn decide_on<'key>(
        &'key self,
        stored: Option<State<'key>>,
        mode: Mode,
        now: Instant,
    ) -> Result<Outcome<NewState<'key>>, ReservationError> {
        self.applied.request.rule.reserve(mode, stored, now, self.id, self.hold)
    }

    fn count(&self, decision: &Decision, now: Instant) {
        self.applied.count_reserved(decision, now);
    }
}
