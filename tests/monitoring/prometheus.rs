//! A real Prometheus that scrapes the exporter and an application, evaluates the alerts, and
//! serves the queries of the dashboard.

use crate::application::Application;
use crate::exporter::Exporter;
use crate::http;
use saphyr::{LoadableYamlNode as _, Yaml};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use support::server::free_port;
use support::{Server, eventually, module, raw_error};
use tempfile::TempDir;

fn deployed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/prometheus").join(name);
    fs::read_to_string(path).expect("a file of deploy/prometheus")
}

pub struct Prometheus {
    child: Child,
    directory: TempDir,
    address: String,
}

impl Prometheus {
    /// Starts Prometheus with the files of deploy/prometheus. Its intervals are hundreds of
    /// milliseconds instead of seconds, and its alerts fire without a delay.
    pub fn scraping(exporter: &Exporter, application: Option<&Application>) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let write =
            |name: &str, text: String| fs::write(directory.path().join(name), text).unwrap();
        let patient = deployed("alerts.yml");
        let waits = |line: &&str| !line.trim_start().starts_with("for: ");
        write("alerts.yml", patient.lines().filter(waits).collect::<Vec<_>>().join("\n"));
        let of = |job: &str, address: &str| {
            deployed("scrape.yml")
                .replace("job_name: redis-throttle", &format!("job_name: {job}"))
                .replace("127.0.0.1:9877", address)
                .replace("scrape_interval: 15s", "scrape_interval: 300ms")
                .replace("scrape_timeout: 10s", "scrape_timeout: 300ms")
        };
        let mut scrape = of("redis-throttle", &exporter.address);
        if let Some(application) = application {
            scrape += &of("application", &application.address);
        }
        let indented: String = scrape.lines().map(|line| format!("  {line}\n")).collect();
        let global = "global: { evaluation_interval: 300ms }\nrule_files: [alerts.yml]\n";
        write("prometheus.yml", format!("{global}scrape_configs:\n{indented}"));
        let address = format!("127.0.0.1:{}", free_port());
        let log = File::create(directory.path().join("log")).unwrap();
        let child = Command::new("prometheus")
            .arg("--config.file=prometheus.yml")
            .arg("--storage.tsdb.path=data")
            .arg(format!("--web.listen-address={address}"))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("run scripts/install-prerequisites.sh promtool");
        let mut prometheus = Self { child, directory, address };
        eventually("Prometheus is ready", || {
            let ended = prometheus.child.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "{}", prometheus.log());
            let ready = http::send(&prometheus.address, "GET /-/ready HTTP/1.0\r\n\r\n")?;
            (ready.status == 200).then_some(())
        });
        prometheus
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// Returns the JSON result of an expression. Fails the test on an error.
    pub fn query(&self, expression: &str) -> String {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let response = http::get(&self.address, &format!("/api/v1/query?query={encoded}"));
        assert_eq!(response.status, 200, "{expression}: {}", response.body);
        response.body
    }

    /// Waits until an expression has a result, and returns it.
    pub fn wait_for(&self, expression: &str) -> String {
        eventually(expression, || {
            let result = self.query(expression);
            (!result.contains("\"result\":[]")).then_some(result)
        })
    }

    /// Waits until the alert fires with these labels.
    pub fn wait_for_alert(&self, name: &str, labels: &str) {
        self.wait_for(&format!("ALERTS{{alertstate=\"firing\",alertname=\"{name}\",{labels}}}"));
    }

    pub fn assert_silent(&self, name: &str) {
        let firing = self.query(&format!("ALERTS{{alertname=\"{name}\"}}"));
        assert!(firing.contains("\"result\":[]"), "{firing}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_stores_the_series_and_alerts_fire_for_panics_and_dead_servers() {
    let with_faults = Server::setup().module(module::path_with_faults()).with_tcp().start();
    let mut mortal = Server::setup().with_tcp().start();
    let names = [&with_faults, &mortal].map(|server| format!("127.0.0.1:{}", server.port()));
    let urls = names.each_ref().map(|name| format!("redis://{name}"));
    let exporter = Exporter::of_servers(&[&urls[0], &urls[1]]);
    let prometheus = Prometheus::scraping(&exporter, None);
    let of = |name: &str| format!("job=\"redis-throttle\",server=\"{name}\"");

    let mut client = with_faults.client();
    client.decide("RL.GCRA user:42 6 10 60");
    for name in &names {
        prometheus.wait_for(&format!("rl_up{{{}}} == 1", of(name)));
    }
    let gcra = "command=\"gcra\",outcome=\"allowed\"";
    prometheus.wait_for(&format!("rl_decisions_total{{{},{gcra}}} == 1", of(&names[0])));
    prometheus.wait_for(&format!("rl_decisions_total{{{},{gcra}}} == 0", of(&names[1])));
    prometheus.wait_for("rl_exporter_info");
    for alert in ["ServerDown", "Panicked", "ClockFrozen", "OneKeyDenied"] {
        let alert = format!("RateLimit{alert}");
        prometheus.assert_silent(&alert);
    }

    client.ok("RL.DEBUG PANIC decide");
    client.error("RL.GCRA user:42 6 10 60");
    prometheus.wait_for_alert("RateLimitPanicked", &of(&names[0]));
    client.freeze(support::BASE_US);
    prometheus.wait_for_alert("RateLimitClockFrozen", &of(&names[0]));
    prometheus.assert_silent("RateLimitServerDown");
    mortal.crash();
    prometheus.wait_for_alert("RateLimitServerDown", &of(&names[1]));
    drop(exporter);
    prometheus.wait_for_alert("RateLimitExporterDown", "job=\"redis-throttle\"");
    let log = prometheus.log();
    assert!(!log.contains("level=warn") && !log.contains("level=error"), "{log}");
}

/// Collects the value of every text field named `key`, at any depth.
fn texts_under<'a>(node: &'a Yaml<'a>, key: &str, found: &mut Vec<&'a str>) {
    if let Some(items) = node.as_sequence() {
        items.iter().for_each(|item| texts_under(item, key, found));
    }
    for (name, value) in node.as_mapping().into_iter().flatten() {
        match (name.as_str(), value.as_str()) {
            (Some(name), Some(text)) if name == key => found.push(text),
            _ => texts_under(value, key, found),
        }
    }
}

#[test]
fn every_panel_of_the_dashboard_queries_existing_series() {
    let server = Server::setup().with_tcp().start();
    let mut client = server.client();
    client.ok("RL.POLICY SET api GCRA 6 10 60");
    let exporter = Exporter::of_servers(&[&format!("redis://127.0.0.1:{}", server.port())]);
    let application = Application::of_server(&server);
    let prometheus = Prometheus::scraping(&exporter, Some(&application));
    // A rate has a value only after its counter has grown between two scrapes.
    for outcome in ["allowed", "denied"] {
        eventually("a rate", || {
            assert_eq!(raw_error(&client.run("RL.USE api:42 api")), None);
            let series = format!("rl_policy_decisions_total{{outcome=\"{outcome}\"}}");
            let result = prometheus.query(&format!("sum(rate({series}[1m])) > 0"));
            (!result.contains("\"result\":[]")).then_some(())
        });
    }
    prometheus.wait_for("rate(redis_throttle_checks_total[1m]) > 0");
    let page = exporter.page() + &application.page();
    let dashboard = deployed("dashboard.json");
    let documents = Yaml::load_from_str(&dashboard).expect("JSON is YAML");
    let mut expressions = Vec::new();
    texts_under(&documents[0], "expr", &mut expressions);
    assert!(expressions.len() >= 20, "{expressions:?}");
    for expression in expressions {
        let names = expression.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        let is_ours = |name: &&str| name.starts_with("rl_") || name.starts_with("redis_throttle_");
        for name in names.filter(is_ours) {
            let name = name.trim_end_matches("_bucket");
            assert!(page.contains(&format!("# TYPE {name} ")), "{name} in {expression}");
        }
        let chosen = expression
            .replace("$__rate_interval", "1m")
            .replace("$application", ".*")
            .replace("$job", ".*")
            .replace("$server", ".*")
            .replace("$policy", ".*");
        let result = prometheus.query(&chosen);
        assert!(!result.contains("\"result\":[]"), "{chosen}");
    }
}
