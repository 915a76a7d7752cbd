//! Logs the calls that the server refused. An operator has to act, for example to add a right.

use crate::config::Domain;
use crate::deciding::Answer;
use crate::log::{Level, event};
use crate::metrics::Protocol;

/// Logs the refusals of a request's calls.
pub(crate) fn log_refusals(
    protocol: Protocol,
    domain: &Domain,
    answer: &Answer,
    traceparent: Option<&str>,
) {
    for message in &answer.refusals {
        let limits = answer.rows.iter().filter_map(|row| row.limit.as_ref());
        let mut rules: Vec<_> = limits.map(|limit| &*limit.name).collect();
        rules.dedup();
        event(Level::Error, "call_refused")
            .with("protocol", protocol.as_str())
            .with("domain", &domain.name)
            .with("rule", rules.join(","))
            .with("outcome", "rejected")
            .traced(traceparent)
            .with("message", message)
            .write_bounded();
    }
}
