//! Checks the text of `RL.METRICS` with promtool.

use redis::Value;
use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};
use support::metrics::traffic;
use support::{Client, Server, text};

/// Fails the test if promtool reports a problem with the text.
pub fn assert_promtool_accepts(text: &str) {
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("run scripts/install-prerequisites.sh promtool"),
        _ => panic!("promtool cannot be run: {error}"),
    });
    promtool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// Asserts that promtool accepts the server's metrics, and returns them.
fn accepted_metrics(client: &mut Client) -> String {
    let page = text(&client.run("RL.METRICS"));
    assert_promtool_accepts(&page);
    page
}

#[test]
fn promtool_accepts_the_metrics_before_and_after_traffic() {
    let server = Server::start();
    let mut client = server.client();
    accepted_metrics(&mut client);
    traffic(&mut client);
    accepted_metrics(&mut client);
}

#[test]
fn promtool_accepts_the_metrics_of_policies_in_every_mode_and_with_the_longest_names() {
    let server = Server::start();
    let mut client = server.client();
    client.integer("RPUSH list a");
    for (number, mode) in ["", "ENFORCE 50 ", "SHADOW ", "OFF ", "BLOCK "].iter().enumerate() {
        client.ok(&format!("RL.POLICY SET mode-{number} {mode}FIXED 2 1h"));
        client.ok(&format!("RL.POLICY SET mode-{number}@plan:gold {mode}FIXED 4 1h"));
        for key in ["a", "a", "a", "b", "list"] {
            client.run(&format!("RL.USE {key} mode-{number}"));
            client.run(&format!("RL.USE {key} mode-{number} FOR plan:gold"));
        }
    }
    let long = |number: usize| (format!("{:p>64}", number / 10), format!("{number:v>64}"));
    let words = |line: Vec<&str>| line.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let calls = (0..10_000).flat_map(|number| {
        let (policy, variant) = long(number);
        let name = format!("{policy}@{variant}");
        let invented = format!("{number:d>64}");
        [
            words(vec!["RL.POLICY", "SET", &name, "FIXED", "1", "1h"]),
            words(vec!["RL.USE", &policy, &policy, "FOR", &variant]),
            words(vec!["RL.USE", "k", &invented, "DEFAULT", "FIXED", "1", "1h"]),
        ]
    });
    let calls: Vec<_> = calls.collect();
    let replies = client.pipeline(&calls);
    // The table holds 10,000 policies, and has 10 already.
    assert_eq!(replies.iter().filter(|reply| **reply == Value::Okay).count(), 9_990);
    let page = accepted_metrics(&mut client);
    for sample in ["policy=\"(other)\"", "outcome=\"shadow_denied\"", "variant=\"plan:gold\""] {
        assert!(page.contains(sample), "{sample}");
    }
}

#[test]
#[should_panic(expected = "error")]
fn promtool_rejects_malformed_metrics() {
    assert_promtool_accepts("rl_errors_total{command=\"gcra} 1\n");
}
