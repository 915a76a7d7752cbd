use super::{assert_remarks, right, wrong};
use crate::config::limits_file::read;
use proptest::prelude::*;

#[test]
fn broken_yaml_is_named_with_its_place() {
    let deep = format!("domain: {}x", "[".repeat(70));
    let bomb = "a: &a [1,1,1,1,1,1,1,1]\n".to_owned()
        + "b: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
        + "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\n"
        + "f: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]\n";
    let cases = [
        ("", "1:1", "the file is empty"),
        ("# only a comment\n", "1:1", "the file is empty"),
        ("domain: a\ndomain: b\n", "2:1", "a second \"domain\": the first is in line 1"),
        ("domain: a\n---\ndomain: b\n", "2:1", "a second document"),
        ("domain: !include x\n", "1:9", "unknown tag"),
        ("? [a]\n: b\n", "1:3", "expected a word before `:`"),
        ("a: &a [*a]\n", "1:8", "an alias of a node that it is part of"),
        (&deep, "1:73", "nested too deep"),
        (&bomb, "7:", "too large"),
    ];
    for (text, place, expected) in cases {
        let mistakes = wrong(text);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let found = mistakes[0].starts_with(place) && mistakes[0].contains(expected);
        assert!(found, "{text:?}: {mistakes:?}");
    }
    let invalid = wrong("domain: a\n  limits: []\n");
    assert!(invalid[0].starts_with("2:") && invalid[0].contains("invalid YAML"), "{invalid:?}");
}

#[test]
fn the_words_of_a_file_tell_its_form() {
    let cases: [(&str, &[(&str, &str)]); 6] = [
        ("domain: a\n", &[("1:1", "add `limits:`, or `descriptors:`")]),
        ("domain: a\nlimits: []\ndescriptors: []\n", &[("3:1", "keep one")]),
        ("limits: []\n", &[("1:1", "a file without `domain:`")]),
        ("[1, 2]\n", &[("1:1", "expected a mapping with the words `domain`")]),
        ("domain: a\nlimits: []\nlimit: []\n", &[("3:1", "unknown word \"limit\"")]),
        (
            "\"@type\": x\nresources: []\n",
            &[("1:1", "of xDS"), ("1:1", "`domain:`"), ("1:1", "`limits:`"), ("2:1", "of xDS")],
        ),
    ];
    for (text, expected) in cases {
        assert_remarks(&wrong(text), expected, text);
    }
    let (domain, _) = right("---\ndomain: a\ndescriptors:\n");
    assert!(domain.limits.is_empty());
}

#[test]
fn domain_has_a_name_within_the_bounds() {
    let long = "x".repeat(256);
    for name in ["\"\"", "\"a\\tb\"", &long, "[a]"] {
        let mistakes = wrong(&format!("domain: {name}\nlimits: []\n"));
        assert_remarks(&mistakes, &[("1:9", "invalid domain")], name);
    }
}

#[test]
fn an_alias_repeats_its_node() {
    let (domain, _) = right(
        "domain: a\nlimits:\n- {match: {k: x}, rule: &r GCRA 20 10 1}\n\
         - {match: {k: y}, rule: *r}\n",
    );
    assert_eq!(domain.limits.len(), 2);
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        text in "([-:{}\\[\\]*&!|>'\"# \\n,a?%@]|key|: |\\n  - ){0,60}",
    ) {
        let _ = read("f.yaml", &text);
        let _ = read("f.yaml", &format!("domain: a\nlimits:\n{text}"));
        let _ = read("f.yaml", &format!("domain: a\ndescriptors:\n- key: a\n  {text}"));
    }
}
