//! The replies: five integers for a decision; seven for a decision by a policy; six integers and a
//! row for each rule for a call with several rules; a map for a state.

use crate::api::reply::{Context, Value};
use crate::ending::Reply;
use redis_throttle_engine::algorithms::State;
use redis_throttle_engine::decision::{Decision, Verdict};
use redis_throttle_engine::msgpack::NotAState;
use redis_throttle_engine::rule_set::{Force, Row};
use redis_throttle_engine::time::{Instant, Span};
use redis_throttle_engine::{redis_cell, rule_set as several};
use std::iter;

/// The fourth field of a reply of redis-cell's command if there is nothing to wait for: the call is
/// allowed, or can never be.
const NEVER: i64 = Decision::NEVER;

/// Returns a decision of `CL.THROTTLE` or `GCRA` as `limited limit remaining retry_after_s
/// reset_after_s`. `retry_after_s` is -1 if the call is allowed, and if it can never be allowed.
pub fn redis_cell(decision: &redis_cell::Decision) -> [i64; 5] {
    let (limited, retry_after_s) = match decision.verdict {
        redis_cell::Verdict::Allowed => (0, NEVER),
        redis_cell::Verdict::Limited { retry_after_s } => (1, integer(retry_after_s)),
        redis_cell::Verdict::Impossible => (1, NEVER),
    };
    [
        limited,
        integer(decision.limit.units()),
        integer(decision.remaining),
        retry_after_s,
        integer(decision.reset_after_s),
    ]
}

/// Returns a decision by a policy: the five integers that the caller must obey, then `allowed` and
/// `retry_after_ms` as they are if the policy is enforced. In shadow mode, the five integers allow
/// the call at once and grant it `full_units`.
#[inline(always)]
pub fn seven_integers(decision: &Decision, force: Force, full_units: u64) -> [i64; 7] {
    let [allowed, limit, remaining, retry_after_ms, reset_after_ms] = decision.integers();
    let (granted, wait_ms) = match force {
        Force::Enforced => (allowed, retry_after_ms),
        Force::Shadow => (integer(full_units), 0),
    };
    [granted, limit, remaining, wait_ms, reset_after_ms, allowed, retry_after_ms]
}

/// Returns true if the integers of a reply allow the call.
pub const fn is_yes<const N: usize>(integers: &[i64; N]) -> bool {
    integers[0] != 0
}

/// A row of the reply to several rules, at least one of which comes from a policy.
enum Numbers {
    Five([i64; 5]),
    Seven([i64; 7]),
}

impl AsRef<[i64]> for Numbers {
    fn as_ref(&self) -> &[i64] {
        match self {
            Self::Five(integers) => integers,
            Self::Seven(integers) => integers,
        }
    }
}

/// Returns the five integers that the caller must obey under the rule of a row. A rule in shadow
/// mode allows the call.
fn effective_integers(row: &Row) -> [i64; 5] {
    let [allowed, limit, remaining, retry_after_ms, reset_after_ms] = row.decision.integers();
    if row.is_enforced() {
        [allowed, limit, remaining, retry_after_ms, reset_after_ms]
    } else {
        [1, limit, remaining, 0, reset_after_ms]
    }
}

/// The reply to a call with several rules: the five integers of the deciding rule, the number of
/// that rule, and a row for each rule. A row has five integers, or seven for a policy.
pub struct Several<'a> {
    head: [i64; 6],
    rows: &'a [Row],
}

impl Reply for Several<'_> {
    fn send(&self, context: Context<'_>) {
        if self.rows.iter().any(|row| row.force.is_some()) {
            return self.send_with_policies(context);
        }
        let rows = self.rows.iter().map(|row| self.decision(row).integers());
        context.reply_integers_and_rows(&self.head, rows);
    }
}

impl<'a> Several<'a> {
    /// Creates the reply from the rows. For an allowed call, the wait in the reply is the longest
    /// wait of an enforced rule. For a denied call, the rows of rules that allow it show no wait.
    pub fn of(rows: &'a [Row]) -> Self {
        let deciding = several::deciding(rows);
        let [allowed, limit, remaining, mut retry_after_ms, reset_after_ms] =
            rows.get(deciding).map(effective_integers).unwrap_or_default();
        if allowed != 0 {
            let enforced = rows.iter().filter(|row| row.is_enforced());
            let waits = enforced.filter_map(|row| row.decision.verdict.wait());
            retry_after_ms = waits.max().map_or(0, ms);
        }
        let number = integer(deciding as u64 + 1);
        let head = [allowed, limit, remaining, retry_after_ms, reset_after_ms, number];
        Self { head, rows }
    }

    /// Returns true if the call is allowed: all enforced rules allow it.
    pub fn is_allowed(&self) -> bool {
        let [allowed, ..] = self.head;
        allowed != 0
    }

    /// Sends the reply to a call in which at least one rule comes from a policy.
    #[cold]
    #[inline(never)]
    fn send_with_policies(&self, context: Context<'_>) {
        let rows = self.rows.iter().map(|row| match row.force {
            None => Numbers::Five(self.decision(row).integers()),
            Some(force) => Numbers::Seven(seven_integers(&self.decision(row), force, 1)),
        });
        context.reply_integers_and_rows(&self.head, rows);
    }

    /// Returns the decision that a row shows. In a denied call, a rule that allows the call has no
    /// wait.
    #[inline(always)]
    fn decision(&self, row: &Row) -> Decision {
        if !self.is_allowed() && row.decision.verdict.is_allowed() {
            Decision { verdict: Verdict::ALLOWED, ..row.decision }
        } else {
            row.decision
        }
    }
}

/// Returns a state at `now` as pairs of field and value. The first pair is the algorithm.
///
/// # Errors
///
/// [`NotAState`] if the bytes are not a valid state.
pub fn state(state: &State<'_>, now: Instant) -> Result<Vec<(&'static str, Value)>, NotAState> {
    let algorithm = ("algorithm", Value::Text(state.name()));
    let numbers = state.inspect(now)?.into_iter();
    let numbers = numbers.map(|(name, number)| (name, Value::Integer(number)));
    Ok(iter::once(algorithm).chain(numbers).collect())
}

/// Converts a span to milliseconds, rounded up: waiting that long is always enough.
fn ms(span: Span) -> i64 {
    integer(span.as_ms_ceil())
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
