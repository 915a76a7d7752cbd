//! The event of each decision, for metrics and logs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::rules::clock;
use crate::{Decision, Error, Item, Limiter, Rule};

/// The kind of a [`DecisionEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A decision of `check`, `check_all`, or of a method that checks.
    Check,
    /// A decision of `peek`.
    Peek,
    /// A charge.
    Charge,
    /// A refund.
    Refund,
    /// A decision on a lease.
    Lease,
    /// The end of a reservation whose work took units.
    Commit,
    /// The end of a reservation whose work took nothing.
    Cancel,
    /// A call that the server refused.
    Rejected,
}

impl EventKind {
    /// Returns `check`, `peek`, `charge`, `refund`, `lease`, `commit`, `cancel` or `rejected`, for
    /// logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Peek => "peek",
            Self::Charge => "charge",
            Self::Refund => "refund",
            Self::Lease => "lease",
            Self::Commit => "commit",
            Self::Cancel => "cancel",
            Self::Rejected => "rejected",
        }
    }

    /// Returns true for calls whose decisions are counted.
    fn is_counted(self) -> bool {
        matches!(self, Self::Check | Self::Lease)
    }
}

/// A call, as [`Options::on_decision`](crate::Options::on_decision) gets it. It has no subject.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DecisionEvent<'a> {
    /// The method, or [`EventKind::Rejected`] for a call that the server refused.
    pub kind: EventKind,
    /// The decision. `None` for a call that the server refused, and for an end of an admission that
    /// failed.
    pub decision: Option<&'a Decision>,
    /// The rule that decided.
    pub rule: &'a Rule,
    /// A keyed hash of the subject, as 16 hexadecimal digits. Without
    /// [`hmac_secret`](crate::Options::hmac_secret) it differs between processes.
    pub key_hash: String,
    /// The time from the start of the call.
    pub latency: Duration,
    /// Whether `on_error` decided because the server gave no answer.
    pub degraded: bool,
    /// The error of a call that the server refused, or of an end of an admission that failed.
    pub error: Option<&'a Error>,
}

/// A hook that gets the events.
pub(crate) type OnDecision = dyn Fn(&DecisionEvent<'_>) + Send + Sync;

/// The hooks of a limiter. A call that is being told keeps those that it has.
pub(crate) struct Hooks(RwLock<Arc<[Arc<OnDecision>]>>);

impl Hooks {
    pub fn new(first: Option<Arc<OnDecision>>) -> Self {
        Self(RwLock::new(first.into_iter().collect()))
    }

    fn add(&self, hook: Arc<OnDecision>) {
        let mut hooks = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *hooks = hooks.iter().cloned().chain([hook]).collect();
    }

    fn all(&self) -> Arc<[Arc<OnDecision>]> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Limiter {
    /// Adds a hook to that of the options, for the limiter and its clones. It gets the same events,
    /// after the earlier ones. A panic in a hook changes neither the decision nor another hook.
    pub fn on_decision(&self, hook: impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static) {
        self.0.hooks.add(Arc::new(hook));
    }

    /// Counts the decision and passes it to the hooks.
    pub(crate) fn told(
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
            self.0.unanswered.count(reason);
        }
        match &decided {
            Ok(decision) => self.tell(kind, Ok(decision), item.rule, item.subject, began),
            Err(error) => self.tell_rejection(error, item.rule, item.subject, began),
        }
        decided
    }

    /// Passes a call that the server refused to the hooks. Other errors are no events.
    pub(crate) fn tell_rejection(&self, error: &Error, rule: &Rule, subject: &str, began: Instant) {
        if error.is_rejection() {
            self.tell(EventKind::Rejected, Err(error), rule, subject, began);
        }
    }

    pub(crate) fn tell(
        &self,
        kind: EventKind,
        decided: Result<&Decision, &Error>,
        rule: &Rule,
        subject: &str,
        began: Instant,
    ) {
        let hooks = self.0.hooks.all();
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
