//! Suggested limits, replayed on the log that they come from.

use super::{DAY_S, Logs, report};
use redis_throttle_engine::grammar::policy_file::policy_file;
use serde_json::Value;

const KEYS: u64 = 250;

/// Returns JSON lines of keys that call in bursts, each key with its own size and costs.
fn log() -> String {
    let mut calls = Vec::new();
    // A linear congruential generator: the same log in each run.
    let mut state = 3_u64;
    let mut random = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    for key in 0..KEYS {
        for _ in 0..1 + random(4) {
            let start_ms = random(600_000);
            for _ in 0..1 + random(1 + key / 3) {
                calls.push((start_ms + random(3_000), key, random(3)));
            }
        }
    }
    calls.sort_unstable();
    let line = |(ms, key, cost): &(u64, u64, u64)| {
        format!("{{\"time\":{},\"key\":\"k{key}\",\"n\":{cost}}}\n", DAY_S * 1_000 + ms)
    };
    calls.iter().map(line).collect()
}

/// Returns the number of keys that a rule denies.
fn keys_denied(path: &str, rule: &str) -> u64 {
    let report = report(&[path, "--json-lines", "--key", "key", "--cost", "n", "--rule", rule]);
    assert_eq!(report["keys"], KEYS);
    report["limits"][0]["keys_denied"].as_u64().expect("a number")
}

fn suggestion(path: &str, more: &[&str]) -> Value {
    let arguments = [path, "--json-lines", "--key", "key", "--cost", "n"];
    report(&[&arguments[..], more].concat())["suggestion"].clone()
}

/// Returns a rule with another burst or limit.
fn with_units(rule: &str, units: u64) -> String {
    let mut words: Vec<_> = rule.split(' ').map(str::to_owned).collect();
    words[1] = units.to_string();
    words.join(" ")
}

#[test]
fn every_burst_and_limit_of_the_frontier_is_the_smallest_that_covers_its_keys() {
    let logs = Logs::new();
    let path = logs.write("app.jsonl", log());
    for (algorithm, rule_of) in [
        (
            "gcra",
            (|rung: &str| format!("GCRA 1 {}", rung.replace(" per ", " "))) as fn(&str) -> String,
        ),
        ("tokenbucket", |rung| format!("TOKENBUCKET 1 {}", rung.replace(" per ", " "))),
        ("fixed", |rung| format!("FIXED 1 {rung}")),
    ] {
        let suggestion = suggestion(&path, &[&format!("--suggest={algorithm}"), "--cover", "99"]);
        let frontier = suggestion["frontier"].as_array().expect("rungs");
        assert!(frontier.len() >= 6, "{algorithm}");
        for rung in frontier {
            let rule = rule_of(rung["rung"].as_str().expect("a rung"));
            // 250 keys are too few for one key in a thousand: all of them are covered.
            let covers = [("99 %", KEYS / 100), ("all", 0), ("all", 0)];
            for ((cover, denied_max), of) in covers.iter().zip(rung["units"].as_array().unwrap()) {
                assert_eq!(of["cover"], *cover);
                let units = of["units"].as_u64().expect("a burst");
                let denied = keys_denied(&path, &with_units(&rule, units));
                assert!(denied <= *denied_max, "{rule} {units} denies {denied} keys");
                let denied = keys_denied(&path, &with_units(&rule, units - 1));
                assert!(denied > *denied_max, "{rule} {units} - 1 denies {denied} keys");
            }
        }
    }
}

#[test]
fn suggested_rule_denies_the_excluded_keys_and_its_policy_line_is_valid() {
    let logs = Logs::new();
    let path = logs.write("app.jsonl", log());
    for algorithm in ["--suggest", "--suggest=tokenbucket", "--suggest=fixed"] {
        let suggestion = suggestion(&path, &[algorithm, "--cover", "99", "--policy", "api"]);
        let rule = suggestion["rule"].as_str().expect("a rule");
        let line = suggestion["policy_line"].as_str().expect("a line");
        assert_eq!(line, format!("api SHADOW {rule}"));
        assert_eq!(policy_file(line.as_bytes()).expect("a valid line").len(), 1);
        let excluded = suggestion["excluded_keys"].as_u64().expect("a number");
        assert_eq!(keys_denied(&path, rule), excluded, "{rule}");
        assert!((1..=KEYS / 100).contains(&excluded), "{rule} excludes {excluded}");
        let listed = suggestion["excluded"].as_array().expect("keys");
        assert_eq!(listed.len() as u64, excluded);
        let calls: u64 = listed.iter().map(|key| key["calls"].as_u64().unwrap()).sum();
        assert_eq!(suggestion["excluded_calls"], calls);
    }
}

#[test]
fn margin_raises_the_suggestion_and_the_horizon_chooses_the_rung() {
    let logs = Logs::new();
    let path = logs.write("app.jsonl", log());
    let rule = |more: &[&str]| {
        let ladder = ["--suggest", "--ladder", "10/1m,1/1s"];
        suggestion(&path, &[&ladder[..], more].concat())["rule"]
            .as_str()
            .expect("a rule")
            .to_owned()
    };
    let words = |rule: &str| rule.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let plain = words(&rule(&[]));
    let raised = words(&rule(&["--margin", "20"]));
    let burst = |words: &[String]| words[1].parse::<u64>().expect("a burst");
    assert_eq!(burst(&raised), (burst(&plain) * 120).div_ceil(100));
    // In a short time the burst decides, in a long time the rate.
    assert_eq!(words(&rule(&["--horizon", "1s"]))[2..], ["1", "1s"]);
    assert_eq!(words(&rule(&["--horizon", "1h"]))[2..], ["10", "1m"]);
}
