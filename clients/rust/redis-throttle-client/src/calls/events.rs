//! The event of each decision, for metrics and logs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use tokio::time::Instant;

use crate::rules::{clock, event::OnDecision};
use crate::{Decision, DecisionEvent, Error, EventKind, Item, Limiter, Rule};

impl Limiter {
    /// Adds a hook to that of the options, for the limiter and its clones. It gets the same events,
    /// after the earlier ones. A panic in a hook changes neither the decision nor another hook.
    pub fn on_decision(&self, hook: impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static) {
        let mut hooks = self.0.hooks.write().unwrap_or_else(PoisonError::into_inner);
        *hooks = hooks.iter().cloned().chain([Arc::new(hook) as Arc<OnDecision>]).collect();
    }

    /// Counts the decision and passes it to the hooks.
    pub(crate) fn record(
        &self,
        kind: EventKind,
        decided: Result<Decision, Error>,
        item: &Item<'_>,
        began: Instant,
    ) -> Result<Decision, Error> {
        if let Ok(decision) = &decided
            && kind.is_counted()
        {
            self.0.counts.decision(decision);
        }
        if let Ok(decision) = &decided
            && let (true, Some(reason)) = (decision.degraded, decision.reason)
        {
            self.0.error_log.count(reason);
        }
        match &decided {
            Ok(decision) => self.report(kind, Ok(decision), item.rule, item.subject, began),
            Err(error) => self.report_rejection(error, item.rule, item.subject, began),
        }
        decided
    }

    /// Passes a call that the server refused to the hooks. Other errors are no events.
    pub(crate) fn report_rejection(
        &self,
        error: &Error,
        rule: &Rule,
        subject: &str,
        began: Instant,
    ) {
        if error.is_rejection() {
            self.report(EventKind::Rejected, Err(error), rule, subject, began);
        }
    }

    pub(crate) fn report(
        &self,
        kind: EventKind,
        decided: Result<&Decision, &Error>,
        rule: &Rule,
        subject: &str,
        began: Instant,
    ) {
        // A hook may add another one, so no lock is held while it runs.
        let hooks = self.0.hooks.read().unwrap_or_else(PoisonError::into_inner).clone();
        if hooks.is_empty() {
            return;
        }
        let event = DecisionEvent {
            kind,
            decision: decided.ok(),
            rule,
            key_hash: self.0.keys.key_hash(subject),
            latency: clock::now() - began,
            degraded: decided.is_ok_and(|decision| decision.degraded),
            error: decided.err(),
        };
        for hook in hooks.iter() {
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&event)));
        }
    }
}
