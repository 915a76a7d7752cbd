//! Decides, by `on_error`, the calls that the server did not decide.

use std::sync::PoisonError;
use std::time::Duration;

use crate::calls::denials::KnownDenials;
use crate::calls::local::{LocalLimiter, local_decision};
use crate::rules::{clock, item::Keyed};
use crate::{Decision, Limiter, OnError, Reason};

impl Limiter {
    /// Decides calls without the server: by known denials, unless the calls have none, or else by
    /// `on_error`. `is_all`: the command is one for several rules. `keeps`: the node may reply to
    /// others, so [`OnError::Allow`] keeps the limit in this process.
    pub(crate) fn without_server(
        &self,
        (calls, is_all): (&[Keyed<'_>], bool),
        known: Option<&KnownDenials>,
        (reason, keeps): (Reason, bool),
        peek: bool,
    ) -> Decision {
        let now = clock::now();
        if let Some(denial) = known.and_then(|it| it.without_server(calls, is_all, reason, now)) {
            return denial;
        }
        let mut rows = self.fallback_rows(calls, known, (reason, keeps), peek);
        if is_all { self.strictest(calls, rows) } else { rows.remove(0) }
    }

    /// Decides by the strictest `on_error` of the rules. The decision has a row for each.
    fn strictest(&self, calls: &[Keyed<'_>], rows: Vec<Decision>) -> Decision {
        let rank = |at: &usize| {
            let row = &rows[*at];
            let on_error = self.on_error_of(calls[*at].rule);
            (on_error, !row.allowed, row.retry_after, u64::MAX - row.remaining)
        };
        let deciding = (0..rows.len()).rev().max_by_key(rank).unwrap_or_default();
        Decision::of_rows(deciding, rows)
    }

    fn fallback_rows(
        &self,
        calls: &[Keyed<'_>],
        known: Option<&KnownDenials>,
        (reason, keeps): (Reason, bool),
        peek: bool,
    ) -> Vec<Decision> {
        let now_us = self.local_now_us();
        let mut local = self.0.local.lock().unwrap_or_else(PoisonError::into_inner);
        let mut row = |call: &Keyed<'_>, cost, peek| {
            let row = match self.on_error_of(call.rule) {
                OnError::Allow if keeps_limit(&mut local, call, known, keeps, now_us) => {
                    local_decision(&mut local, call, (cost, 1.0), now_us, peek)
                }
                OnError::Allow => call.rule.without_state(true, Duration::ZERO),
                OnError::Deny => call.rule.without_state(false, self.0.options.breaker_pause),
                OnError::Local => {
                    let share = call.rule.terms().local_share;
                    local_decision(&mut local, call, (cost, share), now_us, peek)
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
        rows
    }
}

/// Returns true if this process keeps the whole limit of a call that `on_error` would allow: the
/// server may reply to other calls, or it denied the key and the retry time is over. In that case
/// the limit begins as the denial left it.
fn keeps_limit(
    local: &mut LocalLimiter,
    call: &Keyed<'_>,
    known: Option<&KnownDenials>,
    keeps: bool,
    now_us: u64,
) -> bool {
    if call.is_held() || call.rule.can_follow(OnError::Local).is_err() {
        return false;
    }
    let over = known.and_then(|known| known.over(call, clock::now()));
    if let Some(over) = over.as_ref().filter(|over| over.is_new) {
        local.begin(call.rule, &call.key, over.reset_after, now_us);
    }
    over.is_some() || keeps
}
