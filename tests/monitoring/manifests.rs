//! Validates the manifests for Kubernetes by its schemas and those of the Prometheus Operator.

use std::fs;
use std::path::Path;
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs `manifests.py` on files, with the packages that `make test-monitoring` fetches. Returns
/// what it prints.
fn validated(files: &[&str]) -> Result<String, String> {
    let python = root().join(".cache/venv/manifests/bin/python");
    let output = Command::new(&python)
        .arg("tests/monitoring/manifests.py")
        .args(files)
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{error}: run make test-monitoring"));
    let printed = |bytes| String::from_utf8(bytes).expect("UTF-8");
    if output.status.success() { Ok(printed(output.stdout)) } else { Err(printed(output.stderr)) }
}

/// The manifests, each with the number of its objects.
const MANIFESTS: [(&str, usize); 3] = [
    ("deploy/gateway/kubernetes.yaml", 5),
    ("deploy/kubernetes/prometheus-rule.yaml", 1),
    ("deploy/kubernetes/redis-throttle.yaml", 5),
];

#[test]
fn every_manifest_for_kubernetes_is_valid_by_its_schema() {
    let objects =
        validated(&MANIFESTS.map(|(file, _)| file)).unwrap_or_else(|said| panic!("{said}"));
    for (file, count) in MANIFESTS {
        let found = objects.lines().filter(|line| line.starts_with(file)).count();
        assert_eq!(found, count, "{objects}");
    }
}

#[test]
fn manifest_with_an_unknown_field_or_a_wrong_type_is_invalid() {
    let folder = tempfile::tempdir().expect("a folder");
    for (file, right, wrong, complaint) in [
        (2, "serviceName:", "serviceNames:", "serviceNames"),
        (2, "containerPort: 9877", "containerPort: metrics", "metrics"),
        (2, "- { port: metrics }", "- { ports: metrics }", "ports"),
        (1, "for: 1m", "for: 1 minute", "1 minute"),
    ] {
        let text = fs::read_to_string(root().join(MANIFESTS[file].0)).expect("a manifest");
        assert!(text.contains(right), "{right}");
        let path = folder.path().join("wrong.yaml");
        fs::write(&path, text.replacen(right, wrong, 1)).expect("a file");
        let said = validated(&[path.to_str().expect("UTF-8")]).expect_err(wrong);
        assert!(said.contains(complaint), "{said}");
    }
}
