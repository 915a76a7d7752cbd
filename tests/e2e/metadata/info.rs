//! `INFO rl`: the module's counters, and that they count correctly.

use std::collections::HashMap;

use support::{ALGORITHMS, BASE_US, Client, Server, WRONGTYPE, text};

fn counts(client: &mut Client) -> HashMap<String, String> {
    client.info("rl")
}

/// Returns the names and new numbers of the fields that have changed, without the ratios of
/// `RL.TOP`, which are not counters.
fn changed(
    before: &HashMap<String, String>,
    after: &HashMap<String, String>,
) -> Vec<(String, i64)> {
    let mut changed = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value) && !name.ends_with("_ratio"))
        .map(|(name, value)| (name.clone(), value.parse().expect("a number")))
        .collect::<Vec<_>>();
    changed.sort();
    changed
}

fn counter(command: &str, verdict: &str) -> String {
    let name = command.strip_prefix("RL.").unwrap().to_lowercase();
    format!("rl_{name}_{verdict}")
}

#[test]
fn info_section_has_the_documented_fields_and_its_counters_start_at_zero() {
    let server = Server::start();
    let mut client = server.client();
    let fields = counts(&mut client);
    assert_eq!(fields["rl_version"], env!("CARGO_PKG_VERSION"));
    assert!(["server", "system"].contains(&fields["rl_clock_source"].as_str()), "{fields:?}");
    let mut zero = vec!["rl_clock_frozen".to_owned(), "rl_errors".into(), "rl_panics".into()];
    zero.extend(["rl_policies".to_owned(), "rl_keys_created".into()]);
    let deciding = ["fixed", "sliding", "slidinglog", "tokenbucket", "leakybucket", "gcra"];
    for name in deciding
        .into_iter()
        .chain(["backoff", "quota", "use", "peek", "charge", "refund", "all", "peekall"])
        .chain(["lease", "renew", "release", "reserve", "commit", "cancel"])
    {
        zero.extend([format!("rl_{name}_allowed"), format!("rl_{name}_denied")]);
    }
    for name in &zero {
        assert_eq!(fields.get(name).map(String::as_str), Some("0"), "{name}");
    }
    assert_eq!(fields["rl_policies_digest"], "0000000000000000");
    for name in ["rl_denied_top1_ratio", "rl_denied_top10_ratio"] {
        assert_eq!(fields[name], "0.000000");
    }
    // A release is four digits of a year and a letter.
    let release = &fields["rl_tzdb_version"];
    let (year, letter) = release.split_at_checked(4).expect("a release");
    assert!(year >= "2026" && letter.len() == 1, "{release}");
    assert_eq!(fields.len(), zero.len() + 6, "nothing else: {fields:?}");
}

#[test]
fn modules_section_appears_once_in_info_everything() {
    let server = Server::start();
    let everything = text(&server.client().run("INFO everything"));
    let sections = everything.lines().filter(|line| line.starts_with("# rl"));
    assert_eq!(sections.count(), 1);
    assert_eq!(everything.matches("\nrl_version:").count(), 1);
}

#[test]
fn every_verdict_is_counted_under_its_command() {
    let server = Server::start();
    let mut client = server.client();
    client.freeze(BASE_US);
    for (round, algorithm) in (1..).zip(ALGORITHMS) {
        let call = algorithm.call("k", 2, "1h");
        let before = counts(&mut client);
        // Makes three allowed calls, one of them with cost 0, and three denied calls, one of them
        // denied for ever.
        for cost in [1, 0, 1, 1, 1, 3] {
            client.decide(&format!("{call} COST {cost}"));
        }
        let mut expected = vec![
            (counter(algorithm.command, "allowed"), 3),
            (counter(algorithm.command, "denied"), 3),
            ("rl_keys_created".to_owned(), round),
        ];
        expected.sort();
        assert_eq!(changed(&before, &counts(&mut client)), expected, "{call}");
        client.integer("DEL k");
    }
}

#[test]
fn peek_counts_as_peek_and_inspect_is_not_counted() {
    let server = Server::start();
    let mut client = server.client();
    for (round, algorithm) in (1..).zip(ALGORITHMS) {
        let before = counts(&mut client);
        client.decide(&algorithm.peek("k", 2, "1h"));
        client.decide(&format!("{} COST 0", algorithm.peek("k", 2, "1h")));
        client.decide(&format!("{} COST 3", algorithm.peek("k", 2, "1h")));
        client.run("RL.INSPECT k");
        let expected =
            vec![("rl_peek_allowed".to_owned(), 2 * round), ("rl_peek_denied".to_owned(), round)];
        assert_eq!(changed(&before, &counts(&mut client)), expected, "{}", algorithm.name);
    }
}

#[test]
fn argument_and_type_errors_are_counted_and_errors_of_the_server_are_not() {
    let server = Server::start();
    let mut client = server.client();
    client.integer("RPUSH list a");
    let before = counts(&mut client);
    client.error("RL.GCRA k 0 1 1");
    client.error("RL.PEEK k WRONG 1 1");
    assert_eq!(client.error("RL.GCRA list 1 1 1"), WRONGTYPE);
    client.error("RL.INSPECT list");
    client.error("RL.DEBUG WRONG WORD");
    // The server itself refuses these calls: they never reach the module.
    client.error("RL.GCRA k");
    client.error("RL.NOTHING k");
    let after = counts(&mut client);
    assert_eq!(changed(&before, &after), [("rl_errors".to_owned(), 5)]);
}

#[test]
fn info_section_has_the_same_length_with_many_keys_as_with_none() {
    // The section takes O(1) time, because it names commands and never keys.
    let server = Server::start();
    let mut client = server.client();
    let before = counts(&mut client).len();
    let calls = (0..2_000).map(|number| {
        let key = format!("k:{number}");
        ["RL.GCRA", &key, "1", "1", "1h"].map(str::to_owned).to_vec()
    });
    client.pipeline(&calls.collect::<Vec<_>>());
    let after = counts(&mut client);
    assert_eq!(after["rl_gcra_allowed"], "2000");
    assert_eq!(after.len(), before);
}

#[test]
fn call_with_several_rules_counts_as_one_decision() {
    let server = Server::start();
    let mut client = server.client();
    let before = counts(&mut client);
    let call = |command| [command, "a", "GCRA 1 1 1h", "b", "FIXED 5 1h"];
    client.call(&call("RL.PEEKALL"));
    client.call(&call("RL.ALL"));
    client.call(&call("RL.ALL"));
    client.call(&call("RL.PEEKALL"));
    client.call(&["RL.ALL", "a", "GCRA 1 1 1h", "b", "GCRA"]);
    let expected = [
        ("rl_all_allowed", 1),
        ("rl_all_denied", 1),
        ("rl_errors", 1),
        ("rl_keys_created", 2),
        ("rl_peekall_allowed", 1),
        ("rl_peekall_denied", 1),
    ];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(changed(&before, &counts(&mut client)), expected);
}
