use super::super::detecting;
use super::super::lines::Lines;
use super::*;
use clap::{Args as _, Command, FromArgMatches as _};

/// Creates the reader for the arguments of a replay.
fn intake(arguments: &[&str]) -> Result<Intake, Failure> {
    let command = ReplayArguments::augment_args(Command::new("replay"));
    let words = ["replay", "access.log"].iter().chain(arguments);
    let matches = command.try_get_matches_from(words).expect("valid arguments");
    let arguments = ReplayArguments::from_arg_matches(&matches).expect("valid arguments");
    let mut lines = Lines::of(std::io::empty()).expect("no lines");
    Intake::new(&arguments, &detecting::plan(&arguments, &mut lines)?, None)
}

/// Returns the time, cost and key of a line.
fn read(intake: &mut Intake, line: &str) -> Option<(u64, u64, String)> {
    let read = intake.event(Line::Text(line.as_bytes()), ("access.log", 7), u64::MAX);
    let Read::Call(event) = read.expect("room") else { return None };
    let key = String::from_utf8_lossy(intake.keys.key(event.key)).into_owned();
    Some((event.at_us, event.cost, key))
}

#[test]
fn json_lines_give_the_time_the_cost_and_the_key_that_the_arguments_name() {
    let arguments =
        ["--json-lines", "--time", "ts", "--key", "${user.id}:$host", "--cost", "$units"];
    let mut intake = intake(&arguments).unwrap();
    let line = r#"{"ts":1700000000123,"user":{"id":42},"host":"a","units":3}"#;
    let expected = Some((1_700_000_000_123_000, 3, "42:a".to_owned()));
    assert_eq!(read(&mut intake, line), expected);
    assert_eq!(read(&mut intake, ""), None);
    assert_eq!(intake.counts, Counts { lines: 1, ..Counts::default() });
}

#[test]
fn each_reason_for_a_bad_line_is_named_and_three_lines_are_kept() {
    for (arguments, line, reason) in [
        (["--time", "t"], "{", "expected one JSON object"),
        (["--time", "t"], r#"{"k":1}"#, "no time: name its field with --time"),
        (["--time", "t"], r#"{"t":"x","k":1}"#, "invalid time: expected RFC 3339"),
        (["--time", "t"], r#"{"t":1}"#, "no field for --key k"),
        (["--cost", "c"], r#"{"time":1,"k":1}"#, "no field for --cost"),
        (["--cost", "c"], r#"{"time":1,"k":1,"c":1.5}"#, "invalid cost: expected an integer"),
        (["--cost", "c"], r#"{"time":1,"k":1,"c":1000000000001}"#, "invalid cost"),
        (["--request-time", "d"], r#"{"time":1,"k":1,"d":"x"}"#, "invalid request time"),
        (["--request-time", "d"], r#"{"time":1,"k":1,"d":2}"#, "invalid request time"),
        (["--time", "t"], r#"{"t":"2026-10-10","k":1}"#, "a date without a time of day"),
        (["--time", "t"], r#"{"t":"10/Oct/2026:11:55:36","k":1}"#, "a time without an offset"),
    ] {
        let mut intake =
            intake(&[&["--json-lines", "--key", "k"], &arguments[..]].concat()).unwrap();
        for _ in 0..4 {
            assert_eq!(read(&mut intake, line), None, "{line}");
        }
        assert_eq!((intake.counts.bad, intake.samples.len()), (4, 3), "{line}");
        let Sample { file, line: number, reason: found, text } = &intake.samples[0];
        assert!(found.starts_with(reason), "{line}: {found}");
        assert_eq!((file.as_str(), *number, text.as_str()), ("access.log", 7, line));
    }
    let mut combined = intake(&[]).unwrap();
    assert_eq!(read(&mut combined, "x"), None);
    assert_eq!(combined.samples[0].reason, "expected ` - ` after $remote_addr");
    assert_eq!(read(&mut combined, "ex.org:443 192.0.2.7 - - [x] \"-\" 200 0 \"-\" \"-\""), None);
    assert_eq!(combined.samples[1].reason, "expected no space in $remote_addr");
}

#[test]
fn a_line_or_a_key_that_is_too_long_is_bad() {
    let mut intake = intake(&["--json-lines", "--key", "k"]).unwrap();
    let read_long = intake.event(Line::TooLong(b"xyz"), ("access.log", 1), u64::MAX);
    assert_eq!(read_long, Ok(Read::Nothing));
    assert_eq!(intake.samples[0].reason, "longer than 65536 bytes");
    let long = format!(r#"{{"time":1,"k":"{}"}}"#, "x".repeat(KEY_LEN_MAX + 1));
    assert_eq!(read(&mut intake, &long), None);
    assert_eq!(intake.samples[1].reason, "a key longer than 1024 bytes");
}

#[test]
fn one_bad_line_in_a_hundred_is_accepted_and_more_are_an_error() {
    let mut intake = intake(&["--json-lines", "--key", "k"]).unwrap();
    for _ in 0..99 {
        read(&mut intake, r#"{"time":1,"k":1}"#).unwrap();
    }
    read(&mut intake, "x");
    assert_eq!(intake.check(1), Ok(()));
    read(&mut intake, "x");
    let failure = intake.check(1).unwrap_err();
    assert_eq!(failure.status, BAD_LINES);
    assert!(failure.text.starts_with("2 of 101 lines were not read, more than 1 %."));
    intake.skips_bad = true;
    assert_eq!(intake.check(1), Ok(()));
}

#[test]
fn a_log_whose_first_thousand_lines_are_bad_ends_the_replay() {
    let mut intake = intake(&[]).unwrap();
    for number in 1..1_000 {
        let read = intake.event(Line::Text(b"x"), ("f", number), u64::MAX);
        assert_eq!(read, Ok(Read::Nothing));
    }
    let failure = intake.event(Line::Text(b"x"), ("f", 1_000), u64::MAX).unwrap_err();
    assert_eq!(failure.status, BAD_LINES);
    assert!(failure.text.contains("f, line 3: expected ` - ` after $remote_addr: x"));
}

#[test]
fn missing_arguments_are_refused_with_advice() {
    for (arguments, text) in [
        (&["--json-lines"][..], "missing --key"),
        (&["--format", "$host $status"], "missing --key"),
        (&["--format", "$remote_addr $status"], "the format has no time"),
        (&["--key", "$user"], "the format has no $user: expected one of $remote_addr"),
        (&["--cost", "1000000000001"], "invalid cost"),
        (&["--where", "status"], "invalid condition"),
        (&["--request-time", "status:min"], "expected a unit, one of s ms us ns"),
        (&["--utc-offset", "CET"], "invalid --utc-offset `CET`: expected +02:00"),
        (&["--trusted-proxies", "10.0.0.0/33"], "invalid --trusted-proxies `10.0.0.0/33`"),
    ] {
        let failure = intake(arguments).unwrap_err();
        assert!(failure.text.contains(text), "{arguments:?}: {failure}");
    }
}
