//! Requests of middleware: the head of the response decides which of their units count.

use std::sync::PoisonError;

use ::http::response::Parts;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::rules::clock;
use crate::rules::item::{Keyed, Owned};
use crate::wire::words::Verb;
use crate::{Count, Decision, Error, Item, Lease, Limiter, Source};

/// The check of a request. Middleware uses this type.
#[doc(hidden)]
#[derive(Debug)]
#[non_exhaustive]
pub struct Checked {
    pub decision: Decision,
    pub leases: Vec<Lease>,
    uncounted: Vec<Uncounted>,
    limiter: Limiter,
}

/// The units that a request took under a rule that does not count every response.
#[derive(Debug)]
struct Uncounted {
    item: Owned,
    row: Decision,
    at: Instant,
}

impl Checked {
    fn new(
        limiter: &Limiter,
        items: &[Item<'_>],
        calls: &[Keyed<'_>],
        decision: Decision,
        leases: Vec<Lease>,
    ) -> Self {
        let at = clock::now();
        let taken = items.iter().zip(calls).zip(decision.rows_or_self());
        let uncounted = taken
            .filter(|((item, _), _)| decision.allowed && *item.rule.counts() != Count::ALL)
            .map(|((item, call), row)| Uncounted {
                item: Owned::new(item, call),
                row: row.clone(),
                at,
            })
            .collect();
        Self { decision, leases, uncounted, limiter: limiter.whole() }
    }

    /// Returns true if no head gives units back.
    pub fn counts_all(&self) -> bool {
        self.uncounted.is_empty()
    }

    /// Gives back, in a task, the units under each rule for which a response with this head does
    /// not count.
    pub fn record_response(&mut self, head: &Parts) {
        let mut taken = std::mem::take(&mut self.uncounted);
        taken.retain(|taken| !taken.item.rule.counts().counts(head));
        if let (false, Ok(runtime)) = (taken.is_empty(), Handle::try_current()) {
            let limiter = self.limiter.clone();
            runtime.spawn(async move {
                for Uncounted { item, row, at } in taken {
                    limiter.uncount(item, &row, at).await;
                }
            });
        }
    }
}

impl Limiter {
    /// Checks several rules in one call. Some of them may be leases. Middleware uses this method.
    /// Each lease is held until its guard is released or dropped. If the reply never reaches the
    /// caller, the leases are released.
    ///
    /// # Errors
    /// The same as [`check_all`](Limiter::check_all).
    #[doc(hidden)]
    pub async fn check_with_leases(
        &self,
        items: &[Item<'_>],
        tag: Option<&str>,
    ) -> Result<Checked, Error> {
        let build = |items: &[Item<'_>], calls: &[Keyed<'_>], decision, leases| {
            Checked::new(self, items, calls, decision, leases)
        };
        self.take_with_leases(items, tag, build).await
    }

    /// Gives units back to where they came from: the server, the permits of this process, or its
    /// local limits.
    async fn uncount(&self, item: Owned, row: &Decision, at: Instant) {
        let Owned { rule, subject, key, .. } = item;
        self.forget_denials(&key, true);
        let returned = match (row.source, row.degraded) {
            _ if !row.would_allow => true,
            (Source::Error, _) => true,
            (Source::Local, true) => {
                let mut local = self.0.local.lock().unwrap_or_else(PoisonError::into_inner);
                let share = self.local_share_of(&rule);
                local.give_back((&rule, share), &key, row.granted, self.local_now_us());
                true
            }
            (Source::Local, false) => self.0.grants.put_back(&key, &rule, row, at),
            (Source::Server, _) => false,
        };
        if !returned && row.granted > 0 {
            let call = Keyed::of_cost(&rule, key, row.granted);
            // Without a reply the units stay taken, and the limit is too strict.
            let _ = self.change(Verb::Refund, &call, &subject, &self.budget()).await;
        }
    }
}
