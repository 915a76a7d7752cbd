//! Calls of several rules: in one command, or one after the other.

use tokio::time::Instant;

use crate::calls::{steps::Request, taken::Taken};
use crate::rules::{clock, item::Keyed};
use crate::wire::{command::Command, words};
use crate::{Decision, Error, EventKind, Item, Limiter, Reason};

impl Limiter {
    /// Decides several rules at once. The call takes from all of them or from none. `rows` holds
    /// each rule's decision.
    ///
    /// In a cluster, all keys need one hash tag, `tag`. A lease or a reservation among the items
    /// needs an [`id`](Item::id), and the caller must end it; [`admit`](Limiter::admit) does both.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::Rule;
    ///
    /// let (api, day) = (Rule::gcra("api", 10, 10, "1m")?, Rule::fixed("day", 1000, "1d")?);
    /// let decision = limiter.check_all(&[api.of("42"), day.of("acme")], None).await?;
    /// assert!(decision.allowed);
    /// assert_eq!((decision.rows[0].remaining, decision.rows[1].remaining), (9, 999));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check). Also [`Error::InvalidArgument`] for no items, more
    /// than 16, or a repeated key.
    pub async fn check_all(
        &self,
        items: &[Item<'_>],
        tag: Option<&str>,
    ) -> Result<Decision, Error> {
        let began = clock::now();
        let calls = self.keyed(items, tag)?;
        let command = words::check_all(&calls, false)?;
        let decided = self.decide_all(&command, &calls, began).await;
        self.record_all(EventKind::Check, decided, items, began)
    }

    /// Returns the decision that [`check_all`](Limiter::check_all) would make, without taking
    /// anything.
    ///
    /// # Errors
    /// The same as [`check_all`](Limiter::check_all).
    pub async fn peek_all(&self, items: &[Item<'_>], tag: Option<&str>) -> Result<Decision, Error> {
        let began = clock::now();
        let calls = self.keyed(items, tag)?;
        let command = words::check_all(&calls, true)?;
        let (command, budget) = (&command, &self.budget());
        let request =
            Request { command, calls: &calls, is_all: true, admits: false, began, budget };
        let decided = self.decide(&request, false, true).await;
        self.record_all(EventKind::Peek, decided, items, began)
    }

    pub(crate) fn keyed<'a>(
        &self,
        items: &[Item<'a>],
        tag: Option<&'a str>,
    ) -> Result<Vec<Keyed<'a>>, Error> {
        let tagged = |item: &Item<'a>| Item { tag: tag.or(item.tag), ..*item };
        items.iter().map(|item| self.keyed_item(&tagged(item))).collect()
    }

    /// Decides several rules in one call. Denials are cached unless something would be held.
    pub(crate) async fn decide_all(
        &self,
        command: &Command<'_>,
        calls: &[Keyed<'_>],
        began: Instant,
    ) -> Result<Decision, Error> {
        let caches = !calls.iter().any(Keyed::is_held);
        let request =
            Request { command, calls, is_all: true, admits: false, began, budget: &self.budget() };
        self.decide(&request, caches, false).await
    }

    /// Counts and reports the decision on several items as that on the deciding one.
    pub(crate) fn record_all(
        &self,
        kind: EventKind,
        decided: Result<Decision, Error>,
        items: &[Item<'_>],
        began: Instant,
    ) -> Result<Decision, Error> {
        let deciding = decided.as_ref().map_or(0, |decision| decision.deciding);
        self.record(kind, decided, &items[deciding], began)
    }

    /// Decides several rules one after the other, for keys in different slots.
    ///
    /// If a later rule denies, or the future is dropped, the units taken so far are refunded. Until
    /// then other callers cannot use them, and they stay taken if a refund gets no reply, or if
    /// the node of a rule that denies is overloaded. So the limits err on the strict side, by at
    /// most the cost of each denied call. If all rules allow, the one that allows the fewest
    /// further calls of its cost decides. All waiting together has one
    /// [`timeout`](crate::Options::timeout).
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check), after the units taken so far are refunded. Also
    /// [`Error::InvalidArgument`] for no items, a lease, a reservation or a backoff.
    pub async fn check_each(&self, items: &[Item<'_>]) -> Result<Decision, Error> {
        if items.is_empty() {
            return Err(Error::invalid("items", "expected at least 1 item"));
        }
        for call in self.keyed(items, None)? {
            words::refundable(&call)?;
        }
        let (mut taken, budget) = (Taken::new(self), self.budget());
        let mut rows: Vec<Decision> = Vec::with_capacity(items.len());
        for item in items {
            let row = match self.check_within(*item, &budget).await {
                Ok(row) => row,
                Err(error) => {
                    taken.give_back(&budget).await;
                    return Err(error);
                }
            };
            let (allowed, reason) = (row.allowed, row.reason);
            if row.took_units() {
                taken.add(*item);
            }
            rows.push(row);
            if !allowed {
                // A refund would add to what is too much already.
                match reason {
                    Some(Reason::Overloaded) => taken.keep(),
                    _ => taken.give_back(&budget).await,
                }
                return Ok(Decision::of_rows(rows.len() - 1, rows));
            }
        }
        taken.keep();
        let calls_left = |at: &usize| {
            let remaining = rows[*at].remaining;
            let cost = items[*at].cost.unwrap_or(1);
            (remaining.checked_div(cost).unwrap_or(u64::MAX), remaining)
        };
        let fewest = (0..rows.len()).min_by_key(calls_left).unwrap_or_default();
        Ok(Decision::of_rows(fewest, rows))
    }
}
