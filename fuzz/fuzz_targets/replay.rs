//! Feeds any bytes to the parsers of `redis-throttle-lab replay`. The first three lines are a log
//! format, a template and a condition; the rest is a log. No parser may panic. The values of a
//! line, with the texts of its format between them, must be the beginning of the line. A field of a
//! JSON line must be that of a general parser. The lines of a file must be those between its line
//! feeds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_throttle_lab::replay::address::{address, entries};
use redis_throttle_lab::replay::condition::Condition;
use redis_throttle_lab::replay::fields::{Field, Names, Values};
use redis_throttle_lab::replay::format::{BoundFormat, LogFormat};
use redis_throttle_lab::replay::json::JsonLines;
use redis_throttle_lab::replay::lines::{LINE_LEN_MAX, Line, Lines};
use redis_throttle_lab::replay::stamp::{Stamps, Unit};
use redis_throttle_lab::replay::template::Template;
use serde_json::Value;
use std::io::Cursor;

/// The names that are read from JSON lines, besides those of the template and the condition.
const NAMES: [&str; 3] = ["a", "a.b", "time"];

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(4, |byte| *byte == b'\n');
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (format, template, condition) = (text(), text(), text());
    let log = parts.next().unwrap_or_default();
    let mut names = Names::default();
    let template = Template::parse(&template, &mut names);
    let condition = Condition::parse(&condition, &mut names);
    let check = |line: &[u8], values: &Values| {
        if let Ok(template) = &template {
            let _ = template.fill(line, values, &mut Vec::new());
            let _ = template.is_empty(line, values);
        }
        if let Ok(condition) = &condition {
            let _ = condition.holds(line, values);
        }
    };
    if let Ok(format) = LogFormat::parse(&format) {
        let bound = format.clone().bind(&names);
        for line in log.split(|byte| *byte == b'\n') {
            let mut values = Values::default();
            if bound.as_ref().is_ok_and(|bound| bound.read(line, &mut values).is_ok()) {
                check(line, &values);
            }
        }
        a_line_is_its_values(format, log);
    }
    let fields = NAMES.map(|name| names.field(name));
    let json = JsonLines::new(&names);
    for line in log.split(|byte| *byte == b'\n') {
        let mut values = Values::default();
        if json.read(line, &mut values).is_ok() {
            check(line, &values);
        }
        fields_are_those_of_a_general_parser(&json, fields, line);
        times_are_in_bounds(line);
        addresses_are_read_in_every_way(line);
    }
    lines_are_those_between_line_feeds(log);
});

/// Checks a line of a format of which every variable is wanted.
fn a_line_is_its_values(format: LogFormat, log: &[u8]) {
    let mut names = Names::default();
    let variables: Vec<_> = format.texts().map(|(name, _)| names.field(name)).collect();
    let texts: Vec<Vec<u8>> = format.texts().map(|(_, after)| after.to_vec()).collect();
    let lead = format.lead().to_vec();
    // A name that occurs twice has only one value.
    let distinct = names.len() == variables.len();
    let bound: BoundFormat = format.bind(&names).expect("its own variables");
    for line in log.split(|byte| *byte == b'\n') {
        let mut values = Values::default();
        match bound.read(line, &mut values) {
            Err(mismatch) => assert!(!bound.explain(mismatch).is_empty()),
            Ok(()) if distinct => {
                let mut joined = lead.clone();
                for (field, after) in variables.iter().zip(&texts) {
                    joined.extend_from_slice(values.get(line, *field).expect("a value"));
                    joined.extend_from_slice(after);
                }
                assert!(line.starts_with(&joined), "{joined:?} begins {line:?}");
            }
            Ok(()) => {}
        }
    }
}

fn fields_are_those_of_a_general_parser(json: &JsonLines, fields: [Field; 3], line: &[u8]) {
    let Ok(Value::Object(object)) = serde_json::from_slice(line) else { return };
    let mut values = Values::default();
    json.read(line, &mut values).expect("an object");
    for (name, field) in NAMES.into_iter().zip(fields) {
        let found = values.get(line, field);
        match object.get(name) {
            Some(Value::String(text)) => assert_eq!(found, Some(text.as_bytes()), "{name}"),
            Some(Value::Null) => {
                assert!(found == Some(&b""[..]) || name.contains('.'), "{name}");
            }
            Some(_) => assert!(found.is_some(), "{name}"),
            None => assert!(found.is_none() || name.contains('.'), "{name}"),
        }
    }
}

fn times_are_in_bounds(text: &[u8]) {
    let mut stamps = Stamps::default();
    let stamp = stamps.read(text);
    // The remembered day changes nothing.
    assert_eq!(stamps.read(text), stamp);
    if let Ok(stamp) = stamp {
        assert!(stamp.us < 7_258_118_400_000_000, "{stamp:?}");
        assert!(!stamp.whole_second || stamp.us % 1_000_000 == 0, "{stamp:?}");
    }
    for unit in [Unit::S, Unit::Ms, Unit::Us, Unit::Ns] {
        assert!(unit.duration_us(text).is_none_or(|us| us <= 366 * 86_400 * 1_000_000), "{unit:?}");
    }
}

fn addresses_are_read_in_every_way(text: &[u8]) {
    for entry in entries(text) {
        if let Some(found) = address(entry) {
            assert_eq!(address(found.to_string().as_bytes()), Some(found));
        }
    }
}

fn lines_are_those_between_line_feeds(log: &[u8]) {
    let is_compressed = [&b"\x1f\x8b"[..], b"BZh", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ"]
        .iter()
        .any(|magic| log.starts_with(magic));
    let Ok(mut lines) = Lines::of(Cursor::new(log.to_vec())) else {
        assert!(is_compressed);
        return;
    };
    let log = log.strip_prefix(b"\xef\xbb\xbf").unwrap_or(log);
    let whole = log.strip_suffix(b"\n").unwrap_or(log);
    let mut expected = whole.split(|byte| *byte == b'\n').filter(|_| !log.is_empty());
    loop {
        let line = match lines.next_line() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_) => {
                // Only a log whose first line would hold several is refused.
                let first = expected.next().unwrap_or_default();
                assert!(is_compressed || first.contains(&b'\r'));
                return;
            }
        };
        if is_compressed {
            continue;
        }
        let naive = expected.next().expect("a line");
        let naive = naive.strip_suffix(b"\r").unwrap_or(naive);
        match line {
            Line::Text(text) => assert_eq!(text, naive),
            Line::TooLong(start) => {
                assert!(naive.len() >= LINE_LEN_MAX && naive.starts_with(start));
            }
        }
    }
    assert!(is_compressed || expected.next().is_none());
}
