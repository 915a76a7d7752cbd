//! The event of each decision, and its fields in logs and traces. None of them has a key or a
//! subject.

use std::time::Duration;

use redis::{ErrorKind, RedisError};

use crate::rules::durations::ceil_ms;
use crate::{Decision, Error, Rule};

/// The `retry_after_ms` of a call that is never allowed: the largest integer of every language.
const NEVER_MS: u64 = (1 << 53) - 1;

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
    pub(crate) fn is_counted(self) -> bool {
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
    /// Whether `on_error` decided because the server did not.
    pub degraded: bool,
    /// The error of a call that the server refused, or of an end of an admission that failed.
    pub error: Option<&'a Error>,
}

/// A hook that gets the events.
pub(crate) type OnDecision = dyn Fn(&DecisionEvent<'_>) + Send + Sync;

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    Bool(bool),
    Number(u64),
    Text(&'a str),
    Texts(Vec<&'a str>),
}

/// Returns the fields in the order and with the names of the other clients.
pub(crate) fn fields_of<'a>(event: &'a DecisionEvent<'_>) -> Vec<(&'static str, Field<'a>)> {
    let mut fields = vec![
        ("kind", Field::Text(event.kind.as_str())),
        ("rule", Field::Text(event.rule.name())),
        ("key_hash", Field::Text(&event.key_hash)),
    ];
    if let Some(decision) = event.decision {
        fields.extend(of_decision(decision));
    }
    match event.error {
        Some(Error::CommandRejected { source }) => {
            fields.push(("error", Field::Text(word_of(source))));
        }
        Some(Error::Unavailable { reason, .. }) => {
            fields.push(("error", Field::Text("unavailable")));
            fields.push(("reason", Field::Text(reason.as_str())));
        }
        _ => {}
    }
    fields
}

fn of_decision(decision: &Decision) -> impl Iterator<Item = (&'static str, Field<'_>)> {
    let retry_after_ms = ceil_ms(decision.retry_after).min(NEVER_MS);
    let rules = decision.rows.iter().map(|row| &*row.rule).collect::<Vec<_>>();
    let always = [
        ("allowed", Field::Bool(decision.allowed)),
        ("source", Field::Text(decision.source.as_str())),
        ("limit", Field::Number(decision.limit)),
        ("remaining", Field::Number(decision.remaining)),
        ("retry_after_ms", Field::Number(retry_after_ms)),
        ("degraded", Field::Bool(decision.degraded)),
    ];
    let reason = decision.reason.map(|reason| ("reason", Field::Text(reason.as_str())));
    let rules = (!rules.is_empty()).then_some(("rules", Field::Texts(rules)));
    always.into_iter().chain(reason).chain(rules)
}

/// Returns the first word of an error reply. Its text may repeat the key.
fn word_of(error: &RedisError) -> &str {
    match error.kind() {
        ErrorKind::AuthenticationFailed => "WRONGPASS",
        _ => error.code().unwrap_or("PROTOCOL"),
    }
}
