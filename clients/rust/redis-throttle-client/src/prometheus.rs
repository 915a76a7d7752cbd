//! Metrics of limiters, with the crate `prometheus-client`, version 0.25.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::calls::state::Inner;
use crate::{Decision, DecisionEvent, EventKind, Limiter, Source};

const RULES_MAX: usize = 100;
const OTHER: &str = "(other)";
const SECONDS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0];
const RATIOS: [f64; 7] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0];

type Label = (&'static str, Cow<'static, str>);
type Histograms = Family<[Label; 1], Histogram, fn() -> Histogram>;

/// Registers the metrics of the limiter and its clones.
///
/// Counts checks and leases; charges, refunds and peeks only if the server rejects them. Of several
/// rules in one call, that of the deciding rule is counted. At most 100 rules are counted under
/// their names, the others together as `(other)`. Keys and subjects never appear.
///
/// A registry takes these metrics once: pass other limiters to [`Metrics::add`].
pub fn metrics(limiter: &Limiter, registry: &mut Registry) -> Metrics {
    let metrics = Metrics(Arc::new(Families::new(registry)));
    metrics.add(limiter);
    metrics
}

/// The metrics of one or more limiters.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Families>);

impl Metrics {
    /// Adds the decisions of another limiter to the metrics.
    pub fn add(&self, limiter: &Limiter) {
        let added = Arc::downgrade(&limiter.0);
        let mut limiters = self.0.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        limiters.retain(|known| known.strong_count() > 0);
        if limiters.iter().any(|known| known.ptr_eq(&added)) {
            return;
        }
        limiters.push(added);
        drop(limiters);
        let families = self.0.clone();
        limiter.on_decision(move |event| families.record(event));
    }
}

struct Families {
    checks: Family<[Label; 3], Counter>,
    degraded: Family<[Label; 3], Counter>,
    latency: Histograms,
    ratio: Histograms,
    open: Gauge,
    limiters: Mutex<Vec<Weak<Inner>>>,
    rules: Mutex<HashSet<String>>,
}

impl std::fmt::Debug for Families {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Families").finish_non_exhaustive()
    }
}

impl Families {
    fn new(registry: &mut Registry) -> Self {
        let families = Self {
            checks: Family::default(),
            degraded: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            ratio: Family::new_with_constructor(|| Histogram::new(RATIOS)),
            open: Gauge::default(),
            limiters: Mutex::default(),
            rules: Mutex::default(),
        };
        // The registry adds `_total` to the names of counters, and a full stop to each text.
        registry.register(
            "redis_throttle_checks",
            "Checks and leases, and rejected calls",
            families.checks.clone(),
        );
        registry.register(
            "redis_throttle_degraded",
            "Checks that on_error decided without the server",
            families.degraded.clone(),
        );
        registry.register(
            "redis_throttle_latency_seconds",
            "Time that a check took in the application",
            families.latency.clone(),
        );
        registry.register(
            "redis_throttle_remaining_ratio",
            "Units left of the limit after a server's decision",
            families.ratio.clone(),
        );
        registry.register(
            "redis_throttle_breaker_open",
            "Circuit breakers open at the last decision",
            families.open.clone(),
        );
        families
    }

    fn record(&self, event: &DecisionEvent<'_>) {
        let limiters = self.limiters.lock().unwrap_or_else(PoisonError::into_inner);
        let open: usize = limiters
            .iter()
            .filter_map(Weak::upgrade)
            .map(|limiter| limiter.nodes.open_breakers())
            .sum();
        drop(limiters);
        self.open.set(i64::try_from(open).unwrap_or(i64::MAX));
        match (event.kind, event.decision) {
            (EventKind::Rejected, _) => self.check(event.rule.name(), "rejected", Source::Server),
            (EventKind::Check | EventKind::Lease, Some(decision)) => {
                let outcome = match (decision.allowed, decision.banned) {
                    (true, _) => "allowed",
                    (false, true) => "banned",
                    (false, false) => "denied",
                };
                self.check(event.rule.name(), outcome, decision.source);
                self.latency
                    .get_or_create(&[("source", decision.source.as_str().into())])
                    .observe(event.latency.as_secs_f64());
                self.decided(event.rule.name(), decision);
            }
            // The others, and an end of an admission that failed, which has no decision.
            _ => {}
        }
    }

    fn check(&self, rule: &str, outcome: &'static str, source: Source) {
        let labels = [
            ("rule", self.name(rule)),
            ("outcome", outcome.into()),
            ("source", source.as_str().into()),
        ];
        self.checks.get_or_create(&labels).inc();
    }

    fn decided(&self, rule: &str, decision: &Decision) {
        if decision.degraded {
            let on_error = match (decision.source, decision.allowed) {
                (Source::Local, _) => "local",
                (_, true) => "allow",
                (_, false) => "deny",
            };
            let reason = decision.reason.map_or("", |reason| reason.as_str());
            let labels = [
                ("rule", self.name(rule)),
                ("on_error", on_error.into()),
                ("reason", reason.into()),
            ];
            self.degraded.get_or_create(&labels).inc();
        }
        for row in decision.rows_or_self() {
            if row.source == Source::Server && row.limit > 0 {
                #[allow(clippy::cast_precision_loss)]
                let ratio = row.remaining as f64 / row.limit as f64;
                self.ratio.get_or_create(&[("rule", self.name(&row.rule))]).observe(ratio);
            }
        }
    }

    /// Returns the name of the rule, or that of the others if enough rules have been seen.
    fn name(&self, rule: &str) -> Cow<'static, str> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        if !rules.contains(rule) {
            if rules.len() >= RULES_MAX {
                return OTHER.into();
            }
            rules.insert(rule.to_owned());
        }
        rule.to_owned().into()
    }
}
