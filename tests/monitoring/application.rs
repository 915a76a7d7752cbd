//! An application with the Python client, whose metrics a real Prometheus scrapes.

use crate::exporter::Exporter;
use crate::http;
use crate::prometheus::Prometheus;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{env, path::PathBuf};
use support::{Server, eventually};

/// A process that checks three rules all the time. It is stopped by its process id when dropped.
pub struct Application {
    child: Child,
    /// The address of its metrics, as `host:port`.
    pub address: String,
}

impl Application {
    pub fn of_server(server: &Server) -> Self {
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/python");
        let python = env::var_os("RL_PYTHON")
            .map_or_else(|| clients.join(".venv/bin/python"), PathBuf::from);
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/monitoring/application.py");
        let mut child = Command::new(python)
            .args([program, &server.port().to_string()])
            .env("PYTHONPATH", clients.join("src"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run make test-monitoring");
        let mut port = String::new();
        let output = child.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut port).expect("a line");
        assert!(!port.is_empty(), "the application did not start");
        Self { child, address: format!("127.0.0.1:{}", port.trim_end()) }
    }

    /// Returns the metrics page.
    pub fn page(&self) -> String {
        http::get(&self.address, "/metrics").body
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn alerts_fire_for_an_application_whose_server_is_slow_or_stopped() {
    let mut server = Server::setup().with_tcp().start();
    let exporter = Exporter::of_servers(&[&format!("redis://127.0.0.1:{}", server.port())]);
    let application = Application::of_server(&server);
    let prometheus = Prometheus::scraping(&exporter, Some(&application));
    let alerts = ["RateLimitUnanswered", "RateLimitSlow", "RateLimitBreakerOpen"];
    let by_server = "rule=\"api\",outcome=\"denied\",source=\"server\"";
    prometheus.wait_for(&format!("rate(redis_throttle_checks_total{{{by_server}}}[1m]) > 0"));
    prometheus.wait_for("redis_throttle_breaker_open == 0");
    alerts.iter().for_each(|alert| prometheus.assert_silent(alert));

    let mut client = server.client();
    let slow = "ALERTS{alertstate=\"firing\",alertname=\"RateLimitSlow\",job=\"application\"}";
    eventually("the alert on slow checks", || {
        client.ok("CLIENT PAUSE 200 ALL");
        (!prometheus.query(slow).contains("\"result\":[]")).then_some(())
    });
    prometheus.assert_silent("RateLimitUnanswered");

    server.crash();
    for on_error in ["allow", "deny"] {
        let labels = format!("job=\"application\",on_error=\"{on_error}\"");
        prometheus.wait_for_alert("RateLimitUnanswered", &labels);
    }
    prometheus.wait_for_alert("RateLimitBreakerOpen", "job=\"application\"");
    let circuit = "rule=\"pages\",on_error=\"allow\",reason=\"circuit\"";
    prometheus.wait_for(&format!("redis_throttle_degraded_total{{{circuit}}}"));
    assert!(!application.page().contains("user:42"));
}
