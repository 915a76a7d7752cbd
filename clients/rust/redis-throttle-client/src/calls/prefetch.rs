//! Prefetched permits: fetched several at a time and used in this process. Unused permits expire at
//! the reset time of their grant, because from then on the server allows those units again.
//!
//! Each permit of a pending fetch is promised to one caller. When all are promised, the next caller
//! starts another fetch. A fetch starts only if the key has no unpromised permit left, stored or
//! pending. If fewer permits arrive than were promised, the callers without one fetch once more,
//! together, and are then denied.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use tokio::sync::SetOnce;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::{Instant, timeout_at};

use crate::calls::steps::Ask;
use crate::net::budget::Budget;
use crate::rules::argument::PREFETCH_MAX;
use crate::rules::clock;
use crate::rules::item::Keyed;
use crate::wire::words;
use crate::{Decision, Error, Limiter, Reason, Rule, Source};

/// The number of fetches that a caller waits for, if the first brings too few permits.
const FETCHES_MAX: u32 = 2;
/// The number of timeouts after which a fetch has ended, if its runtime runs: three by the wall
/// clock, and the first dial.
const TIMEOUTS_MAX: u32 = 4;
/// The maximum number of keys with permits. The permits of the least recently used key are dropped,
/// which only makes the limit stricter.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("above zero");

#[derive(Debug)]
struct Grant {
    rule: Rule,
    decision: Decision,
    permits: u64,
    lapses: Instant,
}

/// A request for several permits.
#[derive(Debug)]
struct Fetch {
    rule: Rule,
    key: String,
    asked: Instant,
    /// The instant at which the fetch has ended, if its runtime runs.
    ends: Instant,
    budget: Budget,
    /// `None` if the task of the fetch did not finish: its runtime shut down, or the connection
    /// panicked.
    answer: SetOnce<Option<Result<Decision, Error>>>,
}

/// The newest pending fetch of a key.
#[derive(Debug)]
struct Open {
    fetch: Arc<Fetch>,
    promised: u64,
    /// The number of permits that the fetch may promise: the number requested, or the largest
    /// possible one until the fetch is sent.
    permits: u64,
    /// The promised permits whose callers have gone.
    left: Vec<u64>,
}

#[derive(Debug)]
struct State {
    grants: LruCache<String, Grant>,
    open: HashMap<String, Open>,
    closed: bool,
}

/// The permits of a limiter.
#[derive(Debug)]
pub(crate) struct Grants(Mutex<State>);

/// The result of a claim for one permit.
enum Claim {
    Permit(Decision),
    /// A permit of a pending fetch: the fetch and the permit's index. The caller with index 0
    /// starts the fetch.
    Promise(Arc<Fetch>, u64),
}

/// Returns the decision for one permit of a grant, of which `left` permits stay unused.
fn permit(grant: &Decision, left: u64, lapses: Instant, now: Instant) -> Decision {
    Decision {
        remaining: grant.remaining + left,
        retry_after: Duration::ZERO,
        reset_after: Duration::from_millis(clock::ceil_ms(lapses - now)),
        source: Source::Local,
        granted: 1,
        ..grant.clone()
    }
}

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

fn lapses(grant: &Decision, asked: Instant) -> Instant {
    asked + grant.reset_after
}

impl State {
    fn keep(&mut self, fetch: &Fetch, decision: Decision, permits: u64) {
        let lapses = lapses(&decision, fetch.asked);
        let grant = Grant { rule: fetch.rule.clone(), decision, permits, lapses };
        self.grants.put(fetch.key.clone(), grant);
    }

    fn empty() -> Self {
        Self { grants: LruCache::new(KEYS_MAX), open: HashMap::new(), closed: false }
    }

    /// Takes one unexpired permit fetched under exactly this rule, if there is one.
    fn spend(&mut self, key: &str, rule: &Rule, now: Instant) -> Option<Decision> {
        let grant = self.grants.get_mut(key)?;
        if grant.rule != *rule || grant.permits < 1 || now >= grant.lapses {
            self.grants.pop(key);
            return None;
        }
        grant.permits -= 1;
        Some(permit(&grant.decision, grant.permits, grant.lapses, now))
    }

    fn promise(&mut self, call: &Keyed<'_>, now: Instant, timeout: Duration) -> Claim {
        // A fetch still open after its deadline belongs to a runtime that no longer runs.
        if let Some(open) = self.open.get_mut(&call.key)
            && open.fetch.rule == *call.rule
            && open.promised < open.permits
            && now < open.fetch.ends
        {
            open.promised += 1;
            return Claim::Promise(open.fetch.clone(), open.promised - 1);
        }
        let (rule, key, answer) = (call.rule.clone(), call.key.clone(), SetOnce::new());
        let (ends, budget) = (now + timeout * TIMEOUTS_MAX, Budget::new(timeout));
        let fetch = Arc::new(Fetch { rule, key, asked: now, ends, budget, answer });
        let open =
            Open { fetch: fetch.clone(), promised: 1, permits: PREFETCH_MAX, left: Vec::new() };
        self.open.insert(call.key.clone(), open);
        Claim::Promise(fetch, 0)
    }
}

impl Grants {
    pub fn new() -> Self {
        Self(Mutex::new(State::empty()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spend(&self, key: &str, rule: &Rule, now: Instant) -> Option<Decision> {
        self.state().spend(key, rule, now)
    }

    /// Claims a permit. `timeout` is the time of a fetch, if one starts now.
    fn claim(&self, call: &Keyed<'_>, now: Instant, timeout: Duration) -> Claim {
        let mut state = self.state();
        // Look again: a fetch may have ended since the caller found no permit.
        match state.spend(&call.key, call.rule, now) {
            Some(spent) => Claim::Permit(spent),
            None => state.promise(call, now, timeout),
        }
    }

    /// Returns the number of permits that a fetch requests: `prefetch`, or one for each caller that
    /// waits, if these are more.
    fn send(&self, fetch: &Arc<Fetch>, prefetch: u64) -> u64 {
        let mut state = self.state();
        match state.open.get_mut(&fetch.key).filter(|open| Arc::ptr_eq(&open.fetch, fetch)) {
            Some(open) => {
                open.permits = open.promised.max(prefetch);
                open.permits
            }
            // The key was forgotten in the meantime, and its waiters are no longer counted.
            None => prefetch,
        }
    }

    /// Returns true after [`drain`](Grants::drain): nothing is prefetched from then on.
    pub fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Ends a fetch: its waiters get the answer, and permits that are not promised are stored.
    fn end(&self, fetch: &Arc<Fetch>, answer: Option<Result<Decision, Error>>) {
        let mut state = self.state();
        let is_open = |open: &Open| Arc::ptr_eq(&open.fetch, fetch);
        if state.open.get(&fetch.key).is_some_and(is_open)
            && let Some(open) = state.open.remove(&fetch.key)
            && let Some(Ok(decision)) = &answer
        {
            let left = open.left.iter().filter(|place| **place < decision.granted).count() as u64;
            let permits = decision.granted.saturating_sub(open.promised) + left;
            // Without permits too, so that a caller that goes later may leave its own.
            if permits > 0 || (decision.granted > 0 && !state.grants.contains(&fetch.key)) {
                state.keep(fetch, decision.clone(), permits);
            }
        }
        drop(state);
        // The fetch may have ended before; then its waiters already have the answer.
        let _ = fetch.answer.set(answer);
    }

    /// Keeps the permit of a caller that has gone before it got it.
    fn leave(&self, fetch: &Arc<Fetch>, place: u64) {
        let mut state = self.state();
        let open = state.open.get_mut(&fetch.key);
        if let Some(open) = open.filter(|open| Arc::ptr_eq(&open.fetch, fetch)) {
            open.left.push(place);
        } else if let Some(grant) = fetch.grant()
            && place < grant.granted
            && !state.closed
        {
            let lapses = lapses(&grant, fetch.asked);
            // Not there: the key was forgotten, and its permits with it.
            if let Some(kept) = state.grants.get_mut(&fetch.key) {
                let is_same = kept.rule == fetch.rule && kept.lapses == lapses;
                kept.permits += u64::from(is_same);
            }
        }
    }

    /// Stores a permit again that was spent before this instant and is not used after all. Returns
    /// false if the permits of its key are not of the same grant: they may outlive it.
    pub fn put_back(&self, key: &str, rule: &Rule, spent: &Decision, at: Instant) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        let Some(grant) = state.grants.get_mut(key) else { return false };
        let is_same = grant.rule == *rule && grant.lapses <= at + spent.reset_after;
        grant.permits += u64::from(is_same);
        is_same
    }

    /// Drops the permits of a deleted key, and those of its pending fetch that are not promised.
    pub fn forget(&self, key: &str) {
        let mut state = self.state();
        state.open.remove(key);
        state.grants.pop(key);
    }

    /// Removes and returns all unused, unexpired permits, for a refund. Waits for each pending
    /// fetch until its deadline.
    pub async fn drain(&self) -> Vec<(String, Rule, u64)> {
        let open: Vec<_> = {
            let mut state = self.state();
            state.closed = true;
            state.open.values().map(|open| open.fetch.clone()).collect()
        };
        for fetch in open {
            let _ = tokio::time::timeout_at(fetch.ends, fetch.answer.wait()).await;
        }
        let now = clock::now();
        let grants = std::mem::replace(&mut self.state().grants, LruCache::new(KEYS_MAX));
        let live = grants.into_iter().filter(|(_, grant)| grant.permits > 0 && now < grant.lapses);
        live.map(|(key, grant)| (key, grant.rule, grant.permits)).collect()
    }
}

impl Fetch {
    /// Waits for a promised permit. `None` if too few permits arrived, or if the fetch ended
    /// without an answer.
    async fn kept(&self, place: u64) -> Option<Result<Decision, Error>> {
        let grant = match self.answer.wait().await.as_ref()? {
            Ok(grant) if grant.allowed => grant,
            denied_or_failed => return Some(denied_or_failed.clone()),
        };
        let left = grant.granted.checked_sub(place + 1)?;
        if place == 0 {
            let remaining = grant.remaining + left;
            return Some(Ok(Decision { granted: 1, remaining, ..grant.clone() }));
        }
        Some(Ok(permit(grant, left, lapses(grant, self.asked), clock::now())))
    }

    /// Returns the fetch's decision, if it has one.
    fn grant(&self) -> Option<Decision> {
        self.answer.get()?.as_ref()?.as_ref().ok().cloned()
    }
}

impl Limiter {
    /// Decides with a stored permit, or with a permit of a pending or new fetch.
    pub(crate) async fn prefetched(
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
                break (Err(without_answer(begun).await), place);
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
                    self.without_answer(calls, Some(&self.0.known), why, false)
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

/// Returns the error of a fetch that ended without an answer, for the caller that started it. If
/// the connection panicked, this function panics too.
async fn without_answer(fetching: JoinHandle<()>) -> Error {
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
        let answer = self.answer().await;
        self.limiter.0.grants.end(&self.fetch, Some(answer));
    }

    async fn answer(&self) -> Result<Decision, Error> {
        let Fetch { rule, key, asked, .. } = &*self.fetch;
        let inner = &self.limiter.0;
        let permits = inner.grants.send(&self.fetch, self.limiter.prefetch_of(rule));
        let one = Keyed::of_cost(rule, key.clone(), 1);
        let many = Keyed { cost: permits, partial: true, ..one.clone() };
        let command = words::check(&many)?;
        let since = inner.forgotten.since(*asked);
        let calls = std::slice::from_ref(&many);
        let (command, began, budget) = (&command, *asked, &self.fetch.budget);
        let ask = Ask { command, calls, is_all: false, admits: false, began, budget };
        let decision = self.limiter.ask_for_decision(&ask).await?;
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
