//! Logs the calls that the server refused. An operator has to act, for example to add a right.

use crate::config::Domain;
use crate::decider::RequestDecision;
use crate::log::{Event, Level, event};
use crate::metrics::Protocol;

/// Logs the refusals of a request's calls.
pub(crate) fn log_refusals(
    protocol: Protocol,
    domain: &Domain,
    decision: &RequestDecision,
    traceparent: Option<&str>,
) {
    for message in &decision.refusals {
        let limits = decision.rows.iter().filter_map(|row| row.limit.as_ref());
        let mut rules: Vec<_> = limits.map(|limit| &*limit.name).collect();
        rules.dedup();
        let event = event(Level::Error, "call_refused")
            .with("protocol", protocol.as_str())
            .with("domain", &domain.name)
            .with("rule", rules.join(","))
            .with("outcome", "rejected")
            .traced(traceparent)
            .with("message", message);
        hinted(event, message).write_bounded();
    }
}

/// Adds what to do if a node of a cluster has refused a call as a server of its own.
pub(crate) fn hinted(event: Event, message: &str) -> Event {
    // redis-rs names CROSSSLOT so. The other words are the client's, for MOVED.
    if message.contains("CrossSlot") || message.contains("node of a cluster") {
        event.with("hint", "for a node of a cluster, pass --cluster")
    } else {
        event
    }
}
