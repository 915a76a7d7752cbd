//! Prefetched permits: fetched several at a time and used in this process. Unused permits expire at
//! the reset time of their grant, because from then on the server allows those units again.
//!
//! Each permit of a pending fetch is promised to one caller. When all are promised, the next caller
//! starts another fetch. A fetch starts only if the key has no unpromised permit left, stored or
//! pending. If fewer permits arrive than were promised, the callers without one fetch once more,
//! together, and are then denied.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout_at};

use crate::calls::permits::{Claim, Fetch, Grants};
use crate::calls::steps::Request;
use crate::net::budget::Budget;
use crate::rules::{clock, item::Keyed};
use crate::wire::words;
use crate::{Decision, Error, EventKind, Item, Limiter, Reason, Rule, Source};

/// The number of fetches that a caller waits for, if the first brings too few permits.
const FETCHES_MAX: u32 = 2;
/// Denies a caller whose promised permit did not arrive, and who has no time for another fetch or
/// has already waited for two: the server had no more permits. `retry_after` is the grant's reset
/// time, when all units are back; in a bucket, which refills evenly, it is the earlier time of one
/// unit. It may be too long: it counts from the grant, and in a window some units may be back
/// before the reset.
fn none_left(rule: &Rule, grant: Decision) -> Decision {
    let terms = rule.terms();
    let others_us = u128::from(grant.limit.saturating_sub(1)) * u128::from(terms.period_us);
    // Only buckets have a rate; for other rules it is 0.
    let all_but_one_us = others_us.checked_div(u128::from(terms.rate)).unwrap_or(0);
    let all_but_one_ms = u64::try_from(all_but_one_us / 1000).unwrap_or(u64::MAX);
    let retry_after = grant.reset_after.saturating_sub(Duration::from_millis(all_but_one_ms));
    let retry_after = retry_after.max(Duration::from_millis(1));
    Decision {
        allowed: false,
        remaining: 0,
        retry_after,
        source: Source::Local,
        would_allow: false,
        would_retry_after: retry_after,
        granted: 0,
        ..grant
    }
}

impl Limiter {
    /// Decides a call whose caller has waited before.
    pub(crate) async fn check_within(
        &self,
        item: Item<'_>,
        budget: &Budget,
    ) -> Result<Decision, Error> {
        let began = clock::now();
        let call = self.keyed_item(&item)?;
        let decided = if self.is_prefetched(&call) {
            self.prefetched(&call, began, budget).await
        } else {
            let command = words::check(&call)?;
            let calls = std::slice::from_ref(&call);
            let request =
                Request { command: &command, calls, is_all: false, admits: false, began, budget };
            self.decide(&request, true, false).await
        };
        self.record(EventKind::Check, decided, &item, began)
    }

    fn is_prefetched(&self, call: &Keyed<'_>) -> bool {
        let takes_one = call.cost == 1 && !call.partial && !call.is_held();
        takes_one
            && call.leave.is_none()
            && self.prefetch_of(call.rule) > 1
            && !self.0.grants.is_closed()
    }

    /// Returns the number of permits that one call fetches under this rule.
    fn prefetch_of(&self, rule: &Rule) -> u64 {
        let set = rule.terms().prefetch.unwrap_or(self.0.options.prefetch);
        if rule.takes_partial() { set } else { 1 }
    }

    /// Decides with a stored permit, or with a permit of a pending or new fetch.
    async fn prefetched(
        &self,
        call: &Keyed<'_>,
        began: Instant,
        budget: &Budget,
    ) -> Result<Decision, Error> {
        let grants = &self.0.grants;
        if let Some(spent) = grants.spend(&call.key, call.rule, began) {
            return Ok(spent);
        }
        // A denied fetch denies single calls too.
        if let Some(denial) = self.0.denials.get(&words::check(call)?, began) {
            return Ok(denial);
        }
        let (timeout, mut smaller, mut fetches) = (self.0.options.deadlines().0, None, 0);
        let (kept, place) = loop {
            let now = clock::now();
            let (fetch, place) = match grants.claim(call, now, timeout) {
                Claim::Permit(permit) => return Ok(permit),
                Claim::Promise(fetch, place) => (fetch, place),
            };
            let mut promise = Promise { grants, fetch: fetch.clone(), place, is_kept: false };
            let fetching = || Fetching { limiter: self.whole(), fetch: fetch.clone() };
            // The fetch runs in its own task because other callers wait for it too.
            let begun = (place == 0).then(|| tokio::spawn(fetching().run()));
            // A fetch ends in time by itself, unless its caller has waited before.
            let left = budget.left();
            let ends = if left == timeout { fetch.ends } else { now + left };
            let Ok(kept) = timeout_at(ends, fetch.kept(place)).await else {
                budget.spend(left);
                break (Err(Error::unavailable(budget.reason())), 0);
            };
            promise.is_kept = true;
            let waited = (clock::now() - began).min(timeout.saturating_sub(fetch.budget.left()));
            budget.spend(waited);
            if let Some(kept) = kept {
                break (kept, place);
            }
            if let Some(begun) = begun {
                break (Err(fetch_error(begun).await), place);
            }
            let Some(grant) = fetch.grant() else { continue };
            fetches += 1;
            if fetches == FETCHES_MAX {
                return Ok(none_left(call.rule, grant));
            }
            smaller = Some(grant);
        };
        match kept {
            Err(Error::Unavailable { reason, .. }) => Ok(match smaller {
                Some(grant) => none_left(call.rule, grant),
                None => {
                    let calls = (std::slice::from_ref(call), false);
                    let why = (reason, budget.keeps_limit(reason));
                    self.without_server(calls, Some(&self.0.known), why, false)
                }
            }),
            kept => {
                // The fetch counts the error for the caller that started it. Count it for other
                // callers.
                if kept.as_ref().is_err_and(Error::is_rejection) && place > 0 {
                    self.0.counts.rejection();
                }
                kept
            }
        }
    }
}

/// A permit that a caller waits for. If the caller goes, the permit is kept for another.
struct Promise<'a> {
    grants: &'a Grants,
    fetch: Arc<Fetch>,
    place: u64,
    is_kept: bool,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.grants.leave(&self.fetch, self.place);
        }
    }
}

/// Returns the error of a fetch that ended without a result, for the caller that started it. If
/// the connection panicked, this function panics too.
async fn fetch_error(fetching: JoinHandle<()>) -> Error {
    match fetching.await.map_err(JoinError::try_into_panic) {
        Err(Ok(panic)) => resume_unwind(panic),
        _ => Error::unavailable(Reason::Connection),
    }
}

/// A running fetch. Dropping it ends the fetch for its waiters, even if its task did not finish
/// because the runtime shut down.
struct Fetching {
    limiter: Limiter,
    fetch: Arc<Fetch>,
}

impl Fetching {
    async fn run(self) {
        let result = self.request_permits().await;
        self.limiter.0.grants.end(&self.fetch, Some(result));
    }

    async fn request_permits(&self) -> Result<Decision, Error> {
        let Fetch { rule, key, began, .. } = &*self.fetch;
        let inner = &self.limiter.0;
        let permits = inner.grants.send(&self.fetch, self.limiter.prefetch_of(rule));
        let one = Keyed::of_cost(rule, key.clone(), 1);
        let many = Keyed { cost: permits, partial: true, ..one.clone() };
        let command = words::check(&many)?;
        let since = inner.forgotten.since(*began);
        let calls = std::slice::from_ref(&many);
        let (command, began, budget) = (&command, *began, &self.fetch.budget);
        let request = Request { command, calls, is_all: false, admits: false, began, budget };
        let decision = self.limiter.request_decision(&request).await?;
        if decision.source == Source::Server {
            inner.denials.put(&words::check(&one)?, &decision, since);
        }
        Ok(decision)
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.limiter.0.grants.end(&self.fetch, None);
    }
}
