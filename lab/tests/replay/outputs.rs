//! The report as text and as HTML.

use super::{Logs, PROGRAM, combined, known_log, replay, replay_of, text};
use std::fs;
use std::process::{Command, Stdio};

#[test]
fn text_has_a_line_for_each_rule_and_the_most_denied_keys() {
    let logs = Logs::new();
    let path = logs.write("access.log", known_log());
    let replayed = replay(&[&path, "--rule", "FIXED 10 60", "--rule", "GCRA 100 100 1s"]);
    assert_eq!((replayed.status, replayed.errors.as_str()), (Some(0), ""));
    let output = &replayed.output;
    for line in [
        "243 lines of 1 file in the format combined: 243 calls by 4 keys ($remote_addr)",
        "2026-10-10 00:00:00 to 2026-10-10 00:04:44 UTC (4 m 44 s)",
        "                 calls  denied    share  keys denied  retry after at most  memory at most",
        "GCRA 100 100 1s    243       0      0 %            0                    -       596 bytes",
        "  key        calls  denied    share      peak",
        "  192.0.2.4    135     105  77.77 %  45 in 1m",
        "  192.0.2.3     51      21  41.17 %  17 in 1m",
        "GCRA 100 100 1s\n  no call denied",
    ] {
        assert!(output.contains(line), "{line}\n{output}");
    }
    assert!(output.lines().any(|line| line.starts_with("FIXED 10 60        243     126  51.85 %")));
    assert!(output.lines().any(|line| line.starts_with("  denied │")), "{output}");
    assert!(output.lines().all(|line| line.chars().count() <= 100), "{output}");
}

#[test]
fn html_is_one_file_with_escaped_keys_and_no_address_to_load() {
    let logs = Logs::new();
    let (key, escaped) =
        ("<script>alert(1)</script>&\"", "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;");
    let log: String = (0..9).map(|_| combined(1, key, 200)).collect();
    let html = logs.path("report.html");
    let arguments = ["-", "--rule", "FIXED 1 60", "--suggest", "--html", text(&html)];
    let replayed = replay_of(log.as_bytes(), &arguments);
    assert_eq!((replayed.status, replayed.errors.as_str()), (Some(0), ""));
    let html = fs::read_to_string(html).expect("the HTML");
    assert!(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    assert!(html.contains(escaped) && !html.contains("<script") && !html.contains(key));
    for loaded in ["http:", "https:", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(loaded), "{loaded}");
    }
    assert!(html.contains("<rect class=\"denied\"") && html.contains("default-src 'none'"));
}

#[test]
fn html_that_cannot_be_written_is_an_error_after_the_report() {
    let logs = Logs::new();
    let log = logs.write("access.log", known_log());
    let html = logs.path("nowhere/report.html");
    let replayed = replay(&[&log, "--rule", "FIXED 1 60", "--html", text(&html)]);
    let error = &replayed.errors;
    assert_eq!(replayed.status, Some(2), "{error}");
    assert!(error.starts_with("redis-throttle-lab: cannot write "), "{error}");
    assert!(replayed.output.starts_with("243 lines of 1 file"), "{}", replayed.output);
}

/// `/dev/full` refuses every write, as a full disk does.
#[cfg(target_os = "linux")]
#[test]
fn report_that_cannot_be_written_is_an_error_unless_its_reader_is_gone() {
    let logs = Logs::new();
    let log = logs.write("access.log", known_log());
    let replay_to = |output: Stdio| {
        let mut command = Command::new(PROGRAM);
        command.args(["replay", &log, "--rule", "FIXED 1 60", "--json"]).stdout(output);
        let ended = command.output().expect("an end");
        (ended.status.code(), String::from_utf8(ended.stderr).expect("UTF-8"))
    };
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let (status, error) = replay_to(full.into());
    assert_eq!(status, Some(2), "{error}");
    assert!(error.starts_with("redis-throttle-lab: cannot write the report: "), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(replay_to(writer.into()), (Some(0), String::new()));
}

#[test]
fn an_empty_log_is_a_report_without_calls() {
    let replayed = replay_of(b"", &["-", "--rule", "FIXED 1 60", "--suggest"]);
    assert_eq!((replayed.status, replayed.errors.as_str()), (Some(0), ""));
    assert!(
        replayed.output.starts_with("0 lines of 1 file in the format combined: 0 calls by 0 keys")
    );
}

#[test]
fn help_has_examples_the_bounds_and_a_log_format_for_exact_times() {
    let help = replay(&["--help"]).output;
    for text in ["$msec $request_time", "Exit status: 0", "16,000,000 keys", "--suggest", "--where"]
    {
        assert!(help.contains(text), "{text}\n{help}");
    }
}

#[test]
fn link_to_the_page_has_the_rate_of_the_log_and_the_rules() {
    let logs = Logs::new();
    let path = logs.write("access.log", known_log());
    let rules = ["--rule", "FIXED 10 60", "--rule", "GCRA 10 10 60", "--open"];
    let state = |more: &[&str]| {
        let report = super::report(&[&[path.as_str()], &rules[..], more].concat());
        let address = report["lab_link"]["address"].as_str().expect("an address").to_owned();
        let fragment = address.strip_prefix("http://127.0.0.1:7780/#").expect("a fragment");
        let state: serde_json::Value =
            serde_json::from_slice(&from_base64_url(fragment)).expect("JSON");
        state
    };
    let separate = state(&[]);
    assert_eq!(separate["r"], serde_json::json!([["FIXED 10 60"], ["GCRA 10 10 60"]]));
    assert_eq!(state(&["--all"])["r"], serde_json::json!([["FIXED 10 60", "GCRA 10 10 60"]]));
    // All of the log, which has fewer keys and calls than the page draws.
    let traffic = separate["t"].as_array().expect("a list");
    assert_eq!((&traffic[0], &traffic[4]), (&"drawn".into(), &4.into()));
    let duration_s = traffic[1].as_u64().expect("a duration") / 1_000;
    assert!((285..=288).contains(&duration_s), "{duration_s}");
    let points = separate["p"].as_array().expect("points");
    assert!((2..=60).contains(&points.len()), "{}", points.len());
    let place = |point: &serde_json::Value| point[0].as_f64().expect("a place");
    assert!(points.is_sorted_by(|a, b| place(a) < place(b)));
    let mean =
        points.iter().map(|point| point[1].as_f64().unwrap()).sum::<f64>() / points.len() as f64;
    let calls = mean * duration_s as f64;
    assert!((230.0..256.0).contains(&calls), "{calls} of 243 calls");
}

/// Returns the bytes of base64 for addresses.
fn from_base64_url(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (mut bits, mut len, mut bytes) = (0_u32, 0, Vec::new());
    for char in text.chars() {
        bits = bits << 6 | digits.find(char).expect("a digit") as u32;
        len += 6;
        if len >= 8 {
            len -= 8;
            bytes.push((bits >> len) as u8);
        }
    }
    bytes
}
