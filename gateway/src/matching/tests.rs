use super::{Call, Demand, Descriptor, Match, OwnLimit, matches};
use crate::config::{Configuration, Domain, Unit};
use std::io::Write as _;

mod naive;

type Entries<'a> = &'a [(&'a str, &'a str)];

/// Loads a domain from its text.
fn domain(text: &str) -> Configuration {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    Configuration::load(file.path()).unwrap_or_else(|mistakes| panic!("{mistakes:?}\n{text}"))
}

fn only(loaded: &Configuration) -> &Domain {
    loaded.domains().next().expect("a domain")
}

fn descriptor<'a>(entries: &[(&'a str, &'a str)]) -> Descriptor<'a> {
    Descriptor { entries: entries.to_vec(), limit: None }
}

fn one<'a>(domain: &Domain, entries: &[(&'a str, &'a str)]) -> Option<Match<'a>> {
    matches(domain, &[descriptor(entries)]).pop().expect("a row")
}

fn call<'a>(domain: &Domain, entries: &[(&'a str, &'a str)]) -> Call<'a> {
    match one(domain, entries).map(|found| found.demand) {
        Some(Demand::Call(call)) => call,
        other => panic!("{entries:?}: {other:?}"),
    }
}

const OWN: &str = "domain: api
limits:
- {name: vip, match: {path: \"/search/*\", user: acme}, rule: GCRA 500 500 1}
- {name: search, match: {path: \"/search/*\", user: \"*\"}, key: [user], rule: GCRA 20 10 1}
- {name: any, match: {path: \"*\", user: \"*\"}, rule: FIXED 100 1h}
- {name: all, match: {path: /slow}, rule: FIXED 5 1s}
- {name: plans, match: {user: \"*\", plan: \"*\"}, key: [user], policy: api,
   for: [\"user:{user}\", \"plan:{plan}\"], default: GCRA 1 1 1}
";

#[test]
fn first_limit_of_the_file_with_exactly_these_keys_wins() {
    let loaded = domain(OWN);
    let cases: [(Entries<'_>, Option<&str>); 8] = [
        (&[("path", "/search/a"), ("user", "acme")], Some("vip")),
        (&[("user", "acme"), ("path", "/search/a")], Some("vip")),
        (&[("path", "/search/a"), ("user", "bob")], Some("search")),
        (&[("path", "/find"), ("user", "bob")], Some("any")),
        (&[("path", "/slow")], Some("all")),
        (&[("path", "/fast")], None),
        (&[("path", "/slow"), ("path", "/slow")], None),
        (&[("path", "/slow"), ("user", "bob"), ("plan", "x")], None),
    ];
    for (entries, expected) in cases {
        let found = one(only(&loaded), entries);
        let name = found.as_ref().map(|found| &*found.limit.name);
        assert_eq!(name, expected, "{entries:?}");
    }
    assert!(one(only(&loaded), &[]).is_none());
}

#[test]
fn subject_is_the_captured_values_in_the_order_of_the_match() {
    let loaded = domain(OWN);
    let cases: [(Entries<'_>, &str, Option<&str>); 5] = [
        (&[("path", "/search/a"), ("user", "acme")], "api|gcra-1s|/search/a", Some("/search/a")),
        (&[("path", "/search/a"), ("user", "bob")], "api|gcra-1s|bob", Some("bob")),
        (&[("user", "b|b"), ("path", "/x")], "api|fixed-3600s|/x|b%7Cb", Some("/x")),
        // Values may be empty, subjects are not.
        (&[("user", "bob"), ("path", "")], "api|fixed-3600s||bob", Some("bob")),
        (&[("path", "/slow")], "api|fixed-1s", None),
    ];
    for (entries, subject, tag) in cases {
        let call = call(only(&loaded), entries);
        assert_eq!((&*call.subject, call.tag), (subject, tag), "{entries:?}");
    }
}

#[test]
fn variants_hold_values_of_the_request_unless_they_cannot_be_names() {
    let loaded = domain(OWN);
    let long = "x".repeat(65);
    let cases = [
        ("acme", "gold", "USE api FOR user:acme FOR plan:gold DEFAULT GCRA 1 1 1"),
        ("a b", "gold", "USE api FOR plan:gold DEFAULT GCRA 1 1 1"),
        ("a\nb", &long, "USE api DEFAULT GCRA 1 1 1"),
        ("", "", "USE api FOR user: FOR plan: DEFAULT GCRA 1 1 1"),
    ];
    for (user, plan, words) in cases {
        let call = call(only(&loaded), &[("plan", plan), ("user", user)]);
        let printed = format!("{:?}", call.rule);
        assert!(printed.contains(words), "{printed}\n{words}");
        assert!(call.subject.starts_with("api|@plans|"), "{}", call.subject);
    }
}

const TREE: &str = "domain: edge
descriptors:
- key: ip
  rate_limit: {unit: second, requests_per_unit: 10}
- {key: ip, value: 50.0.0.5, rate_limit: {unit: second, requests_per_unit: 0}}
- {key: ip, value: \"10.*\", rate_limit: {unlimited: true}}
- {key: ip, value: 10.0.0.1}
- key: kind
  value: mail
  rate_limit: {unit: day, requests_per_unit: 1}
  descriptors:
  - {key: to, rate_limit: {unit: day, requests_per_unit: 5}}
  - key: to
    value: a*
    descriptors: [{key: at, rate_limit: {unit: day, requests_per_unit: 6}}]
- key: file
  value: docs/*
  share_threshold: true
  rate_limit: {unit: hour, requests_per_unit: 8}
  descriptors: [{key: part, value: p*, rate_limit: {unit: hour, requests_per_unit: 9}}]
- {key: \"x*\", rate_limit: {unit: hour, requests_per_unit: 7}}
- {key: user, value: \"*\", rate_limit: {unit: hour, requests_per_unit: 10}}
- key: node
  value: \"*\"
  share_threshold: true
  descriptors:
  - {key: node, value: \"*\", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 9}}
";

#[test]
fn tree_is_walked_without_turning_back() {
    let loaded = domain(TREE);
    let tree = only(&loaded);
    let subject = |entries: &[(&'static str, &'static str)]| match one(tree, entries)?.demand {
        Demand::Call(call) => Some(call.subject),
        other => Some(format!("{other:?}")),
    };
    let cases: [(Entries<'_>, Option<&str>); 25] = [
        (&[("ip", "1.2.3.4")], Some("edge|fixed-1s|1.2.3.4")),
        (&[("ip", "50.0.0.5")], Some("Denied(Second)")),
        (&[("ip", "10.7.7.7")], Some("Unlimited")),
        // The exact value has no limit: neither the pattern nor the key applies.
        (&[("ip", "10.0.0.1")], None),
        (&[("ip", "1.2.3.4"), ("more", "x")], None),
        (&[("kind", "mail")], Some("edge|fixed-86400s")),
        (&[("kind", "chat")], None),
        (&[("kind", "mail"), ("to", "bob")], Some("edge|fixed-86400s|bob")),
        // The pattern wins over the key, and has no limit at this depth.
        (&[("kind", "mail"), ("to", "ann")], None),
        (&[("kind", "mail"), ("to", "ann"), ("at", "x")], Some("edge|fixed-86400s|ann|x")),
        (&[("file", "docs/a")], Some("edge|fixed-3600s")),
        (&[("file", "docs/b")], Some("edge|fixed-3600s")),
        (&[("file", "docs/b"), ("part", "p1")], Some("edge|fixed-3600s|p1")),
        (&[("file", "other")], None),
        // A star in a key fits what follows, so both belong to the subject.
        (&[("xy", "z")], Some("edge|fixed-3600s|xy_z")),
        (&[("ip", "")], Some("edge|fixed-1s|")),
        // The pattern `user_*` fits other keys, which have counts of their own.
        (&[("user", "1")], Some("edge|fixed-3600s|1")),
        (&[("user_id", "1")], Some("edge|fixed-3600s|user_id%/1")),
        (&[("user_org", "1")], Some("edge|fixed-3600s|user_org%/1")),
        (&[("user", "org_1")], Some("edge|fixed-3600s|org_1")),
        (&[("user", "user_id%/1")], Some("edge|fixed-3600s|user_id%25/1")),
        // Such a count is that of the key if its values share one.
        (&[("node", "a"), ("node", "b")], Some("edge|fixed-3600s")),
        (&[("node_a", "a"), ("node", "b")], Some("edge|fixed-3600s|node_a%/")),
        (&[("node", "a"), ("node_a", "b")], Some("edge|fixed-3600s|node_a%1/")),
        // Here the star of the file is a character of the request.
        (&[("user", "*")], Some("edge|fixed-3600s|*")),
    ];
    for (entries, expected) in cases {
        assert_eq!(subject(entries).as_deref(), expected, "{entries:?}");
    }
    assert!(one(tree, &[]).is_none());
}

#[test]
fn replaced_limit_makes_no_call() {
    let loaded = domain(
        "domain: d
descriptors:
- {key: a, rate_limit: {unit: day, requests_per_unit: 5, name: slow}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 9, replaces: [{name: slow}]}}
- {key: c, rate_limit: {unlimited: true, name: slow}}
- {key: d, rate_limit: {unlimited: true, replaces: [{name: slow}, {name: off}]}}
- {key: e, rate_limit: {unit: day, requests_per_unit: 0, name: off}}
",
    );
    let demands = |keys: &[&'static str]| -> String {
        let descriptors: Vec<_> = keys.iter().map(|key| descriptor(&[(key, "1")])).collect();
        let letter = |found: Option<Match<'_>>| match found.map(|found| found.demand) {
            None => '-',
            Some(Demand::Call(_)) => 'c',
            Some(Demand::Replaced) => 'r',
            Some(Demand::Unlimited) => 'u',
            Some(Demand::Denied(_)) => 'd',
        };
        matches(only(&loaded), &descriptors).into_iter().map(letter).collect()
    };
    let cases: [(&[&str], &str); 6] = [
        (&["a", "e"], "cd"),
        (&["a", "b"], "rc"),
        (&["b", "a", "a"], "crr"),
        // What is unlimited stays so, and replaces others all the same.
        (&["c", "b"], "uc"),
        (&["a", "d", "e"], "rur"),
        (&["a", "x"], "c-"),
    ];
    for (keys, expected) in cases {
        assert_eq!(demands(keys), expected, "{keys:?}");
    }
}

#[test]
fn limit_of_the_descriptor_wins_in_both_forms() {
    for text in [OWN, TREE] {
        let loaded = domain(text);
        let brought = |requests| {
            let entries = vec![("path", ""), ("user", "bob")];
            let limit = Some(OwnLimit { requests, unit: Unit::Minute });
            matches(only(&loaded), &[Descriptor { entries, limit }]).pop().flatten().unwrap()
        };
        let Demand::Call(call) = brought(7).demand else { panic!("{text}") };
        let printed = format!("{:?}", call.rule);
        assert!(printed.contains("override: FIXED 7 60 ALIGNED"), "{printed}");
        assert!(call.subject.ends_with("|fixed-60s|path||user|bob"), "{}", call.subject);
        assert_eq!(call.tag, Some("bob"));
        assert!(matches!(brought(0).demand, Demand::Denied(Unit::Minute)));
    }
}

#[test]
fn no_two_domains_share_a_key() {
    let subjects = [OWN, &OWN.replace("domain: api", "domain: \"api|gcra-1s\"")]
        .map(|text| call(only(&domain(text)), &[("path", "/search/a"), ("user", "bob")]).subject);
    assert_eq!(subjects, ["api|gcra-1s|bob", "api%7Cgcra-1s|gcra-1s|bob"]);
}
