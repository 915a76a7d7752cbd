//! The path of a call that names a policy. The policy in effect for the key is looked up, and its
//! rule decides the call, with three differences. In shadow mode the reply allows the call. A
//! policy that is off or blocked does not read the key. A state of the policy's previous algorithm
//! counts as missing, unless it has an open reservation. A ban of the key is enforced in shadow
//! mode too.

use crate::api::call::Call;
use crate::api::key::{KeyName, ReadKey};
use crate::commands::table::CommandId;
use crate::ending::{self, Finished};
use crate::error::{CommandError, RuleError};
use crate::fault::{self, Point};
use crate::keyspace::{self, KeyWrite};
use crate::policies::table as policies;
use crate::policies::table::Counter;
use crate::top::Demand;
use crate::{clock, config, reply};
use redis_throttle_engine::algorithms::{NewState, OtherAlgorithm, State};
use redis_throttle_engine::bounds::{Cost, Limit};
use redis_throttle_engine::call::{ChargeError, Mode};
use redis_throttle_engine::decision::{Decision, Outcome, Verdict};
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::grammar::usage::Usage;
use redis_throttle_engine::policy::definition::Stance;
use redis_throttle_engine::policy::statistics::{Counted, Ending};
use redis_throttle_engine::rule_set::{Force, Row};
use redis_throttle_engine::time::{Instant, Span};

/// A policy as it applies to one call.
pub struct Applied<'call> {
    /// The policy's rule, and the cost of the call.
    pub request: Request,
    stance: Stance,
    counter: Counter<'call>,
}

/// The counting of a call, or of its error, for its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// The policy counts it.
    Counted,
    /// The policy does not count it, because the call stores nothing or gives units back.
    NotCounted,
}

/// Decides a call under a policy and stores the result.
pub fn take(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let usage = grammar::usage::usage(call.args_after_key())?;
    let now = clock::now();
    let applied = Applied::new(&usage, call.key_name(), Counting::Counted, now)?;
    let decide = |key: Option<&ReadKey<'_, '_>>| Ok(applied.decide(key, Mode::Take, now)?);
    applied.take(id, call, now, decide, Applied::count)
}

/// Decides a call under a policy, without storing or counting it.
#[cold]
pub fn peek(id: CommandId, call: &Call<'_>) -> Result<(), CommandError> {
    let usage = grammar::usage::usage(call.args_after_word())?;
    let now = clock::now();
    let applied = Applied::new(&usage, call.key_name(), Counting::NotCounted, now)?;
    let key = applied.looks().then(|| call.only_key()).transpose()?;
    let key = key.map(KeyName::open_for_reading);
    let integers = applied.integers(&applied.decide(key.as_ref(), Mode::Take, now)?.0);
    ending::answer_unstored(id, call, reply::is_yes(&integers), &integers);
    Ok(())
}

/// A call that corrects earlier calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// Takes its cost, even if there is no room.
    Charge,
    /// Gives its cost back.
    Refund,
}

impl Settling {
    /// Applies the call to a state.
    ///
    /// # Errors
    ///
    /// [`ChargeError`] if the state belongs to another algorithm, or for a charge that exceeds the
    /// largest debt or total.
    #[inline(always)]
    pub fn act<'key>(
        self,
        request: &Request,
        stored: Option<State<'key>>,
        now: Instant,
    ) -> Result<Outcome<NewState<'key>>, ChargeError> {
        let Request { rule, options } = request;
        match self {
            Self::Charge => rule.charge(stored, now, options.cost),
            Self::Refund => Ok(rule.refund(stored, now, options.cost)?),
        }
    }
}

/// Charges or refunds under the rule of a policy, also in shadow mode, and stores the result. The
/// policy counts the units of a charge.
#[cold]
pub fn settle(id: CommandId, call: &mut Call<'_>, kind: Settling) -> Result<(), CommandError> {
    let usage = grammar::usage::usage(call.args_after_word())?.unconditional()?;
    let now = clock::now();
    let applied = &Applied::new(&usage, call.key_name(), Counting::NotCounted, now)?;
    ending::finish_if_looks(id, call, applied.looks(), |key| {
        let act = |stored| kind.act(&applied.request, stored, now);
        let (decision, write) = applied.act_on(key.map(AsRef::as_ref), now, act)?;
        let charges = kind == Settling::Charge && applied.looks() && !decision.verdict.is_banned();
        Ok(ending::of(&decision, write).counted_by(move |_| {
            if charges {
                applied.count_charge(applied.request.options.cost);
            }
        }))
    })
}

impl<'call> Applied<'call> {
    /// Finds the policy in effect for the key `subject` at `now`. `counting` applies to an error,
    /// unless the call has cost 0.
    ///
    /// # Errors
    ///
    /// [`RuleError`] if no policy applies, or its rule does not accept the call's options.
    #[inline]
    pub fn new(
        usage: &Usage<'call>,
        subject: &[u8],
        counting: Counting,
        now: Instant,
    ) -> Result<Self, RuleError> {
        let slots = config::sliding_log_slots();
        let found = policies::find(usage.policy, &usage.variants, now);
        let (rule, stance, counter) = match (found, usage.default) {
            (Some(found), _) => {
                let stance = found.enforcement.stance(usage.policy, subject, found.ends_at, now);
                (found.rule, stance, Counter::Of(found.statistics))
            }
            (None, Some(rule)) => (rule, Stance::Enforced, Counter::OfDefault(usage.policy)),
            (None, None) => {
                return Err(refused(RuleError::NoPolicy, Counter::Other, usage, counting));
            }
        };
        match usage.request(rule.with_slots(slots)) {
            Ok(request) => Ok(Self { request, stance, counter }),
            Err(error) => Err(refused(RuleError::Grammar(error), counter, usage, counting)),
        }
    }

    /// Returns the mode in which the policy applies to a call with this verdict: enforced or
    /// shadow. A ban is always enforced.
    const fn force(&self, verdict: Verdict) -> Force {
        match self.stance {
            Stance::Enforced | Stance::Blocked(_) => Force::Enforced,
            Stance::Shadow if verdict.is_banned() => Force::Enforced,
            Stance::Shadow | Stance::Off => Force::Shadow,
        }
    }

    /// Returns true if the policy allows every call, but for a ban.
    pub const fn is_shadow(&self) -> bool {
        matches!(self.stance, Stance::Shadow | Stance::Off)
    }

    /// Returns true if the call reads the key. Otherwise the key is neither opened nor written.
    pub const fn looks(&self) -> bool {
        matches!(self.stance, Stance::Enforced | Stance::Shadow)
    }

    /// Returns the decision on a blocked call; `None` if the call is not blocked.
    fn blocked(&self, limit: Limit) -> Option<Decision> {
        let Stance::Blocked(left) = self.stance else { return None };
        let verdict =
            left.map_or(Verdict::Impossible, |retry_after| Verdict::Denied { retry_after });
        Some(Decision { verdict, limit, remaining: 0, reset_after: left.unwrap_or(Span::ZERO) })
    }

    /// Decides the call under the policy's rule, on the state of the key. `key` is open if the
    /// policy reads it. Returns the decision, and the change to store.
    ///
    /// # Errors
    ///
    /// [`OtherAlgorithm`] if the key holds no state, or another algorithm's open reservation.
    #[inline(always)]
    pub fn decide(
        &self,
        key: Option<&ReadKey<'_, '_>>,
        mode: Mode,
        now: Instant,
    ) -> Result<(Decision, Option<KeyWrite>), OtherAlgorithm> {
        let Request { rule, options } = &self.request;
        self.act_on(key, now, |stored| rule.decide_call(mode, stored, now, *options))
    }

    /// Applies `act` to the state of the key, as [`Applied::decide`] applies a decision. Without a
    /// key, `act` only provides the limit and the form of a decision.
    ///
    /// # Errors
    ///
    /// The error of `act`, or [`OtherAlgorithm`] as for [`Applied::decide`].
    #[inline(always)]
    pub fn act_on<'key, E: Copy + From<OtherAlgorithm>>(
        &self,
        key: Option<&'key ReadKey<'_, '_>>,
        now: Instant,
        act: impl FnOnce(Option<State<'key>>) -> Result<Outcome<NewState<'key>>, E>,
    ) -> Result<(Decision, Option<KeyWrite>), E> {
        let stored = match key {
            Some(key) => self.stored(key, now)?,
            None => None,
        };
        fault::point(Point::Decide);
        // The outcome is read in place: moving it copies 160 bytes.
        match &act(stored) {
            Ok(Outcome { decision, next }) => match key {
                Some(_) => Ok((*decision, KeyWrite::of(next))),
                None => Ok((self.blocked(decision.limit).unwrap_or(*decision), None)),
            },
            Err(error) => Err(*error),
        }
    }

    /// Returns the state stored at `key`; `None` if there is none, or if the rule's algorithm may
    /// replace it.
    ///
    /// # Errors
    ///
    /// [`OtherAlgorithm`] if the key holds no state, or another algorithm's open reservation.
    #[inline(always)]
    fn stored<'key>(
        &self,
        key: &'key ReadKey<'_, '_>,
        now: Instant,
    ) -> Result<Option<State<'key>>, OtherAlgorithm> {
        let algorithm = self.request.rule.algorithm();
        match keyspace::load(key)? {
            Some(state) if state.algorithm() != Some(algorithm) => state.under(algorithm, now),
            stored => Ok(stored),
        }
    }

    /// Decides the call with `decide`, stores the result, counts it with `count` and replies.
    #[inline(always)]
    pub fn take(
        &self,
        id: CommandId,
        call: &mut Call<'_>,
        now: Instant,
        decide: impl FnOnce(
            Option<&ReadKey<'_, '_>>,
        ) -> Result<(Decision, Option<KeyWrite>), CommandError>,
        count: impl FnOnce(&Self, &Decision, bool, Instant),
    ) -> Result<(), CommandError> {
        let taken = ending::finish_if_looks(id, call, self.looks(), |key| {
            let (decision, write) = decide(key.map(AsRef::as_ref))?;
            let (reply, row) = (self.integers(&decision), self.row(decision));
            Ok(Finished {
                write,
                reply,
                is_allowed: reply::is_yes(&reply),
                demand: Some(Demand { cost: row.cost, denies: row.denies(), now }),
                count: move |created| count(self, &decision, created, now),
            })
        });
        if taken.is_err() {
            self.count_error();
        }
        taken
    }

    /// Returns the integers of the reply for a decision.
    pub fn integers(&self, decision: &Decision) -> [i64; 7] {
        let options = self.request.options;
        let full_units = if options.partial { options.cost.units() } else { 1 };
        reply::seven_integers(decision, self.force(decision.verdict), full_units)
    }

    /// Returns the policy's row in the reply to a call with several rules.
    pub fn row(&self, decision: Decision) -> Row {
        let options = self.request.options;
        let left_units = options.left_units(decision.limit);
        let force = Some(self.force(decision.verdict));
        Row { decision, cost: options.cost, left_units, force }
    }

    /// Counts the outcome of the call. A call of cost 0 is not counted.
    pub fn count(&self, decision: &Decision, created: bool, now: Instant) {
        if !self.request.options.cost.is_zero() {
            self.counter.count(&self.counted(decision, created), now);
        }
    }

    /// Counts the outcome of a reservation, whose units count when they are committed. A
    /// reservation of cost 0 is not counted.
    #[cold]
    pub fn count_reserved(&self, decision: &Decision, created: bool, now: Instant) {
        if !self.request.options.cost.is_zero() {
            self.counter.count_reserved(&self.counted(decision, created), now);
        }
    }

    /// Counts units that a charge or a commit took.
    #[cold]
    pub fn count_charge(&self, units: Cost) {
        self.counter.charge(units);
    }

    /// Returns the data to count for a call.
    #[inline(always)]
    fn counted(&self, decision: &Decision, created: bool) -> Counted {
        let taken = match decision.verdict {
            Verdict::Allowed { .. } => self.request.options.cost.units(),
            Verdict::Granted { units, .. } => units,
            Verdict::Denied { .. } | Verdict::Impossible | Verdict::Banned { .. } => 0,
        };
        let (ending, taken_units) = match (self.stance, decision.verdict.is_allowed()) {
            // A call of a policy that is off takes nothing.
            (Stance::Off, _) => (Ending::Allowed, 0),
            (_, true) => (Ending::Allowed, taken),
            (Stance::Shadow, false) if !decision.verdict.is_banned() => (Ending::ShadowDenied, 0),
            (_, false) => (Ending::Denied, 0),
        };
        let (limit_units, remaining_units) = (decision.limit.units(), decision.remaining);
        Counted { ending, limit_units, remaining_units, taken_units, created }
    }

    /// Counts an error of the call. A call of cost 0 is not counted.
    #[cold]
    pub fn count_error(&self) {
        if !self.request.options.cost.is_zero() {
            self.counter.count_error();
        }
    }
}

/// Counts `error` if `counting` says so and the call has a cost, and returns it.
#[cold]
fn refused(
    error: RuleError,
    counter: Counter<'_>,
    usage: &Usage<'_>,
    counting: Counting,
) -> RuleError {
    if counting == Counting::Counted && usage.given.cost != Some(Cost::ZERO) {
        counter.count_error();
    }
    error
}
