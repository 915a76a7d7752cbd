//! Decides a request: one call for all of its checks, then its charges and refunds one by one.
//!
//! ```text
//! matches -> effects   check n units, look, charge, refund
//!         -> calls     equal rows merged; rows in shadow mode apart, so that they deny no other
//!         -> decision  a row for each descriptor, in order
//! ```

mod calls;
mod descriptors;
mod request_decision;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis_throttle_client::{Decision, Error, Item, Limiter, Reason};
use tokio::time::{Instant, timeout_at};

use crate::config::Domain;
use crate::matching::Call;

use calls::{Change, Check, Kind, Planned};
pub use descriptors::{DescriptorHits, Hits};
pub use request_decision::{Outcome, RequestDecision, Row, TooManyRows};

/// The most calls of a request that reach the server. A call of several rules takes no more.
pub const LIVE_ROWS_MAX: usize = 16;
/// The part of the proxy's time-out that is left for the way back of the response.
const WAY_BACK: Duration = Duration::from_millis(5);
const SHORTEST: Duration = Duration::from_millis(1);

/// The hash tags of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tags {
    /// None.
    None,
    /// The first captured value of each rule.
    Value,
    /// The domain: all of its keys share a slot.
    Domain,
}

impl Tags {
    /// Returns the tag of a call's key.
    pub(crate) fn of<'a>(self, domain: &'a Domain, call: &Call<'a>) -> Option<&'a str> {
        match self {
            Self::None => None,
            Self::Value => call.tag,
            Self::Domain => Some(&*domain.name),
        }
    }
}

/// Decides requests by a limiter.
#[derive(Debug, Clone)]
pub struct Decider {
    limiter: Limiter,
    timeout: Duration,
    tags: Tags,
    /// True if keys with different tags may be on different nodes.
    is_cluster: bool,
    /// The requests that the server did not decide in time. Clones of the decider share it.
    without_reply: Arc<AtomicU64>,
}

impl Decider {
    /// Creates a decider. `timeout` is the limiter's deadline of one call.
    #[must_use]
    pub fn new(limiter: Limiter, timeout: Duration, tags: Tags, is_cluster: bool) -> Self {
        Self { limiter, timeout, tags, is_cluster, without_reply: Arc::default() }
    }

    /// Returns the limiter.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Returns the number of requests with a call whose reply was late or never arrived.
    pub(crate) fn without_reply(&self) -> u64 {
        self.without_reply.load(Ordering::Relaxed)
    }

    /// Decides a request. `patience` is the time for which the proxy waits, if it is known.
    ///
    /// # Errors
    /// [`TooManyRows`]. A server that is down or that refuses a call is no error: the limits decide
    /// by their `on_error`.
    pub async fn decide(
        &self,
        domain: &Domain,
        descriptors: &[DescriptorHits<'_>],
        patience: Option<Duration>,
    ) -> Result<RequestDecision, TooManyRows> {
        let time =
            Remaining { limiter: &self.limiter, ends: Instant::now() + self.within(patience) };
        let planned = Planned::of(descriptors);
        if planned.len() > LIVE_ROWS_MAX {
            return Err(TooManyRows);
        }
        let mut overall = RequestDecision::new(descriptors);
        // A limit of no requests denies without a call, so the others take nothing.
        if overall.allowed() {
            self.check(domain, &planned.checks, &time, &mut overall).await;
        }
        if overall.allowed() {
            for check in &planned.shadows {
                let item = self.item(domain, check.call, check.cost());
                let decided = time.send(|limiter| async move { limiter.check(item).await }).await;
                overall.put(&check.rows, decided);
            }
        }
        for change in &planned.changes {
            overall.put(&[change.row], self.change(domain, change, &time).await);
        }
        if overall.lacks_reply {
            self.without_reply.fetch_add(1, Ordering::Relaxed);
        }
        Ok(overall)
    }

    /// Returns the time for all calls of a request. If the proxy waits that long, it is the most
    /// that one call takes when the process is held up: the limiter, which knows how long the
    /// process ran, then ends each call at its own time-out.
    fn within(&self, patience: Option<Duration>) -> Duration {
        let most = patience.map_or(Duration::MAX, |patience| patience.saturating_sub(WAY_BACK));
        most.min(self.timeout.saturating_mul(3)).max(SHORTEST)
    }

    async fn check(
        &self,
        domain: &Domain,
        checks: &[Check<'_>],
        time: &Remaining<'_>,
        overall: &mut RequestDecision,
    ) {
        if checks.len() > 1 && !self.share_a_node(domain, checks) {
            return self.check_apart(domain, checks, time, overall).await;
        }
        let items: Vec<_> = checks.iter().map(|check| self.item_of(domain, check)).collect();
        let decided = match &items[..] {
            [] => return,
            [one] => time.limiter().check(*one).await,
            all => time.limiter().check_all(all, None).await,
        };
        overall.decide(checks.iter(), decided);
    }

    /// Decides rules on different nodes, one after the other, until one denies. Rules without costs
    /// come last, because they give nothing back if a later one denies. If one of them denies, the
    /// units of the others are refunded. Together they have the time of one call, because the proxy
    /// waits no longer.
    async fn check_apart(
        &self,
        domain: &Domain,
        checks: &[Check<'_>],
        time: &Remaining<'_>,
        overall: &mut RequestDecision,
    ) {
        let ends = time.ends.min(Instant::now() + self.timeout);
        let time = &Remaining { limiter: time.limiter, ends };
        let (first, last): (Vec<_>, Vec<_>) =
            checks.iter().partition(|check| check.call.rule.takes_cost());
        let mut taken = Vec::new();
        if !first.is_empty() {
            let items: Vec<_> = first.iter().map(|check| self.item_of(domain, check)).collect();
            let decided = time.limiter().check_each(&items).await;
            if let Ok(decision) = &decided {
                let rows = items.into_iter().zip(&decision.rows);
                taken.extend(rows.filter(|(_, row)| took_units(row)).map(|(item, _)| item));
            }
            overall.decide(first.into_iter(), decided);
        }
        for check in last {
            if !overall.allowed() {
                return;
            }
            let item = self.item_of(domain, check);
            let decided = time.limiter().check(item).await;
            let reason = decided.as_ref().ok().and_then(|decision| decision.reason);
            overall.decide([check].into_iter(), decided);
            // Refunds would add to what is too much for a node already.
            if !overall.allowed() && reason != Some(Reason::Overloaded) {
                for item in taken.drain(..) {
                    // Without a reply the units stay taken: the limit is then too strict.
                    let _ = time.send(|limiter| async move { limiter.refund(item).await }).await;
                }
            }
        }
    }

    async fn change(
        &self,
        domain: &Domain,
        change: &Change<'_>,
        time: &Remaining<'_>,
    ) -> Result<Decision, Error> {
        let item = self.item(domain, change.call, change.units);
        match change.kind {
            Kind::Charge => time.send(|limiter| async move { limiter.charge(item).await }).await,
            Kind::Refund => time.send(|limiter| async move { limiter.refund(item).await }).await,
            Kind::Peek => time.limiter().peek(item).await,
        }
    }

    fn item_of<'a>(&self, domain: &'a Domain, check: &Check<'a>) -> Item<'a> {
        self.item(domain, check.call, check.cost())
    }

    /// Returns the item of a call. Without a cost it only requires one unit.
    fn item<'a>(&self, domain: &'a Domain, call: &'a Call<'_>, cost: u64) -> Item<'a> {
        let item = match cost {
            0 => call.item().cost(0).leave(1),
            units => call.item().cost(units),
        };
        self.tags.of(domain, call).map_or(item, |tag| item.tag(tag))
    }

    /// Returns true if one command may have all keys.
    fn share_a_node(&self, domain: &Domain, checks: &[Check<'_>]) -> bool {
        if !self.is_cluster {
            return true;
        }
        let mut tags = checks.iter().map(|check| self.tags.of(domain, check.call));
        let first = tags.next().flatten();
        first.is_some() && tags.all(|tag| tag == first)
    }
}

/// Returns true if the server took units for a row.
fn took_units(row: &Decision) -> bool {
    row.allowed && row.would_allow && !row.degraded && row.granted > 0
}

/// The time that a request has left, which all of its calls share.
struct Remaining<'a> {
    limiter: &'a Limiter,
    ends: Instant,
}

impl Remaining<'_> {
    fn left(&self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Returns the limiter for the next call. It decides at the end of the time, by what it knows.
    fn limiter(&self) -> Limiter {
        self.limiter.within(self.left())
    }

    /// Makes a call that does not decide the request. It is sent even if the time is over, but its
    /// reply is then not awaited.
    async fn send<F: Future<Output = Result<Decision, Error>>>(
        &self,
        call: impl FnOnce(Limiter) -> F,
    ) -> Result<Decision, Error> {
        if !self.left().is_zero() {
            return call(self.limiter()).await;
        }
        let sent = timeout_at(self.ends, call(self.limiter.clone())).await;
        sent.unwrap_or(Err(Error::Unavailable { reason: Reason::Timeout, source: None }))
    }
}

#[cfg(test)]
mod tests;
