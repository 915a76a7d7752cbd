//! The shapes of every example in the documentation of envoyproxy/ratelimit, with other words and
//! numbers: each loads, or is refused by the name of what is missing.

use super::{assert_remarks, right, wrong};
use crate::config::Terms;

/// A file, with the number of its limits and what its warnings name.
const LOADS: [(&str, usize, &[&str]); 16] = [
    // Two values of one key.
    (
        "domain: shop_db
descriptors:
  - key: table
    value: orders
    rate_limit:
      unit: second
      requests_per_unit: 300

  - key: table
    value: rest
    rate_limit:
      unit: second
      requests_per_unit: 700
",
        2,
        &[],
    ),
    // A level without a limit above one with it, and comments.
    (
        "domain: mail
descriptors:
  # Newsletters, for each reader
  - key: kind
    value: newsletter
    descriptors:
      - key: reader
        rate_limit:
          unit: day
          requests_per_unit: 3

  # All mail, for each reader
  - key: reader
    rate_limit:
      unit: day
      requests_per_unit: 40
",
        2,
        &[],
    ),
    // A value that is denied next to the key alone.
    (
        "domain: edge
descriptors:
  - key: client
    rate_limit:
      unit: second
      requests_per_unit: 12

  # Banned
  - key: client
    value: 192.0.2.7
    rate_limit:
      unit: second
      requests_per_unit: 0
",
        2,
        &[],
    ),
    // A limit at the first of two levels, with the words in the other order.
    (
        "domain: depth_one
descriptors:
  - key: team
    value: red
    rate_limit:
      requests_per_unit: 250
      unit: second
",
        1,
        &[],
    ),
    (
        "domain: depth_two
descriptors:
  - key: team
    value: red
    descriptors:
      - key: member
        rate_limit:
          requests_per_unit: 250
          unit: second
",
        1,
        &[],
    ),
    // Unlimited.
    (
        "domain: inside
descriptors:
  - key: backup
    rate_limit:
      unlimited: true

  - key: report
    rate_limit:
      unit: minute
      requests_per_unit: 90
",
        2,
        &[],
    ),
    // Shadow mode for one of two values.
    (
        "domain: trial
descriptors:
  - key: app
    descriptors:
      - key: login
        value: ann
        rate_limit:
          requests_per_unit: 11
          unit: second
        shadow_mode: true
      - key: login
        value: bob
        rate_limit:
          requests_per_unit: 22
          unit: second
",
        2,
        &[],
    ),
    // A limit that replaces another by its name.
    (
        "domain: exchange
descriptors:
  - key: verb
    value: read
    descriptors:
      - key: login
        value: ann
        rate_limit:
          name: reads
          requests_per_unit: 6
          unit: second
  - key: path
    value: /big
    descriptors:
      - key: login
        value: ann
        rate_limit:
          replaces:
            - name: reads
          requests_per_unit: 9
          unit: second
",
        2,
        &[],
    ),
    // Words for metrics.
    (
        "domain: details
descriptors:
  - key: shop
    detailed_metric: true
    rate_limit:
      unit: minute
      requests_per_unit: 14
  - key: shop
    value: main
    rate_limit:
      unit: minute
      requests_per_unit: 28
",
        2,
        &["detailed_metric"],
    ),
    // Patterns: at the end, in the middle, and twice.
    (
        "domain: ends
descriptors:
  - key: item
    value: item*
    rate_limit:
      unit: minute
      requests_per_unit: 15
",
        1,
        &[],
    ),
    (
        "domain: middle
descriptors:
  - key: url
    value: /v1/*/pay
    rate_limit:
      unit: minute
      requests_per_unit: 15
",
        1,
        &[],
    ),
    (
        "domain: twice
descriptors:
  - key: url
    value: /v1/*/carts/*/pay
    rate_limit:
      unit: minute
      requests_per_unit: 15
",
        1,
        &[],
    ),
    // Words for metrics at levels without a limit, and with a pattern.
    (
        "domain: levels
descriptors:
  - key: url
    value_to_metric: true
    descriptors:
      - key: verb
        value_to_metric: true
        descriptors:
          - key: login
            rate_limit:
              unit: minute
              requests_per_unit: 33
",
        1,
        &["value_to_metric", "value_to_metric"],
    ),
    (
        "domain: levels_wild
descriptors:
  - key: login
    value_to_metric: true
    descriptors:
      - key: verb
        value: get*
        value_to_metric: true
        descriptors:
          - key: url
            rate_limit:
              unit: minute
              requests_per_unit: 44
",
        1,
        &["value_to_metric", "value_to_metric"],
    ),
    // One count for all values of a pattern, next to one for each.
    (
        "domain: shared
descriptors:
  # One count
  - key: docs
    value: docs/*
    share_threshold: true
    rate_limit:
      unit: hour
      requests_per_unit: 8

  # A count for each
  - key: docs_each
    value: docs_each/*
    share_threshold: false
    rate_limit:
      unit: hour
      requests_per_unit: 8
",
        2,
        &[],
    ),
    (
        "domain: shared_levels
descriptors:
  - key: url
    value: v1/*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - key: verb
        rate_limit:
          unit: minute
          requests_per_unit: 55
",
        1,
        &["value_to_metric"],
    ),
];

#[test]
fn examples_load() {
    for (text, limits, warned) in LOADS {
        let (domain, warnings) = right(text);
        assert_eq!(domain.limits.len(), limits, "{text}");
        assert_eq!(warnings.len(), warned.len(), "{warnings:?}");
        for (warning, word) in warnings.iter().zip(warned) {
            assert!(warning.contains(word), "{warning}");
        }
    }
}

#[test]
fn examples_keep_their_flags() {
    let flags = |at: usize| -> Vec<_> {
        let limits = right(LOADS[at].0).0.limits;
        let flags = |limit: &crate::config::Limit| {
            (limit.shadow, limit.share_threshold, limit.given_name.is_some(), limit.replaces.len())
        };
        limits.iter().map(|limit| flags(limit)).collect()
    };
    assert_eq!(flags(6), [(true, false, false, 0), (false, false, false, 0)]);
    assert_eq!(flags(7), [(false, false, true, 0), (false, false, false, 1)]);
    assert_eq!(flags(14), [(false, true, false, 0), (false, false, false, 0)]);
    let (domain, _) = right(LOADS[2].0);
    assert!(matches!(domain.limits[1].terms, Terms::Denied(_)));
}

#[test]
fn outlines_of_the_form_are_refused_by_name() {
    // The outline of a file, with remarks in the place of values.
    let outline = "domain: <any name>
descriptors:
  - key: <a key>
    rate_limit: (may be left out)
      name: (may be left out)
";
    let mistakes = wrong(outline);
    assert!(mistakes[0].starts_with("5:") && mistakes[0].contains("invalid YAML"), "{mistakes:?}");
    // A part of a file, with the units in the place of one.
    let part = "rate_limit:\n  unit: <second, minute, hour>\n  requests_per_unit: <number>\n";
    let expected = [
        ("1:1", "unknown word \"rate_limit\""),
        ("1:1", "a file without `domain:`"),
        ("1:1", "a file without limits"),
    ];
    assert_remarks(&wrong(part), &expected, part);
}

#[test]
fn files_of_other_programs_are_refused_by_name() {
    let metrics =
        "mappings:\n  - match: \"a.*.b\"\n    name: \"c\"\n    labels:\n      d: \"$1\"\n";
    let expected = [
        ("1:1", "unknown word \"mappings\""),
        ("1:1", "a file without `domain:`"),
        ("1:1", "a file without limits"),
    ];
    assert_remarks(&wrong(metrics), &expected, metrics);
    let cluster = "name: limits\ntls:\n  \"@type\": a.b/c\n";
    let expected = [
        ("1:1", "unknown word \"name\""),
        ("1:1", "a file without `domain:`"),
        ("1:1", "a file without limits"),
        ("2:1", "unknown word \"tls\""),
    ];
    assert_remarks(&wrong(cluster), &expected, cluster);
}

#[test]
fn quota_mode_of_the_sample_file_is_refused_by_name() {
    let text = "domain: quotas
descriptors:
  - key: app
    value: one
    quota_mode: true
    rate_limit:
      unit: minute
      requests_per_unit: 2
    metadata:
      app_with_quota:
        name: \"one\"
";
    assert_remarks(&wrong(text), &[("5:5", "quota_mode is not supported")], text);
}
