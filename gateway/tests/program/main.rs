//! The program as a user starts it.

mod certificates;
mod clusters;
mod half_open;
mod logs;
#[path = "../../../clients/rust/redis-throttle-client/tests/live/server.rs"]
mod server;
mod signals;
mod sockets;
mod started;
mod storm;
mod tls;
mod wire;

use std::path::Path;
use std::process::Output;

use started::{LIMITS, program};

fn run(words: &[&str], config: &Path) -> Output {
    program().args(words).arg("--config").arg(config).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn check_prints_commands_or_the_place_of_an_invalid_word() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("api.yaml");
    std::fs::write(&file, LIMITS).unwrap();
    let good = run(&["--check"], &file);
    let command = "api (user=sample): RL.FIXED rl:user:api|fixed-60s|sample 5 60\n";
    assert_eq!((good.status.code(), text(&good.stdout)), (Some(0), command));
    let policies = run(&["--print-policies"], folder.path());
    assert_eq!(text(&policies.stdout), "user FIXED 5 60\n");
    std::fs::write(&file, LIMITS.replace("FIXED", "FIXD")).unwrap();
    let bad = run(&["--check"], &file);
    assert_eq!(bad.status.code(), Some(2));
    let place = format!("{}:6:", file.display());
    assert!(text(&bad.stderr).contains(&place), "{bad:?}");
    // The running gateway logs the same.
    let words = ["--server", "redis://127.0.0.1:1", "--http", "127.0.0.1:0", "--log", "json"];
    let bad = run(&words, &file);
    assert_eq!(bad.status.code(), Some(2));
    let lines: Vec<serde_json::Value> =
        text(&bad.stderr).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["event"], "configuration_mistake");
    assert!(lines[0]["message"].as_str().unwrap().starts_with(&place), "{lines:?}");
    assert_eq!(lines[1]["event"], "failed");
}

#[test]
fn help_and_version_are_printed() {
    let help = program().arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(text(&help.stdout).contains("Usage: redis-throttle-gateway --server URL"));
    let version = program().arg("--version").output().unwrap();
    let expected = format!("redis-throttle-gateway {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(text(&version.stdout), expected);
}

#[test]
fn port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("api.yaml"), LIMITS).unwrap();
    let words = ["--server", "redis://127.0.0.1:1", "--http", &address, "--log", "text"];
    let ended = run(&words, folder.path());
    assert_eq!((ended.status.code(), text(&ended.stdout)), (Some(2), ""));
    let message =
        format!("failed message=\"--http: cannot listen on {address}: Address already in use");
    assert!(text(&ended.stderr).contains(&message), "{ended:?}");
}
