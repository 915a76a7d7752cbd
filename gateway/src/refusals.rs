//! Logs the calls that the server refused. An operator has to act, for example to add a right.

use crate::config::Domain;
use crate::deciding::Asked;
use crate::log::{Level, event};

/// Logs the server's refusal of a request's call.
pub(crate) fn log_refusal(
    protocol: &'static str,
    domain: &Domain,
    asked: &[Asked<'_>],
    traceparent: Option<&str>,
    message: &str,
) {
    let limits = asked.iter().filter_map(|one| one.found.as_ref());
    let mut rules: Vec<_> = limits.map(|found| &*found.limit.name).collect();
    rules.dedup();
    event(Level::Error, "call_refused")
        .with("protocol", protocol)
        .with("domain", &domain.name)
        .with("rule", rules.join(","))
        .with("outcome", "rejected")
        .traced(traceparent)
        .with("message", message)
        .write_bounded();
}
