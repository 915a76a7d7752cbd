//! The denial cache: denies the same call again without a request. When the cache is full, the
//! least recently used denial is evicted.
//!
//! A refund or a forget does not search for the denials of its key. It records the key, and a
//! denial that is older than the record of one of its keys is not used.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

use crate::connection::Command;
use crate::{Decision, Source, protocol};

/// The moment at which a call began: by the clock, and by the number of keys forgotten before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since {
    at: Instant,
    forgets: u64,
}

#[derive(Debug)]
struct Denial {
    decision: Decision,
    since: Since,
}

#[derive(Debug)]
struct Denials {
    /// The denials. The map's key is the call's words joined by NUL, which occurs in no word.
    by_words: LruCache<String, Denial>,
    /// The forgotten keys, each with the number of its last forget.
    forgotten: LruCache<String, u64>,
    /// The number of the last forget whose record was evicted. Denials older than that are not
    /// used, whatever their key. Each costs at most one more request.
    evicted: u64,
    forgets: u64,
}

/// The denial cache of a limiter.
#[derive(Debug)]
pub(crate) struct DenialCache {
    denials: Option<Mutex<Denials>>,
    life_max: Duration,
}

impl DenialCache {
    pub fn new(size: usize, life_max: Duration) -> Self {
        let empty = |size| Denials {
            by_words: LruCache::new(size),
            forgotten: LruCache::new(size),
            evicted: 0,
            forgets: 0,
        };
        Self { denials: NonZeroUsize::new(size).map(|size| Mutex::new(empty(size))), life_max }
    }

    fn denials(&self) -> Option<MutexGuard<'_, Denials>> {
        self.denials.as_ref().map(|denials| denials.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the moment for a call that begins now.
    pub fn since(&self, now: Instant) -> Since {
        Since { at: now, forgets: self.denials().map_or(0, |denials| denials.forgets) }
    }

    /// Returns the cached denial of the same call, with its times as of now.
    pub fn get(&self, command: &Command<'_>, now: Instant) -> Option<Decision> {
        let mut denials = self.denials()?;
        let words = command.words().join("\0");
        let Denial { decision, since } = denials.by_words.get(&words)?;
        let (since, passed) = (*since, whole_ms(now - since.at));
        if passed < decision.retry_after.min(self.life_max) {
            let aged = aged(decision, passed);
            if denials.is_fresh(command, since) {
                return Some(aged);
            }
        }
        denials.by_words.pop(&words);
        None
    }

    /// Stores a denial. `since` is the moment before the request, so that the denial expires here
    /// no later than on the server.
    pub fn put(&self, command: &Command<'_>, decision: &Decision, since: Since) {
        if decision.allowed || decision.retry_after.is_zero() {
            return;
        }
        let Some(mut denials) = self.denials() else { return };
        if denials.is_fresh(command, since) {
            let denial = Denial { decision: decision.clone(), since };
            denials.by_words.put(command.words().join("\0"), denial);
        }
    }

    /// Drops the denials of a key that was refunded or deleted here, and those of calls that are
    /// still pending.
    pub fn forget(&self, key: &str) {
        let Some(mut denials) = self.denials() else { return };
        denials.forgets += 1;
        let record = (key.to_owned(), denials.forgets);
        let evicted = denials.forgotten.push(record.0, record.1).filter(|(other, _)| other != key);
        if let Some((_, number)) = evicted {
            denials.evicted = number;
        }
    }
}

impl Denials {
    /// Returns true if no key of the command has been forgotten since that moment.
    fn is_fresh(&self, command: &Command<'_>, since: Since) -> bool {
        let is_fresh = |key: &str| self.forgotten.peek(key).is_none_or(|at| since.forgets >= *at);
        since.forgets >= self.evicted && protocol::keys(command).all(is_fresh)
    }
}

fn whole_ms(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

fn aged(denial: &Decision, passed: Duration) -> Decision {
    let less = |wait: Duration| {
        if wait == Duration::MAX { wait } else { wait.saturating_sub(passed) }
    };
    Decision {
        source: Source::Local,
        retry_after: less(denial.retry_after),
        would_retry_after: less(denial.would_retry_after),
        reset_after: less(denial.reset_after),
        rows: denial.rows.iter().map(|row| aged(row, passed)).collect(),
        ..denial.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rule, clock};

    fn command<'a>(words: &[&'a str]) -> Command<'a> {
        Command::new(words.iter().map(|word| (*word).into()))
    }

    fn denial() -> Decision {
        let rule = Rule::fixed("one", 1, "1h").unwrap();
        Decision::without_answer(rule.name().into(), false, Duration::from_secs(60))
    }

    fn cache(size: usize) -> DenialCache {
        DenialCache::new(size, Duration::from_secs(1))
    }

    #[test]
    fn denial_of_several_rules_is_dropped_with_each_of_its_keys() {
        let all = command(&["RL.ALL", "a", "FIXED 1 60", "b", "FIXED 1 60"]);
        let now = clock::now();
        for (forgotten, kept) in [("a", false), ("b", false), ("FIXED 1 60", true), ("c", true)] {
            let cache = cache(9);
            cache.put(&all, &denial(), cache.since(now));
            cache.forget(forgotten);
            assert_eq!(cache.get(&all, now).is_some(), kept, "{forgotten}");
        }
    }

    #[test]
    fn pending_denial_is_not_stored_even_if_the_record_of_its_forget_is_evicted() {
        let (one, now) = (command(&["RL.FIXED", "a", "1", "60"]), clock::now());
        let cache = cache(1);
        let since = cache.since(now);
        cache.forget("a");
        cache.forget("b");
        cache.put(&one, &denial(), since);
        assert!(cache.get(&one, now).is_none());
        cache.put(&one, &denial(), cache.since(now));
        assert!(cache.get(&one, now).is_some());
    }
}
