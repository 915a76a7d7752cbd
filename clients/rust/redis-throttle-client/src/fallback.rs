//! Decides, by `on_error`, the calls that the server did not answer.

use std::sync::PoisonError;
use std::time::Duration;

use crate::call::Keyed;
use crate::local::local_decision;
use crate::{Decision, Limiter, OnError, Reason, Rule, clock};

impl Limiter {
    pub(crate) fn on_error_of(&self, rule: &Rule) -> OnError {
        rule.terms().on_error.unwrap_or(self.0.options.on_error)
    }

    /// Decides without an answer from the server, by the strictest `on_error` of the rules. The
    /// decision of several rules has a row for each.
    pub(crate) fn fallback(&self, calls: &[Keyed<'_>], reason: Reason, peek: bool) -> Decision {
        let of = |call: &Keyed<'_>| self.on_error_of(call.rule);
        let now_us = u64::try_from((clock::now() - self.0.made).as_micros()).unwrap_or(u64::MAX);
        let mut local = self.0.local.lock().unwrap_or_else(PoisonError::into_inner);
        let mut row = |call: &Keyed<'_>, cost, peek| {
            let row = match of(call) {
                OnError::Allow => without_state(call.rule, true, Duration::ZERO),
                OnError::Deny => without_state(call.rule, false, self.0.options.breaker_pause),
                // Add 1 to the instant, because 0 marks a window that is not open.
                OnError::Local => {
                    local_decision(&mut local, call.rule, &call.key, cost, now_us + 1, peek)
                }
            };
            Decision { reason: Some(reason), ..row }
        };
        // Peek first: a denied call must take from no rule.
        let mut rows: Vec<_> = calls.iter().map(|call| row(call, call.cost, true)).collect();
        if rows.iter().all(|row| row.allowed) {
            if !peek {
                rows = calls.iter().map(|call| row(call, call.cost, false)).collect();
            }
        } else {
            for (call, found) in calls.iter().zip(&mut rows).filter(|(_, found)| found.allowed) {
                *found = row(call, 0, true);
            }
        }
        if rows.len() == 1 {
            return rows.remove(0);
        }
        let rank = |at: &usize| {
            let row = &rows[*at];
            (of(&calls[*at]), !row.allowed, row.retry_after, u64::MAX - row.remaining)
        };
        let deciding = (0..rows.len()).rev().max_by_key(rank).unwrap_or_default();
        Decision::of_rows(deciding, rows)
    }
}

/// Returns the decision of `on_error`. Its limit is the rule's, if the rule has one.
fn without_state(rule: &Rule, allowed: bool, retry_after: Duration) -> Decision {
    let terms = rule.terms();
    let limit = terms.default.as_ref().map_or(terms, Rule::terms).limit.unwrap_or(0);
    Decision { limit, ..Decision::without_answer(terms.name.clone(), allowed, retry_after) }
}
