//! The replies: five integers for a decision, the same and rows for several rules, a map for a
//! state.

use super::api::{Context, Value};
use crate::limiter::{Decision, Instant, Row, Span, State, Verdict};
use crate::limiter::{redis_cell, several};
use crate::state::NotAState;
use std::iter;

/// The fourth field of a call that can never be allowed.
const NEVER: i64 = -1;

/// A decision as `allowed limit remaining retry_after_ms reset_after_ms`.
pub fn integers(decision: &Decision) -> [i64; 5] {
    let (allowed, retry_after_ms) = match decision.verdict {
        Verdict::Allowed { wait } => (1, ms(wait)),
        Verdict::Granted { units, wait } => (integer(units), ms(wait)),
        Verdict::Denied { retry_after } => (0, ms(retry_after)),
        Verdict::Impossible => (0, NEVER),
    };
    [
        allowed,
        integer(decision.limit.units()),
        integer(decision.remaining),
        retry_after_ms,
        ms(decision.reset_after),
    ]
}

/// A decision of redis-cell's command as `limited limit remaining retry_after_s reset_after_s`. The
/// fourth is -1 when there is nothing to wait for, be it that the call is allowed or never will be.
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

/// The answer of several rules: five integers, the number of the rule that they come from, and a
/// row of five for each.
pub struct Several<'a> {
    head: [i64; 6],
    rows: &'a [Row],
}

impl<'a> Several<'a> {
    /// What a call answers whose rules answer `rows`. Allowed, it has to wait as long as the one
    /// that keeps it longest; denied, who would have allowed has nothing to wait for.
    pub fn of(rows: &'a [Row]) -> Self {
        let deciding = several::deciding(rows);
        let [allowed, limit, remaining, mut retry_after_ms, reset_after_ms] =
            rows.get(deciding).map(|row| integers(&row.decision)).unwrap_or_default();
        if allowed != 0 {
            let waits = rows.iter().filter_map(|row| row.decision.verdict.wait());
            retry_after_ms = waits.max().map_or(0, ms);
        }
        let number = integer(deciding as u64 + 1);
        let head = [allowed, limit, remaining, retry_after_ms, reset_after_ms, number];
        Self { head, rows }
    }

    /// Whether all allow.
    pub fn is_allowed(&self) -> bool {
        let [allowed, ..] = self.head;
        allowed != 0
    }

    /// Sends it.
    pub fn send(&self, context: Context<'_>) {
        let is_allowed = self.is_allowed();
        let rows = self.rows.iter().map(|row| match integers(&row.decision) {
            [allowed, limit, remaining, _, reset_after_ms] if allowed != 0 && !is_allowed => {
                [allowed, limit, remaining, 0, reset_after_ms]
            }
            row => row,
        });
        context.reply_integers_and_rows(&self.head, rows);
    }
}

/// A state at `now` as field and value pairs, its algorithm first.
///
/// # Errors
///
/// [`NotAState`] when it turns out to be none.
pub fn state(state: &State<'_>, now: Instant) -> Result<Vec<(&'static str, Value)>, NotAState> {
    let algorithm = ("algorithm", Value::Text(state.algorithm().name()));
    let numbers = state.shown(now)?.into_iter();
    let numbers = numbers.map(|(name, number)| (name, Value::Integer(number)));
    Ok(iter::once(algorithm).chain(numbers).collect())
}

/// Milliseconds, rounded up: who waits that long has waited long enough.
fn ms(span: Span) -> i64 {
    integer(span.as_ms_ceil())
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
