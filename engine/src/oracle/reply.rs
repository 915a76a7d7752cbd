//! The complete reply of a model, derived by repeating one question.

use crate::bounds::{Cost, Leave, Refill};
use crate::decision::{Decision, Verdict};
use crate::oracle::model::{Limits, Oracle, SPAN_MAX_US, div_ceil, smallest};
use crate::time::Span;

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Takes the cost if there is room.
    Decide,
    /// Takes the units left, up to the cost.
    Partly,
    /// Takes the cost if these units remain afterwards.
    Leaving(Leave),
    /// Takes the units left above these, up to the cost.
    PartlyLeaving(Leave),
    /// Takes the cost in any case.
    Charge,
    /// Gives the cost back.
    Refund,
}

impl Verb {
    /// Returns true if the call is denied when there is too little room.
    pub const fn decides(self) -> bool {
        !matches!(self, Self::Charge | Self::Refund)
    }

    /// Returns true if the call may take a part of its cost.
    pub const fn is_partial(self) -> bool {
        matches!(self, Self::Partly | Self::PartlyLeaving(_))
    }

    /// Returns the option `LEAVE` of the call.
    pub const fn leave(self) -> Option<Leave> {
        match self {
            Self::Leaving(leave) | Self::PartlyLeaving(leave) => Some(leave),
            _ => None,
        }
    }

    /// Returns the units that must remain after the call.
    pub fn left(self, limit: i128) -> i128 {
        match self.leave() {
            Some(Leave::Units(units)) => units.units().into(),
            Some(Leave::Percent(percent)) => limit * i128::from(percent) / 100,
            None => 0,
        }
    }
}

/// The change of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrote {
    /// The key stays as it is.
    Nothing,
    /// The key is written.
    State,
    /// The key is deleted.
    Deletion,
}

/// The client's view: the five integers of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// 1 or 0; for a partial call, the units granted.
    pub allowed: i128,
    /// The rule's limit or capacity.
    pub limit: i128,
    /// The units left.
    pub remaining: i128,
    /// The time to wait, in milliseconds; -1 if the call can never be allowed.
    pub retry_after_ms: i128,
    /// The time until the key is unused, in milliseconds.
    pub reset_after_ms: i128,
}

impl Reply {
    /// Returns the five numbers in the order of the reply.
    pub const fn fields(&self) -> [i128; 5] {
        let Self { allowed, limit, remaining, retry_after_ms, reset_after_ms } = *self;
        [allowed, limit, remaining, retry_after_ms, reset_after_ms]
    }
}

/// Returns the number of ms from `now` until `holds` is true.
pub(super) fn ms_until(now: i128, holds: impl Fn(i128) -> bool) -> i128 {
    let longest_ms = div_ceil(SPAN_MAX_US, 1_000);
    smallest(longest_ms, |ms| holds(now + ms * 1_000)).unwrap_or(longest_ms)
}

/// Returns the number of ms until the call would be allowed.
fn retry_after_ms<O: Oracle>(oracle: &O, limits: &Limits, now: i128, cost: i128) -> i128 {
    ms_until(now, |at| oracle.would_allow(limits, at, cost))
}

/// Returns the expected reply and write of a call; `None` if the call must be refused. Updates
/// `oracle` to the state after the call.
pub fn act<O: Oracle>(
    oracle: &mut O,
    verb: Verb,
    limits: &Limits,
    now: i128,
    cost: i128,
) -> Option<(Reply, Wrote)> {
    let mut settled = oracle.clone();
    let repaired = cost > 0 && settled.clone().repair(limits, now);
    settled.repair(limits, now);
    let had_nothing = settled.finds_nothing(limits, now);
    let left = verb.left(O::limit(limits));
    let (allowed, retry_after_ms) = match verb {
        Verb::Charge => charge(&mut settled, limits, now, cost)?,
        Verb::Refund => refund(&mut settled, limits, now, cost),
        _ if verb.is_partial() => decide_partly(&mut settled, limits, now, cost, left),
        _ => decide(&mut settled, limits, now, cost, left),
    };
    let changed = match verb {
        Verb::Charge => cost > 0,
        Verb::Refund => cost > 0 && !had_nothing,
        _ => allowed > 0 && cost > 0,
    };
    let reply = Reply {
        allowed,
        limit: O::limit(limits),
        remaining: settled.remaining(limits, now),
        retry_after_ms,
        reset_after_ms: ms_until(now, |at| settled.is_unused(limits, at)),
    };
    if verb == Verb::Refund && changed && settled.is_blank(limits, now) {
        *oracle = O::default();
        return Some((reply, Wrote::Deletion));
    }
    if changed || repaired {
        settled.stored(limits, now);
    }
    if cost > 0 {
        *oracle = settled;
    }
    Some((reply, if changed || repaired { Wrote::State } else { Wrote::Nothing }))
}

fn decide<O: Oracle>(
    subject: &mut O,
    limits: &Limits,
    now: i128,
    cost: i128,
    left: i128,
) -> (i128, i128) {
    if cost + left > O::limit(limits) {
        (0, -1)
    } else if cost + left == 0 || subject.would_allow(limits, now, cost + left) {
        let wait_ms = div_ceil(subject.wait_us(limits, now), 1_000);
        if cost > 0 {
            subject.take(limits, now, cost);
        }
        (1, wait_ms)
    } else {
        (0, retry_after_ms(subject, limits, now, cost + left))
    }
}

fn decide_partly<O: Oracle>(
    subject: &mut O,
    limits: &Limits,
    now: i128,
    cost: i128,
    left: i128,
) -> (i128, i128) {
    if cost == 0 || 1 + left > O::limit(limits) {
        return decide(subject, limits, now, cost, left);
    }
    // Grants as many units as a call that is not partial could take.
    match (subject.remaining(limits, now) - left).min(cost) {
        ..=0 => (0, retry_after_ms(subject, limits, now, 1 + left)),
        units => (units, decide(subject, limits, now, units, left).1),
    }
}

fn charge<O: Oracle>(
    subject: &mut O,
    limits: &Limits,
    now: i128,
    cost: i128,
) -> Option<(i128, i128)> {
    let fits = if cost > 0 {
        let had_room = subject.would_allow(limits, now, cost);
        subject.charge(limits, now, cost);
        had_room
    } else {
        subject.is_clear(limits, now)
    };
    let is_beyond = subject.uses_more_than(limits, now, Cost::TOTAL_MAX.into())
        || !subject.is_unused(limits, now + i128::from(Refill::SPAN_MAX.as_us()));
    let is_refused = cost > 0 && !fits && is_beyond;
    let clear_after_ms = ms_until(now, |at| subject.is_clear(limits, at));
    (!is_refused).then_some((fits.into(), clear_after_ms))
}

fn refund<O: Oracle>(subject: &mut O, limits: &Limits, now: i128, cost: i128) -> (i128, i128) {
    if cost > 0 && !subject.finds_nothing(limits, now) {
        subject.give(limits, now, cost);
    }
    let clear_after_ms = ms_until(now, |at| subject.is_clear(limits, at));
    ((clear_after_ms == 0).into(), clear_after_ms)
}

/// The model of any algorithm.
pub trait AnyOracle {
    /// Calls [`act`].
    fn act(&mut self, verb: Verb, limits: &Limits, now: i128, cost: i128)
    -> Option<(Reply, Wrote)>;
    /// Returns the expected reply if another rule denies the call: the current numbers, with
    /// nothing taken.
    fn decide_only(&mut self, limits: &Limits, now: i128, cost: i128) -> (Reply, Wrote);
    /// Returns a copy in the same state.
    fn copy(&self) -> Box<dyn AnyOracle>;
}

impl<O: Oracle + 'static> AnyOracle for O {
    fn act(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Option<(Reply, Wrote)> {
        act(self, verb, limits, now, cost)
    }

    fn decide_only(&mut self, limits: &Limits, now: i128, cost: i128) -> (Reply, Wrote) {
        let repaired = cost > 0 && self.repair(limits, now);
        let (reply, _) = act(self, Verb::Decide, limits, now, 0).expect("a decision");
        let wrote = if repaired { Wrote::State } else { Wrote::Nothing };
        (Reply { retry_after_ms: 0, ..reply }, wrote)
    }

    fn copy(&self) -> Box<dyn AnyOracle> {
        Box::new(self.clone())
    }
}

/// Returns the expected reply of a deciding call, and true if it must write. Updates `oracle`.
pub fn call<O: Oracle>(oracle: &mut O, limits: &Limits, now: i128, cost: i128) -> (Reply, bool) {
    let (reply, wrote) = act(oracle, Verb::Decide, limits, now, cost).expect("a decision");
    (reply, wrote != Wrote::Nothing)
}

/// Returns the expected reply of `RL.PEEK`: that of [`call`], without an update.
pub fn peek<O: Oracle>(oracle: &O, limits: &Limits, now: i128, cost: i128) -> Reply {
    call(&mut oracle.clone(), limits, now, cost).0
}

impl From<Decision> for Reply {
    fn from(decision: Decision) -> Self {
        let ms = |span: Span| i128::from(span.as_ms_ceil());
        let (allowed, retry_after_ms) = match decision.verdict {
            Verdict::Allowed { wait } => (1, ms(wait)),
            Verdict::Granted { units, wait } => (units.into(), ms(wait)),
            Verdict::Denied { retry_after } => (0, ms(retry_after)),
            Verdict::Impossible | Verdict::Banned { retry_after: None } => (0, -1),
            Verdict::Banned { retry_after: Some(retry_after) } => (0, ms(retry_after)),
        };
        Self {
            allowed,
            limit: decision.limit.units().into(),
            remaining: decision.remaining.into(),
            retry_after_ms,
            reset_after_ms: ms(decision.reset_after),
        }
    }
}
