//! Several rules for one call: their keys and the models of these keys, combined as documented. All
//! rules decide first. Then either every rule takes its cost, or no rule does.

use crate::algorithms::{Algorithm, Rule, State};
use crate::ban::Ban;
use crate::call::Mode;
use crate::oracle::ban::Banned;
use crate::oracle::key::{Key, Write};
use crate::oracle::model::{Limits, Unexplained};
use crate::oracle::reply::{AnyOracle, Reply, Verb, Wrote};
use crate::oracle::subject::{Subject, call_both, check_promise, period_of};
use crate::rule_set as several;
use crate::rule_set::Row;
use crate::state::encode_ban;
use crate::time::Instant;

/// Converts a state for a single deciding call.
type Explain = fn(State<'_>, &Limits) -> Result<Box<dyn AnyOracle>, Unexplained>;

/// An algorithm under test that is chosen at run time, with the functions of its [`Subject`].
#[derive(Clone, Copy)]
pub struct AnySubject {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// [`Subject::rule`]
    pub rule: fn(&Limits) -> Rule,
    /// [`Subject::words`]
    pub words: fn(&Limits) -> String,
    /// [`Subject::example`]
    pub example: fn() -> String,
    /// [`Subject::cost`]
    pub cost: fn(i128) -> i128,
    /// [`Subject::verb`]
    pub verb: fn(Verb) -> Verb,
    /// [`Subject::span_us`]
    pub span_us: fn(&Limits) -> i128,
    /// The model of a missing key.
    pub none: fn() -> Box<dyn AnyOracle>,
    /// [`Subject::explain`]
    pub explain: Explain,
}

impl AnySubject {
    /// All subjects, in the order of the documentation.
    pub const ALL: [Self; Algorithm::ALL.len()] = {
        let mut all = [Self::of(Algorithm::ALL[0]); Algorithm::ALL.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = Self::of(Algorithm::ALL[at]);
            at += 1;
        }
        all
    };

    const fn new<S: Subject>(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            rule: S::rule,
            words: S::words,
            example: S::example,
            cost: S::cost,
            verb: S::verb,
            span_us: S::span_us,
            none: || Box::new(S::Model::default()),
            explain: |state, limits| Ok(Box::new(S::explain(state, limits)?)),
        }
    }
}

/// Defines the match that finds the subject of an algorithm. An algorithm without a subject does
/// not compile.
macro_rules! subject_of {
    ($($name:ident: $algorithm:ident => $subject:ty,)*) => {
        impl AnySubject {
            /// Returns the subject of an algorithm.
            pub const fn of(algorithm: Algorithm) -> Self {
                match algorithm {
                    $(Algorithm::$algorithm => Self::new::<$subject>(algorithm),)*
                }
            }
        }
    };
}

for_all_subjects!(subject_of);

/// Returns the arguments of a small rule of `algorithm`, as they follow its name in a call.
pub fn example(algorithm: Algorithm) -> String {
    (AnySubject::of(algorithm).example)()
}

/// The reply to a call by several rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Together {
    /// The rule that determines the reply, counted from 1.
    pub rule: usize,
    /// The reply of each rule.
    pub rows: Vec<Reply>,
    /// The change of each rule's key.
    pub wrote: Vec<Wrote>,
}

impl Together {
    /// Returns the reply of the whole call.
    pub fn reply(&self) -> Reply {
        let reply = self.rows[self.rule - 1];
        let longest_ms = self.rows.iter().map(|row| row.retry_after_ms).max().unwrap_or(0);
        let retry_after_ms = if reply.allowed > 0 { longest_ms } else { reply.retry_after_ms };
        Reply { retry_after_ms, ..reply }
    }
}

/// One rule of a call: the model of its key, the limits and the cost.
pub type Part<'a> = (&'a dyn AnyOracle, Limits, i128);

/// Returns the expected reply of a call by several rules, and the models after it.
pub fn act_all(parts: &[Part<'_>], now: i128) -> (Together, Vec<Box<dyn AnyOracle>>) {
    let mut models: Vec<_> = parts.iter().map(|(model, ..)| model.copy()).collect();
    let decided = models.iter_mut().zip(parts).map(|(model, (_, limits, cost))| {
        model.act(Verb::Decide, limits, now, *cost).expect("a decision")
    });
    let mut decided: Vec<_> = decided.collect();
    if decided.iter().any(|(reply, _)| reply.allowed == 0) {
        for ((model, outcome), (before, limits, cost)) in
            models.iter_mut().zip(&mut decided).zip(parts)
        {
            if outcome.0.allowed > 0 {
                *model = before.copy();
                *outcome = model.decide_only(limits, now, *cost);
            }
        }
    }
    let (rows, wrote): (Vec<_>, _) = decided.into_iter().unzip();
    let costs: Vec<_> = parts.iter().map(|(.., cost)| *cost).collect();
    (Together { rule: 1 + deciding(&rows, &costs), rows, wrote }, models)
}

/// Returns the index of the deciding rule. For a denied call, it is the first rule with the longest
/// wait. For an allowed call, it is the rule that allows the fewest more calls of its cost, then
/// the one with the fewest units left, then the first.
fn deciding(rows: &[Reply], costs: &[i128]) -> usize {
    const EVER: i128 = i128::MAX;
    let wait = |row: &Reply| match row {
        Reply { allowed: 1.., .. } => -1,
        Reply { retry_after_ms: -1, .. } => EVER,
        row => row.retry_after_ms,
    };
    let longest = rows.iter().map(wait).max().expect("at least one rule");
    if longest >= 0 {
        return rows.iter().position(|row| wait(row) == longest).expect("the longest");
    }
    let left = |at: usize| match costs[at] {
        0 => (EVER, rows[at].remaining),
        cost => (rows[at].remaining / cost, rows[at].remaining),
    };
    (0..rows.len()).min_by_key(|at| left(*at)).expect("at least one rule")
}

/// A key and its model, for an algorithm that is chosen at run time.
pub struct TwinOfAny {
    /// The algorithm.
    pub subject: AnySubject,
    key: Key,
    model: Box<dyn AnyOracle>,
}

/// One rule of a call: its key with the model, the limits and the cost.
pub type TwinPart<'a> = (&'a mut TwinOfAny, Limits, i128);

impl TwinOfAny {
    /// Makes a key that does not exist yet, and its model.
    pub fn new(subject: AnySubject) -> Self {
        Self { subject, key: Key::default(), model: (subject.none)() }
    }

    /// Makes a call on the key and on the model, and compares them, as [`super::Twin::call`] does.
    ///
    /// # Errors
    ///
    /// Returns the difference.
    pub fn call(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Result<Option<Reply>, String> {
        let rule = (self.subject.rule)(limits);
        call_both(&mut self.key, &mut *self.model, verb, (&rule, limits), now, cost)
    }

    /// Bans the key at `now` for `duration_us`.
    pub fn ban(&mut self, now: i128, duration_us: i128) {
        let at = Instant::from_us(now.try_into().expect("a time after 1970"));
        let ban = Ban::new(at, period_of(duration_us));
        let expires_at = ban.until.as_us().into();
        self.key.store(&Write::Keep { change: encode_ban(&ban), expires_at, ttl_slack: 0 });
        self.model = Box::new(Banned::new(now, duration_us, (self.subject.none)()));
    }

    fn decide_as(
        &self,
        mode: Mode,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> (Row, Option<Write>) {
        self.key.decide_as(mode, &(self.subject.rule)(limits), now, cost)
    }
}

/// Makes a call by several rules on the keys and on the models, and compares.
///
/// # Errors
///
/// Returns the difference: in a number, in a write, or in the promised retry time.
pub fn call_all(calls: &mut [TwinPart<'_>], now: i128) -> Result<Together, String> {
    let parts: Vec<Part<'_>> =
        calls.iter().map(|(twin, limits, cost)| (&*twin.model, *limits, *cost)).collect();
    let (expected, models) = act_all(&parts, now);
    let (actual, writes) = decide_all(calls, now);
    for (((twin, ..), model), write) in calls.iter_mut().zip(models).zip(writes) {
        twin.model = model;
        if let Some(write) = write {
            twin.key.store(&write);
        }
    }
    // Only a ban denies a call of cost 0. That call stores no repair, so the wait can start again.
    let promises =
        calls.iter().zip(&actual.rows).all(|((.., cost), row)| *cost > 0 || row.allowed > 0);
    let said = match check_retry_of_all(calls, now, actual.reply()) {
        _ if actual != expected => format!("{actual:?}, expected {expected:?}"),
        Err(said) if promises => format!("{actual:?}: {said}"),
        _ => return Ok(actual),
    };
    let rules: Vec<_> =
        calls.iter().map(|(twin, limits, cost)| ((twin.subject.rule)(limits), *cost)).collect();
    Err(format!("{rules:?} at {now}: {said}"))
}

/// Returns the replies of the keys, and the changes to store. Stores nothing.
fn decide_all(calls: &[TwinPart<'_>], now: i128) -> (Together, Vec<Option<Write>>) {
    let decide = |mode| -> (Vec<Row>, Vec<Option<Write>>) {
        let one = |(twin, limits, cost): &TwinPart<'_>| twin.decide_as(mode, limits, now, *cost);
        calls.iter().map(one).unzip()
    };
    let (mut rows, mut writes) = decide(Mode::Take);
    let all_allow = rows.iter().all(|row| row.decision.verdict.is_allowed());
    if !all_allow {
        (rows, writes) = decide(Mode::TakeNothing);
    }
    let reply = |row: &Row| {
        let reply = Reply::from(row.decision);
        // A rule that would have allowed the call has no wait.
        let allows = !all_allow && reply.allowed > 0;
        Reply { retry_after_ms: if allows { 0 } else { reply.retry_after_ms }, ..reply }
    };
    let together = Together {
        rule: 1 + several::deciding(&rows),
        rows: rows.iter().map(reply).collect(),
        wrote: writes.iter().map(|write| Wrote::of(write.as_ref())).collect(),
    };
    (together, writes)
}

/// Checks that the call is denied before the promised instant, and allowed from then on.
fn check_retry_of_all(calls: &[TwinPart<'_>], now: i128, reply: Reply) -> Result<(), String> {
    let after_ms = reply.retry_after_ms;
    let retry_at = now + after_ms * 1_000;
    let never = after_ms < 0 || retry_at > Instant::CLOCK_MAX.as_us().into();
    if reply.allowed > 0 || never {
        return Ok(());
    }
    let allowed_at = |at| decide_all(calls, at).0.reply().allowed > 0;
    check_promise(now, after_ms, allowed_at)
}
