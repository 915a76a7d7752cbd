//! The tree next to a naive matcher, over random trees and descriptors.

use super::{domain, only};
use crate::matching::{Demand, Descriptor, matches};
use proptest::prelude::*;
use std::collections::HashMap;

/// A descriptor of the file.
#[derive(Debug, Clone)]
struct Rung {
    key: String,
    value: String,
    requests: Option<u32>,
    share: bool,
    below: Vec<Rung>,
}

impl Rung {
    fn text(&self) -> String {
        if self.value.is_empty() {
            self.key.clone()
        } else {
            format!("{}_{}", self.key, self.value)
        }
    }

    fn yaml(&self) -> String {
        let Self { key, value, below, .. } = self;
        let mut words = vec![format!("key: \"{key}\"")];
        if !value.is_empty() {
            words.push(format!("value: \"{value}\""));
        }
        if let Some(requests) = self.requests {
            words.push(format!("rate_limit: {{unit: day, requests_per_unit: {requests}}}"));
        }
        if self.share && self.text().contains('*') {
            words.push("share_threshold: true".to_owned());
        }
        words.push(format!("descriptors: [{}]", list(below)));
        format!("{{{}}}", words.join(", "))
    }
}

fn list(rungs: &[Rung]) -> String {
    rungs.iter().map(Rung::yaml).collect::<Vec<_>>().join(", ")
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => (0..=text.len()).any(|at| fits(&pattern[1..], &text[at..])),
        Some(char) => text.strip_prefix(char).is_some_and(|rest| fits(&pattern[1..], rest)),
    }
}

/// A level's part of the identity of a count, and its part of the subject.
type Step = (Option<(String, String)>, Option<String>);

/// Returns the requests of the limit that a descriptor meets, and the step of each level.
fn naive(rungs: &[Rung], entries: &[(String, String)], at: usize) -> Option<(u32, Vec<Step>)> {
    let ((key, value), rest) = entries.split_first()?;
    let text = format!("{key}_{value}");
    let exact = rungs.iter().find(|rung| rung.text() == text);
    let wild = || rungs.iter().find(|rung| rung.text().contains('*') && fits(&rung.text(), &text));
    let alone = || rungs.iter().find(|rung| rung.text() == *key);
    let rung = exact.or_else(wild).or_else(alone)?;
    let is_wild = rung.text().contains('*');
    let is_one = exact.is_some() && !is_wild && !rung.value.is_empty();
    let is_shared = rung.share && is_wild;
    let sign = if at == 0 { "%/".to_owned() } else { format!("%{at}/") };
    let step = match (is_one, is_shared, *key == rung.key) {
        (true, ..) => (None, None),
        (_, true, true) => (Some((key.clone(), String::new())), None),
        (_, true, false) => (Some((key.clone(), String::new())), Some(format!("{key}{sign}"))),
        // Two keys with one text, such as `k_a` with `b` and `k` with `a_b`, are one.
        _ if rung.key.contains('*') => (Some((text.clone(), String::new())), Some(text)),
        (_, _, true) => (Some((key.clone(), value.clone())), Some(value.clone())),
        _ => (Some((key.clone(), value.clone())), Some(format!("{key}{sign}{value}"))),
    };
    if rest.is_empty() {
        return Some((rung.requests?, vec![step]));
    }
    let (requests, more) = naive(&rung.below, rest, at + 1)?;
    Some((requests, [vec![step], more].concat()))
}

fn rungs(depth: u32) -> BoxedStrategy<Vec<Rung>> {
    let below = if depth == 0 { Just(Vec::new()).boxed() } else { rungs(depth - 1) };
    let value = prop_oneof![Just(String::new()), "[ab]{1,2}", "[ab*]{1,3}"];
    let requests = prop::option::weighted(0.7, 1_u32..1_000_000);
    let key = prop_oneof![4 => "[kl]", 1 => "k_[ab]", 1 => "[kl]\\*"];
    let rung = (key, value, requests, any::<bool>(), below).prop_map(
        |(key, value, requests, share, below)| Rung { key, value, requests, share, below },
    );
    prop::collection::vec(rung, 0..6)
        .prop_map(|mut rungs| {
            let mut texts = Vec::new();
            rungs.retain(|rung| {
                let is_new = !texts.contains(&rung.text());
                texts.push(rung.text());
                is_new
            });
            rungs
        })
        .boxed()
}

fn entries() -> impl Strategy<Value = Vec<(String, String)>> {
    let key = prop_oneof![4 => "[kl]", 1 => "k_[ab]"];
    prop::collection::vec((key, "[ab*]{0,3}"), 0..4)
}

proptest! {
    #[test]
    fn tree_agrees_with_the_naive_matcher(
        rungs in rungs(2),
        requests in prop::collection::vec(entries(), 16),
    ) {
        let text = format!("domain: d\ndescriptors: [{}]\n", list(&rungs));
        let loaded = domain(&text);
        let mut steps_of = HashMap::new();
        for entries in &requests {
            let pairs = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let found = matches(only(&loaded), &[Descriptor { entries: pairs, limit: None }]).pop();
            let met = naive(&rungs, entries, 0);
            let expected = met.clone().map(|(requests, steps)| {
                let parts = steps.into_iter().filter_map(|(_, part)| part);
                let parts: String = parts.map(|part| format!("|{part}")).collect();
                (format!("FIXED {requests} 86400 ALIGNED"), format!("d|fixed-86400s{parts}"))
            });
            let call = match found.flatten().map(|found| found.demand) {
                Some(Demand::Call(call)) => Some((format!("{:?}", call.rule), call.subject)),
                _ => None,
            };
            let same = match (&call, &expected) {
                (Some((rule, subject)), Some((words, expected))) => {
                    rule.contains(words.as_str()) && subject == expected
                }
                (None, None) => true,
                _ => false,
            };
            prop_assert!(same, "{entries:?}: {call:?}, expected {expected:?}\n{text}");
            // The rungs have random numbers, so a rule identifies one.
            if let Some((_, steps)) = met {
                let steps: Vec<_> = steps.into_iter().map(|(step, _)| step).collect();
                let first = steps_of.entry(expected).or_insert_with(|| steps.clone());
                prop_assert_eq!(first, &steps, "{:?} share a count\n{}", entries, text);
            }
        }
    }
}
