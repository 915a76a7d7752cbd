//! The whole answer of a model, found by asking it one question again and again.

use super::{Limits, Oracle, div_ceil, smallest};
use crate::limiter::{Decision, Span, Verdict};

/// What a client sees: the five integers of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 1 or 0.
    pub allowed: i128,
    /// The capacity asked for.
    pub limit: i128,
    /// What would still be allowed.
    pub remaining: i128,
    /// Milliseconds; -1 for never.
    pub retry_after_ms: i128,
    /// Milliseconds.
    pub reset_after_ms: i128,
}

/// Longer than any limiter ever makes anybody wait: a thousand years.
const FOREVER_MS: i128 = 1_000 * 366 * 86_400_000;

/// After how many ms the call would be allowed.
pub fn retry_after_ms<O: Oracle>(oracle: &O, limits: &Limits, now: i128, cost: i128) -> i128 {
    let allowed_after = |ms| oracle.would_allow(limits, now + ms * 1_000, cost);
    smallest(FOREVER_MS, allowed_after).expect("allowed some day")
}

/// The largest cost that would be allowed; cost 0 always is.
pub fn remaining<O: Oracle>(oracle: &O, limits: &Limits, now: i128) -> i128 {
    let allowed = |cost| cost == 0 || oracle.would_allow(limits, now, cost);
    let too_much = |cost| cost > limits.capacity || !allowed(cost);
    smallest(limits.capacity + 1, too_much).expect("more than all is too much") - 1
}

/// After how many ms the whole capacity would be allowed at once.
pub fn reset_after_ms<O: Oracle>(oracle: &O, limits: &Limits, now: i128) -> i128 {
    retry_after_ms(oracle, limits, now, limits.capacity)
}

/// What a deciding call must answer, and whether it must write; `oracle` becomes what it leaves.
pub fn call<O: Oracle>(oracle: &mut O, limits: &Limits, now: i128, cost: i128) -> (Answer, bool) {
    let mut settled = oracle.clone();
    let repaired = settled.repair(limits, now);
    let (allowed, retry_after_ms) = if cost > limits.capacity {
        (false, -1)
    } else if cost == 0 || settled.would_allow(limits, now, cost) {
        (true, div_ceil(settled.wait_us(limits, now), 1_000))
    } else {
        (false, retry_after_ms(&settled, limits, now, cost))
    };
    let takes = allowed && cost > 0;
    if takes {
        settled.take(limits, now, cost);
    }
    let answer = Answer {
        allowed: allowed.into(),
        limit: limits.capacity,
        remaining: remaining(&settled, limits, now),
        retry_after_ms,
        reset_after_ms: reset_after_ms(&settled, limits, now),
    };
    if cost > 0 {
        *oracle = settled;
    }
    (answer, takes || cost > 0 && repaired)
}

/// What PEEK must answer: the same, and nothing is left behind.
pub fn peek<O: Oracle>(oracle: &O, limits: &Limits, now: i128, cost: i128) -> Answer {
    call(&mut oracle.clone(), limits, now, cost).0
}

impl From<Decision> for Answer {
    fn from(decision: Decision) -> Self {
        let ms = |span: Span| i128::from(span.as_ms_ceil());
        let (allowed, retry_after_ms) = match decision.verdict {
            Verdict::Allowed { wait } => (1, ms(wait)),
            Verdict::Denied { retry_after } => (0, ms(retry_after)),
            Verdict::Impossible => (0, -1),
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
