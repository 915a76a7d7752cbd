//! The rules of a limiter.
//!
//! A rule is created once, at startup, and checked there. An argument that the server would refuse
//! is an [`Error::InvalidArgument`] with the argument's name.

mod algorithms;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::{Count, Decision, Error, Kind};

/// The largest number of units of a rule.
pub(crate) const UNITS_MAX: u64 = 1_000_000_000_000;
/// The maximum number of permits that one call fetches.
pub(crate) const PREFETCH_MAX: u64 = 10_000;
const VARIANTS_MAX: usize = 2;
const SLOTS_MIN: u64 = 16;
const SLOTS_MAX: u64 = 65_536;

/// The decision on a call if the server does not decide. `Deny` is stricter than `Local`, and
/// `Local` than `Allow`: of several rules the strictest decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OnError {
    /// Open: the call is allowed, and its decision is marked as degraded.
    #[default]
    Allow,
    /// This process enforces the rule, or the share of it that the rule sets.
    Local,
    /// Closed: the call is denied until the server decides again.
    Deny,
}

impl FromStr for OnError {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "allow" => Ok(Self::Allow),
            "local" => Ok(Self::Local),
            "deny" => Ok(Self::Deny),
            _ => Err(Error::invalid("on_error", "expected allow, deny or local")),
        }
    }
}

/// The checked terms of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub kind: Kind,
    pub name: Arc<str>,
    /// The name of the command that decides a call.
    pub command: String,
    /// The rule as the server reads it, without the key and the options.
    pub words: Vec<String>,
    pub options: Vec<String>,
    /// The rule's window, or the time to refill its bucket, if it has one.
    pub window: Option<Duration>,
    pub limit: Option<u64>,
    /// The period of the rate, the window, or the ttl, in microseconds.
    pub period_us: u64,
    pub rate: u64,
    pub on_error: Option<OnError>,
    pub prefetch: Option<u64>,
    pub local_share: f64,
    pub default: Option<Rule>,
    pub count: Count,
}

/// One rule: an algorithm, its numbers, and its behavior without the server. Cheap to clone.
#[derive(Clone)]
pub struct Rule(Arc<Terms>);

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms { name, words, options, on_error, .. } = &*self.0;
        let text = words.iter().chain(options).map(String::as_str).collect::<Vec<_>>().join(" ");
        write!(formatter, "Rule({name}: {text}, on_error {on_error:?})")
    }
}

impl Rule {
    /// Makes windows open at multiples of their length since 1970, not at the first call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rule is not a fixed window.
    pub fn aligned(self) -> Result<Self, Error> {
        self.only(Kind::Fixed, "aligned")?;
        self.with(|terms| terms.options = vec!["ALIGNED".to_owned()])
    }

    /// Sets the number of slots in which a sliding log groups its calls: 16 to 65,536. Default: the
    /// server's setting.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number, or if the rule is not a sliding log.
    pub fn slots(self, slots: u64) -> Result<Self, Error> {
        self.only(Kind::SlidingLog, "slots")?;
        if !(SLOTS_MIN..=SLOTS_MAX).contains(&slots) {
            return Err(Error::invalid("slots", "expected an integer from 16 to 65536"));
        }
        self.with(|terms| terms.options = vec!["SLOTS".to_owned(), slots.to_string()])
    }

    /// Sets the time zone of a quota's calendar, such as `Europe/Berlin`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if no zone can have this name, or the rule is not a quota.
    pub fn zone(self, zone: &str) -> Result<Self, Error> {
        self.only(Kind::Quota, "zone")?;
        let printable = zone.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
        if zone.is_empty() || zone.len() > 128 || !printable {
            return Err(Error::invalid("zone", "expected a name such as Europe/Berlin"));
        }
        // The server expects the zone first, regardless of the order of calls here.
        self.with(|terms| {
            terms.options.splice(0..0, ["ZONE".to_owned(), zone.to_owned()]);
        })
    }

    /// Sets the day on which a quota's calendar unit starts, 1 to 31.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number, or if the rule is not a quota.
    pub fn start(self, day: u64) -> Result<Self, Error> {
        self.only(Kind::Quota, "start")?;
        let day = units(day, "start", 31)?;
        self.with(|terms| terms.options.extend(["START".to_owned(), day]))
    }

    /// Adds variants of a policy, such as `plan:gold`. The first that the server knows applies,
    /// otherwise the policy itself.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a third variant, an invalid name, or a rule that is not a
    /// policy.
    pub fn variants<'a>(self, variants: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        self.only(Kind::Policy, "variants")?;
        let mut given = self.0.options.iter().filter(|word| *word == "FOR").count();
        let at = 2 * given;
        let mut words = Vec::new();
        for variant in variants {
            given += 1;
            if given > VARIANTS_MAX {
                return Err(Error::invalid("variants", "expected at most two names"));
            }
            checked_name(variant, "variants")?;
            words.extend(["FOR".to_owned(), variant.to_owned()]);
        }
        // Insert before a default, which must come last.
        self.with(|terms| {
            terms.options.splice(at..at, words);
        })
    }

    /// Sets the rule to apply if the server does not know the policy.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a second default, a lease, a policy, or a rule that is not a
    /// policy.
    pub fn default(self, rule: Self) -> Result<Self, Error> {
        self.only(Kind::Policy, "default")?;
        if self.0.default.is_some() || matches!(rule.kind(), Kind::Lease | Kind::Policy) {
            let expected = "expected one rule that is not a lease or a policy";
            return Err(Error::invalid("default", expected));
        }
        self.with(|terms| {
            terms.options.push("DEFAULT".to_owned());
            terms.options.extend(rule.0.words.iter().chain(&rule.0.options).cloned());
            terms.default = Some(rule);
        })
    }

    /// Sets the behavior if the server does not decide. Default: the limiter's setting. For a
    /// policy with [`OnError::Local`], call [`default`](Rule::default) first.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for [`OnError::Local`] on a rule that cannot be enforced locally:
    /// a lease, a quota, a backoff, or a policy unless its default has a rate or a window.
    pub fn on_error(self, on_error: OnError) -> Result<Self, Error> {
        self.can_follow(on_error)?;
        self.with(|terms| terms.on_error = Some(on_error))
    }

    pub(crate) fn can_follow(&self, on_error: OnError) -> Result<(), Error> {
        let kept_here = self.0.default.as_ref().unwrap_or(self);
        let local = kept_here.0.period_us > 0 && kept_here.kind() != Kind::Lease;
        if on_error == OnError::Local && !local {
            let name = self.name();
            return Err(Error::invalid("on_error", format!("expected allow or deny for {name}")));
        }
        Ok(())
    }

    /// Sets the number of permits to prefetch per call: 1 to 10,000. Default: the limiter's
    /// setting. It applies to calls of cost 1 that leave nothing.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number, and for more than one under a leaky bucket, a
    /// backoff, a lease or a policy, whose permits cannot be prefetched.
    pub fn prefetch(self, permits: u64) -> Result<Self, Error> {
        checked_prefetch(permits)?;
        if permits > 1 && !self.takes_partial() {
            return Err(Error::invalid("prefetch", format!("expected 1 for rule {}", self.name())));
        }
        self.with(|terms| terms.prefetch = Some(permits))
    }

    /// Sets the responses that count, for middleware. Default: [`Count::ALL`]. The units of others
    /// are given back.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a lease, which counts no units, and another count than
    /// [`Count::ALL`].
    pub fn count(self, count: Count) -> Result<Self, Error> {
        if self.kind() == Kind::Lease && count != Count::ALL {
            return Err(Error::invalid("count", "expected none: a lease counts no units"));
        }
        self.with(|terms| terms.count = count)
    }

    /// Returns the responses that count.
    #[must_use]
    pub fn counts(&self) -> &Count {
        &self.0.count
    }

    /// Sets the part of the rule that this process enforces under [`OnError::Local`]: above 0, at
    /// most 1. Default: 1. The capacity is rounded down, but at least one unit.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another number.
    pub fn local_share(self, share: f64) -> Result<Self, Error> {
        if !(share > 0.0 && share <= 1.0) {
            return Err(Error::invalid("local_share", "expected a number above 0, at most 1"));
        }
        self.with(|terms| terms.local_share = share)
    }

    /// Returns the name, which appears in keys and replies.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the algorithm.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns true if a call may take more than one unit.
    #[must_use]
    pub fn takes_cost(&self) -> bool {
        !matches!(self.kind(), Kind::Backoff | Kind::Lease)
    }

    /// Returns true if permits may be prefetched. They may not in a leaky bucket, where each call
    /// has its own time to act.
    pub(crate) fn takes_partial(&self) -> bool {
        self.takes_cost() && !matches!(self.kind(), Kind::LeakyBucket | Kind::Policy)
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.0
    }

    /// Creates the decision on a call whose state is not known. Its limit is the rule's, if it has
    /// one.
    pub(crate) fn without_state(&self, allowed: bool, retry_after: Duration) -> Decision {
        let limit = self.0.default.as_ref().unwrap_or(self).0.limit.unwrap_or(0);
        Decision { limit, ..Decision::without_server(self.0.name.clone(), allowed, retry_after) }
    }

    /// Returns true if the server reads both rules the same way, whatever their names.
    pub(crate) fn has_words_of(&self, other: &Self) -> bool {
        if Arc::ptr_eq(&self.0, &other.0) {
            return true;
        }
        let (one, two) = (&*self.0, &*other.0);
        let have_same_default = match (&one.default, &two.default) {
            (Some(one), Some(two)) => one.has_words_of(two),
            (one, two) => one.is_none() && two.is_none(),
        };
        one.words == two.words && one.options == two.options && have_same_default
    }

    /// Returns the rule's first word, which names the algorithm.
    pub(crate) fn algorithm(&self) -> &str {
        self.0.words.first().map_or("", String::as_str)
    }

    fn only(&self, kind: Kind, argument: &'static str) -> Result<(), Error> {
        let other = || Error::invalid(argument, format!("expected a {kind:?} rule"));
        if self.kind() == kind { Ok(()) } else { Err(other()) }
    }

    fn with(mut self, change: impl FnOnce(&mut Terms)) -> Result<Self, Error> {
        change(Arc::make_mut(&mut self.0));
        Ok(self)
    }
}

/// Returns an error unless this number of permits can be fetched at once.
pub(crate) fn checked_prefetch(permits: u64) -> Result<(), Error> {
    units(permits, "prefetch", PREFETCH_MAX).map(drop)
}

/// Returns the number as text, if the server accepts it.
pub(crate) fn units(value: u64, argument: &'static str, most: u64) -> Result<String, Error> {
    if (1..=most).contains(&value) {
        return Ok(value.to_string());
    }
    Err(Error::invalid(argument, format!("expected an integer from 1 to {most}")))
}

/// Returns an error unless the text is a name of a rule or a policy.
pub(crate) fn checked_name(name: &str, argument: &'static str) -> Result<(), Error> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    if (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
        return Ok(());
    }
    Err(Error::invalid(argument, "expected 1 to 64 of A-Z a-z 0-9 . _ : / -"))
}
