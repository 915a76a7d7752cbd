//! The rules of a limiter.
//!
//! A rule is created once, at startup, and checked there. An argument that the server would refuse
//! is an [`Error::InvalidArgument`] with the argument's name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::argument::{checked_name, checked_prefetch, units};
use crate::duration::{self, DAY_US, Span, checked_us};
use crate::{Call, Error, Kind, OnError, QuotaUnit};

pub(crate) const UNITS_MAX: u64 = 1_000_000_000_000;
pub(crate) const COST_MAX: u64 = 1_000_000_000_000;
const HOLDERS_MAX: u64 = 1_000_000;
const SECOND_US: u128 = 1_000_000;
const REFILL_MAX_US: u128 = 36_525 * DAY_US as u128;
const PER_SECOND_MAX: u128 = 1_000_000_000;
const VARIANTS_MAX: usize = 2;

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
}

/// One rule: an algorithm, its numbers, and its behavior without an answer. Cheap to clone.
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
    /// Creates a GCRA rule: `burst` at once, then `rate` per `period`. The default choice for APIs.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the server would refuse a number: units are 1 to 10^12, a rate
    /// is at most 10^9 per second, and an empty bucket must refill within 36,525 days.
    pub fn gcra(name: &str, burst: u64, rate: u64, period: impl Span) -> Result<Self, Error> {
        Self::rated(Kind::Gcra, "burst", name, burst, rate, period)
    }

    /// Creates a token bucket as [`Rule::gcra`] does, for limits that change at run time.
    ///
    /// # Errors
    /// The same as [`Rule::gcra`].
    pub fn token_bucket(
        name: &str,
        capacity: u64,
        rate: u64,
        period: impl Span,
    ) -> Result<Self, Error> {
        Self::rated(Kind::TokenBucket, "capacity", name, capacity, rate, period)
    }

    /// Creates a leaky bucket, which queues calls: `retry_after` is the time that an allowed
    /// call must wait before it acts.
    ///
    /// # Errors
    /// The same as [`Rule::gcra`].
    pub fn leaky_bucket(
        name: &str,
        capacity: u64,
        rate: u64,
        period: impl Span,
    ) -> Result<Self, Error> {
        Self::rated(Kind::LeakyBucket, "capacity", name, capacity, rate, period)
    }

    /// Creates a fixed window: `limit` per window. A window opens at the first call; if
    /// [`aligned`], at multiples of its length since 1970.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the limit is not 1 to 10^12, or the window not 1 ms to 366
    /// days.
    ///
    /// [`aligned`]: Rule::aligned
    pub fn fixed(name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        Self::windowed(Kind::Fixed, name, limit, window)
    }

    /// Creates a sliding window: about `limit` in any window, estimated from two counters.
    ///
    /// # Errors
    /// The same as [`Rule::fixed`].
    pub fn sliding(name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        Self::windowed(Kind::Sliding, name, limit, window)
    }

    /// Creates a sliding log: never more than `limit` in any window.
    ///
    /// # Errors
    /// The same as [`Rule::fixed`].
    pub fn sliding_log(name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        Self::windowed(Kind::SlidingLog, name, limit, window)
    }

    /// Creates a backoff: `attempts` without delay, then delays that double from `base` to `max`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if `attempts` is not 1 to 10^6, `base` is above `max`, or
    /// `forget` is not above `max`.
    pub fn backoff(
        name: &str,
        attempts: u64,
        base: impl Span,
        max: impl Span,
        forget: impl Span,
    ) -> Result<Self, Error> {
        let attempts_text = units(attempts, "attempts", HOLDERS_MAX)?;
        let base_us = checked_us(&base, "base")?;
        let max_us = checked_us(&max, "max")?;
        let forget_us = checked_us(&forget, "forget")?;
        if base_us > max_us {
            return Err(Error::invalid("base", "expected at most the max duration"));
        }
        if forget_us <= max_us {
            return Err(Error::invalid("forget", "expected more than the max duration"));
        }
        let mut words = vec!["BACKOFF".to_owned(), attempts_text];
        words.extend([base_us, max_us, forget_us].map(duration::text));
        Self::made(Kind::Backoff, name, words, |terms| terms.limit = Some(attempts))
    }

    /// Creates a quota: an allowance per calendar unit, in UTC or the given [`zone`](Rule::zone).
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the limit is not 1 to 10^12.
    pub fn quota(name: &str, limit: u64, unit: QuotaUnit) -> Result<Self, Error> {
        let limit_text = units(limit, "limit", UNITS_MAX)?;
        let words = vec!["QUOTA".to_owned(), limit_text, unit.word().to_owned()];
        Self::made(Kind::Quota, name, words, |terms| {
            terms.limit = Some(limit);
            terms.window = unit.window_us().map(Duration::from_micros);
        })
    }

    /// Creates a lease: at most `limit` holders at once. A permit expires after `ttl`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the limit is not 1 to 10^6.
    pub fn lease(name: &str, limit: u64, ttl: impl Span) -> Result<Self, Error> {
        let limit_text = units(limit, "limit", HOLDERS_MAX)?;
        let ttl_us = checked_us(&ttl, "ttl")?;
        let words = vec!["LEASE".to_owned(), limit_text, duration::text(ttl_us)];
        Self::made(Kind::Lease, name, words, |terms| {
            terms.limit = Some(limit);
            terms.period_us = ttl_us;
        })
    }

    /// Creates a rule for the policy that the server stores under `name`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the name is invalid.
    pub fn policy(name: &str) -> Result<Self, Error> {
        Self::made(Kind::Policy, name, vec!["USE".to_owned(), name.to_owned()], |_| {})
    }

    /// Makes windows open at multiples of their length since 1970, not at the first call.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rule is not a fixed window.
    pub fn aligned(self) -> Result<Self, Error> {
        self.only(Kind::Fixed, "aligned")?;
        self.with(|terms| terms.options = vec!["ALIGNED".to_owned()])
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

    /// Sets the behavior if the server gives no answer. Default: the limiter's setting. For a
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
    /// setting. It applies to calls of cost 1.
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

    /// Creates a call for `subject`, the user, IP or tenant to limit.
    pub fn of<'a>(&'a self, subject: &'a str) -> Call<'a> {
        Call::new(self, subject)
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

    fn made(
        kind: Kind,
        name: &str,
        words: Vec<String>,
        complete: impl FnOnce(&mut Terms),
    ) -> Result<Self, Error> {
        checked_name(name, "name")?;
        let mut terms = Terms {
            kind,
            name: name.into(),
            command: words.first().map_or_else(String::new, |word| format!("RL.{word}")),
            words,
            options: Vec::new(),
            window: None,
            limit: None,
            period_us: 0,
            rate: 0,
            on_error: None,
            prefetch: None,
            local_share: 1.0,
            default: None,
        };
        complete(&mut terms);
        Ok(Self(Arc::new(terms)))
    }

    fn rated(
        kind: Kind,
        capacity_name: &'static str,
        name: &str,
        capacity: u64,
        rate: u64,
        period: impl Span,
    ) -> Result<Self, Error> {
        let capacity_text = units(capacity, capacity_name, UNITS_MAX)?;
        let rate_text = units(rate, "rate", UNITS_MAX)?;
        let us = checked_us(&period, "period")?;
        if u128::from(rate) * SECOND_US > PER_SECOND_MAX * u128::from(us) {
            return Err(Error::invalid("rate", "expected at most 10^9 per second"));
        }
        let full_us = u128::from(capacity) * u128::from(us);
        if full_us > REFILL_MAX_US * u128::from(rate) {
            let expected = "expected at most 36525 days to refill from empty";
            return Err(Error::invalid(capacity_name, expected));
        }
        let word = match kind {
            Kind::Gcra => "GCRA",
            Kind::TokenBucket => "TOKENBUCKET",
            _ => "LEAKYBUCKET",
        };
        let words = vec![word.to_owned(), capacity_text, rate_text, duration::text(us)];
        Self::made(kind, name, words, |terms| {
            let window_us = u64::try_from(full_us.div_ceil(u128::from(rate))).ok();
            terms.window = window_us.map(Duration::from_micros);
            terms.limit = Some(capacity);
            terms.period_us = us;
            terms.rate = rate;
        })
    }

    fn windowed(kind: Kind, name: &str, limit: u64, window: impl Span) -> Result<Self, Error> {
        let limit_text = units(limit, "limit", UNITS_MAX)?;
        let us = checked_us(&window, "window")?;
        let word = match kind {
            Kind::Fixed => "FIXED",
            Kind::Sliding => "SLIDING",
            _ => "SLIDINGLOG",
        };
        let words = vec![word.to_owned(), limit_text, duration::text(us)];
        Self::made(kind, name, words, |terms| {
            terms.window = Some(Duration::from_micros(us));
            terms.limit = Some(limit);
            terms.period_us = us;
        })
    }
}
