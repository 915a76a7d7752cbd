//! The word `rate_limit` of envoyproxy/ratelimit's form.

use std::time::Duration;

use super::bounds::{KEY_BYTES_MAX, LIMITS_MAX};
use super::domain::{OnError, Unit};
use super::fields::{Fields, bounded, list};
use super::report::Report;
use super::yaml::Node;

pub(crate) const WORDS: [&str; 8] = [
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "algorithm",
    "burst",
    "on_error",
];
const ALGORITHMS: [&str; 6] =
    ["FIXED", "SLIDING", "SLIDINGLOG", "GCRA", "TOKENBUCKET", "LEAKYBUCKET"];
/// The algorithms with a burst.
const RATED: [&str; 3] = ["GCRA", "TOKENBUCKET", "LEAKYBUCKET"];

/// The terms of a limit.
#[derive(Debug)]
pub(crate) struct Rate {
    /// The unit; `None` if the limit is unlimited.
    pub unit: Option<Unit>,
    pub requests: u64,
    pub burst: Option<u64>,
    pub algorithm: &'static str,
    pub name: Option<String>,
    pub replaces: Vec<String>,
    pub on_error: OnError,
}

impl Rate {
    /// Returns the rule as the words of a command. Windows begin when those of
    /// envoyproxy/ratelimit do.
    pub fn words(&self, unit: Unit) -> String {
        let Self { requests, algorithm, .. } = self;
        let seconds = Duration::as_secs(&unit.length());
        match *algorithm {
            "FIXED" => format!("FIXED {requests} {seconds} ALIGNED"),
            "SLIDING" | "SLIDINGLOG" => format!("{algorithm} {requests} {seconds}"),
            _ => {
                let burst = self.burst.unwrap_or(*requests);
                format!("{algorithm} {burst} {requests} {seconds}")
            }
        }
    }
}

/// Reads the word's value.
pub(crate) fn read(node: &Node, report: &mut Report<'_>) -> Option<Rate> {
    let fields = Fields::of(node, &WORDS, report, refused)?;
    let unlimited = fields.flag("unlimited", report);
    let algorithm = algorithm(&fields, report);
    let burst = fields.number("burst", (1, u64::from(u32::MAX)), report);
    if burst.is_some() && !RATED.contains(&algorithm) {
        let text = format!("{algorithm} has no burst: write `algorithm: gcra`, or remove `burst:`");
        report.mistake(fields.place("burst"), text);
    }
    let requests = fields.number("requests_per_unit", (0, u64::from(u32::MAX)), report);
    let unit = unit(&fields, unlimited, report);
    if !unlimited && fields.get("requests_per_unit").is_none() {
        let text = "a limit without `requests_per_unit:`: add it, with 0 to deny all";
        report.mistake(fields.at, text);
    }
    let name = fields.text("name", report).filter(|name| !name.is_empty()).map(str::to_owned);
    if let Some(name) = &name {
        bounded(name, ("name", KEY_BYTES_MAX), fields.place("name"), report);
    }
    let replaces = replaces(&fields, name.as_deref(), report);
    let requests = requests.unwrap_or_default();
    let on_error = fields.on_error(report);
    Some(Rate { unit, requests, burst, algorithm, name, replaces, on_error })
}

fn algorithm(fields: &Fields<'_>, report: &mut Report<'_>) -> &'static str {
    let Some(text) = fields.text("algorithm", report) else { return "FIXED" };
    let known = ALGORITHMS.into_iter().find(|known| known.eq_ignore_ascii_case(text));
    known.unwrap_or_else(|| {
        let expected = ALGORITHMS.join(", ").to_ascii_lowercase();
        let text = format!("invalid algorithm: expected one of {expected}");
        report.mistake(fields.place("algorithm"), text);
        "FIXED"
    })
}

fn unit(fields: &Fields<'_>, unlimited: bool, report: &mut Report<'_>) -> Option<Unit> {
    let expected = "second, minute, hour, day, week, month or year";
    let text = fields.text("unit", report);
    match text {
        Some(_) if unlimited => {
            report.mistake(fields.place("unit"), "an unlimited limit with `unit:`: remove one");
            None
        }
        None if unlimited => None,
        None => {
            report.mistake(fields.at, format!("a limit without `unit:`: add {expected}"));
            None
        }
        Some(text) => {
            let unit = Unit::named(text);
            if unit.is_none() {
                let text = format!("invalid unit {text:?}: expected {expected}");
                report.mistake(fields.place("unit"), text);
            }
            unit
        }
    }
}

fn replaces(fields: &Fields<'_>, own: Option<&str>, report: &mut Report<'_>) -> Vec<String> {
    let nodes = fields.get("replaces").map_or(&[][..], |node| list(node, "replaces", report));
    let mut names = Vec::new();
    for node in nodes.iter().take(LIMITS_MAX) {
        let Some(fields) = Fields::of(node, &["name"], report, |_| None) else { continue };
        match fields.text("name", report) {
            None | Some("") => {
                report.mistake(node.at, "`replaces:` without a name: write `- name: NAME`");
            }
            Some(name) if Some(name) == own => {
                report.mistake(node.at, "a limit cannot replace itself: remove its name");
            }
            Some(name) => names.push(name.to_owned()),
        }
    }
    names
}

/// Returns the reason to refuse a word that belongs elsewhere.
fn refused(word: &str) -> Option<String> {
    let elsewhere = ["shadow_mode", "share_threshold", "detailed_metric", "value_to_metric"];
    let outside =
        elsewhere.contains(&word) || ["descriptors", "metadata", "quota_mode"].contains(&word);
    outside.then(|| format!("`{word}` belongs next to `rate_limit:`: move it there"))
}
