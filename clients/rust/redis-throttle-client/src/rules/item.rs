//! An item: a rule, a subject, and the options of their call.

use std::time::Duration;

use crate::rules::durations::{Span, checked_us};
use crate::rules::keys::Keys;
use crate::{Error, Kind, Rule};

/// The largest cost, and the largest number of units to leave.
pub(crate) const COST_MAX: u64 = 1_000_000_000_000;
const PERCENT_MAX: u64 = 100;
/// The time after which a reservation expires, unless its item has its own.
const RESERVED_FOR_US: u64 = 30_000_000;

/// The units that must remain after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    Units(u64),
    /// A part of the limit.
    Percent(u64),
}

/// A rule with the subject to limit. Build it with `rule.of("42")`, then `.cost(3)`, `.leave(10)`,
/// `.reserve(1800)` or `.tag("acme")` if needed. Each of these returns a changed copy.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct Item<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) subject: &'a str,
    pub(crate) cost: Option<u64>,
    pub(crate) leave: Option<Leave>,
    pub(crate) partial: bool,
    pub(crate) reserved: Option<u64>,
    pub(crate) ttl_us: Option<u64>,
    pub(crate) tag: Option<&'a str>,
    pub(crate) id: Option<&'a str>,
}

impl Rule {
    /// Creates an item for `subject`, the user, IP or tenant to limit.
    pub fn of<'a>(&'a self, subject: &'a str) -> Item<'a> {
        let (cost, leave, partial, reserved) = (None, None, false, None);
        Item {
            rule: self,
            subject,
            cost,
            leave,
            partial,
            reserved,
            ttl_us: None,
            tag: None,
            id: None,
        }
    }
}

impl<'a> Item<'a> {
    /// Sets the cost: 0 to 10^12 units. Default: 1. 0 takes nothing and returns the status.
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the units that must remain after the call: 0 to 10^12. With fewer, the call is denied.
    /// Not for backoffs, refunds and charges.
    pub fn leave(mut self, units: u64) -> Self {
        self.leave = Some(Leave::Units(units));
        self
    }

    /// Sets the part of the limit that must remain after the call, in percent: 0 to 100. The units
    /// are rounded down.
    pub fn leave_percent(mut self, percent: u64) -> Self {
        self.leave = Some(Leave::Percent(percent));
        self
    }

    /// Takes the units that are left if they are fewer than the cost. The decision's
    /// [`granted`](crate::Decision::granted) has their number. Only for
    /// [`check`](crate::Limiter::check), and not for backoffs and leases.
    pub fn partial(mut self) -> Self {
        self.partial = true;
        self
    }

    /// Reserves units instead of taking them: 0 to 10^12, under a fixed window, a quota or a
    /// policy. An [`Admission`](crate::Admission) settles them at its end. Not together with
    /// [`cost`](Item::cost).
    pub fn reserve(mut self, units: u64) -> Self {
        self.reserved = Some(units);
        self
    }

    /// Sets the time after which a reservation expires if it is not renewed: 1 ms to 366 days.
    /// Default: 30 s.
    pub fn ttl(mut self, ttl: impl Span) -> Self {
        // A duration that is not a whole number of microseconds is refused like one of zero.
        self.ttl_us = Some(ttl.whole_us().unwrap_or(0));
        self
    }

    /// Sets the hash tag of the key. Keys with the same tag share a slot of a cluster.
    pub fn tag(mut self, tag: &'a str) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Sets the name of a lease's holder (1 to 128 bytes) or of a reservation (1 to 64 bytes
    /// without spaces). Default: a random one.
    pub fn id(mut self, id: &'a str) -> Self {
        self.id = Some(id);
        self
    }

    /// Returns the item as a reservation of its cost, if it is none yet.
    pub(crate) fn reserving(mut self) -> Self {
        self.reserved = self.reserved.or(Some(self.cost.take().unwrap_or(1)));
        self
    }

    /// Returns the item whose refund gives back what this one took.
    pub(crate) fn refunding(self) -> Self {
        Self { leave: None, partial: false, ..self }
    }

    /// Returns true if the item is renewed and ended under an id: a lease or a reservation.
    pub(crate) fn is_held(&self) -> bool {
        self.rule.kind() == Kind::Lease || self.reserved.is_some()
    }

    /// Returns the item with its key, if its parts fit together.
    pub(crate) fn keyed(&self, keys: &Keys) -> Result<Keyed<'a>, Error> {
        let kind = self.rule.kind();
        let of = |argument, expected: &str| {
            Err(Error::invalid(argument, format!("{expected}, not rule {}", self.rule.name())))
        };
        let cost = self.reserved.or(self.cost).unwrap_or(1);
        if cost > COST_MAX {
            return Err(Error::invalid("cost", "expected an integer from 0 to 10^12"));
        }
        if self.reserved.is_some() && self.cost.is_some() {
            return Err(Error::invalid("cost", "expected none, because the item reserves units"));
        }
        if kind == Kind::Lease && cost != 1 {
            return Err(Error::invalid("cost", "expected 1: a holder has one permit"));
        }
        if self.partial && (cost == 0 || !self.rule.takes_cost()) {
            return of("partial", "expected a cost of at least 1 under a rule that takes one");
        }
        if cost != 1 && !self.rule.takes_cost() {
            return of("cost", "expected 1, or a rule that counts more than one at a time");
        }
        if self.leave.is_some() && kind == Kind::Backoff {
            return of("leave", "expected no backoff");
        }
        let in_range = self.leave.is_none_or(|leave| match leave {
            Leave::Units(units) => units <= COST_MAX,
            Leave::Percent(percent) => percent <= PERCENT_MAX,
        });
        if !in_range {
            let expected = "expected 0 to 10^12 units, or 0 to 100 percent";
            return Err(Error::invalid("leave", expected));
        }
        let ttl_us = self.checked_ttl_us()?;
        let key = keys.key(self.rule.name(), self.subject, self.tag)?;
        let (rule, leave, partial, id) = (self.rule, self.leave, self.partial, self.id);
        Ok(Keyed { rule, key, cost, leave, partial, ttl_us, id })
    }

    /// Returns the ttl of a reservation; `None` for other items.
    fn checked_ttl_us(&self) -> Result<Option<u64>, Error> {
        if self.reserved.is_none() {
            let unused = self.ttl_us.map(|_| Error::invalid("ttl", "expected a reservation"));
            return unused.map_or(Ok(None), Err);
        }
        if !matches!(self.rule.kind(), Kind::Fixed | Kind::Quota | Kind::Policy) {
            let expected = "expected a fixed window, a quota or a policy";
            let name = self.rule.name();
            return Err(Error::invalid("reserve", format!("{expected}, not rule {name}")));
        }
        let ttl = Duration::from_micros(self.ttl_us.unwrap_or(RESERVED_FOR_US));
        checked_us(&ttl, "ttl").map(Some)
    }
}

/// An item with its key.
#[derive(Debug, Clone)]
pub(crate) struct Keyed<'a> {
    pub rule: &'a Rule,
    pub key: String,
    pub cost: u64,
    pub leave: Option<Leave>,
    pub partial: bool,
    /// The ttl of a reservation, in microseconds; `None` for other items.
    pub ttl_us: Option<u64>,
    pub id: Option<&'a str>,
}

impl Leave {
    /// Returns the number of units under a limit.
    pub fn units(self, limit: u64) -> u64 {
        match self {
            Self::Units(units) => units,
            Self::Percent(percent) => limit * percent / PERCENT_MAX,
        }
    }

    /// Returns the option's value as the server reads it.
    pub fn text(self) -> String {
        match self {
            Self::Units(units) => units.to_string(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

impl<'a> Keyed<'a> {
    /// Creates an item that costs some units.
    pub fn of_cost(rule: &'a Rule, key: String, cost: u64) -> Self {
        Self { rule, key, cost, leave: None, partial: false, ttl_us: None, id: None }
    }

    /// Returns true if the item is renewed and ended under an id: a lease or a reservation.
    pub fn is_held(&self) -> bool {
        self.rule.kind() == Kind::Lease || self.ttl_us.is_some()
    }

    /// Returns the cost to send: none for one unit, which is the server's default.
    pub fn cost_word(&self) -> Option<u64> {
        (self.cost != 1 || self.partial).then_some(self.cost)
    }
}

/// An item that outlives its caller.
#[derive(Debug, Clone)]
pub(crate) struct Owned {
    pub rule: Rule,
    pub subject: String,
    pub key: String,
    pub cost: u64,
    pub ttl_us: Option<u64>,
    pub id: String,
}

impl Owned {
    pub fn new(item: &Item<'_>, keyed: &Keyed<'_>) -> Self {
        let (cost, ttl_us) = (keyed.cost, keyed.ttl_us);
        let (subject, id) = (item.subject.to_owned(), keyed.id.unwrap_or_default().to_owned());
        Self { rule: keyed.rule.clone(), subject, key: keyed.key.clone(), cost, ttl_us, id }
    }

    /// Returns the item to renew or to end. It leaves nothing to others: they may have taken what
    /// had to remain when it began.
    pub fn keyed(&self) -> Keyed<'_> {
        let Self { rule, cost, ttl_us, .. } = self;
        let (key, id) = (self.key.clone(), Some(&*self.id));
        Keyed { rule, key, cost: *cost, leave: None, partial: false, ttl_us: *ttl_us, id }
    }

    pub fn is_lease(&self) -> bool {
        self.rule.kind() == Kind::Lease
    }

    pub fn is_held(&self) -> bool {
        self.is_lease() || self.ttl_us.is_some()
    }

    /// Returns the time after which what is held expires.
    pub fn ttl(&self) -> Duration {
        Duration::from_micros(self.ttl_us.unwrap_or(self.rule.terms().period_us))
    }
}
