//! Runs the exporter with real servers, and Debian's Prometheus that scrapes it.
//!
//! `RL_EXPORTER` names the program, and `make exporter` builds it.

// The end-to-end suite uses parts of it that these tests do not.
#[path = "e2e/support/mod.rs"]
#[allow(dead_code, unused_imports)]
mod support;

#[path = "monitoring/alerts.rs"]
mod alerts;
#[path = "monitoring/exporter.rs"]
mod exporter;
#[path = "monitoring/http.rs"]
mod http;
#[path = "monitoring/prometheus.rs"]
mod prometheus;
#[path = "monitoring/servers.rs"]
mod servers;
