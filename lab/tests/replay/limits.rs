//! Rules and policies on logs with known results.

use super::{DAY_S, KNOWN, Logs, combined, known_log, replay_of, report, report_of};
use serde_json::{Value, json};

/// Returns the denied calls and the denied keys of a limit.
fn denied(report: &Value, limit: usize) -> (u64, u64) {
    let limit = &report["limits"][limit];
    let number = |name: &str| limit[name].as_u64().expect("a number");
    (number("denied"), number("keys_denied"))
}

/// Returns JSON lines from `(milliseconds, key, more fields)`.
fn json_lines(calls: &[(u64, &str, &str)]) -> Vec<u8> {
    let line = |(ms, key, more): &(u64, &str, &str)| {
        format!("{{\"time\":{},\"key\":\"{key}\"{more}}}\n", DAY_S * 1_000 + ms)
    };
    calls.iter().map(line).collect::<String>().into_bytes()
}

const JSON: [&str; 4] = ["-", "--json-lines", "--key", "key"];

#[test]
fn fixed_window_denies_every_call_after_the_tenth_of_a_minute() {
    let logs = Logs::new();
    let path = logs.write("access.log", known_log());
    let report = report(&[&path, "--rule", "FIXED 10 60"]);
    let calls: u64 = KNOWN.iter().map(|(_, calls)| calls * 3).sum();
    assert_eq!((&report["calls"], &report["keys"]), (&json!(calls), &json!(KNOWN.len())));
    assert_eq!(denied(&report, 0), (3 * (7 + 35), 2));
    let limit = &report["limits"][0];
    let top = json!([
        {"key": "192.0.2.4", "calls": 135, "denied": 105, "peak": 45, "peak_window_ms": 60_000},
        {"key": "192.0.2.3", "calls": 51, "denied": 21, "peak": 17, "peak_window_ms": 60_000},
    ]);
    assert_eq!(limit["most_denied"], top);
    // The eleventh call of the quickest key comes about 10 s after its first one.
    let wait_ms = limit["longest_wait_ms"].as_u64().unwrap();
    assert!((49_000..=51_000).contains(&wait_ms), "{wait_ms}");
    let timeline = &limit["timeline"];
    let sum = |name: &str| -> u64 {
        timeline[name].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
    };
    assert_eq!((sum("calls"), sum("denied")), (calls, 126));
    // A stored key lives for a minute: at most all keys, each with 9 + 20 + 128 bytes.
    assert_eq!(limit["memory"], json!({"bytes": 628, "keys_at_once": 4, "bytes_a_key": 157}));
}

#[test]
fn several_rules_are_tried_each_by_itself() {
    let logs = Logs::new();
    let path = logs.write("access.log", known_log());
    let rules = ["--rule", "FIXED 10 60", "--rule", "SLIDINGLOG 9 60", "--rule", "GCRA 45 1 1d"];
    let report = report(&[&[path.as_str()], &rules[..]].concat());
    assert_eq!(denied(&report, 0), (126, 2));
    assert_eq!(denied(&report, 1), (3 * (1 + 8 + 36), 3));
    // A day gives one unit back: 45 calls of all three minutes.
    assert_eq!(denied(&report, 2), (51 - 45 + 135 - 45, 2));
}

#[test]
fn all_rules_together_are_one_call_that_any_of_them_denies() {
    let calls: Vec<_> = (0..20).map(|call| (call * 100, "a", "")).collect();
    let rules = ["--rule", "FIXED 5 1s", "--rule", "FIXED 8 60", "--all"];
    let report = report_of(&json_lines(&calls), &[&JSON[..], &rules].concat());
    // The first second allows 5 of 10 calls, the next one 3 until the minute is used up.
    assert_eq!(denied(&report, 0), (12, 1));
    let denials = json!([["FIXED 5 1s", 5], ["FIXED 8 60", 7]]);
    assert!(!report["notes"].to_string().contains("a request took"), "{}", report["notes"]);
    assert_eq!(report["limits"][0]["denials_answered_by"], denials);
    let text = replay_of(&json_lines(&calls), &[&JSON[..], &rules].concat()).output;
    assert!(
        text.contains("FIXED 8 60 gave the reply to 7 denied calls: the longest wait"),
        "{text}"
    );
}

#[test]
fn calls_that_a_leaky_bucket_queues_are_counted_apart_from_those_that_act_at_once() {
    let lines = json_lines(&[(0, "a", ""); 5]);
    let rules = ["--rule", "LEAKYBUCKET 3 1 1s", "--rule", "GCRA 3 1 1s"];
    let arguments = [&JSON[..], &rules].concat();
    let report = report_of(&lines, &arguments);
    let waits = |at: usize| {
        let limit = &report["limits"][at];
        ["denied", "queued", "longest_queue_ms", "longest_wait_ms"].map(|name| limit[name].clone())
    };
    assert_eq!(waits(0), [2, 2, 2_000, 1_000].map(|number| json!(number)));
    assert_eq!(waits(1), [2, 0, 0, 1_000].map(|number| json!(number)));
    let text = replay_of(&lines, &arguments).output;
    let sentence = "3 calls allowed, of them 2 after a wait of up to 2 s";
    assert_eq!(text.matches(sentence).count(), 1, "{text}");
}

#[test]
fn cost_of_a_call_is_a_number_or_a_field() {
    let calls =
        [(0, "a", ",\"n\":7"), (1, "a", ",\"n\":4"), (2, "a", ",\"n\":3"), (3, "a", ",\"n\":11")];
    let lines = json_lines(&calls);
    let replay =
        |cost: &[&str]| report_of(&lines, &[&JSON[..], &["--rule", "FIXED 10 60"], cost].concat());
    let by_field = replay(&["--cost", "n"]);
    assert_eq!(denied(&by_field, 0), (2, 1));
    assert_eq!(by_field["limits"][0]["never_allowed"], 1);
    assert_eq!(denied(&replay(&["--cost", "5"]), 0), (2, 1));
    assert_eq!(denied(&replay(&[]), 0), (0, 0));
}

#[test]
fn lines_of_one_second_are_spread_over_it_unless_they_come_at_once() {
    let log: String = (0..10).map(|_| combined(5, "192.0.2.1", 200)).collect();
    for (place, expected) in [("spread", 0), ("at-once", 9)] {
        let arguments = ["-", "--rule", "GCRA 1 10 1s", "--in-second", place];
        let report = report_of(log.as_bytes(), &arguments);
        assert_eq!(denied(&report, 0).0, expected, "{place}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("Times are whole seconds"), "{notes}");
    }
}

#[test]
fn the_time_of_a_request_is_subtracted_from_its_end() {
    // Both calls end within a millisecond, and began two seconds apart.
    let format = "$remote_addr [$time_local] $msec $request_time";
    let lines = format!(
        "::1 [x] {0}.001 2.000\n::1 [x] {0}.002 0.001\n::1 [x] {0}.003 0.000\n",
        DAY_S + 10
    );
    let rule = ["-", "--format", format, "--rule", "FIXED 1 1s"];
    let report = report_of(lines.as_bytes(), &rule);
    assert_eq!(denied(&report, 0), (1, 1));
    assert!(report["notes"].to_string().contains("a call counts when its request began"));
    let kept = report_of(lines.as_bytes(), &[&rule[..], &["--request-time", "none"]].concat());
    assert_eq!(denied(&kept, 0), (2, 1));
}

/// A policy file with every mode.
const POLICIES: &str = "\
    # limits of the interface\n\
    api                FIXED 2 60\n\
    api@plan:gold      FIXED 5 60\n\
    api@plan:free      BLOCK FIXED 1 60\n\
    search             SHADOW FIXED 2 60\n\
    export             OFF FIXED 1 60\n\
    login              ENFORCE 50 FIXED 1 60\n";

#[test]
fn policies_deny_in_their_mode_and_shadow_shows_what_enforcing_would_change() {
    let logs = Logs::new();
    let file = logs.write("policies", POLICIES);
    let mut calls = Vec::new();
    for call in 0..6 {
        for (key, more) in [
            ("a", ",\"name\":\"api\""),
            ("b", ",\"name\":\"api\",\"plan\":\"gold\""),
            ("c", ",\"name\":\"api\",\"plan\":\"free\""),
            ("a", ",\"name\":\"search\""),
            ("a", ",\"name\":\"export\""),
            ("a", ",\"name\":\"other\""),
        ] {
            calls.push((call, key, more));
        }
    }
    let arguments = ["--policies", &file, "--policy", "$name", "--for", "plan:$plan"];
    let report = report_of(&json_lines(&calls), &[&JSON[..], &arguments].concat());
    let policy = |name: &str| {
        let policies = report["policies"].as_array().unwrap();
        let policy = policies.iter().find(|policy| policy["name"] == name).expect(name);
        ["calls", "denied", "shadow_denied", "keys_denied"].map(|of| policy[of].as_u64().unwrap())
    };
    assert_eq!(policy("api"), [6, 4, 0, 1]);
    assert_eq!(policy("api@plan:gold"), [6, 1, 0, 1]);
    assert_eq!(policy("api@plan:free"), [6, 6, 0, 1]);
    assert_eq!(policy("search"), [6, 0, 4, 1]);
    assert_eq!(policy("export"), [6, 0, 0, 0]);
    assert_eq!(report["limits"][0]["calls"], 36);
    let keys = &report["limits"][0]["most_denied"];
    assert_eq!((&keys[0]["key"], &keys[0]["denied"]), (&json!("api c"), &json!(6)));
    assert!(report["notes"].to_string().contains("6 calls name no policy of the file"));
    let text = replay_of(&json_lines(&calls), &[&JSON[..], &arguments].concat()).output;
    assert!(text.contains("would deny 4 calls more (11.11 %)"), "{text}");
}

#[test]
fn a_percentage_enforces_a_policy_for_the_keys_that_a_server_would_choose() {
    let logs = Logs::new();
    let file = logs.write("policies", POLICIES);
    let keys: Vec<String> = (0..100).map(|key| format!("user:{key}")).collect();
    let calls: Vec<_> =
        [0, 1].iter().flat_map(|ms| keys.iter().map(|key| (*ms, key.as_str(), ""))).collect();
    let arguments = ["--policies", &file, "--policy", "login"];
    let report = report_of(&json_lines(&calls), &[&JSON[..], &arguments].concat());
    // The hash of docs/policies.md: FNV-1a of the policy, a zero byte and the key.
    let is_enforced = |key: &&String| {
        let bytes = ["login\0".as_bytes(), key.as_bytes()].concat();
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hash % 100 < 50
    };
    let enforced = keys.iter().filter(is_enforced).count();
    assert!((20..80).contains(&enforced), "{enforced}");
    let policy = &report["policies"][0];
    assert_eq!(policy["denied"], enforced);
    assert_eq!(policy["shadow_denied"], 100 - enforced);
    assert_eq!(policy["mode"], "enforced for 50 %");
}
