use super::super::formats::COMBINED;
use super::*;

/// Reads the named fields of a line.
fn read(format: &str, names: &[&str], line: &str) -> Result<Vec<String>, String> {
    let mut known = Names::default();
    let fields: Vec<_> = names.iter().map(|name| known.field(name)).collect();
    let bound = LogFormat::parse(format)?.bind(&known)?;
    let mut values = Values::default();
    bound.read(line.as_bytes(), &mut values).map_err(|mismatch| bound.explain(mismatch))?;
    let text = |field: &Field| {
        let value = values.get(line.as_bytes(), *field).expect("a value");
        String::from_utf8_lossy(value).into_owned()
    };
    Ok(fields.iter().map(text).collect())
}

const LINE: &str = "203.0.113.7 - frank [10/Oct/2026:13:55:36 +0200] \
                    \"GET /a/b?c=d HTTP/1.1\" 200 2326 \"-\" \"curl/8 \\\"x\\\" y\"";

#[test]
fn combined_lines_give_every_field_and_the_parts_of_the_request() {
    let names =
        ["remote_addr", "time_local", "method", "uri", "path", "protocol", "status", "request"];
    let values = [
        "203.0.113.7",
        "10/Oct/2026:13:55:36 +0200",
        "GET",
        "/a/b?c=d",
        "/a/b",
        "HTTP/1.1",
        "200",
        "GET /a/b?c=d HTTP/1.1",
    ];
    assert_eq!(read(COMBINED, &names, LINE).unwrap(), values);
    assert_eq!(read(COMBINED, &["http_user_agent"], LINE).unwrap(), ["curl/8 \\\"x\\\" y"]);
}

#[test]
fn a_format_that_describes_the_beginning_of_a_line_reads_it() {
    let format = "$remote_addr - $remote_user [$time_local] \"$request\" $status";
    assert_eq!(read(format, &["status", "remote_user"], LINE).unwrap(), ["200", "frank"]);
}

#[test]
fn a_whole_log_format_directive_is_a_format() {
    let format =
        "log_format timed escape=json '$remote_addr [$time_local] '\n    '$msec ${status}';";
    let line = "::1 [10/Oct/2026:13:55:36 +0200] 1791633336.123 404";
    assert_eq!(read(format, &["msec", "status"], line).unwrap(), ["1791633336.123", "404"]);
    LogFormat::parse(RECOMMENDED).unwrap();
}

#[test]
fn invalid_formats_are_refused_with_a_text() {
    for (format, text) in [
        ("", "expected a name such as combined"),
        ("no variable", "expected a name such as combined"),
        ("$a$b", "expected a text, such as a space, after $a"),
        ("$ x", "expected the name of a variable after $"),
        ("${a x", "expected the name of a variable after $"),
        ("'$a", "in quotation marks"),
    ] {
        let error = LogFormat::parse(format).unwrap_err();
        assert!(error.contains(text), "{format}: {error}");
    }
    let error = read("$a $b", &["c"], "1 2").unwrap_err();
    assert_eq!(error, "the format has no $c: expected one of $a $b; name another with --format");
}

#[test]
fn a_line_of_another_format_names_the_missing_text() {
    let error = read(COMBINED, &["status"], "203.0.113.7 - frank").unwrap_err();
    assert_eq!(error, "expected ` [` after $remote_user");
    assert_eq!(read("<$a>", &["a"], "x").unwrap_err(), "expected `<` at the beginning");
}

#[test]
fn a_request_without_spaces_is_a_path() {
    let line = "::1 - - [x] \"\\x16\\x03?y\" 400 0 \"-\" \"-\"";
    assert_eq!(
        read(COMBINED, &["method", "path", "protocol"], line).unwrap(),
        ["", "\\x16\\x03", ""]
    );
}
