//! Policy files: the definitions read from them, and the line of an error.

use crate::grammar::error::GrammarError;
use crate::grammar::policy_file::{LINE_LEN_MAX, LineError, LineFault, policy_file};
use crate::policy::families::Refusal;
use crate::policy::pattern::Pattern;
use crate::policy::table::Policies;
use crate::time::Instant;

/// Loads the policy file `text` into a table, and returns the table's definitions.
fn lines(text: &str) -> Vec<String> {
    let bases = policy_file(text.as_bytes()).expect(text);
    let mut table = Policies::default();
    table.load(bases, Instant::from_us(0));
    table.list(Pattern::ANY)
}

#[test]
fn file_may_have_comments_and_tabs_and_empty_lines_and_both_kinds_of_line_end() {
    let expected = ["a GCRA 6 10 1m", "a@b SHADOW GCRA 6 10 1m", "c OFF FIXED 5 1h"];
    let files = [
        "a GCRA 6 10 60\na@b SHADOW GCRA 6 10 60\nc OFF FIXED 5 1h\n",
        "c OFF FIXED 5 1h\na@b SHADOW GCRA 6 10 60\na GCRA 6 10 60",
        "# a comment\r\na GCRA 6 10 60\r\n\r\na@b SHADOW GCRA 6 10 60\r\nc OFF FIXED 5 1h\r\n",
        "\u{feff}a GCRA 6 10 60\r\na@b SHADOW GCRA 6 10 60\r\nc OFF FIXED 5 1h\r\n",
        "\n\n  \t\n\ta \t GCRA 6 10 60 #, so\na@b shadow gcra 6 10 60#\n#\n#c\nc off fixed 5 1h",
    ];
    for file in files {
        assert_eq!(lines(file), expected, "{file:?}");
    }
    for nothing in ["", "\n", "#", "\r\n", "\u{feff}", " \n\t\n# GCRA 6 10 60"] {
        assert_eq!(lines(nothing), [""; 0], "{nothing:?}");
    }
}

#[test]
fn listed_lines_load_as_the_same_policies() {
    let text = "a ENFORCE 10 QUOTA 5 week ZONE Asia/Tokyo START tue\na@x QUOTA 1 day\n\
                b BACKOFF 3 1.5ms 8s 1h\nc BLOCK SLIDINGLOG 5 90s";
    assert_eq!(lines(text).join("\n"), text);
}

#[test]
fn error_names_the_first_bad_line_and_its_fault() {
    use GrammarError::*;
    let grammar = LineFault::Grammar;
    let refused = LineFault::Refused;
    let long = format!("# {0}\n{0}x", "x".repeat(LINE_LEN_MAX));
    let rows: [(&[u8], u32, LineFault); 16] = [
        (b"a GCRA 6 10 60\n\n\na GCRA 0 10 60\nb", 4, grammar(Burst)),
        (b"a GCRA 6 10 60\na SHADOW GCRA 6 10 60", 2, refused(Refusal::Repeated)),
        (b"a GCRA 6 10 60\n\na@b FIXED 5 60", 3, refused(Refusal::OtherAlgorithm)),
        (b"a@c FIXED 6 10\n\na@b GCRA 6 10 60", 3, refused(Refusal::OtherAlgorithm)),
        (b"a EX 60 GCRA 6 10 60", 1, LineFault::Ends),
        (b"# one\na", 2, grammar(MissingPolicyRule)),
        (b"\0", 1, grammar(PolicyName)),
        (b"a\0 GCRA 6 10 60", 1, grammar(PolicyName)),
        (b"a GCRA 6 10 60\0", 1, grammar(Period)),
        // Only one byte order mark is skipped, at the head of the file.
        (b"\xef\xbb\xbf\xef\xbb\xbfa GCRA 6 10 60", 1, grammar(PolicyName)),
        (b"#\n\xef\xbb\xbfa GCRA 6 10 60", 2, grammar(PolicyName)),
        (b"a GCRA 6 10 60\rb GCRA 6 10 60", 1, grammar(Period)),
        (b"a GCRA 6 10 60\r\r\n", 1, grammar(Period)),
        (b"RL.POLICY SET a GCRA 6 10 60", 1, grammar(PolicyRule)),
        (long.as_bytes(), 2, LineFault::TooLong),
        // A carriage return belongs to a line's end only directly before the line feed.
        (b"\r# c", 1, grammar(PolicyName)),
    ];
    for (text, line, fault) in rows {
        let escaped = text.escape_ascii();
        assert_eq!(policy_file(text).err(), Some(LineError { line, fault }), "{escaped}");
    }
    // A line with too many words has an error among those that are parsed.
    let many = format!("a QUOTA 5 week{}", " ZONE UTC".repeat(50));
    let expected = LineError { line: 1, fault: grammar(RepeatedZone) };
    assert_eq!(policy_file(many.as_bytes()).err(), Some(expected));
}

#[test]
fn file_holds_at_most_ten_thousand_policies() {
    let file = |count: usize| -> String {
        (0..count).map(|number| format!("p{number} GCRA 6 10 60\n")).collect()
    };
    assert_eq!(policy_file(file(10_000).as_bytes()).map(|bases| bases.len()), Ok(10_000));
    let expected = LineError { line: 10_001, fault: LineFault::Refused(Refusal::TooMany) };
    assert_eq!(policy_file(file(10_001).as_bytes()).err(), Some(expected));
}
