//! Tests the alert rules with promtool.

use std::path::Path;
use std::process::Command;

/// Runs promtool, which must succeed, and returns its output.
fn promtool(arguments: &[&str], folder: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let output = Command::new("promtool").args(arguments).current_dir(folder).output();
    let output = output.expect("run scripts/install-prerequisites.sh promtool");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn prometheus_accepts_the_alert_rules() {
    let said = promtool(&["check", "rules", "alerts.yml"], "deploy/prometheus");
    assert!(said.contains("SUCCESS: 14 rules found"), "{said}");
}

#[test]
fn each_alert_fires_on_its_fault_and_not_on_ordinary_traffic() {
    promtool(&["test", "rules", "alerts.yml"], "tests/monitoring");
}
