//! Shows a domain by the commands that sample requests would send.

use std::sync::Arc;

use redis_throttle_client::{Limiter, Rule};

use crate::config::{Domain, Level, Limit, Lookup, Terms};
use crate::matching::{Demand, Descriptor, Match, matches};

/// The text in place of each star, and of each value that a limit leaves open.
const SAMPLE: &str = "sample";

/// The entries of a descriptor.
type Entries = Vec<(String, String)>;

/// Returns a line for each limit, in the order of the file: a descriptor that the limit matches,
/// and the command that it sends. The limiter gives the keys their prefix; nothing is sent.
#[must_use]
pub fn commands(domain: &Domain, limiter: &Limiter) -> Vec<String> {
    let mut samples = samples(domain);
    samples.sort_by_key(|(limit, _)| limit.at.map(|at| (at.line, at.column)));
    samples.iter().map(|(limit, entries)| line(domain, limiter, limit, entries)).collect()
}

/// Returns a line of a policy file for each limit that is a rule, in the order of the file.
#[must_use]
pub fn policies(domain: &Domain, limiter: &Limiter) -> Vec<String> {
    let rules = domain.limits.iter().filter_map(|limit| match &limit.terms {
        Terms::Rule(rule) => Some((limit, rule)),
        _ => None,
    });
    let line = |(limit, rule): (&Arc<Limit>, &Rule)| {
        let words = limiter.words_of(rule.of("key")).ok()?;
        // The command, the key, and the rule.
        let (command, rule) = (words.first()?.strip_prefix("RL.")?, words.get(2..)?.join(" "));
        Some(format!("{} {command} {rule}", limit.name))
    };
    rules.filter_map(line).collect()
}

fn samples(domain: &Domain) -> Vec<(&Limit, Entries)> {
    let mut found = Vec::new();
    match &domain.lookup {
        Lookup::Keys(groups) => {
            for pattern in groups.values().flatten() {
                let entries = pattern.entries.iter();
                let entries = entries.map(|(key, glob)| (key.clone(), glob.filled(SAMPLE)));
                found.push((&*pattern.limit, entries.collect()));
            }
        }
        Lookup::Tree(level) => walk(level, &mut Vec::new(), &mut found),
    }
    found
}

fn walk<'a>(level: &'a Level, path: &mut Entries, into: &mut Vec<(&'a Limit, Entries)>) {
    for branch in &level.branches {
        let value = if branch.value.is_empty() { "*" } else { &branch.value };
        let filled = |text: &str| text.replace('*', SAMPLE);
        path.push((filled(&branch.key), filled(value)));
        into.extend(branch.limit.as_ref().map(|limit| (&**limit, path.clone())));
        walk(&branch.below, path, into);
        path.pop();
    }
}

fn line(domain: &Domain, limiter: &Limiter, limit: &Limit, entries: &Entries) -> String {
    let pairs = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let descriptor = Descriptor { entries: pairs.collect(), limit: None };
    let shown = entries.iter().map(|(key, value)| format!("({key}={value})"));
    let shown = shown.collect::<Vec<_>>().join(",");
    let found = matches(domain, &[descriptor]).pop().flatten();
    let sent = match found {
        Some(found) if std::ptr::eq(&*found.limit, limit) => sent(&found, limiter),
        _ => "another limit matches first".to_owned(),
    };
    let shadow = if limit.shadow { " (shadow mode)" } else { "" };
    let reported = if limit.reported { " (reports: RL.CHARGE)" } else { "" };
    format!("{} {shown}: {sent}{shadow}{reported}", domain.name)
}

fn sent(found: &Match<'_>, limiter: &Limiter) -> String {
    let call = match &found.demand {
        Demand::Unlimited => return "unlimited, no call".to_owned(),
        Demand::Denied(_) => return "denied, no call".to_owned(),
        Demand::Replaced => return "replaced, no call".to_owned(),
        Demand::Ask(call) => call,
    };
    match limiter.words_of(call.item().cost(found.limit.cost)) {
        Ok(words) => words.join(" "),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
