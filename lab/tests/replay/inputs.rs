//! Files, formats and bad lines.

use super::{DAY_S, Logs, combined, failure, gzip, known_log, replay, report, report_of};
use serde_json::{Value, json};

/// Returns the parts of a report that do not depend on the files.
fn answer(mut report: Value) -> Value {
    report["files"] = Value::Null;
    report
}

const RULE: [&str; 2] = ["--rule", "FIXED 10 60"];

#[test]
fn plain_compressed_rotated_and_piped_logs_give_the_same_answer() {
    let logs = Logs::new();
    let log = known_log();
    let whole = logs.write("access.log", &log);
    let expected = answer(report(&[&[whole.as_str()], &RULE[..]].concat()));
    assert_eq!(expected["limits"][0]["denied"], 126);
    let middle = log.len() / 2;
    let (old, new) = log.split_at(log[..middle].rfind('\n').expect("a line") + 1);
    let (oldest, old) = old.split_at(old[..old.len() / 2].rfind('\n').expect("a line") + 1);
    // Two members in one file, as logrotate's programs may leave them.
    let members = [gzip(oldest.as_bytes()), gzip(old.as_bytes())].concat();
    let compressed = logs.write("access.log.1.gz", members);
    let rotated = logs.write("access.log.0", new);
    for files in [[&rotated, &compressed], [&compressed, &rotated]] {
        let files = files.map(String::as_str);
        assert_eq!(answer(report(&[&files[..], &RULE].concat())), expected, "{files:?}");
    }
    let piped = |input: &[u8]| answer(report_of(input, &[&["-"][..], &RULE].concat()));
    assert_eq!(piped(log.as_bytes()), expected);
    assert_eq!(piped(&gzip(log.as_bytes())), expected);
    let mixed = report_of(new.as_bytes(), &[&[compressed.as_str(), "-"], &RULE[..]].concat());
    assert_eq!(answer(mixed), expected);
}

#[test]
fn logs_of_two_servers_are_merged_by_time() {
    let logs = Logs::new();
    // Each server sees every other call; only together they exceed the limit of 10.
    let of_server = |server: u64| -> String {
        (0..20).filter(|s| s % 2 == server).map(|s| combined(s, "192.0.2.1", 200)).collect()
    };
    let (a, b) = (logs.write("a.log", of_server(0)), logs.write("b.log", of_server(1)));
    let alone = report(&[&[a.as_str()], &RULE[..]].concat());
    let both = report(&[&[a.as_str(), &b], &RULE[..]].concat());
    assert_eq!(
        (&alone["limits"][0]["denied"], &both["limits"][0]["denied"]),
        (&json!(0), &json!(10))
    );
    assert_eq!(both["lines"]["late"], 0);
}

#[test]
fn lines_out_of_order_within_the_window_are_sorted_and_older_ones_are_counted() {
    let line = |second: u64| combined(second, "192.0.2.1", 200);
    // The call of second 3 is logged after that of second 7.
    let log: String = [0, 1, 2, 7, 3, 8].map(line).concat();
    let rule = ["-", "--rule", "FIXED 4 5s"];
    let sorted = report_of(log.as_bytes(), &rule);
    assert_eq!((&sorted["lines"]["late"], &sorted["limits"][0]["denied"]), (&json!(0), &json!(0)));
    let late = report_of(log.as_bytes(), &[&rule[..], &["--reorder", "2s"]].concat());
    assert_eq!(late["lines"]["late"], 1);
    assert!(late["notes"].to_string().contains("1 line is out of order by more than 2s"));
}

#[test]
fn conditions_leave_lines_out_and_a_limit_in_force_is_named() {
    let log: String =
        [200, 429, 429, 503].iter().map(|status| combined(1, "192.0.2.1", *status)).collect();
    let replay = |conditions: &[&str]| {
        report_of(log.as_bytes(), &[&["-", "--rule", "FIXED 9 60"], conditions].concat())
    };
    let all = replay(&[]);
    assert_eq!((&all["calls"], &all["lines"]["denied_before"]), (&json!(4), &json!(2)));
    assert!(all["notes"].to_string().contains("Denied clients change traffic"));
    let some = replay(&["--where", "status!=429", "--where", "$status<500"]);
    assert_eq!((&some["calls"], &some["lines"]["left_out"]), (&json!(1), &json!(3)));
    assert!(some["notes"].to_string().contains("2 lines have status 429"));
}

#[test]
fn keys_are_templates_of_fields_and_networks() {
    let log = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1", "192.0.2.2"]
        .map(|address| combined(1, address, 200))
        .concat();
    for (key, keys) in [
        ("$remote_addr", 5),
        ("$remote_addr/64", 4),
        ("$remote_addr/24/32", 2),
        ("$method:$path", 1),
        ("${remote_addr} $status", 5),
    ] {
        let report = report_of(log.as_bytes(), &["-", "--key", key, "--rule", "FIXED 1 60"]);
        assert_eq!(report["keys"], keys, "{key}");
    }
}

#[test]
fn nginx_formats_are_read_as_the_configuration_has_them() {
    let format =
        "log_format timed escape=json '$remote_addr \"$http_x_id\" '\n '[$time_iso8601] $status';";
    let log =
        "::1 \"a b\" [2026-10-10T00:00:01+00:00] 200\n::1 \"c\" [2026-10-10T02:00:02+02:00] 200\n";
    let arguments = ["-", "--format", format, "--key", "$http_x_id", "--rule", "FIXED 1 60"];
    let report = report_of(log.as_bytes(), &arguments);
    assert_eq!((&report["keys"], &report["lines"]["bad"]), (&json!(2), &json!(0)));
    assert_eq!(report["from_us"], (DAY_S + 1) * 1_000_000);
    assert_eq!(report["to_us"], (DAY_S + 2) * 1_000_000);
}

#[test]
fn more_than_one_bad_line_in_a_hundred_is_an_error_unless_bad_lines_are_skipped() {
    let logs = Logs::new();
    let good: String = (0..198).map(|second| combined(second, "192.0.2.1", 200)).collect();
    let accepted = logs.write("accepted.log", format!("bad\n{good}\n\nworse\x1b[2J\n"));
    let report = report(&[&[accepted.as_str()], &RULE[..]].concat());
    assert_eq!((&report["lines"]["read"], &report["lines"]["bad"]), (&json!(200), &json!(2)));
    assert_eq!(report["lines"]["first_bad"][0]["reason"], "expected ` - ` after $remote_addr");
    assert_eq!(report["lines"]["first_bad"][1]["line"], 202);
    assert_eq!(report["lines"]["first_bad"][1]["text"], "worse\\u{1b}[2J");
    let refused = logs.write("refused.log", format!("1\n2\n3\n4\n{good}"));
    let error = failure(1, &[&[refused.as_str()], &RULE[..]].concat());
    assert!(error.starts_with("4 of 202 lines were not read, more than 1 %. The first:\n"));
    assert!(error.contains("refused.log, line 3: ") && !error.contains("line 4: "), "{error}");
    assert!(error.ends_with("--skip-bad."), "{error}");
    let skipped = replay(&[&[refused.as_str(), "--skip-bad"], &RULE[..]].concat());
    assert_eq!(skipped.status, Some(0));
    assert!(skipped.output.contains("4 lines not read (1.98 %), the first:\n"));
}

#[test]
fn mistakes_say_what_to_do_and_end_with_exit_code_2() {
    let logs = Logs::new();
    let log = logs.write("access.log", known_log());
    let truncated = gzip(known_log().as_bytes());
    let truncated = logs.write("access.log.gz", &truncated[..truncated.len() / 2]);
    let policies = logs.write("policies", "api GCRA 2 1 1m\nother FIXED 0 60\n");
    let fine = logs.write("fine", "api GCRA 2 1 1m\nother FIXED 5 60\n");
    let nowhere = logs.path("nowhere");
    let table: [(&[&str], &str); 19] = [
        (&[&log], "nothing to do: name a limit with --rule"),
        (&[&log, "--rule", "GCRA 0 1 1"], "invalid --rule `GCRA 0 1 1`: ERR invalid burst"),
        (&[&log, "--rule", "LEASE a 3 60s"], "invalid --rule `LEASE a 3 60s`: ERR invalid rule"),
        (&[super::text(&nowhere), "--rule", "FIXED 1 1"], "cannot read "),
        (&["\x1b[31m", "--rule", "FIXED 1 1"], "cannot read \\u{1b}[31m: "),
        (&[super::text(logs.folder.path()), "--rule", "FIXED 1 1"], "it is a folder"),
        (&[&truncated, "--rule", "FIXED 1 1"], "cannot read "),
        (&["-", "-", "--rule", "FIXED 1 1"], "is named twice"),
        (&[&log, "--key", "$user", "--rule", "FIXED 1 1"], "the format has no $user"),
        (&[&log, "--format", "x", "--rule", "FIXED 1 1"], "invalid format: expected combined"),
        (&[&log, "--json-lines", "--rule", "FIXED 1 1"], "missing --key"),
        (&[&log, "--reorder", "2h", "--rule", "FIXED 1 1"], "invalid --reorder"),
        (&[&log, "--suggest", "--cover", "98"], "invalid --cover: expected 99, 99.9 or 99.99"),
        (&[&log, "--suggest", "--ladder", "1/x"], "invalid --ladder"),
        (&[&log, "--rule", "FIXED 1 1", "--html", &log], "invalid --html: expected a file that"),
        (
            &[&log, "--json-lines", "--key", &["a"; 17].join("."), "--rule", "FIXED 1 1"],
            "invalid field: expected at most 16 names joined by dots",
        ),
        (&[&log, "--policies", &policies], "policies, line 2: ERR invalid limit"),
        (
            &[&log, "--policies", &fine],
            "--policy: missing: expected a policy of the file, such as api, other",
        ),
        (&[&log, "--policies", &fine, "--policy", "x"], "--policy: no policy of that name"),
    ];
    for (arguments, expected) in table {
        let error = failure(2, arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let five = ["--rule", "FIXED 1 1"].repeat(5);
    assert!(failure(2, &[&[log.as_str()], &five[..]].concat()).contains("too many rules"));
}
