//! Finds the limits of a request: a pure function of its descriptors and their domain.

use std::sync::Arc;

use redis_throttle_client::{Item, OnError as RuleOnError, Rule};

use crate::config::{
    Branch, Domain, Level, Limit, Lookup, OnError, Pattern, Template, Terms, Unit, extend,
    extend_by_entry, is_name, joined, rule, sorted,
};

/// The name of the limits that requests bring.
const OVERRIDE: &str = "override";

/// A descriptor of a request.
#[derive(Debug, Clone, Default)]
pub struct Descriptor<'a> {
    /// The keys and values, in order.
    pub entries: Vec<(&'a str, &'a str)>,
    /// The limit that the descriptor brings, which replaces those of the configuration.
    pub limit: Option<OwnLimit>,
}

/// A limit that a descriptor brings.
#[derive(Debug, Clone, Copy)]
pub struct OwnLimit {
    /// The number of requests in a unit; 0 denies all.
    pub requests: u32,
    /// The unit.
    pub unit: Unit,
}

/// The limit that a descriptor meets.
#[derive(Debug, Clone)]
pub struct Match<'a> {
    /// The limit. It lives on if the configuration is replaced.
    pub limit: Arc<Limit>,
    /// The demand of the limit.
    pub demand: Demand<'a>,
}

/// The demand of a matched limit.
#[derive(Debug, Clone)]
pub enum Demand<'a> {
    /// Nothing: allowed without a call.
    Unlimited,
    /// Nothing: denied without a call, unless the limit is in shadow mode.
    Denied(Unit),
    /// Nothing: another limit of the same request replaces this one.
    Replaced,
    /// A decision of the server.
    Call(Call<'a>),
}

/// A rule with its subject.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The rule; a policy has its variants.
    pub rule: Rule,
    /// The subject. It begins with the domain, so that domains share no keys.
    pub subject: String,
    /// The hash tag for a cluster: the first captured value that is not empty.
    pub tag: Option<&'a str>,
}

impl Call<'_> {
    /// Returns the item for the client, without a tag.
    pub fn item(&self) -> Item<'_> {
        self.rule.of(&self.subject)
    }
}

/// Returns the limit of each descriptor, in order; `None` for those that no limit matches.
#[must_use]
pub fn matches<'a>(domain: &Domain, descriptors: &[Descriptor<'a>]) -> Vec<Option<Match<'a>>> {
    let mut all: Vec<_> = descriptors.iter().map(|one| matched(domain, one)).collect();
    let replaces = |found: &Match<'a>| found.limit.replaces.clone();
    let replaced: Vec<Arc<str>> = all.iter().flatten().flat_map(replaces).collect();
    for found in all.iter_mut().flatten() {
        let name = found.limit.given_name.as_ref();
        let is_replaced = name.is_some_and(|name| replaced.contains(name));
        if is_replaced && !matches!(found.demand, Demand::Unlimited) {
            found.demand = Demand::Replaced;
        }
    }
    all
}

fn matched<'a>(domain: &Domain, descriptor: &Descriptor<'a>) -> Option<Match<'a>> {
    let entries = &descriptor.entries;
    if let Some(limit) = descriptor.limit {
        return brought(domain, limit, entries);
    }
    match &domain.lookup {
        Lookup::Keys(groups) => {
            let group = groups.get(&sorted(entries.iter().map(|(key, _)| *key)))?;
            group.iter().find_map(|pattern| by_pattern(pattern, entries))
        }
        Lookup::Tree(level) => by_tree(level, entries),
    }
}

/// Returns the match of a pattern with the keys of the descriptor.
fn by_pattern<'a>(pattern: &Pattern, entries: &[(&'a str, &'a str)]) -> Option<Match<'a>> {
    let value_of = |key: &str| entries.iter().find(|(other, _)| other == &key).map(|found| found.1);
    // Most patterns of a long list fail here, at the first key.
    if !pattern.entries.iter().all(|(key, glob)| value_of(key).is_some_and(|one| glob.fits(one))) {
        return None;
    }
    let values: Vec<&str> = pattern.entries.iter().filter_map(|(key, _)| value_of(key)).collect();
    let value = |at: usize| values.get(at).copied().unwrap_or_default();
    let captured: Vec<&str> = pattern.subject.iter().map(|at| value(*at)).collect();
    let mut subject = pattern.limit.scope.clone();
    captured.iter().for_each(|value| extend(&mut subject, value));
    let tag = captured.into_iter().find(|value| !value.is_empty());
    Some(build_match(&pattern.limit, subject, tag, &value))
}

/// Walks the tree. At each level the exact text wins, then the first pattern that fits, then the
/// key alone. A choice is never taken back.
fn by_tree<'a>(level: &Level, entries: &[(&'a str, &'a str)]) -> Option<Match<'a>> {
    let (mut level, mut captured, mut tag) = (level, String::new(), None);
    for (at, (key, value)) in entries.iter().enumerate() {
        let (branch, is_exact) = branch(level, key, value)?;
        let is_wild = branch.key.contains('*') || branch.value.contains('*');
        let is_shared = is_wild && branch.share_threshold;
        // A branch with a value and without a star fits its text only, or all values of its text.
        let is_one = is_exact && !is_wild && !branch.value.is_empty();
        if *key != branch.key && !is_one && (is_shared || !branch.key.contains('*')) {
            // The pattern `user_*` also fits `user_id`, which has counts of its own.
            let value = if is_shared { "" } else { value };
            extend_by_entry(&mut captured, at, (key, value));
        } else if !is_one && !is_shared {
            // A star in a key fits the whole text, so the key belongs to the subject too.
            let text = branch.key.contains('*').then(|| format!("{key}_{value}"));
            extend(&mut captured, text.as_deref().unwrap_or(value));
        }
        if !is_one && !is_shared {
            tag = tag.or(Some(*value).filter(|value| !value.is_empty()));
        }
        if at + 1 == entries.len() {
            let limit = branch.limit.as_ref()?;
            return Some(build_match(limit, format!("{}{captured}", limit.scope), tag, &|_| ""));
        }
        level = &branch.below;
    }
    None
}

/// Returns the branch of an entry, and whether its text is exactly that of the entry.
fn branch<'a>(level: &'a Level, key: &str, value: &str) -> Option<(&'a Branch, bool)> {
    let text = format!("{key}_{value}");
    let found = |at: &usize| level.branches.get(*at);
    if let Some(at) = level.by_text.get(&text) {
        return Some((found(at)?, true));
    }
    let by_pattern = level.wild.iter().find(|(glob, _)| glob.fits(&text)).map(|(_, at)| at);
    let at = by_pattern.or_else(|| level.by_text.get(key))?;
    Some((found(at)?, false))
}

fn build_match<'a, 'b>(
    limit: &Arc<Limit>,
    subject: String,
    tag: Option<&'a str>,
    value: &impl Fn(usize) -> &'b str,
) -> Match<'a> {
    let call = |rule: Rule| Demand::Call(Call { rule, subject, tag });
    let demand = match &limit.terms {
        Terms::Unlimited => Demand::Unlimited,
        Terms::Denied(unit) => Demand::Denied(*unit),
        Terms::Rule(rule) => call(rule.clone()),
        Terms::Policy(rule, variants) => call(with_variants(rule, variants, value)),
    };
    Match { limit: limit.clone(), demand }
}

/// Adds the variants to a policy. Callers choose the values in them: a variant that cannot be a
/// name is left out.
fn with_variants<'b>(
    rule: &Rule,
    variants: &[Template],
    value: &impl Fn(usize) -> &'b str,
) -> Rule {
    let names = variants.iter().map(|variant| variant.filled(value));
    let names: Vec<String> = names.filter(|name| is_name(name)).collect();
    if names.is_empty() {
        return rule.clone();
    }
    let with = rule.clone().variants(names.iter().map(String::as_str));
    with.unwrap_or_else(|_| rule.clone())
}

/// Builds the limit that a descriptor brings. Its subject has all keys and values.
fn brought<'a>(
    domain: &Domain,
    OwnLimit { requests, unit }: OwnLimit,
    entries: &[(&'a str, &'a str)],
) -> Option<Match<'a>> {
    let (terms, mark) = if requests == 0 {
        (Terms::Denied(unit), String::new())
    } else {
        let words = format!("FIXED {requests} {} ALIGNED", unit.length().as_secs());
        let written = rule(OVERRIDE, &words).ok()?;
        (Terms::Rule(written.rule.on_error(RuleOnError::Allow).ok()?), written.mark)
    };
    let limit = Arc::new(Limit {
        name: OVERRIDE.into(),
        terms,
        cost: 1,
        on_error: OnError::Allow,
        reported: false,
        shadow: false,
        share_threshold: false,
        given_name: None,
        replaces: Vec::new(),
        at: None,
        scope: joined([&*domain.name, &mark]),
    });
    let mut subject = limit.scope.clone();
    for (key, value) in entries {
        extend(&mut subject, key);
        extend(&mut subject, value);
    }
    let tag = entries.iter().map(|(_, value)| *value).find(|value| !value.is_empty());
    Some(build_match(&limit, subject, tag, &|_| ""))
}

#[cfg(test)]
mod tests;
