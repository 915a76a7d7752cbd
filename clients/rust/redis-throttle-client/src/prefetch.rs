//! Permits that were taken in one call and are spent here. What is not spent when the reset of its
//! grant has passed is dropped: the server has given it anew by then.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use tokio::sync;
use tokio::time::Instant;

use crate::{Decision, Rule, Source, clock};

/// Keys with permits; beyond it those least lately used are dropped, which errs to the strict side.
const KEYS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("above zero");

#[derive(Debug)]
struct Grant {
    rule: Rule,
    decision: Decision,
    permits: u64,
    lapses: Instant,
}

/// What the last fetch of a key was denied with, and when it was asked.
pub(crate) type LastDenial = Option<(Instant, Decision)>;

/// The permits of a limiter.
#[derive(Debug)]
pub(crate) struct Grants {
    grants: Mutex<LruCache<String, Grant>>,
    turns: Mutex<HashMap<String, Arc<sync::Mutex<LastDenial>>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grants {
    pub fn new() -> Self {
        Self { grants: Mutex::new(LruCache::new(KEYS_MAX)), turns: Mutex::default() }
    }

    /// One permit, if there is one of this very rule that has not lapsed.
    pub fn spend(&self, key: &str, rule: &Rule, now: Instant) -> Option<Decision> {
        let mut grants = locked(&self.grants);
        let grant = grants.get_mut(key)?;
        if grant.rule != *rule || grant.permits < 1 || now >= grant.lapses {
            grants.pop(key);
            return None;
        }
        grant.permits -= 1;
        Some(Decision {
            remaining: grant.decision.remaining + grant.permits,
            retry_after_ms: 0,
            reset_after_ms: clock::ceil_ms(grant.lapses - now),
            source: Source::Local,
            granted: 1,
            ..grant.decision.clone()
        })
    }

    /// Keeps all but one of the permits that were granted; answers for that one.
    pub fn put(&self, key: &str, rule: &Rule, decision: Decision, asked: Instant) -> Decision {
        let permits = decision.granted.saturating_sub(1);
        if permits > 0 {
            let lapses = asked + Duration::from_millis(decision.reset_after_ms);
            let grant = Grant { rule: rule.clone(), decision: decision.clone(), permits, lapses };
            locked(&self.grants).put(key.to_owned(), grant);
        }
        let granted = decision.granted.min(1);
        Decision { granted, remaining: decision.remaining + permits, ..decision }
    }

    /// Forgets the permits of a key that starts anew.
    pub fn forget(&self, key: &str) {
        locked(&self.grants).pop(key);
    }

    /// What is left and has not lapsed, taken out: to be given back.
    pub fn drain(&self, now: Instant) -> Vec<(String, Rule, u64)> {
        let grants = std::mem::replace(&mut *locked(&self.grants), LruCache::new(KEYS_MAX));
        let live = grants.into_iter().filter(|(_, grant)| grant.permits > 0 && now < grant.lapses);
        live.map(|(key, grant)| (key, grant.rule, grant.permits)).collect()
    }

    /// Who fetches for a key: one at a time.
    pub fn turn(&self, key: &str) -> Turn<'_> {
        let mut turns = locked(&self.turns);
        let lock = turns.entry(key.to_owned()).or_default().clone();
        Turn { turns: &self.turns, key: key.to_owned(), lock }
    }
}

/// A place among those who fetch for a key.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Mutex<HashMap<String, Arc<sync::Mutex<LastDenial>>>>,
    key: String,
    lock: Arc<sync::Mutex<LastDenial>>,
}

impl Turn<'_> {
    /// Whose turn it is, until the guard is dropped; nothing when it did not come by then.
    pub async fn until(&self, deadline: Instant) -> Option<sync::MutexGuard<'_, LastDenial>> {
        tokio::time::timeout_at(deadline, self.lock.lock()).await.ok()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = locked(self.turns);
        // The map's and this one: nobody else waits.
        if Arc::strong_count(&self.lock) == 2 {
            turns.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_nobody_any_more_is_not_remembered() {
        let grants = Grants::new();
        for subject in 0..100 {
            let (first, second) =
                (grants.turn(&subject.to_string()), grants.turn(&subject.to_string()));
            assert!(first.until(clock::now()).await.is_some());
            drop(first);
            assert_eq!(locked(&grants.turns).len(), 1);
            drop(second);
        }
        assert!(locked(&grants.turns).is_empty());
    }
}
