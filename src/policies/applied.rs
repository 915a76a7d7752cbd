//! The path of a call that names a policy. The policy in effect for the key is looked up, and its
//! rule decides the call, with three differences. In shadow mode the reply allows the call. A
//! policy that is off or blocked does not read the key. A state of the policy's previous algorithm
//! counts as missing, unless it has an open reservation. A ban of the key is enforced in shadow
//! mode too.

use crate::api::call::Call;
use crate::api::key::{KeyKind, ReadKey};
use crate::commands::table::CommandId;
use crate::ending::Counts;
use crate::error::{CommandError, RuleError};
use crate::fault::{self, Point};
use crate::keyspace::{self, KeyWrite};
use crate::policies::table as policies;
use crate::policies::table::Counter;
use crate::{clock, config, ending, reply, top};
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
use std::cell::Cell;

/// A policy as it applies to one call.
pub struct Applied<'call> {
    /// The policy's rule, and the cost of the call.
    pub request: Request,
    stance: Stance,
    counter: Counter<'call>,
    /// Whether the call creates the key's state.
    creates: Cell<bool>,
}

/// The counting of a call, or of its error, for its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// The policy counts it.
    Counted,
    /// The policy does not count it, because the call stores nothing or gives units back.
    NotCounted,
}

/// A call that a policy decides and counts: the call itself, or a reservation.
pub trait UnderPolicy<'call> {
    /// The reason why the call is not decided.
    type Error: Copy + Into<RuleError>;

    /// Returns the policy.
    fn applied(&self) -> &Applied<'call>;

    /// Decides the call on a state, under the policy's rule.
    ///
    /// # Errors
    ///
    /// [`Self::Error`] if the state belongs to another algorithm, or refuses the call.
    fn decide_on<'key>(
        &'key self,
        stored: Option<State<'key>>,
        mode: Mode,
        now: Instant,
    ) -> Result<Outcome<NewState<'key>>, Self::Error>;

    /// Counts the decision for the policy.
    fn count(&self, decision: &Decision, now: Instant);

    /// Decides the call without its key, under a policy that does not read it.
    #[inline]
    fn decide_unseen(&self, mode: Mode, now: Instant) -> Result<Decision, RuleError> {
        fault::point(Point::Decide);
        let decision = self.decide_on(None, mode, now).map_err(Into::into)?.decision;
        Ok(self.applied().blocked(decision.limit).unwrap_or(decision))
    }

    /// Decides the call as one of several rules. Returns its row, and the change to store. `key` is
    /// open if the policy reads it.
    #[cold]
    #[inline(never)]
    fn decide(
        &self,
        key: Option<&ReadKey<'_, '_>>,
        mode: Mode,
        now: Instant,
    ) -> Result<(Row, Option<KeyWrite>), RuleError> {
        let Some(key) = key else {
            let decision = self.decide_unseen(mode, now)?;
            return Ok((self.applied().row(decision), None));
        };
        let stored = self.applied().stored(key, now)?;
        fault::point(Point::Decide);
        let outcome = self.decide_on(stored, mode, now).map_err(Into::<RuleError>::into)?;
        let (decision, write) = (outcome.decision, KeyWrite::of(&outcome.next));
        self.applied().creates.set(write.is_some() && key.kind() == KeyKind::Missing);
        Ok((self.applied().row(decision), write))
    }

    /// Decides the call, stores the result and replies. An error is counted.
    #[inline(always)]
    fn take(&self, id: CommandId, call: &mut Call<'_>, now: Instant) -> Result<(), CommandError> {
        let taken = self.try_take(id, call, now);
        if taken.is_err() {
            self.applied().count_error();
        }
        taken
    }

    /// Does the same as [`UnderPolicy::take`], and does not count an error. Everything that can
    /// fail, the reply included, comes before the key changes.
    #[inline(always)]
    fn try_take(
        &self,
        id: CommandId,
        call: &mut Call<'_>,
        now: Instant,
    ) -> Result<(), CommandError> {
        let applied = self.applied();
        if !applied.looks() {
            return self.take_unseen(id, call, now);
        }
        let key = call.only_key()?.open_for_writing();
        let state = applied.stored(&key, now)?;
        fault::point(Point::Decide);
        let decided = self.decide_on(state, Mode::Take, now);
        // The outcome is read in place: moving it copies 160 bytes.
        let outcome = decided.as_ref().map_err(|error| Into::<RuleError>::into(*error))?;
        let decision = outcome.decision;
        let write = KeyWrite::of(&outcome.next);
        applied.creates.set(write.is_some() && key.kind() == KeyKind::Missing);
        let integers = applied.integers(&decision);
        let counts = Decided { by: self, decision, now };
        ending::store(id, key, write)?.finish(call, reply::is_yes(&integers), &integers, counts)
    }

    /// Does the same as [`UnderPolicy::try_take`] under a policy that does not read the key.
    #[inline(never)]
    fn take_unseen(
        &self,
        id: CommandId,
        call: &mut Call<'_>,
        now: Instant,
    ) -> Result<(), CommandError> {
        let decision = self.decide_unseen(Mode::Take, now)?;
        let integers = self.applied().integers(&decision);
        let counts = Decided { by: self, decision, now };
        ending::store_nothing(id).finish(call, reply::is_yes(&integers), &integers, counts)
    }
}

/// A call that a policy has decided.
struct Decided<'decided, P: ?Sized> {
    by: &'decided P,
    decision: Decision,
    now: Instant,
}

/// Counts for the policy and for `RL.TOP`.
impl<'call, P: UnderPolicy<'call> + ?Sized> Counts for Decided<'_, P> {
    #[inline(always)]
    fn count(self, call: &Call<'_>) {
        let (policy, verdict) = (self.by.applied(), self.decision.verdict);
        self.by.count(&self.decision, self.now);
        let denies = !verdict.is_allowed() && policy.force(verdict) == Force::Enforced;
        top::count(call, call.key_name(), policy.request.options.cost, denies, self.now);
    }
}

impl<'call> UnderPolicy<'call> for Applied<'call> {
    type Error = OtherAlgorithm;

    fn applied(&self) -> &Self {
        self
    }

    #[inline(always)]
    fn decide_on<'key>(
        &'key self,
        stored: Option<State<'key>>,
        mode: Mode,
        now: Instant,
    ) -> Result<Outcome<NewState<'key>>, OtherAlgorithm> {
        keyspace::decide_on(stored, &self.request, mode, now)
    }

    /// A call of cost 0 is not counted.
    fn count(&self, decision: &Decision, now: Instant) {
        if !self.request.options.cost.is_zero() {
            self.counter.count(&self.counted(decision), now);
        }
    }
}

/// Decides a call under a policy and stores the result.
pub fn take(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let usage = grammar::usage::usage(call.args_after_key())?;
    let now = clock::now();
    Applied::new(&usage, call.key_name(), Counting::Counted, now)?.take(id, call, now)
}

/// Decides a call under a policy, without storing or counting it.
#[cold]
pub fn peek(id: CommandId, call: &Call<'_>) -> Result<(), CommandError> {
    let usage = grammar::usage::usage(call.args_after_word())?;
    let now = clock::now();
    let applied = Applied::new(&usage, call.key_name(), Counting::NotCounted, now)?;
    let decision = if applied.looks() {
        let key = call.only_key()?.open_for_reading();
        let state = applied.stored(&key, now)?;
        fault::point(Point::Decide);
        keyspace::decide_on(state, &applied.request, Mode::Take, now)?.decision
    } else {
        applied.decide_unseen(Mode::Take, now)?
    };
    let integers = applied.integers(&decision);
    ending::finish_unstored(id, call, reply::is_yes(&integers), &integers);
    Ok(())
}

/// A call that corrects earlier calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settling {
    /// Takes its cost, even if too few units are left.
    Charge,
    /// Gives its cost back.
    Refund,
}

impl Settling {
    /// Applies the call to a state.
    ///
    /// # Errors
    ///
    /// [`ChargeError`] if the state belongs to another algorithm, or a charge exceeds the largest
    /// debt or total.
    #[inline(always)]
    pub fn act<'key>(
        self,
        Request { rule, options }: &Request,
        stored: Option<State<'key>>,
        now: Instant,
    ) -> Result<Outcome<NewState<'key>>, ChargeError> {
        match self {
            Self::Charge => rule.charge(stored, now, options.cost),
            Self::Refund => Ok(rule.refund(stored, now, options.cost)?),
        }
    }
}

/// Charges or refunds under the rule of a policy, also in shadow mode, and stores the result.
#[cold]
pub fn settle(id: CommandId, call: &mut Call<'_>, kind: Settling) -> Result<(), CommandError> {
    let usage = grammar::usage::usage(call.args_after_word())?.unconditional()?;
    let now = clock::now();
    let applied = Applied::new(&usage, call.key_name(), Counting::NotCounted, now)?;
    if !applied.looks() {
        fault::point(Point::Decide);
        let settled = kind.act(&applied.request, None, now)?.decision;
        let decision = applied.blocked(settled.limit).unwrap_or(settled);
        ending::finish_unstored(id, call, decision.verdict.is_allowed(), &decision.integers());
        return Ok(());
    }
    let key = call.only_key()?.open_for_writing();
    let stored = applied.stored(&key, now)?;
    fault::point(Point::Decide);
    let outcome = kind.act(&applied.request, stored, now)?;
    let (verdict, integers) = (outcome.decision.verdict, outcome.decision.integers());
    let write = KeyWrite::of(&outcome.next);
    let is_charged = kind == Settling::Charge && !verdict.is_banned();
    let charged =
        is_charged.then_some(Charged { policy: &applied, units: applied.request.options.cost });
    ending::store(id, key, write)?.finish(call, verdict.is_allowed(), &integers, charged)
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
                (found.rule.with_slots(slots), stance, Counter::Of(found.statistics))
            }
            (None, Some(rule)) => {
                (rule.with_slots(slots), Stance::Enforced, Counter::OfDefault(usage.policy))
            }
            (None, None) => {
                return Err(count_refused(RuleError::NoPolicy, Counter::Other, usage, counting));
            }
        };
        match usage.request(rule) {
            Ok(request) => Ok(Self { request, stance, counter, creates: Cell::new(false) }),
            Err(error) => Err(count_refused(RuleError::Grammar(error), counter, usage, counting)),
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

    /// Returns the integers of the reply for a decision.
    #[inline(always)]
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

    /// Counts the outcome of a reservation, whose units count when they are committed. A
    /// reservation of cost 0 is not counted.
    #[cold]
    pub fn count_reserved(&self, decision: &Decision, now: Instant) {
        if !self.request.options.cost.is_zero() {
            self.counter.count_reserved(&self.counted(decision), now);
        }
    }

    /// Returns the data to count for a call.
    #[inline(always)]
    fn counted(&self, decision: &Decision) -> Counted {
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
        Counted { ending, limit_units, remaining_units, taken_units, created: self.creates.get() }
    }

    /// Counts an error of the call. A call of cost 0 is not counted.
    #[cold]
    pub fn count_error(&self) {
        if !self.request.options.cost.is_zero() {
            self.counter.count_error();
        }
    }
}

/// Units that a charge or a commit took under a policy.
pub struct Charged<'policy, 'call> {
    /// The policy.
    pub policy: &'policy Applied<'call>,
    /// The units.
    pub units: Cost,
}

impl Counts for Charged<'_, '_> {
    #[cold]
    fn count(self, _: &Call<'_>) {
        self.policy.counter.charge(self.units);
    }
}

/// Counts `error` if `counting` says so and the call has a cost, and returns it.
#[cold]
fn count_refused(
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
