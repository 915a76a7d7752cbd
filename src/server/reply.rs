//! The two replies: five integers for a decision, a map for a state.

use super::api::{Context, Value};
use crate::grammar::Algorithm;
use crate::limiter::{Decision, Span, State, Verdict};

/// The fourth field of a call that can never be allowed.
const NEVER: i64 = -1;

/// A decision as `allowed limit remaining retry_after_ms reset_after_ms`.
pub fn integers(decision: &Decision) -> [i64; 5] {
    let (allowed, retry_after_ms) = match decision.verdict {
        Verdict::Allowed { wait } => (1, ms(wait)),
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

/// Sends a state as field and value pairs; null when there is none.
pub fn state(context: Context<'_>, state: Option<&State<'_>>) {
    use Value::Integer;
    let named = |algorithm: Algorithm| ("algorithm", Value::Text(algorithm.name()));
    match state {
        None => context.reply_null(),
        Some(State::FixedWindow(state)) => context.reply_map(&[
            named(Algorithm::Fixed),
            ("window_start_us", Integer(state.start.as_us())),
            ("used", Integer(state.used)),
        ]),
        Some(State::SlidingWindow(state)) => context.reply_map(&[
            named(Algorithm::Sliding),
            ("window_start_us", Integer(state.start.as_us())),
            ("previous", Integer(state.previous)),
            ("current", Integer(state.current)),
        ]),
        Some(State::SlidingLog(log)) => context.reply_map(&[
            named(Algorithm::SlidingLog),
            ("entries", Integer(log.entries.len() as u64)),
            ("used", Integer(log.last().total)),
            ("oldest_us", Integer(log.base.as_us())),
            ("newest_us", Integer(log.last().instant.as_us())),
            ("slot_us", Integer(log.slot.as_us())),
        ]),
        Some(State::TokenBucket(state)) => context.reply_map(&[
            named(Algorithm::TokenBucket),
            ("tokens", Integer(state.tokens)),
            ("fraction", Integer(state.fraction)),
            ("updated_us", Integer(state.updated.as_us())),
        ]),
        Some(State::LeakyBucket(state)) => context.reply_map(&[
            named(Algorithm::LeakyBucket),
            ("level", Integer(state.level)),
            ("fraction", Integer(state.fraction)),
            ("updated_us", Integer(state.updated.as_us())),
        ]),
        Some(State::Gcra(state)) => context.reply_map(&[
            named(Algorithm::Gcra),
            ("theoretical_arrival_ns", Integer(state.arrival_ns)),
            ("tolerance_log2_ns", Integer(state.tolerance_log2.into())),
        ]),
    }
}

/// Milliseconds, rounded up: who waits that long has waited long enough.
fn ms(span: Span) -> i64 {
    integer(span.as_ms_ceil())
}

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
