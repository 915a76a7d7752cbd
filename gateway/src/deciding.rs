//! Decides a request: one call for all of its checks, then its charges and refunds one by one.
//!
//! ```text
//! matches -> effects   check n units, look, charge, refund
//!         -> calls     equal rows merged; rows in shadow mode apart, so that they deny no other
//!         -> answer    a row for each descriptor, in order
//! ```

mod answer;
mod asked;
mod calls;

use std::time::Duration;

use redis_throttle_client::{Decision, Error, Item, Limiter};
use tokio::time::{Instant, timeout_at};

use crate::config::Domain;
use crate::matching::Call;

pub use answer::{Answer, Failure, Outcome, Row};
pub use asked::{Asked, Hits};
use calls::{Change, Check, Kind, Planned};

/// The most calls of a request that reach the server. A call of several rules takes no more.
pub const LIVE_ROWS_MAX: usize = 16;
/// The part of the proxy's time-out that is left for the answer's way back.
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

/// Decides requests by a limiter.
#[derive(Debug, Clone)]
pub struct Decider {
    limiter: Limiter,
    timeout: Duration,
    tags: Tags,
    /// Whether keys with different tags may be on different nodes.
    is_cluster: bool,
}

impl Decider {
    /// Creates a decider. `timeout` is the limiter's deadline of one call.
    #[must_use]
    pub fn new(limiter: Limiter, timeout: Duration, tags: Tags, is_cluster: bool) -> Self {
        Self { limiter, timeout, tags, is_cluster }
    }

    /// Returns the limiter.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Decides a request. `patience` is the time for which the proxy waits, if it is known.
    ///
    /// # Errors
    /// [`Failure`]. A server that is away is none, unless a limit says `on_error: unavailable`.
    pub async fn decide(
        &self,
        domain: &Domain,
        asked: &[Asked<'_>],
        patience: Option<Duration>,
    ) -> Result<Answer, Failure> {
        let deadline = Instant::now() + self.within(patience);
        let planned = Planned::of(asked);
        if planned.len() > LIVE_ROWS_MAX {
            return Err(Failure::TooManyRows);
        }
        let mut answer = Answer::new(asked);
        // A limit of no requests denies without a call, so the others take nothing.
        if answer.allowed() {
            self.check(domain, &planned.checks, deadline, &mut answer).await?;
        }
        if answer.allowed() {
            for check in &planned.shadows {
                let item = self.item(domain, check.call, check.cost());
                let decided = timeout_at(deadline, self.limiter.check(item)).await;
                answer.put(&check.rows, decided_or_away(decided)?.as_ref());
            }
        }
        for change in &planned.changes {
            let decided = self.change(domain, change, deadline).await?;
            answer.put(&[change.row], decided.as_ref());
        }
        answer.finished()
    }

    /// Returns the time for all calls of a request. It is longer than that of one call if the proxy
    /// waits that long: the limiter, which ends a call itself, then counts it for its breaker.
    fn within(&self, patience: Option<Duration>) -> Duration {
        let most = patience.map_or(Duration::MAX, |patience| patience.saturating_sub(WAY_BACK));
        most.min(self.timeout.saturating_mul(2)).max(SHORTEST)
    }

    async fn check(
        &self,
        domain: &Domain,
        checks: &[Check<'_>],
        deadline: Instant,
        answer: &mut Answer,
    ) -> Result<(), Failure> {
        let items: Vec<_> =
            checks.iter().map(|check| self.item(domain, check.call, check.cost())).collect();
        let decided = match &items[..] {
            [] => return Ok(()),
            [one] => timeout_at(deadline, self.limiter.check(*one)).await,
            all if self.share_a_node(domain, checks) => {
                timeout_at(deadline, self.limiter.check_all(all, None)).await
            }
            all => timeout_at(deadline, self.limiter.check_each(all)).await,
        };
        let decision = decided_or_away(decided)?;
        for (at, check) in checks.iter().enumerate() {
            match &decision {
                None => answer.put(&check.rows, None),
                Some(decision) if decision.rows.is_empty() => {
                    answer.put(&check.rows, Some(decision));
                }
                // After a denial, `check_each` asks no further rule.
                Some(decision) => {
                    if let Some(row) = decision.rows.get(at) {
                        answer.put(&check.rows, Some(row));
                    }
                }
            }
        }
        answer.decision = decision;
        Ok(())
    }

    async fn change(
        &self,
        domain: &Domain,
        change: &Change<'_>,
        deadline: Instant,
    ) -> Result<Option<Decision>, Failure> {
        let item = self.item(domain, change.call, change.units);
        let changed = match change.kind {
            Kind::Charge => timeout_at(deadline, self.limiter.charge(item)).await,
            Kind::Refund => timeout_at(deadline, self.limiter.refund(item)).await,
            Kind::Peek => timeout_at(deadline, self.limiter.peek(item)).await,
        };
        decided_or_away(changed)
    }

    /// Returns the item of a call. Without a cost it only asks for one unit.
    fn item<'a>(&self, domain: &'a Domain, call: &'a Call<'_>, cost: u64) -> Item<'a> {
        let item = match cost {
            0 => call.item().cost(0).leave(1),
            units => call.item().cost(units),
        };
        self.tag(domain, call).map_or(item, |tag| item.tag(tag))
    }

    fn tag<'a>(&self, domain: &'a Domain, call: &'a Call<'_>) -> Option<&'a str> {
        match self.tags {
            Tags::None => None,
            Tags::Value => call.tag,
            Tags::Domain => Some(&*domain.name),
        }
    }

    /// Returns true if one command may have all keys.
    fn share_a_node(&self, domain: &Domain, checks: &[Check<'_>]) -> bool {
        if !self.is_cluster {
            return true;
        }
        let mut tags = checks.iter().map(|check| self.tag(domain, check.call));
        let first = tags.next().flatten();
        first.is_some() && tags.all(|tag| tag == first)
    }
}

/// Returns the decision; `None` if the server gave none in time.
fn decided_or_away<E>(
    decided: Result<Result<Decision, Error>, E>,
) -> Result<Option<Decision>, Failure> {
    match decided {
        Ok(Ok(decision)) => Ok(Some(decision)),
        Err(_) | Ok(Err(Error::Unavailable { .. })) => Ok(None),
        Ok(Err(error @ Error::InvalidArgument { .. })) => Err(Failure::Invalid(error.to_string())),
        Ok(Err(error)) => Err(Failure::Refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests;
