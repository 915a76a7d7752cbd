//! Decides, by `on_error`, the calls that the server did not answer.

use std::sync::PoisonError;
use std::time::Duration;

use crate::item::Keyed;
use crate::local::local_decision;
use crate::{Decision, Error, Limiter, OnError, Reason, Rule, clock};

impl Limiter {
    pub(crate) fn on_error_of(&self, rule: &Rule) -> OnError {
        rule.terms().on_error.unwrap_or(self.0.options.on_error)
    }

    /// Decides a call without an answer from the server, by the `on_error` of its rule.
    pub(crate) fn fallback(&self, call: &Keyed<'_>, reason: Reason, peek: bool) -> Decision {
        self.fallback_rows(std::slice::from_ref(call), reason, peek).remove(0)
    }

    /// Decides without an answer from the server, by the strictest `on_error` of the rules. The
    /// decision has a row for each.
    pub(crate) fn fallback_all(&self, calls: &[Keyed<'_>], reason: Reason, peek: bool) -> Decision {
        let rows = self.fallback_rows(calls, reason, peek);
        let rank = |at: &usize| {
            let row = &rows[*at];
            let on_error = self.on_error_of(calls[*at].rule);
            (on_error, !row.allowed, row.retry_after, u64::MAX - row.remaining)
        };
        let deciding = (0..rows.len()).rev().max_by_key(rank).unwrap_or_default();
        Decision::of_rows(deciding, rows)
    }

    fn fallback_rows(&self, calls: &[Keyed<'_>], reason: Reason, peek: bool) -> Vec<Decision> {
        let now_us = self.local_now_us();
        let mut local = self.0.local.lock().unwrap_or_else(PoisonError::into_inner);
        let mut row = |call: &Keyed<'_>, cost, peek| {
            let row = match self.on_error_of(call.rule) {
                OnError::Allow => Decision::without_state(call.rule, true, Duration::ZERO),
                OnError::Deny => {
                    Decision::without_state(call.rule, false, self.0.options.breaker_pause)
                }
                OnError::Local => local_decision(&mut local, call, cost, now_us, peek),
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
        rows
    }

    /// Returns the microseconds since the limiter was made, plus one: 0 marks a window that is not
    /// open.
    pub(crate) fn local_now_us(&self) -> u64 {
        let passed_us = (clock::now() - self.0.made).as_micros();
        u64::try_from(passed_us).unwrap_or(u64::MAX).saturating_add(1)
    }
}

/// Returns the server's decision or rejection, or the decision of `on_error` without an answer.
pub(crate) fn answered_or(
    answer: Result<Decision, Error>,
    by_on_error: impl FnOnce(Reason) -> Decision,
) -> Result<Decision, Error> {
    match answer {
        Err(Error::Unavailable { reason, .. }) => Ok(by_on_error(reason)),
        answer => answer,
    }
}
