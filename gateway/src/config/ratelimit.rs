//! The form of envoyproxy/ratelimit: a tree of descriptors.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::bounds::{ENTRIES_MAX, KEY_BYTES_MAX, LIMITS_MAX, VALUE_BYTES_MAX};
use super::domain::{Branch, Level, Limit, Lookup, Terms};
use super::fields::{Fields, bounded, list};
use super::glob::Glob;
use super::naming::{joined, rule_name};
use super::rate::{self, Rate};
use super::report::{At, Report};
use super::rule_words;
use super::yaml::Node;

const WORDS: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "share_threshold",
    "detailed_metric",
    "value_to_metric",
    "metadata",
    "quota_mode",
];
/// The words that are read and have no effect.
const WITHOUT_EFFECT: [&str; 3] = ["detailed_metric", "value_to_metric", "metadata"];

/// Reads the list `descriptors` of a domain; `None` for an empty one.
pub(crate) fn descriptors(
    domain: &str,
    node: Option<&Node>,
    report: &mut Report<'_>,
) -> (Vec<Arc<Limit>>, Lookup) {
    let nodes = node.map_or(&[][..], |node| list(node, "descriptors", report));
    let mut reader =
        Reader { domain, report, limits: Vec::new(), path: Vec::new(), descriptors: 0 };
    let tree = reader.level(nodes);
    if let (true, Some(node)) = (reader.descriptors > LIMITS_MAX, node) {
        let text = format!("too many descriptors: expected at most {LIMITS_MAX}");
        reader.report.mistake(node.at, text);
    }
    reader.warn_of_unknown_names();
    (reader.limits, Lookup::Tree(tree))
}

struct Reader<'a, 'b> {
    domain: &'a str,
    report: &'a mut Report<'b>,
    limits: Vec<Arc<Limit>>,
    /// The texts of the branches above and of this one.
    path: Vec<String>,
    descriptors: usize,
}

impl Reader<'_, '_> {
    fn level(&mut self, nodes: &[Node]) -> Level {
        let mut level = Level::default();
        let mut places: Vec<At> = Vec::new();
        for node in nodes {
            self.descriptors += 1;
            if self.descriptors > LIMITS_MAX {
                break;
            }
            let Some(branch) = self.branch(node) else { continue };
            let (text, at) = (branch.text(), level.branches.len());
            if let Some(first) = level.by_text.get(&text) {
                let line = places.get(*first).map_or(0, |at| at.line);
                let text = format!("a second descriptor {text:?}: the first is in line {line}");
                self.report.mistake(node.at, text);
                continue;
            }
            let glob = Glob::new(&text);
            if glob.is_wild() {
                level.wild.push((glob, at));
            }
            level.by_text.insert(text, at);
            level.branches.push(branch);
            places.push(node.at);
        }
        self.warn_of_unreachable(&level, &places);
        level
    }

    /// Warns of the branches that no descriptor reaches, because a pattern fits all of theirs.
    fn warn_of_unreachable(&mut self, level: &Level, places: &[At]) {
        for (at, branch) in level.branches.iter().enumerate() {
            let own = level.wild.iter().position(|(_, wild)| *wild == at);
            let widest = match own {
                Some(_) => Glob::new(&branch.text()).widest(),
                None if branch.value.is_empty() => Glob::new(&format!("{}_*", branch.key)).widest(),
                None => continue,
            };
            let before = &level.wild[..own.unwrap_or(level.wild.len())];
            let Some((_, first)) = before.iter().find(|(earlier, _)| earlier.fits(&widest)) else {
                continue;
            };
            let line = places[*first].line;
            let text = format!("unreachable: the descriptor in line {line} matches the same first");
            self.report.warning(places[at], text);
        }
    }

    fn branch(&mut self, node: &Node) -> Option<Branch> {
        let fields = Fields::of(node, &WORDS, self.report, refused)?;
        let (key, value) = self.entry(&fields);
        let share_threshold = fields.flag("share_threshold", self.report);
        if share_threshold && !format!("{key}{value}").contains('*') {
            let text = "share_threshold needs a value with `*`: add one, or remove the word";
            self.report.mistake(fields.place("share_threshold"), text);
        }
        self.remarks(&fields);
        let shadow = fields.flag("shadow_mode", self.report);
        if shadow && fields.get("rate_limit").is_none() {
            let text = "shadow_mode has no effect without `rate_limit:` next to it";
            self.report.warning(fields.place("shadow_mode"), text);
        }
        let mut branch =
            Branch { key, value, share_threshold, limit: None, below: Level::default() };
        self.path.push(branch.text());
        branch.limit = self.limit(&fields, shadow, share_threshold);
        if let Some(node) = fields.get("descriptors") {
            if self.path.len() < ENTRIES_MAX {
                let nodes = list(node, "descriptors", self.report);
                branch.below = self.level(nodes);
            } else {
                let text = format!("nested too deep: expected at most {ENTRIES_MAX} levels");
                self.report.mistake(node.at, text);
            }
        }
        self.path.pop();
        Some(branch)
    }

    fn entry(&mut self, fields: &Fields<'_>) -> (String, String) {
        let key = fields.text("key", self.report).unwrap_or_default();
        if fields.get("key").is_none() {
            self.report.mistake(fields.at, "a descriptor without `key:`: add it");
        } else {
            bounded(key, ("key", KEY_BYTES_MAX), fields.place("key"), self.report);
        }
        let value = fields.text("value", self.report).unwrap_or_default();
        if !value.is_empty() {
            bounded(value, ("value", VALUE_BYTES_MAX), fields.place("value"), self.report);
        }
        (key.to_owned(), value.to_owned())
    }

    fn remarks(&mut self, fields: &Fields<'_>) {
        for word in WITHOUT_EFFECT.iter().filter(|word| fields.get(word).is_some()) {
            let text = format!("`{word}` has no effect here: see the metrics of the gateway");
            self.report.warning(fields.place(word), text);
        }
        if fields.flag("quota_mode", self.report) {
            let text = "quota_mode is not supported: remove it, or write shadow_mode";
            self.report.mistake(fields.place("quota_mode"), text);
        }
    }

    fn limit(
        &mut self,
        fields: &Fields<'_>,
        shadow: bool,
        share_threshold: bool,
    ) -> Option<Arc<Limit>> {
        let node = fields.get("rate_limit")?;
        let rate = rate::read(node, self.report)?;
        let name = rule_name(&self.path);
        let (terms, mark) = self.terms(&rate, &name, node.at)?;
        let limit = Arc::new(Limit {
            name: name.into(),
            terms,
            cost: 1,
            on_error: rate.on_error,
            reported: false,
            shadow,
            share_threshold,
            given_name: rate.name.map(Into::into),
            replaces: rate.replaces.iter().map(|name| Arc::from(name.as_str())).collect(),
            at: Some(node.at),
            scope: joined([self.domain, &mark]),
        });
        self.limits.push(limit.clone());
        Some(limit)
    }

    fn terms(&mut self, rate: &Rate, name: &str, at: At) -> Option<(Terms, String)> {
        let Some(unit) = rate.unit else { return Some((Terms::Unlimited, String::new())) };
        if rate.requests == 0 {
            return Some((Terms::Denied(unit), String::new()));
        }
        let written = self.report.noted(at, rule_words::rule(name, &rate.words(unit)))?;
        let rule = written.rule.on_error(rate.on_error.of_rule());
        Some((Terms::Rule(self.report.noted(at, rule)?), written.mark))
    }

    fn warn_of_unknown_names(&mut self) {
        let given: BTreeSet<_> =
            self.limits.iter().filter_map(|one| one.given_name.clone()).collect();
        let mut warned = HashMap::new();
        for limit in &self.limits {
            let unknown = limit.replaces.iter().filter(|name| !given.contains(*name));
            for (name, at) in unknown.zip(limit.at) {
                warned.entry(name.clone()).or_insert(at);
            }
        }
        for (name, at) in warned {
            let text = format!("no limit has the name {name:?}: nothing is replaced");
            self.report.warning(at, text);
        }
    }
}

/// Returns the reason to refuse a word that belongs elsewhere.
fn refused(word: &str) -> Option<String> {
    rate::WORDS.contains(&word).then(|| format!("`{word}` belongs in `rate_limit:`: move it there"))
}
