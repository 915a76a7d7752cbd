//! The prefetched permits of a limiter. Unused permits expire at the reset time of their grant,
//! because from then on the server allows those units again.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use tokio::sync::SetOnce;
use tokio::time::Instant;

use crate::net::budget::Budget;
use crate::rules::{clock, durations::ceil_ms, item::Keyed, rule::PREFETCH_MAX};
use crate::{Decision, Error, Rule, Source};

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
    expires: Instant,
}

/// A request for several permits.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub rule: Rule,
    pub key: String,
    pub began: Instant,
    /// The instant at which the fetch has ended, if its runtime runs.
    pub ends: Instant,
    pub budget: Budget,
    /// `None` if the task of the fetch did not finish: its runtime shut down, or the connection
    /// panicked.
    result: SetOnce<Option<Result<Decision, Error>>>,
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
pub(crate) enum Claim {
    Permit(Decision),
    /// A permit of a pending fetch: the fetch and the permit's index. The caller with index 0
    /// starts the fetch.
    Promise(Arc<Fetch>, u64),
}

/// Returns the decision for one permit of a grant, of which `left` permits stay unused.
fn permit(grant: &Decision, left: u64, expires: Instant, now: Instant) -> Decision {
    Decision {
        remaining: grant.remaining + left,
        retry_after: Duration::ZERO,
        reset_after: Duration::from_millis(ceil_ms(expires - now)),
        source: Source::Local,
        granted: 1,
        ..grant.clone()
    }
}

fn expires(grant: &Decision, began: Instant) -> Instant {
    began + grant.reset_after
}

impl State {
    fn keep(&mut self, fetch: &Fetch, decision: Decision, permits: u64) {
        let expires = expires(&decision, fetch.began);
        let grant = Grant { rule: fetch.rule.clone(), decision, permits, expires };
        self.grants.put(fetch.key.clone(), grant);
    }

    fn empty() -> Self {
        Self { grants: LruCache::new(KEYS_MAX), open: HashMap::new(), closed: false }
    }

    /// Takes one unexpired permit fetched under exactly this rule, if there is one.
    fn spend(&mut self, key: &str, rule: &Rule, now: Instant) -> Option<Decision> {
        let grant = self.grants.get_mut(key)?;
        if grant.rule != *rule || grant.permits < 1 || now >= grant.expires {
            self.grants.pop(key);
            return None;
        }
        grant.permits -= 1;
        Some(permit(&grant.decision, grant.permits, grant.expires, now))
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
        let (rule, key, result) = (call.rule.clone(), call.key.clone(), SetOnce::new());
        let (ends, budget) = (now + timeout * TIMEOUTS_MAX, Budget::new(timeout));
        let fetch = Arc::new(Fetch { rule, key, began: now, ends, budget, result });
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

    pub fn spend(&self, key: &str, rule: &Rule, now: Instant) -> Option<Decision> {
        self.state().spend(key, rule, now)
    }

    /// Claims a permit. `timeout` is the time of a fetch, if one starts now.
    pub fn claim(&self, call: &Keyed<'_>, now: Instant, timeout: Duration) -> Claim {
        let mut state = self.state();
        // Look again: a fetch may have ended since the caller found no permit.
        match state.spend(&call.key, call.rule, now) {
            Some(spent) => Claim::Permit(spent),
            None => state.promise(call, now, timeout),
        }
    }

    /// Returns the number of permits that a fetch requests: `prefetch`, or one for each caller that
    /// waits, if these are more.
    pub fn send(&self, fetch: &Arc<Fetch>, prefetch: u64) -> u64 {
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

    /// Ends a fetch: its waiters get the result, and permits that are not promised are stored.
    pub fn end(&self, fetch: &Arc<Fetch>, result: Option<Result<Decision, Error>>) {
        let mut state = self.state();
        let is_open = |open: &Open| Arc::ptr_eq(&open.fetch, fetch);
        if state.open.get(&fetch.key).is_some_and(is_open)
            && let Some(open) = state.open.remove(&fetch.key)
            && let Some(Ok(decision)) = &result
        {
            let left = open.left.iter().filter(|place| **place < decision.granted).count() as u64;
            let permits = decision.granted.saturating_sub(open.promised) + left;
            // Without permits too, so that a caller that goes later may leave its own.
            if permits > 0 || (decision.granted > 0 && !state.grants.contains(&fetch.key)) {
                state.keep(fetch, decision.clone(), permits);
            }
        }
        drop(state);
        // The fetch may have ended before; then its waiters already have the result.
        let _ = fetch.result.set(result);
    }

    /// Keeps the permit of a caller that has gone before it got it.
    pub fn leave(&self, fetch: &Arc<Fetch>, place: u64) {
        let mut state = self.state();
        let open = state.open.get_mut(&fetch.key);
        if let Some(open) = open.filter(|open| Arc::ptr_eq(&open.fetch, fetch)) {
            open.left.push(place);
        } else if let Some(grant) = fetch.grant()
            && place < grant.granted
            && !state.closed
        {
            let expires = expires(&grant, fetch.began);
            // Not there: the key was forgotten, and its permits with it.
            if let Some(kept) = state.grants.get_mut(&fetch.key) {
                let is_same = kept.rule == fetch.rule && kept.expires == expires;
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
        let is_same = grant.rule == *rule && grant.expires <= at + spent.reset_after;
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
            let _ = tokio::time::timeout_at(fetch.ends, fetch.result.wait()).await;
        }
        let now = clock::now();
        let grants = std::mem::replace(&mut self.state().grants, LruCache::new(KEYS_MAX));
        let live = grants.into_iter().filter(|(_, grant)| grant.permits > 0 && now < grant.expires);
        live.map(|(key, grant)| (key, grant.rule, grant.permits)).collect()
    }
}

impl Fetch {
    /// Waits for a promised permit. `None` if too few permits arrived, or if the fetch ended
    /// without a result.
    pub async fn kept(&self, place: u64) -> Option<Result<Decision, Error>> {
        let grant = match self.result.wait().await.as_ref()? {
            Ok(grant) if grant.allowed => grant,
            denied_or_failed => return Some(denied_or_failed.clone()),
        };
        let left = grant.granted.checked_sub(place + 1)?;
        if place == 0 {
            let remaining = grant.remaining + left;
            return Some(Ok(Decision { granted: 1, remaining, ..grant.clone() }));
        }
        Some(Ok(permit(grant, left, expires(grant, self.began), clock::now())))
    }

    /// Returns the fetch's decision, if it has one.
    pub fn grant(&self) -> Option<Decision> {
        self.result.get()?.as_ref()?.as_ref().ok().cloned()
    }
}
