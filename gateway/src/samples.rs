//! Shows a configuration by the commands that sample requests would send, and as policies.

use std::collections::HashMap;

use redis_throttle_client::Limiter;

use crate::config::{Configuration, Domain, Level, Limit, Lookup, Remark, Terms};
use crate::decider::Tags;
use crate::matching::{Demand, Descriptor, Match, matches};

/// The text in place of each star, and of each value that a limit leaves open.
const SAMPLE: &str = "sample";

/// The entries of a descriptor.
type Entries = Vec<(String, String)>;

/// Returns a line for each limit, in the order of the files: a descriptor that the limit matches,
/// and the command that it sends. The limiter gives the keys their prefix; nothing is sent.
#[must_use]
pub fn commands(loaded: &Configuration, limiter: &Limiter, tags: Tags) -> Vec<String> {
    let of_domain = |domain| {
        let mut samples = samples(domain);
        samples.sort_by_key(|(limit, _)| limit.at.map(|at| (at.line, at.column)));
        let sender = Sender { domain, limiter, tags };
        samples.iter().map(|(limit, entries)| sender.line(limit, entries)).collect::<Vec<_>>()
    };
    loaded.domains().flat_map(of_domain).collect()
}

/// Returns the lines of a policy file, in the order of the files: each limit that is a rule, and a
/// comment on each other one.
///
/// # Errors
/// The places of two limits with one name, of which a server refuses the second.
pub fn policies(loaded: &Configuration, limiter: &Limiter) -> Result<Vec<String>, String> {
    let (mut lines, mut named) = (Vec::new(), HashMap::new());
    let limits = loaded.domains().flat_map(|one| one.limits.iter().map(move |limit| (one, limit)));
    for (domain, limit) in limits {
        let name = &*limit.name;
        let Terms::Rule(rule) = &limit.terms else {
            lines.push(format!("# {name}: {}", left_out(&limit.terms)));
            continue;
        };
        let at = |text| Remark { file: domain.file.clone(), at: limit.at, text }.to_string();
        if let Some(first) = named.insert(name, at("the first".to_owned())) {
            let text =
                format!("a second policy {name:?}: change its name, or print the files apart");
            return Err(format!("{}\n{first}", at(text)));
        }
        if limit.cost != 1 {
            lines.push(format!("# {name}: each call needs COST {}", limit.cost));
        }
        let words = limiter.words_of(rule.of("key")).map_err(|error| error.to_string())?;
        // The command, the key, and the rule.
        let [command, _, rule @ ..] = &words[..] else { continue };
        let (mode, command) =
            (if limit.shadow { "SHADOW " } else { "" }, command.replace("RL.", ""));
        lines.push(format!("{name} {mode}{command} {}", rule.join(" ")));
    }
    Ok(lines)
}

/// Returns the reason that a limit is no line of a policy file.
fn left_out(terms: &Terms) -> String {
    match terms {
        Terms::Unlimited => "unlimited, without a rule".to_owned(),
        Terms::Denied(_) => "no requests, without a rule".to_owned(),
        Terms::Policy(rule, _) | Terms::Rule(rule) => {
            format!("the policy {} of the server", rule.name())
        }
    }
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

/// The calls of a domain's requests.
struct Sender<'a> {
    domain: &'a Domain,
    limiter: &'a Limiter,
    tags: Tags,
}

impl Sender<'_> {
    fn line(&self, limit: &Limit, entries: &Entries) -> String {
        let domain = self.domain;
        let pairs = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let descriptor = Descriptor { entries: pairs.collect(), limit: None };
        let text = entries.iter().map(|(key, value)| format!("({key}={value})"));
        let text = text.collect::<Vec<_>>().join(",");
        let found = matches(domain, &[descriptor]).pop().flatten();
        let sent = match found {
            Some(found) if std::ptr::eq(&*found.limit, limit) => self.sent(&found),
            _ => "another limit matches first".to_owned(),
        };
        let shadow = if limit.shadow { " (shadow mode)" } else { "" };
        let reported = if limit.reported { " (reports: RL.CHARGE)" } else { "" };
        format!("{} {text}: {sent}{shadow}{reported}", domain.name)
    }

    fn sent(&self, found: &Match<'_>) -> String {
        let call = match &found.demand {
            Demand::Unlimited => return "unlimited, no call".to_owned(),
            Demand::Denied(_) => return "denied, no call".to_owned(),
            Demand::Replaced => return "replaced, no call".to_owned(),
            Demand::Call(call) => call,
        };
        let item = call.item().cost(found.limit.cost);
        let item = self.tags.of(self.domain, call).map_or(item, |tag| item.tag(tag));
        match self.limiter.words_of(item) {
            Ok(words) => words.join(" "),
            Err(error) => error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
