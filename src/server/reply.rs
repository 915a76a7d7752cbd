//! The two replies: five integers for a decision, a map for a state.

use super::api::{Context, Value};
use crate::limiter::{Decision, Span, State, Verdict};
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

/// Sends a state as field and value pairs, its algorithm first; null when there is none.
pub fn state(context: Context<'_>, state: Option<&State<'_>>) {
    let Some(state) = state else {
        return context.reply_null();
    };
    let algorithm = ("algorithm", Value::Text(state.algorithm().name()));
    let numbers = state.shown().into_iter().map(|(name, number)| (name, Value::Integer(number)));
    let pairs: Vec<_> = iter::once(algorithm).chain(numbers).collect();
    context.reply_map(&pairs);
}

/// Milliseconds, rounded up: who waits that long has waited long enough.
fn ms(span: Span) -> i64 {
    integer(span.as_ms_ceil())
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
