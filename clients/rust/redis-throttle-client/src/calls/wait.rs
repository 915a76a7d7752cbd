//! Waits for a decision: sleeps and checks again.

use std::time::Duration;

use crate::calls::taken::Taken;
use crate::net::budget::Budget;
use crate::rules::clock;
use crate::wire::words;
use crate::wire::words::Verb;
use crate::{Decision, Error, Item, Limiter, Source};

impl Limiter {
    /// Checks the call, then sleeps for the decision's `retry_after`. After a denial, checks again.
    /// If a sleep would end later than `max_wait` from the start, returns a denial instead. If the
    /// future is dropped while it waits for its place in a leaky bucket, the place is refunded. The
    /// waiting for replies, without the sleeps, has one [`timeout`](crate::Options::timeout).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use std::time::Duration;
    /// use redis_throttle_client::Rule;
    ///
    /// let api = Rule::gcra("api", 1, 10, "1m")?;
    /// assert!(limiter.wait(api.of("42"), Duration::ZERO).await?.allowed);
    /// // The next call is allowed after 6 s, and the one after that not within 5 s.
    /// assert!(limiter.wait(api.of("42"), Duration::from_secs(10)).await?.allowed);
    /// assert!(!limiter.wait(api.of("42"), Duration::from_secs(5)).await?.allowed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check).
    pub async fn wait(&self, item: Item<'_>, max_wait: Duration) -> Result<Decision, Error> {
        if item.partial {
            return Err(words::not_partial());
        }
        let (began, budget) = (clock::now(), self.budget());
        let mut denied = None;
        loop {
            let decision = self.check_within(item, &budget).await?;
            let is_over = budget.left().is_zero();
            if let (true, true, Some(denied)) = (is_over, decision.degraded, denied.take()) {
                // The time for replies ended after a denial.
                return Ok(denied);
            }
            let is_unknown = decision.source == Source::Error;
            if decision.retry_after.is_zero() || is_unknown || decision.never() {
                return Ok(decision);
            }
            if (clock::now() - began).saturating_add(decision.retry_after) > max_wait {
                return self.too_late(item, decision, &budget).await;
            }
            if is_over && !decision.allowed {
                return Ok(decision);
            }
            let mut place = Taken::new(self);
            if decision.took_units() {
                place.add(item);
            }
            tokio::time::sleep(decision.retry_after).await;
            place.keep();
            if decision.allowed {
                return Ok(decision);
            }
            denied = Some(decision);
        }
    }

    /// Turns a decision whose wait is too long into a denial. If the call was allowed, its place in
    /// the leaky bucket is refunded.
    async fn too_late(
        &self,
        item: Item<'_>,
        decision: Decision,
        budget: &Budget,
    ) -> Result<Decision, Error> {
        if decision.took_units() {
            let call = self.keyed_item(&item.refunding())?;
            match self.change(Verb::Refund, &call, item.subject, budget).await {
                Err(error) if error.is_rejection() => return Err(error),
                _ => {}
            }
        }
        Ok(Decision { allowed: false, granted: 0, ..decision })
    }
}
