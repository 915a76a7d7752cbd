//! The own form: a list of limits, each with the keys that it matches.

use std::collections::HashMap;
use std::sync::Arc;

use redis_throttle_client::{Kind, Rule};

use super::bounds::{COST_MAX, ENTRIES_MAX, KEY_BYTES_MAX, LIMITS_MAX, VALUE_BYTES_MAX};
use super::domain::{Limit, Lookup, OnError, Pattern, Template, Terms, sorted};
use super::fields::{Fields, bounded, list, scalar};
use super::glob::Glob;
use super::naming::{joined, rule_name};
use super::report::{At, Report};
use super::rule_words::{self, Written};
use super::template::template;
use super::yaml::{Node, Value};

const WORDS: [&str; 11] = [
    "match", "key", "name", "policy", "for", "default", "rule", "cost", "on_error", "shadow",
    "count",
];
/// The most variants that a call may name.
const VARIANTS_MAX: usize = 2;

/// Reads the list `limits`.
pub(crate) fn limits(
    domain: &str,
    node: &Node,
    report: &mut Report<'_>,
) -> (Vec<Arc<Limit>>, Lookup) {
    let nodes = list(node, "limits", report);
    if nodes.len() > LIMITS_MAX {
        report.mistake(node.at, format!("too many limits: expected at most {LIMITS_MAX}"));
        return (Vec::new(), Lookup::Keys(HashMap::new()));
    }
    let (mut limits, mut named, mut by_keys) = (Vec::new(), Names::default(), HashMap::new());
    for node in nodes {
        let Some(pattern) = limit(domain, node, &mut named, report) else { continue };
        let group: &mut Vec<Pattern> = by_keys.entry(keys(&pattern)).or_default();
        let widest: Vec<_> =
            pattern.entries.iter().map(|(key, glob)| (key, glob.widest())).collect();
        if let Some(earlier) = group.iter().find(|earlier| covers(earlier, &widest)) {
            let line = earlier.limit.at.map_or(0, |at| at.line);
            let text = format!("unreachable: the limit in line {line} matches the same first");
            report.warning(node.at, text);
        }
        limits.push(pattern.limit.clone());
        group.push(pattern);
    }
    (limits, Lookup::Keys(by_keys))
}

/// Returns the keys of a pattern as the look-up has them.
fn keys(pattern: &Pattern) -> String {
    sorted(pattern.entries.iter().map(|(key, _)| key.as_str()))
}

/// Returns true if a pattern matches all that another one with the same keys matches, which is
/// given by its widest values.
fn covers(pattern: &Pattern, other: &[(&String, String)]) -> bool {
    pattern.entries.iter().all(|(key, glob)| {
        let same = other.iter().find(|(other_key, _)| *other_key == key);
        same.is_some_and(|(_, widest)| glob.fits(widest))
    })
}

fn limit(domain: &str, node: &Node, named: &mut Names, report: &mut Report<'_>) -> Option<Pattern> {
    let fields = Fields::of(node, &WORDS, report, |_| None)?;
    let entries = entries(&fields, report);
    let subject = subject(&fields, &entries, report);
    let name = fields.text("name", report);
    let name = name.filter(|name| report.noted(fields.place("name"), Rule::policy(name)).is_some());
    let identity = name.map_or_else(|| rule_name(&parts(&entries)), str::to_owned);
    named.add(&identity, name.is_some(), fields.place("name"), report);
    let cost = fields.number("cost", (1, COST_MAX), report);
    let cost = cost.unwrap_or(1);
    let on_error = fields.on_error(report);
    let reported = reported(&fields, report);
    let shadow = fields.flag("shadow", report);
    let (identity, entries_of) = (&*identity, &*entries);
    let builder =
        TermsBuilder { fields: &fields, domain, identity, entries: entries_of, cost, reported };
    let (terms, scope) = builder.terms(on_error, report)?;
    let rule_name = match &terms {
        Terms::Policy(rule, _) | Terms::Rule(rule) => rule.name(),
        Terms::Unlimited | Terms::Denied(_) => identity,
    };
    let limit = Limit {
        name: name.unwrap_or(rule_name).into(),
        terms,
        cost,
        on_error,
        reported,
        shadow,
        share_threshold: false,
        given_name: None,
        replaces: Vec::new(),
        at: Some(node.at),
        scope,
    };
    (!entries.is_empty()).then(|| Pattern { entries, subject, limit: Arc::new(limit) })
}

/// Reads `match`: the keys and patterns of a descriptor.
fn entries(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<(String, Glob)> {
    let mut entries = Vec::new();
    let pairs = match fields.get("match").map(|node| &node.value) {
        Some(Value::Mapping(pairs)) if (1..=ENTRIES_MAX).contains(&pairs.len()) => pairs,
        _ => {
            let expected = format!("expected 1 to {ENTRIES_MAX} keys, such as {{user: \"*\"}}");
            report.mistake(fields.place("match"), format!("invalid match: {expected}"));
            return entries;
        }
    };
    for pair in pairs {
        bounded(&pair.word, ("key", KEY_BYTES_MAX), pair.at, report);
        let text = match &pair.node.value {
            Value::Null => {
                let text = format!("{:?} has no value: write \"*\" for any", pair.word);
                report.mistake(pair.at, text);
                ""
            }
            _ => scalar(&pair.node, "value", report).unwrap_or_default(),
        };
        if text.len() > VALUE_BYTES_MAX {
            let expected = format!("expected at most {VALUE_BYTES_MAX} bytes");
            report.mistake(pair.node.at, format!("invalid value: {expected}"));
        }
        entries.push((pair.word.clone(), Glob::new(text)));
    }
    entries
}

/// Reads `key`: the keys whose values make up the subject. Without it, those with a star.
fn subject(fields: &Fields<'_>, entries: &[(String, Glob)], report: &mut Report<'_>) -> Vec<usize> {
    let Some(node) = fields.get("key") else {
        let wild = |(at, (_, glob)): (usize, &(String, Glob))| glob.is_wild().then_some(at);
        return entries.iter().enumerate().filter_map(wild).collect();
    };
    let mut subject = Vec::new();
    for node in list(node, "key", report) {
        let Some(word) = scalar(node, "key", report) else { continue };
        match entries.iter().position(|(key, _)| key == word) {
            Some(at) if !subject.contains(&at) => subject.push(at),
            Some(_) => report.mistake(node.at, format!("a second {word:?}: remove it")),
            None => report.mistake(node.at, format!("{word:?} is not a key of `match`: add it")),
        }
    }
    subject
}

/// The names of limits, each with the line of the first, and whether the file gives it. A limit
/// without one has the name of its match, which others may have only if they match the same.
#[derive(Default)]
struct Names(HashMap<String, (usize, bool)>);

impl Names {
    fn add(&mut self, name: &str, is_given: bool, at: At, report: &mut Report<'_>) {
        let Some((line, was_given)) = self.0.get(name) else {
            self.0.insert(name.to_owned(), (at.line, is_given));
            return;
        };
        if is_given || *was_given {
            let text = format!("a second limit {name:?}: the first is in line {line}");
            report.mistake(at, text);
        }
    }
}

/// Returns the parts of a name that comes from a match.
fn parts(entries: &[(String, Glob)]) -> Vec<String> {
    if entries.is_empty() {
        // The match is wrong, which is noted. A name lets the rule be checked all the same.
        return vec!["unnamed".to_owned()];
    }
    let part = |(key, glob): &(String, Glob)| match &*glob.filled("*") {
        "*" => key.clone(),
        value => format!("{key}_{value}"),
    };
    entries.iter().map(part).collect()
}

fn reported(fields: &Fields<'_>, report: &mut Report<'_>) -> bool {
    let text = fields.text("count", report);
    if text.is_some_and(|text| text != "reported") {
        let text = "invalid count: expected `reported`; leave it out otherwise";
        report.mistake(fields.place("count"), text);
    }
    text == Some("reported")
}

/// Builds the terms of one limit.
struct TermsBuilder<'a, 'b> {
    fields: &'a Fields<'b>,
    domain: &'a str,
    identity: &'a str,
    entries: &'a [(String, Glob)],
    cost: u64,
    reported: bool,
}

impl TermsBuilder<'_, '_> {
    /// Returns the terms, and the beginning of their subjects.
    fn terms(&self, on_error: OnError, report: &mut Report<'_>) -> Option<(Terms, String)> {
        let fields = self.fields;
        let (policy, rule) = (fields.get("policy"), fields.get("rule"));
        match (policy, rule) {
            (Some(_), None) => self.policy(on_error, report),
            (None, Some(_)) => {
                for word in ["for", "default"].iter().filter(|word| fields.get(word).is_some()) {
                    let text = format!("`{word}:` needs `policy:`: remove it, or write a policy");
                    report.mistake(fields.place(word), text);
                }
                let (rule, mark) = self.rule("rule", self.identity, report)?;
                let rule = report.noted(fields.place("rule"), rule.on_error(on_error.of_rule()))?;
                Some((Terms::Rule(rule), joined([self.domain, &mark])))
            }
            (Some(_), Some(_)) => {
                let text = "both `policy:` and `rule:`: keep one, or write the rule as `default:`";
                report.mistake(fields.place("rule"), text);
                None
            }
            (None, None) => {
                report.mistake(fields.at, "a limit without `policy:` or `rule:`: write one");
                None
            }
        }
    }

    fn rule(&self, word: &str, name: &str, report: &mut Report<'_>) -> Option<(Rule, String)> {
        let at = self.place(word);
        let text = self.fields.text(word, report)?;
        let written = report.noted(at, rule_words::rule(name, text))?;
        if written.rule.kind() == Kind::LeakyBucket {
            let text = "a leaky bucket makes calls wait, but the gateway responds at once: \
                        write GCRA or TOKENBUCKET";
            report.warning(at, text);
        }
        self.refuse_cost(&written, report);
        Some((written.rule, written.mark))
    }

    /// Notes a cost that the rule does not take, or never allows.
    fn refuse_cost(&self, written: &Written, report: &mut Report<'_>) {
        let Self { cost, reported, .. } = *self;
        if !written.rule.takes_cost() {
            if cost != 1 || reported {
                let text = "a backoff counts one at a time: remove `cost:` and `count:`";
                report.mistake(self.fields.at, text);
            }
        } else if cost > written.limit {
            let text =
                format!("invalid cost: expected at most {}, the rule's limit", written.limit);
            report.mistake(self.place("cost"), text);
        }
    }

    fn policy(&self, on_error: OnError, report: &mut Report<'_>) -> Option<(Terms, String)> {
        let variants = self.variants(report);
        if self.fields.get("default").is_none() {
            let text = "a policy without `default:` fails every limit of a request if the server \
                        lacks the policy: add one, such as \"GCRA 20 10 1\"";
            report.mistake(self.place("policy"), text);
        }
        let name = self.fields.text("policy", report);
        let rule = name.and_then(|name| report.noted(self.place("policy"), Rule::policy(name)));
        let default = self.rule("default", "default", report);
        let rule = report.noted(self.place("default"), rule?.default(default?.0))?;
        let rule = report.noted(self.place("policy"), rule.on_error(on_error.of_rule()))?;
        // No mark begins with this sign, so a policy shares no key with a rule of its name.
        Some((Terms::Policy(rule, variants), joined([self.domain, &format!("@{}", self.identity)])))
    }

    fn variants(&self, report: &mut Report<'_>) -> Vec<Template> {
        let Some(node) = self.fields.get("for") else { return Vec::new() };
        let nodes = list(node, "for", report);
        if nodes.len() > VARIANTS_MAX {
            let text = format!("invalid for: expected at most {VARIANTS_MAX} variants");
            report.mistake(node.at, text);
        }
        let keys: Vec<&str> = self.entries.iter().map(|(key, _)| key.as_str()).collect();
        let read = |node| {
            let text = scalar(node, "for", report)?;
            report.noted(node.at, template(text, &keys))
        };
        nodes.iter().filter_map(read).collect()
    }

    /// Returns the place of a word's value.
    fn place(&self, word: &str) -> At {
        self.fields.get(word).map_or(self.fields.at, |node| node.at)
    }
}
