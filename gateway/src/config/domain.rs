//! A domain and its limits, as the matcher needs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis_throttle_client::{ClientAddress, Rule};

use super::glob::Glob;
use super::report::At;

/// The limits of one file.
#[derive(Debug)]
pub struct Domain {
    /// The name, as requests give it.
    pub name: Arc<str>,
    /// The path of the file.
    pub file: String,
    /// The place of the name in the file.
    pub at: At,
    /// The descriptors of an HTTP request; `None` if the domain is not for HTTP.
    pub http: Option<Http>,
    /// All limits, in the order of the file.
    pub limits: Vec<Arc<Limit>>,
    pub(crate) lookup: Lookup,
}

/// The limit of the descriptors that it matches.
#[derive(Debug)]
pub struct Limit {
    /// The name for statuses, header fields and metric labels. It holds no value of a request.
    pub name: Arc<str>,
    /// The terms.
    pub terms: Terms,
    /// The units that one hit takes.
    pub cost: u64,
    /// The decision if the server makes none.
    pub on_error: OnError,
    /// True if the cost is reported after the work (`count: reported`): a check requires one unit,
    /// and a report charges its units even if they are more than is left.
    pub reported: bool,
    /// True if a denied request is allowed all the same.
    pub shadow: bool,
    /// True if all values that a pattern fits share one count.
    pub share_threshold: bool,
    /// The name that `replaces` of other limits refers to.
    pub given_name: Option<Arc<str>>,
    /// The names of the limits that do not apply in a request in which this one is matched.
    pub replaces: Vec<Arc<str>>,
    /// The place in the file; `None` for a limit that a request brought.
    pub at: Option<At>,
    /// The beginning of its subjects: the domain, and a part that separates its keys from others.
    pub(crate) scope: String,
}

/// The terms of a limit.
#[derive(Debug)]
pub enum Terms {
    /// Allowed without a call.
    Unlimited,
    /// Denied without a call: no requests in the unit.
    Denied(Unit),
    /// A rule, as it is.
    Rule(Rule),
    /// A policy of the server, with variants that contain values of the request.
    Policy(Rule, Vec<Template>),
}

/// The decision if the server makes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// Allowed.
    #[default]
    Allow,
    /// Denied.
    Deny,
    /// None: the proxy decides by its own setting.
    Unavailable,
}

impl OnError {
    /// Returns the setting for the rule, which knows two. The gateway replaces a denial by
    /// [`OnError::Unavailable`] itself.
    pub(crate) fn of_rule(self) -> redis_throttle_client::OnError {
        match self {
            Self::Allow => redis_throttle_client::OnError::Allow,
            Self::Deny | Self::Unavailable => redis_throttle_client::OnError::Deny,
        }
    }
}

/// A unit of time of a limit in Envoy's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    const ALL: [(Self, &str, u64); 7] = [
        (Self::Second, "second", 1),
        (Self::Minute, "minute", 60),
        (Self::Hour, "hour", 3_600),
        (Self::Day, "day", 86_400),
        (Self::Week, "week", 7 * 86_400),
        (Self::Month, "month", 30 * 86_400),
        (Self::Year, "year", 365 * 86_400),
    ];

    /// Returns the unit of a name, in upper or lower case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, known, _)| known.eq_ignore_ascii_case(name)).map(|(unit, ..)| unit)
    }

    /// Returns the unit that is exactly this long, if there is one.
    #[must_use]
    pub fn of_length(length: Duration) -> Option<Self> {
        Self::ALL.into_iter().map(|(unit, ..)| unit).find(|unit| unit.length() == length)
    }

    /// Returns the length.
    #[must_use]
    pub fn length(self) -> Duration {
        let found = Self::ALL.into_iter().find(|(unit, ..)| *unit == self);
        Duration::from_secs(found.map_or(1, |(.., seconds)| seconds))
    }
}

/// A text with values of the request in it, such as `plan:{plan}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(pub(crate) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Text(String),
    /// The value of the key at this place in `match`.
    Value(usize),
}

/// The descriptors of HTTP requests, and the proxies that may send them.
#[derive(Debug)]
pub struct Http {
    /// Finds the client's address by the trusted proxies.
    pub client_address: ClientAddress,
    /// The descriptors, each with its keys and where their values come from. A descriptor of which
    /// a value is missing is left out.
    pub descriptors: Vec<Vec<(String, Source)>>,
}

/// A part of an HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The method.
    Method,
    /// The host, without the port.
    Host,
    /// The path, without the query.
    Path,
    /// The client's address; for IPv6, its /64 network.
    ClientAddress,
    /// The value of a header field.
    Header(http::HeaderName),
}

/// The limits in the form that finds them.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The own form, by the sorted keys of a limit.
    Keys(HashMap<String, Vec<Pattern>>),
    /// The tree of envoyproxy/ratelimit.
    Tree(Level),
}

impl Lookup {
    /// Returns true if a limit may match a descriptor with these keys.
    pub fn may_match(&self, keys: &[&str]) -> bool {
        match self {
            Self::Keys(groups) => groups.contains_key(&sorted(keys.iter().copied())),
            Self::Tree(level) => level.may_match(keys),
        }
    }
}

/// Sorts keys and joins them. No key of a file holds a control character.
pub(crate) fn sorted<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let mut keys: Vec<&str> = keys.collect();
    keys.sort_unstable();
    keys.join("\0")
}

/// The patterns of a limit in the own form.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// The keys and patterns in the order of `match`.
    pub entries: Vec<(String, Glob)>,
    /// The places in `entries` of the values that make up the subject.
    pub subject: Vec<usize>,
    pub limit: Arc<Limit>,
}

/// The branches of one level of the tree. A branch is found by its key, or by its key and value
/// joined by `_`.
#[derive(Debug, Default)]
pub(crate) struct Level {
    pub branches: Vec<Branch>,
    pub by_text: HashMap<String, usize>,
    /// The branches whose text has a star, in the order of the file.
    pub wild: Vec<(Glob, usize)>,
}

impl Level {
    fn may_match(&self, keys: &[&str]) -> bool {
        let Some((key, rest)) = keys.split_first() else { return false };
        let fits = |branch: &&Branch| branch.key == *key || branch.key.contains('*');
        self.branches.iter().filter(fits).any(|branch| match rest {
            [] => branch.limit.is_some(),
            rest => branch.below.may_match(rest),
        })
    }
}

#[derive(Debug)]
pub(crate) struct Branch {
    pub key: String,
    /// The value as the file has it; empty without a value.
    pub value: String,
    pub share_threshold: bool,
    pub limit: Option<Arc<Limit>>,
    pub below: Level,
}

impl Branch {
    /// Returns the text under which the branch is found: its key and value joined as
    /// envoyproxy/ratelimit does it.
    pub fn text(&self) -> String {
        let Self { key, value, .. } = self;
        if value.is_empty() { key.clone() } else { format!("{key}_{value}") }
    }
}
