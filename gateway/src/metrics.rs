//! The gateway's metrics. Label values come from the configuration or from this file, never from a
//! request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::config::Domain;
use crate::decider::{Outcome, RequestDecision, Row};

/// The type of the text that [`Metrics::text`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const SECONDS: [f64; 12] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

type Label = (&'static str, &'static str);
/// A label whose value the configuration has.
type Named = (&'static str, Arc<str>);
type Histograms = Family<[Label; 1], Histogram, fn() -> Histogram>;

/// The protocol of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Envoy's rate limit service.
    Grpc,
    /// Forward-auth.
    Http,
}

impl Protocol {
    /// Returns the name in labels and logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// The reason for which a request is refused without a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No file has the domain, or the domain is not for this protocol. Envoy's request is allowed.
    UnknownDomain,
    /// The request lacks a value, or has one that is not valid or too long.
    Invalid,
    /// More limits than one call takes.
    TooManyLimits,
    /// The server sent no reply, and the limit leaves the decision to the proxy.
    Unavailable,
    /// The server refused a call: limits decided by their `on_error`.
    Rejected,
}

impl Refusal {
    fn as_str(self) -> &'static str {
        match self {
            Self::UnknownDomain => "unknown_domain",
            Self::Invalid => "invalid",
            Self::TooManyLimits => "too_many_limits",
            Self::Unavailable => "unavailable",
            Self::Rejected => "rejected",
        }
    }
}

/// The metrics of one gateway.
pub struct Metrics {
    registry: Registry,
    requests: Family<([Named; 2], [Label; 1]), Counter>,
    degraded: Family<[Named; 2], Counter>,
    refused: Family<[Label; 2], Counter>,
    latency: Histograms,
    reloads: Family<[Label; 1], Counter>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Adds the gateway's metrics to a registry, which may have those of the client.
    #[must_use]
    pub fn new(mut registry: Registry) -> Self {
        let requests = Family::default();
        let degraded = Family::default();
        let refused = Family::default();
        let latency = Histograms::new_with_constructor(|| Histogram::new(SECONDS));
        let reloads = Family::<[Label; 1], Counter>::default();
        // Both are there from the start, so that an alert sees the first refused reading.
        for outcome in ["loaded", "refused"] {
            drop(reloads.get_or_create(&[("outcome", outcome)]));
        }
        let own = registry.sub_registry_with_prefix("redis_throttle_gateway");
        // The registry adds `_total` to the names of counters, and a full stop to each text.
        own.register("requests", "Requests that met a limit, by its outcome", requests.clone());
        let text = "Requests that were decided without the server";
        own.register("degraded", text, degraded.clone());
        own.register("refused", "Requests without a decision", refused.clone());
        let text = "Time from a request to its response";
        own.register_with_unit("latency", text, Unit::Seconds, latency.clone());
        own.register(
            "reloads",
            "Readings of changed files, and those after SIGHUP",
            reloads.clone(),
        );
        Self { registry, requests, degraded, refused, latency, reloads }
    }

    /// Counts each limit that decided a request, and the calls that the server refused.
    pub fn decided(&self, protocol: Protocol, domain: &Domain, decision: &RequestDecision) {
        decision.refusals.iter().for_each(|_| self.refused(protocol, Refusal::Rejected));
        if decision.is_left_to_the_proxy() {
            self.refused(protocol, Refusal::Unavailable);
        }
        for row in &decision.rows {
            let (Some(limit), Some(outcome)) = (&row.limit, outcome(row)) else { continue };
            let named = [("domain", domain.name.clone()), ("rule", limit.name.clone())];
            if row.is_degraded() {
                self.degraded.get_or_create(&named).inc();
            }
            self.requests.get_or_create(&(named, [("outcome", outcome)])).inc();
        }
    }

    /// Counts a request that is refused without a decision.
    pub fn refused(&self, protocol: Protocol, reason: Refusal) {
        let labels = [("protocol", protocol.as_str()), ("reason", reason.as_str())];
        self.refused.get_or_create(&labels).inc();
    }

    /// Records the time from a request to its response.
    pub fn responded(&self, protocol: Protocol, time: Duration) {
        let latency = self.latency.get_or_create(&[("protocol", protocol.as_str())]);
        latency.observe(time.as_secs_f64());
    }

    /// Counts a reading of the configuration or the certificate. A refused one changes nothing.
    pub fn reloaded(&self, loaded: bool) {
        let outcome = if loaded { "loaded" } else { "refused" };
        self.reloads.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Returns all metrics as [`CONTENT_TYPE`].
    #[must_use]
    pub fn text(&self) -> String {
        let mut all = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut all, &self.registry);
        all
    }
}

/// Returns the outcome of a row; `None` if its limit did not decide.
fn outcome(row: &Row) -> Option<&'static str> {
    let is_denied = match &row.outcome {
        Outcome::Free => return None,
        Outcome::Unavailable if row.allowed => false,
        Outcome::Unavailable => return Some("unavailable"),
        Outcome::Unlimited => false,
        Outcome::Blocked(_) => true,
        Outcome::Decided(decision) => !decision.allowed,
    };
    let is_shadow = row.limit.as_ref().is_some_and(|limit| limit.shadow);
    let is_banned = matches!(&row.outcome, Outcome::Decided(decision) if decision.banned);
    Some(match (is_denied, row.allowed) {
        (true, false) if is_banned => "banned",
        (true, false) => "denied",
        (true, true) if is_shadow => "shadow",
        // A charge denies the next request, not this one.
        _ => "allowed",
    })
}

#[cfg(test)]
mod tests;
