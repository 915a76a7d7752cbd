use super::{assert_remarks, right, wrong};
use crate::config::{OnError, Terms, Unit};
use std::time::Duration;

/// Returns a file with one descriptor, whose words begin in column 3 of line 3.
fn file(words: &str) -> String {
    format!("domain: d\ndescriptors:\n- {words}\n")
}

#[test]
fn units_become_aligned_windows() {
    let cases = [
        ("second", "FIXED 5 1 ALIGNED"),
        ("MINUTE", "FIXED 5 60 ALIGNED"),
        ("Hour", "FIXED 5 3600 ALIGNED"),
        ("day", "FIXED 5 86400 ALIGNED"),
        ("week", "FIXED 5 604800 ALIGNED"),
        ("month", "FIXED 5 2592000 ALIGNED"),
        ("year", "FIXED 5 31536000 ALIGNED"),
        ("minute, algorithm: sliding", "SLIDING 5 60"),
        ("minute, algorithm: slidinglog", "SLIDINGLOG 5 60"),
        ("minute, algorithm: gcra", "GCRA 5 5 60"),
        ("minute, algorithm: GCRA, burst: 9", "GCRA 9 5 60"),
        ("minute, algorithm: tokenbucket, burst: 9", "TOKENBUCKET 9 5 60"),
    ];
    for (words, expected) in cases {
        let limit = format!("{{unit: {words}, requests_per_unit: 5}}");
        let (domain, warnings) = right(&file(&format!("{{key: k, rate_limit: {limit}}}")));
        let Terms::Rule(rule) = &domain.limits[0].terms else { panic!("{domain:?}") };
        let printed = format!("{rule:?}");
        assert!(printed.contains(&format!("k: {expected}, on_error Some(Allow)")), "{printed}");
        assert!(warnings.is_empty(), "{warnings:?}");
    }
}

#[test]
fn unit_is_found_by_its_exact_length() {
    assert_eq!(Unit::of_length(Duration::from_secs(60)), Some(Unit::Minute));
    assert_eq!(Unit::of_length(Duration::from_secs(30 * 86_400)), Some(Unit::Month));
    assert_eq!(Unit::of_length(Duration::from_secs(61)), None);
}

#[test]
fn limits_without_a_count_need_no_rule() {
    let (domain, _) = right(&file("{key: k, rate_limit: {unlimited: yes}}"));
    assert!(matches!(domain.limits[0].terms, Terms::Unlimited));
    let words = "{key: k, rate_limit: {unit: day, requests_per_unit: 0}}";
    assert!(matches!(right(&file(words)).0.limits[0].terms, Terms::Denied(Unit::Day)));
    assert!(right(&file("{key: k}")).0.limits.is_empty());
    assert!(right(&file("{key: k, rate_limit: }")).0.limits.is_empty());
}

#[test]
fn on_error_is_that_of_the_rule() {
    for (word, on_error, printed) in [
        ("deny", OnError::Deny, "on_error Some(Deny)"),
        ("unavailable", OnError::Unavailable, "on_error Some(Deny)"),
        ("allow", OnError::Allow, "on_error Some(Allow)"),
    ] {
        let limit = format!("{{unit: day, requests_per_unit: 1, on_error: {word}}}");
        let (domain, _) = right(&file(&format!("{{key: k, rate_limit: {limit}}}")));
        let limit = &domain.limits[0];
        let Terms::Rule(rule) = &limit.terms else { panic!("{limit:?}") };
        assert_eq!(limit.on_error, on_error);
        assert!(format!("{rule:?}").contains(printed), "{rule:?}");
    }
}

#[test]
fn scalars_are_the_text_of_the_file() {
    let limit = "rate_limit: {unit: day, requests_per_unit: 1_000}";
    let cases = [
        ("value: 404", "k_404"),
        ("value: 1.0", "k_1-0-"),
        ("value: true", "k_true"),
        ("value: \"404\"", "k_404"),
        ("value: ~", "k"),
        ("value: \"\"", "k"),
    ];
    for (value, name) in cases {
        let (domain, _) = right(&file(&format!("{{key: k, {value}, {limit}}}")));
        let limit = &domain.limits[0];
        assert!(limit.name.starts_with(name), "{value}: {}", limit.name);
        let Terms::Rule(rule) = &limit.terms else { panic!("{limit:?}") };
        assert!(format!("{rule:?}").contains("FIXED 1000 86400"), "{rule:?}");
    }
}

/// The table is that of gopkg.in/yaml.v2 2.4.0, with which envoyproxy/ratelimit reads its files.
#[test]
fn numbers_are_read_as_the_original_reads_them() {
    let numbers = [
        ("5", Some(5_u32)),
        ("017", Some(15)),
        ("0o17", Some(15)),
        ("0O17", Some(15)),
        ("0x1F", Some(31)),
        ("0b11", Some(3)),
        ("1_000", Some(1_000)),
        ("0777_7", Some(4_095)),
        ("0_7", Some(7)),
        ("5_", Some(5)),
        ("+5", Some(5)),
        ("+0x1F", Some(31)),
        ("001", Some(1)),
        ("4294967295", Some(4_294_967_295)),
        // The original refuses numbers with a fraction by their form.
        ("08", None),
        ("5.0", None),
        ("1e3", None),
        ("_5", None),
        ("0o", None),
        ("0x", None),
        ("0x+1", None),
        ("-1", None),
        ("--0", None),
        ("1:30", None),
        ("4294967296", None),
        ("true", None),
    ];
    for (text, expected) in numbers {
        let words = format!("{{key: k, rate_limit: {{unit: day, requests_per_unit: {text}}}}}");
        let Some(number) = expected else {
            assert_remarks(&wrong(&file(&words)), &[("3:55", "invalid requests_per_unit")], text);
            continue;
        };
        let (domain, _) = right(&file(&words));
        let Terms::Rule(rule) = &domain.limits[0].terms else { panic!("{text}: {domain:?}") };
        assert!(format!("{rule:?}").contains(&format!("FIXED {number} 86400")), "{text}: {rule:?}");
    }
    for none in ["0", "00", "-0", "0x0"] {
        let words = format!("{{key: k, rate_limit: {{unit: day, requests_per_unit: {none}}}}}");
        let (domain, _) = right(&file(&words));
        assert!(matches!(domain.limits[0].terms, Terms::Denied(Unit::Day)), "{none}");
    }
}

#[test]
fn merged_words_are_those_of_the_mapping_unless_it_has_them() {
    let text = file(
        "&a {key: a, value: x, rate_limit: &r {unit: day, requests_per_unit: 5}}
- &b {key: b, share_threshold: false, rate_limit: {unit: hour, requests_per_unit: 6}}
- {<<: *a, key: c}
- {<<: *a, key: d, value: }
- {<<: [*b, *a], key: e}
- {key: f, rate_limit: {<<: *r, unit: minute}}
- {<<: *a, key: g, rate_limit: {unit: second, requests_per_unit: 7}}
- {key: h, <<: {rate_limit: *r}}",
    );
    let printed = |domain: &crate::config::Domain| -> Vec<String> {
        let rule = |limit: &crate::config::Limit| match &limit.terms {
            Terms::Rule(rule) => format!("{rule:?}"),
            other => format!("{other:?}"),
        };
        domain.limits.iter().map(|limit| rule(limit)).collect()
    };
    let rules = [
        "a_x: FIXED 5 86400",
        "b: FIXED 6 3600",
        "c_x: FIXED 5 86400",
        "d: FIXED 5 86400",
        "e_x: FIXED 6 3600",
        "f: FIXED 5 60",
        "g_x: FIXED 7 1 ",
        "h: FIXED 5 86400",
    ];
    let found = printed(&right(&text).0);
    assert_eq!(found.len(), rules.len(), "{found:#?}");
    for (found, rule) in found.iter().zip(rules) {
        assert!(found.contains(rule), "{found}, expected {rule}");
    }
}

#[test]
fn wrong_descriptors_are_refused_with_their_place() {
    let cases: [(&str, &[(&str, &str)]); 29] = [
        ("a", &[("3:3", "expected a mapping with the words `key`")]),
        ("{value: v}", &[("3:3", "a descriptor without `key:`")]),
        ("{key: \"\"}", &[("3:4", "invalid key")]),
        ("{key: k, values: v}", &[("3:12", "unknown word \"values\"")]),
        ("{key: k, \"<<\": {}}", &[("3:12", "unknown word \"<<\"")]),
        ("{key: k, <<: {unit: day}}", &[("3:17", "`unit` belongs in `rate_limit:`")]),
        ("{key: k, <<: 5}", &[("3:16", "`<<` needs a mapping, or a list of mappings")]),
        ("{key: k, <<: [{}, ~]}", &[("3:21", "`<<` needs a mapping, or a list of mappings")]),
        ("{key: k, <<: {}, <<: {}}", &[("3:20", "a second \"<<\"")]),
        // The original would replace the key that is written here.
        ("{key: k, <<: {key: j}}", &[("3:12", "`<<` after \"key\", which it also has")]),
        (
            "{<<: {rate_limit: {unit: day, name: n}}, rate_limit: {unit: day}, key: k}",
            &[("3:44", "\"rate_limit\" lacks \"name\", which the merged one has in line 3")],
        ),
        ("{key: k, unit: day}", &[("3:12", "`unit` belongs in `rate_limit:`")]),
        ("{key: k, quota_mode: true}", &[("3:12", "quota_mode is not supported")]),
        ("{key: k, shadow_mode: 7}", &[("3:12", "expected true or false")]),
        ("{key: k, value: v, share_threshold: true}", &[("3:22", "a value with `*`")]),
        ("{key: k, rate_limit: 5}", &[("3:24", "expected a mapping with the words `unit`")]),
        (
            "{key: k, rate_limit: {}}",
            &[("3:24", "without `unit:`"), ("3:24", "without `requests_per_unit:`")],
        ),
        (
            "{key: k, rate_limit: {unit: foo, requests_per_unit: -1}}",
            &[("3:25", "invalid unit \"foo\""), ("3:55", "invalid requests_per_unit")],
        ),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}",
            &[("3:55", "from 0 to 4294967295")],
        ),
        (
            "{key: k, rate_limit: {unit: day, requestsperunit: 5}}",
            &[("3:24", "`requests_per_unit:`"), ("3:36", "unknown word \"requestsperunit\"")],
        ),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}}",
            &[("3:58", "`shadow_mode` belongs next to `rate_limit:`")],
        ),
        ("{key: k, rate_limit: {unlimited: true, unit: day}}", &[("3:42", "remove one")]),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 1, algorithm: quota}}",
            &[("3:58", "expected one of fixed, sliding")],
        ),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 1, burst: 5}}",
            &[("3:58", "FIXED has no burst")],
        ),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 1, on_error: local}}",
            &[("3:58", "expected allow, deny or unavailable")],
        ),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: }]}}",
            &[("3:69", "`replaces:` without a name")],
        ),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 1, name: n, \
             replaces: [{name: n}]}}",
            &[("3:78", "cannot replace itself")],
        ),
        (
            "{key: k, rate_limit: {unit: year, requests_per_unit: 1, algorithm: gcra, \
             burst: 1000}}",
            &[("3:24", "36525 days")],
        ),
        (
            "{key: k, value: v}\n- {key: k, value: w}\n- {key: k, value: v}",
            &[("5:3", "a second descriptor \"k_v\": the first is in line 3")],
        ),
    ];
    for (words, expected) in cases {
        assert_remarks(&wrong(&file(words)), expected, words);
    }
}

#[test]
fn words_without_effect_are_warned_about() {
    let words = "{key: k, detailed_metric: true, value_to_metric: true, \
                 metadata: {a: [1, {b: c}]}, shadow_mode: true, quota_mode: false}";
    let expected = [
        ("3:12", "`detailed_metric` has no effect"),
        ("3:35", "`value_to_metric` has no effect"),
        ("3:58", "`metadata` has no effect"),
        ("3:86", "shadow_mode has no effect"),
    ];
    assert_remarks(&right(&file(words)).1, &expected, words);
    let words = "{key: k, rate_limit: {unlimited: true, replaces: [{name: no}, {name: no}]}}";
    assert_remarks(&right(&file(words)).1, &[("3:24", "no limit has the name \"no\"")], words);
}

#[test]
fn descriptor_that_a_pattern_hides_is_warned_about() {
    let words = "{key: k, value: \"a*\"}\n- {key: k, value: \"ab*\"}\n- {key: k, value: ab}\n\
                 - {key: j}\n- {key: j, value: \"*\"}\n- {key: k}";
    let expected = [("4:3", "line 3 matches the same"), ("6:3", "line 7 matches the same")];
    assert_remarks(&right(&file(words)).1, &expected, words);
}

#[test]
fn depth_and_number_of_descriptors_have_bounds() {
    let nested = |depth: usize| {
        (1..depth)
            .fold("{key: k}".to_owned(), |below, _| format!("{{key: k, descriptors: [{below}]}}"))
    };
    right(&file(&nested(16)));
    let mistakes = wrong(&file(&nested(17)));
    assert!(mistakes.len() == 1 && mistakes[0].contains("at most 16 levels"), "{mistakes:?}");
    let many: String = (0..10_001).map(|at| format!("- {{key: k{at}}}\n")).collect();
    let mistakes = wrong(&format!("domain: d\ndescriptors:\n{many}"));
    assert_remarks(&mistakes, &[("3:3", "too many descriptors")], "many");
}
