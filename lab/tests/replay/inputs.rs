//! Files, formats and bad lines.

use super::{
    DAY_S, Logs, combined, failure, gzip, known_log, replay, replay_of, report, report_of,
};
use serde_json::{Value, json};

/// Returns the parts of a report that do not depend on the files.
fn without_files(mut report: Value) -> Value {
    report["files"] = Value::Null;
    report
}

const RULE: [&str; 2] = ["--rule", "FIXED 10 60"];

#[test]
fn plain_compressed_rotated_and_piped_logs_give_the_same_report() {
    let logs = Logs::new();
    let log = known_log();
    let whole = logs.write("access.log", &log);
    let expected = without_files(report(&[&[whole.as_str()], &RULE[..]].concat()));
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
        assert_eq!(without_files(report(&[&files[..], &RULE].concat())), expected, "{files:?}");
    }
    let piped = |input: &[u8]| without_files(report_of(input, &[&["-"][..], &RULE].concat()));
    assert_eq!(piped(log.as_bytes()), expected);
    assert_eq!(piped(&gzip(log.as_bytes())), expected);
    let mixed = report_of(new.as_bytes(), &[&[compressed.as_str(), "-"], &RULE[..]].concat());
    assert_eq!(without_files(mixed), expected);
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
fn lines_out_of_order_are_sorted() {
    let line = |second: u64| combined(second, "192.0.2.1", 200);
    // The call of second 3 is logged after that of second 70.
    let log: String = [0, 1, 2, 70, 3, 71].map(line).concat();
    let sorted = report_of(log.as_bytes(), &["-", "--rule", "FIXED 4 60s"]);
    assert_eq!((&sorted["lines"]["late"], &sorted["limits"][0]["denied"]), (&json!(0), &json!(0)));
}

#[test]
fn a_pipe_with_the_newest_file_first_is_refused_and_the_files_are_merged() {
    let logs = Logs::new();
    let line = |call: u64| combined(call / 10, &format!("192.0.{}.1", call % 250), 200);
    let (old, new): (String, String) =
        ((0..300_000).map(line).collect(), (300_000..600_000).map(line).collect());
    let piped = replay_of(
        [new.as_bytes(), old.as_bytes()].concat().as_slice(),
        &["-", "--rule", "FIXED 10 60"],
    );
    assert_eq!((piped.status, piped.output.as_str()), (Some(1), ""));
    assert!(piped.errors.contains("Name the files in place of the pipe"), "{}", piped.errors);
    let (old, new) = (logs.write("access.log.1", old), logs.write("access.log", new));
    let merged = report(&[&new, &old, "--rule", "FIXED 10 60"]);
    assert_eq!(merged["limits"][0]["denied"], 0);
}

#[test]
fn a_line_from_the_future_is_bad_and_a_pause_is_none() {
    let logs = Logs::new();
    let mut lines: Vec<_> = (0..300).map(|second| combined(second * 2, "192.0.2.1", 200)).collect();
    lines[150] = lines[150].replace("/2026:", "/2036:");
    let log = logs.write("access.log", lines.concat());
    let future = report(&[&log, "--rule", "FIXED 1 2s"]);
    assert_eq!((&future["calls"], &future["limits"][0]["denied"]), (&json!(299), &json!(0)));
    assert_eq!(future["lines"]["first_bad"][0]["line"], 151);
    let reason = "a time far after those of the lines behind it";
    assert_eq!(future["lines"]["first_bad"][0]["reason"], reason);
    // An hour passes between two lines, and a day before the last one.
    let pauses: String =
        [0, 3_600, 3_601, 7_202, 86_399].map(|s| combined(s, "192.0.2.1", 200)).concat();
    let report = report_of(pauses.as_bytes(), &["-", "--rule", "FIXED 1 1s"]);
    assert_eq!((&report["calls"], &report["lines"]["bad"]), (&json!(5), &json!(0)));
}

#[test]
fn a_clock_that_jumps_ahead_for_some_lines_makes_them_bad() {
    let line = |second: u64| combined(second, "192.0.2.1", 200);
    let mut lines: Vec<_> = (0..9_000).map(|second| line(second * 2)).collect();
    for glitch in &mut lines[4_000..4_060] {
        *glitch = glitch.replace("/2026:", "/2036:");
    }
    lines.push(line(18_000).replace("/2026:", "/2036:"));
    let report = report_of(lines.concat().as_bytes(), &["-", "--rule", "FIXED 1 2s"]);
    assert_eq!((&report["lines"]["bad"], &report["limits"][0]["denied"]), (&json!(61), &json!(0)));
}

#[test]
fn columns_change_where_a_comment_names_others() {
    let rows = |at: u64, row: &str| -> String {
        (at..at + 50)
            .map(|s| format!("2026-10-10 00:{:02}:{:02} {row}\n", s / 60, s % 60))
            .collect()
    };
    let log = ["#Fields: date time c-ip cs-username\n", &rows(0, "192.0.2.1 alice")].concat()
        + "#Fields: date time cs-username c-ip\n"
        + &rows(60, "alice 192.0.2.2");
    let arguments = ["-", "--format", "iis", "--rule", "FIXED 50 1h"];
    let report = report_of(log.as_bytes(), &arguments);
    assert_eq!((&report["keys"], &report["limits"][0]["denied"]), (&json!(2), &json!(0)));
}

#[test]
fn a_log_that_gives_no_call_or_no_client_is_doubted() {
    let line = combined(1, "10.0.0.1", 200);
    let json = format!("{{\"time\":\"{}\",\"remote_addr\":\"10.0.0.1\"}}\n", DAY_S);
    for (log, option, doubt) in [
        (&line, ["--key", "$remote_user"], "no line gave a call"),
        (&line, ["--where", "status=404"], "no line gave a call"),
        (&json, ["--trusted-proxies", "10.0.0.0/8"], "no line names a client behind"),
    ] {
        let arguments = [&["-", "--rule", "FIXED 1 1s"][..], &option].concat();
        let replayed = replay_of(log.as_bytes(), &arguments);
        assert_eq!(replayed.status, Some(1), "{option:?}");
        assert!(replayed.output.contains(doubt), "{option:?}: {}", replayed.output);
    }
}

#[test]
fn a_log_of_long_requests_is_sorted_by_their_beginnings() {
    // Every other request takes 30 s; one begins each second.
    let mut lines: Vec<_> = (0..60_u64)
        .map(|begin| {
            let took = if begin % 2 == 0 { 30 } else { 1 };
            let end = DAY_S + begin + took;
            (end, format!("192.0.2.1 {end}.000 {took}.000\n"))
        })
        .collect();
    lines.sort();
    let log: String = lines.into_iter().map(|(_, line)| line).collect();
    let format = ["--format", "$remote_addr $msec $request_time"];
    let report = report_of(log.as_bytes(), &[&["-", "--rule", "FIXED 1 1s"], &format[..]].concat());
    assert_eq!((&report["limits"][0]["denied"], &report["lines"]["late"]), (&json!(0), &json!(0)));
}

#[test]
fn times_of_requests_in_another_unit_are_doubted_until_the_unit_is_named() {
    let log_of = |took: &str| -> String {
        let line = |second: u64| format!("{{\"time\":{},\"k\":1,\"d\":{took}}}\n", DAY_S + second);
        (0..20).map(line).collect()
    };
    let arguments = ["-", "--json-lines", "--key", "k", "--rule", "FIXED 1 1s", "--request-time"];
    for (took, doubt) in
        [("153000", "all request times are whole"), ("153000.5", "20 requests of 20")]
    {
        let log = log_of(took);
        let doubted = replay_of(log.as_bytes(), &[&arguments[..], &["d"]].concat());
        assert_eq!(doubted.status, Some(1));
        let output = &doubted.output;
        let doubt = output.find(&format!("The figures may be wrong: {doubt}")).expect("a doubt");
        assert!(doubt < output.find("FIXED 1 1s").expect("figures"), "{output}");
    }
    let log = log_of("153000");
    let named = report_of(log.as_bytes(), &[&arguments[..], &["d:ms"]].concat());
    assert_eq!(named["from_us"], (DAY_S - 153) * 1_000_000);
    // Caddy with `duration_format ms`.
    let line = |second: u64| {
        format!(
            "{{\"ts\":{}.5,\"request\":{{\"client_ip\":\"192.0.2.7\"}},\"duration\":{second}}}\n",
            DAY_S + second
        )
    };
    let caddy: String = (0..20).map(line).collect();
    let rule = ["-", "--rule", "FIXED 1 1s"];
    let doubted = replay_of(caddy.as_bytes(), &rule);
    assert_eq!(doubted.status, Some(1));
    assert!(doubted.output.contains("The figures may be wrong: all request times are whole"));
    report_of(caddy.as_bytes(), &[&rule[..], &["--request-time", "duration:ms"]].concat());
}

#[test]
fn a_damaged_gzip_file_is_read_as_far_as_it_goes_and_doubted() {
    let logs = Logs::new();
    let whole = gzip(known_log().as_bytes());
    let half = logs.write("access.log.gz", &whole[..whole.len() / 2]);
    let cut = replay(&[&half, "--rule", "FIXED 10 60"]);
    assert_eq!(cut.status, Some(1));
    assert!(cut.output.contains("The figures may be wrong: "), "{}", cut.output);
    assert!(cut.output.contains("access.log.gz could be read only up to line "), "{}", cut.output);
}

#[test]
fn lines_without_a_key_are_counted_apart() {
    let log = combined(1, "192.0.2.1", 200).replace("- - [", "- frank [")
        + &combined(2, "192.0.2.1", 200);
    let report = report_of(log.as_bytes(), &["-", "--key", "$remote_user", "--rule", "FIXED 1 1s"]);
    assert_eq!((&report["calls"], &report["keys"]), (&json!(1), &json!(1)));
    assert_eq!(report["lines"]["without_key"], 1);
    assert!(report["notes"].to_string().contains("1 line has no key"), "{report}");
}

#[test]
fn a_key_of_several_fields_needs_its_user_and_its_address_and_no_other_field() {
    let user = |user: &str, second| {
        combined(second, "192.0.2.1", 200).replace("- - [", &format!("- {user} ["))
    };
    let log = [user("frank", 1), user("-", 2), user("-", 3), user("frank", 4)].concat();
    let socket = combined(5, "unix:", 200) + &combined(6, "-", 200);
    let log = log + &socket;
    // The calls, the keys, and the lines without a key.
    for (key, expected) in [
        ("$remote_user:$request", [2, 1, 4]),
        ("$request:$remote_user", [2, 1, 4]),
        ("$remote_addr:$http_referer", [5, 2, 1]),
        ("$remote_addr", [5, 2, 1]),
        ("$http_referer $path", [6, 1, 0]),
        ("$http_referer", [0, 0, 6]),
    ] {
        let arguments = ["-", "--key", key, "--rule", "FIXED 9 1m", "--json"];
        let replayed = replay_of(log.as_bytes(), &arguments);
        let report: Value = serde_json::from_str(&replayed.output).expect("a report");
        let found = [&report["calls"], &report["keys"], &report["lines"]["without_key"]];
        assert_eq!(found, expected.map(|number| json!(number)).each_ref(), "{key}");
        let noted = report["notes"].to_string().contains("no key");
        assert_eq!(noted, expected[2] > 0, "{key}");
    }
    let caddy = |user: &str| {
        format!(
            "{{\"ts\":{DAY_S}.5,\"request\":{{\"client_ip\":\"::1\"}},\"user_id\":\"{user}\",\
             \"duration\":0.1}}\n"
        )
    };
    let log = [caddy("frank"), caddy("")].concat();
    let arguments = ["-", "--key", "$remote_user:$remote_addr", "--rule", "FIXED 9 1m"];
    let report = report_of(log.as_bytes(), &arguments);
    assert_eq!((&report["calls"], &report["lines"]["without_key"]), (&json!(1), &json!(1)));
}

#[test]
fn files_whose_first_line_is_from_the_future_are_merged_at_their_times() {
    let logs = Logs::new();
    let file = |name: &str, start: u64| {
        let future = combined(start, "192.0.2.1", 200).replace("/2026:", "/2036:");
        let lines = (start..start + 200).map(|second| combined(second * 2, "192.0.2.1", 200));
        logs.write(name, [future].into_iter().chain(lines).collect::<String>())
    };
    let (old, new) = (file("access.log.1", 0), file("access.log", 200));
    let merged = report(&[&new, &old, "--rule", "FIXED 1 2s"]);
    assert_eq!((&merged["lines"]["bad"], &merged["limits"][0]["denied"]), (&json!(2), &json!(0)));
}

#[test]
fn lines_that_no_format_fits_are_refused_with_advice_for_their_kind() {
    let logs = Logs::new();
    let text = logs.write("app.log", "2026/10/10 13:55:36 GET / 200\n".repeat(5));
    let error = failure(1, &[&[text.as_str()], &RULE[..]].concat());
    assert!(
        error.contains("No format fits") && error.contains("--format '$remote_addr"),
        "{error}"
    );
    // CloudFront's real-time logs are columns without names.
    let line = |second: u64| {
        format!("{}.250\t192.0.2.7\t0.001\t200\tGET\tSEA19-C1\t0.500\n", DAY_S + second)
    };
    let columns: String = (0..20).map(line).collect();
    let real_time = logs.write("real-time.log", &columns);
    let error = failure(1, &[&[real_time.as_str()], &RULE[..]].concat());
    assert!(error.contains("(echo '#Fields: timestamp c-ip x-edge-location'"), "{error}");
    let fields = "#Fields: timestamp c-ip time-to-first-byte sc-status cs-method x-edge-location \
                  time-taken\n";
    let named =
        report_of((fields.to_owned() + &columns).as_bytes(), &["-", "--rule", "FIXED 1 1s"]);
    assert_eq!((&named["format"], &named["calls"]), (&json!("cloudfront"), &json!(20)));
    assert_eq!(named["from_us"], DAY_S * 1_000_000 - 250_000);
    let returns = known_log().replace('\n', "\r");
    for (name, log) in
        [("long.log", returns.repeat(10)), ("short.log", returns[..1_000].to_owned())]
    {
        let log = logs.write(name, log);
        let error = failure(2, &[&[log.as_str()], &RULE[..]].concat());
        assert!(error.contains("carriage return alone: pipe it, as in tr"), "{error}");
    }
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
fn reports_an_invalid_argument_with_advice_and_exit_code_2() {
    let logs = Logs::new();
    let log = logs.write("access.log", known_log());
    let policies = logs.write("policies", "api GCRA 2 1 1m\nother FIXED 0 60\n");
    let fine = logs.write("fine", "api GCRA 2 1 1m\nother FIXED 5 60\n");
    let nowhere = logs.path("nowhere");
    let table: [(&[&str], &str); 18] = [
        (&[&log], "nothing to do: name a limit with --rule"),
        (&[&log, "--rule", "GCRA 0 1 1"], "invalid --rule `GCRA 0 1 1`: ERR invalid burst"),
        (&[&log, "--rule", "LEASE a 3 60s"], "invalid --rule `LEASE a 3 60s`: ERR invalid rule"),
        (&[super::text(&nowhere), "--rule", "FIXED 1 1"], "cannot read "),
        (&["\x1b[31m", "--rule", "FIXED 1 1"], "cannot read \\u{1b}[31m: "),
        (&[super::text(logs.folder.path()), "--rule", "FIXED 1 1"], "it is a folder"),
        (&["-", "-", "--rule", "FIXED 1 1"], "is named twice"),
        (&[&log, "--key", "$user", "--rule", "FIXED 1 1"], "the format has no $user"),
        (&[&log, "--format", "x", "--rule", "FIXED 1 1"], "invalid format: expected a name"),
        (&[&log, "--json-lines", "--rule", "FIXED 1 1"], "missing --key"),
        (&[&log, "--reorder", "400d", "--rule", "FIXED 1 1"], "invalid --reorder"),
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
