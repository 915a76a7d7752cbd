//! Runs the exporter and an application with real servers, and a real Prometheus that scrapes them.
//!
//! `RL_EXPORTER` is the path of the exporter; `make exporter` builds it. `RL_PYTHON` is a Python
//! with the packages of the application; the default is the one of the client in Python.

#[path = "monitoring/alerts.rs"]
mod alerts;
#[path = "monitoring/application.rs"]
mod application;
#[path = "monitoring/exporter.rs"]
mod exporter;
#[path = "monitoring/http.rs"]
mod http;
#[path = "monitoring/manifests.rs"]
mod manifests;
#[path = "monitoring/prometheus.rs"]
mod prometheus;
#[path = "monitoring/promtool.rs"]
mod promtool;
#[path = "monitoring/servers.rs"]
mod servers;
