//! The fields of an event in logs and traces. None of them has a key or a subject.

use redis::{ErrorKind, RedisError};

use crate::rules::clock;
use crate::{Decision, DecisionEvent, Error};

/// The `retry_after_ms` of a call that is never allowed: the largest integer of every language.
const NEVER_MS: u64 = (1 << 53) - 1;

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
    let retry_after_ms = clock::ceil_ms(decision.retry_after).min(NEVER_MS);
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
