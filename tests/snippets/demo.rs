//! Tests `make demo`: it shows the table of all algorithms first, then every command, or only one,
//! and ends with the lab's address.

use std::process::Command;
use support::module;

/// Runs the demo and returns its output, or its error message if it fails.
fn demo(only: &str) -> Result<String, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/demo.sh");
    let run = Command::new(script).arg(module::path()).env("ONLY", only).output();
    let run = run.expect("the demo");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    if run.status.success() { Ok(text(run.stdout)) } else { Err(text(run.stderr)) }
}

#[test]
fn demo_starts_with_the_table_and_shows_every_session() {
    let printed = demo("").expect("all sessions");
    let at = |text: &str| printed.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("SLIDINGLOG   #") < at("> RL."), "{printed}");
    for session in ["GCRA", "FIXED", "QUOTA", "PEEKALL", "RELEASE", "CANCEL", "METRICS", "TOP"] {
        at(&format!("> RL.{session}"));
    }
    assert_eq!(printed.matches("(error)").count(), 2, "{printed}");
    assert!(!printed.contains("ERR unknown command"), "{printed}");
    assert!(printed.ends_with("http://127.0.0.1:7780\n"), "{printed}");
}

#[test]
fn demo_can_show_a_single_command() {
    let gcra = demo("gcra").expect("GCRA");
    assert!(gcra.contains("> RL.GCRA") && !gcra.contains("RL.FIXED"), "{gcra}");
    assert!(demo("RL.RENEW").expect("leases").contains("> RL.RENEW"));
    let refusal = demo("lru").expect_err("no such command");
    assert!(refusal.contains("unknown command lru: expected"), "{refusal}");
}
