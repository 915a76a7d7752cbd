use super::{assert_remarks, right, wrong};
use crate::config::{OnError, Source, Terms};

/// Returns a file with one limit.
fn file(limit: &str) -> String {
    format!("domain: api\nlimits:\n- {limit}\n")
}

#[test]
fn limit_of_the_design_has_all_its_words() {
    let (domain, warnings) = right(&file(
        "{match: {path: \"/search/*\", user: \"*\", plan: \"*\"}, policy: search, \
         for: [\"plan:{plan}\"], default: \"GCRA 20 10 1\", cost: 2, on_error: deny, \
         count: reported, key: [user], shadow: true}",
    ));
    assert_eq!((&*domain.name, warnings.len()), ("api", 0));
    let limit = &domain.limits[0];
    assert_eq!((&*limit.name, limit.cost, limit.reported), ("search", 2, true));
    assert_eq!((limit.on_error, limit.shadow), (OnError::Deny, true));
    let Terms::Policy(rule, variants) = &limit.terms else { panic!("{limit:?}") };
    let printed = format!("{rule:?}");
    assert!(printed.contains("USE search DEFAULT GCRA 20 10 1, on_error Some(Deny)"), "{printed}");
    assert_eq!(variants.len(), 1);
}

#[test]
fn words_that_are_left_out_have_defaults() {
    let (domain, _) = right(&file("{match: {user: \"*\"}, rule: FIXED 5 1m}"));
    let limit = &domain.limits[0];
    assert_eq!((&*limit.name, limit.cost, limit.reported), ("user", 1, false));
    assert_eq!((limit.on_error, limit.shadow), (OnError::Allow, false));
    assert!(domain.http.is_none());
}

#[test]
fn name_of_a_limit_is_its_own_or_its_policy_or_its_match() {
    let cases = [
        ("{match: {a: x}, name: mine, policy: p, default: GCRA 1 1 1}", "mine"),
        ("{match: {a: x}, policy: p, default: GCRA 1 1 1}", "p"),
        ("{match: {a: x, b: \"*\"}, rule: GCRA 1 1 1}", "a_x.b"),
    ];
    for (limit, name) in cases {
        assert_eq!(&*right(&file(limit)).0.limits[0].name, name, "{limit}");
    }
}

#[test]
fn unavailable_is_a_denial_for_the_rule() {
    let (domain, _) = right(&file("{match: {a: x}, rule: GCRA 1 1 1, on_error: unavailable}"));
    let limit = &domain.limits[0];
    let Terms::Rule(rule) = &limit.terms else { panic!("{limit:?}") };
    assert!(format!("{rule:?}").contains("on_error Some(Deny)"), "{rule:?}");
    assert_eq!(limit.on_error, OnError::Unavailable);
}

#[test]
fn wrong_limits_are_refused_with_their_place() {
    // Each limit begins in column 3 of line 3.
    let cases: [(&str, &[(&str, &str)]); 28] = [
        ("text", &[("3:3", "expected a mapping with the words `match`")]),
        ("{rule: GCRA 1 1 1}", &[("3:3", "invalid match")]),
        ("{match: [a], rule: GCRA 1 1 1}", &[("3:4", "invalid match")]),
        ("{match: {}, rule: GCRA 1 1 1}", &[("3:4", "invalid match")]),
        ("{match: {a: }, rule: GCRA 1 1 1}", &[("3:12", "write \"*\" for any")]),
        ("{match: {a: [x]}, rule: GCRA 1 1 1}", &[("3:15", "invalid value")]),
        ("{match: {\"\": x}, rule: GCRA 1 1 1}", &[("3:12", "invalid key")]),
        ("{match: {a: x}}", &[("3:3", "without `policy:` or `rule:`")]),
        ("{match: {a: x}, rule: GCRA 1 1}", &[("3:25", "expected GCRA burst rate period")]),
        ("{match: {a: x}, rule: USE p}", &[("3:25", "write `policy:`")]),
        (
            "{match: {a: x}, rule: GCRA 1 1 1, policy: p, default: GCRA 1 1 1}",
            &[("3:19", "both `policy:` and `rule:`")],
        ),
        (
            "{match: {a: x}, rule: GCRA 1 1 1, for: [b], default: GCRA 1 1 1}",
            &[("3:37", "`for:` needs `policy:`"), ("3:47", "`default:` needs `policy:`")],
        ),
        ("{match: {a: x}, policy: p}", &[("3:27", "a policy without `default:`")]),
        ("{match: {a: x}, policy: a b, default: GCRA 1 1 1}", &[("3:27", "invalid name")]),
        (
            "{match: {a: x}, policy: p, for: [\"{plan}\"], default: GCRA 1 1 1}",
            &[("3:36", "\"plan\" is not a key of `match`: add `plan: \"*\"` to it")],
        ),
        (
            "{match: {a: x}, policy: p, for: [a, b, c], default: GCRA 1 1 1}",
            &[("3:35", "at most 2 variants")],
        ),
        ("{match: {a: x}, key: [b], rule: GCRA 1 1 1}", &[("3:25", "not a key of `match`")]),
        ("{match: {a: x}, key: [a, a], rule: GCRA 1 1 1}", &[("3:28", "a second \"a\"")]),
        ("{match: {a: x}, rule: GCRA 1 1 1, cost: 0}", &[("3:43", "invalid cost")]),
        ("{match: {a: x}, rule: GCRA 1 1 1, on_error: local}", &[("3:37", "allow, deny or")]),
        ("{match: {a: x}, rule: GCRA 1 1 1, count: all}", &[("3:37", "invalid count")]),
        ("{match: {a: x}, rule: GCRA 1 1 1, name: a b}", &[("3:37", "invalid name")]),
        ("{match: {a: x}, rule: BACKOFF 1 1 1 2, cost: 2}", &[("3:3", "a backoff counts one")]),
        (
            "{match: {a: x}, policy: p, default: BACKOFF 1 1 1 2, count: reported}",
            &[("3:3", "a backoff counts one")],
        ),
        ("{match: {a: x}, rule: GCRA 20 9 1, cost: 21}", &[("3:44", "expected at most 20")]),
        (
            "{match: {a: x}, policy: p, default: FIXED 4 1, cost: 5}",
            &[("3:56", "invalid cost: expected at most 4, the rule's limit")],
        ),
        ("{match: {a: x}, rule: GCRA 1 1 1, shadow: 7}", &[("3:37", "expected true or false")]),
        (
            "{match: {a: x}, rul: GCRA 1 1 1, costs: 2, count: x}",
            &[
                ("3:3", "without `policy:` or `rule:`"),
                ("3:19", "unknown word \"rul\""),
                ("3:36", "unknown word \"costs\""),
                ("3:46", "invalid count"),
            ],
        ),
    ];
    for (limit, expected) in cases {
        assert_remarks(&wrong(&file(limit)), expected, limit);
    }
}

#[test]
fn invalid_limits_of_a_file_are_all_reported() {
    let text = "domain: a\nlimits:\n- {match: {a: x}}\n- {match: {a: y}, rule: GCRA}\n- 7\n";
    let expected = [("3:3", "without"), ("4:25", "expected GCRA"), ("5:3", "expected a mapping")];
    assert_remarks(&wrong(text), &expected, text);
}

#[test]
fn one_name_is_for_one_limit() {
    let text = "domain: a\nlimits:\n- {name: n, match: {a: x}, rule: GCRA 1 1 1}\n\
                - {name: n, match: {a: y}, rule: GCRA 1 1 1}\n";
    assert_remarks(&wrong(text), &[("4:4", "a second limit \"n\": the first is in line 3")], text);
    // A limit without a name has that of its match.
    let text = text.replace("name: n, match: {a: x}", "match: {n: \"*\"}");
    assert_remarks(&wrong(&text), &[("4:4", "a second limit \"n\"")], &text);
}

#[test]
fn limit_that_an_earlier_one_covers_is_warned_about() {
    let text = "domain: a\nlimits:\n\
                - {match: {a: \"x*\", b: \"*\"}, rule: GCRA 1 1 1}\n\
                - {match: {b: y, a: \"xx*\"}, rule: GCRA 1 1 1}\n\
                - {match: {b: y, a: \"*\"}, rule: GCRA 1 1 1}\n\
                - {match: {a: x}, rule: GCRA 1 1 1}\n\
                - {match: {a: x}, rule: LEAKYBUCKET 1 1 1}\n";
    let expected = [("4:3", "line 3 matches"), ("7:3", "line 6 matches"), ("7:25", "leaky bucket")];
    assert_remarks(&right(text).1, &expected, text);
}

#[test]
fn section_http_says_where_values_come_from() {
    let (domain, _) = right(
        "domain: a\nlimits: []\nhttp:\n  trusted_proxies: [10.0.0.0/8, \"::1\", unix]\n  \
         descriptors:\n  - {z: method, a: host, p: path}\n  \
         - {ip: client_address, user: header:X-User}\n",
    );
    let http = domain.http.expect("the section");
    let first = [("z", Source::Method), ("a", Source::Host), ("p", Source::Path)];
    let user = Source::Header("x-user".parse().unwrap());
    let second = [("ip", Source::ClientAddress), ("user", user)];
    let owned = |(key, source): &(&str, Source)| ((*key).to_owned(), source.clone());
    let expected: [Vec<_>; 2] =
        [first.iter().map(owned).collect(), second.iter().map(owned).collect()];
    assert_eq!(http.descriptors, expected);
}

#[test]
fn descriptor_of_http_that_no_limit_matches_is_warned_about() {
    let http = "http:\n  descriptors: [{b: path, a: host}, {a: host}, {c: path}]\n";
    let own = format!("domain: d\n{http}limits:\n- {{match: {{a: x, b: y}}, rule: GCRA 1 1 1}}\n");
    let unmatched = [("2:1", "descriptor 2 with the keys `a`"), ("2:1", "descriptor 3")];
    assert_remarks(&right(&own).1, &unmatched, &own);
    let limit = "rate_limit: {unlimited: true}";
    let tree = format!(
        "domain: d\n{http}descriptors:\n- {{key: b, descriptors: [{{key: a, {limit}}}]}}\n\
         - {{key: c, {limit}}}\n"
    );
    assert_remarks(&right(&tree).1, &unmatched[..1], &tree);
}

#[test]
fn wrong_sections_http_are_refused_with_their_place() {
    let cases: [(&str, &[(&str, &str)]); 7] = [
        ("{}", &[("3:7", "invalid descriptors")]),
        ("{descriptors: [{}]}", &[("3:22", "invalid descriptor")]),
        ("{descriptors: [{a: query}]}", &[("3:26", "invalid source")]),
        ("{descriptors: [{a: \"header:x y\"}]}", &[("3:26", "invalid source")]),
        (
            "{trusted_proxies: [a, 10.0.0.0/40], descriptors: [{a: path}]}",
            &[("3:26", "invalid trusted_proxies"), ("3:29", "invalid trusted_proxies")],
        ),
        (
            "{trusted_proxies: [\"::ffff:10.0.0.0/95\", 1.2.3.4%e], descriptors: [{a: path}]}",
            &[("3:26", "invalid trusted_proxies"), ("3:48", "invalid trusted_proxies")],
        ),
        ("{trust: 1, descriptors: [{a: path}]}", &[("3:8", "unknown word \"trust\"")]),
    ];
    for (section, expected) in cases {
        let text = format!("domain: a\nlimits: []\nhttp: {section}\n");
        assert_remarks(&wrong(&text), expected, &text);
    }
}

#[test]
fn number_of_limits_and_lengths_have_bounds() {
    let many = "- {match: {a: x}, rule: GCRA 1 1 1}\n".repeat(10_001);
    let mistakes = wrong(&format!("domain: a\nlimits:\n{many}"));
    assert_remarks(&mistakes, &[("3:3", "too many limits: expected at most 10000")], "many");
    // At most 100 mistakes are reported.
    assert_eq!(wrong(&format!("domain: a\nlimits:\n{}", "- 7\n".repeat(101))).len(), 100);
    let (key, value) = ("k".repeat(257), "v".repeat(1_025));
    let long = file(&format!("{{match: {{? {key} : {value}}}, rule: GCRA 1 1 1}}"));
    assert_eq!(wrong(&long).len(), 2);
    let keys = (0..17).map(|at| format!("k{at}: x")).collect::<Vec<_>>().join(", ");
    let many = wrong(&file(&format!("{{match: {{{keys}}}, rule: GCRA 1 1 1}}")));
    assert_remarks(&many, &[("3:4", "expected 1 to 16 keys")], "keys");
}
