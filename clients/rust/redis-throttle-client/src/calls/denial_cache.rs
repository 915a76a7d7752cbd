//! The denial cache: denies the same call again without a request. When the cache is full, the
//! least recently used denial is evicted.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

use crate::calls::forgotten::{Forgotten, Since};
use crate::wire::{command::Command, words};
use crate::{Decision, Options, Source};

#[derive(Debug)]
struct Denial {
    decision: Decision,
    since: Since,
}

/// The denials. The map's key is the call's words joined by NUL, which occurs in no word.
type Denials = LruCache<String, Denial>;

/// The denial cache of a limiter.
#[derive(Debug)]
pub(crate) struct DenialCache {
    denials: Option<Mutex<Denials>>,
    life_max: Duration,
    forgotten: Arc<Forgotten>,
}

impl DenialCache {
    pub fn new(options: &Options, forgotten: Arc<Forgotten>) -> Self {
        let size = NonZeroUsize::new(options.denial_cache);
        let denials = size.map(|size| Mutex::new(LruCache::new(size)));
        Self { denials, life_max: options.denial_cache_max, forgotten }
    }

    fn denials(&self) -> Option<MutexGuard<'_, Denials>> {
        self.denials.as_ref().map(|denials| denials.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the cached denial of the same call, with its times as of now.
    pub fn get(&self, command: &Command<'_>, now: Instant) -> Option<Decision> {
        let mut denials = self.denials()?;
        let words = command.words().join("\0");
        let Denial { decision, since } = denials.get(&words)?;
        let (since, passed) = (*since, whole_ms(now - since.at));
        if passed < decision.retry_after.min(self.life_max) {
            let aged = aged(decision, passed);
            if self.is_fresh(command, since) {
                return Some(aged);
            }
        }
        denials.pop(&words);
        None
    }

    /// Stores a denial. `since` is the moment before the request, so that the denial expires here
    /// no later than on the server.
    pub fn put(&self, command: &Command<'_>, decision: &Decision, since: Since) {
        if decision.allowed || decision.retry_after.is_zero() {
            return;
        }
        let Some(mut denials) = self.denials() else { return };
        if self.is_fresh(command, since) {
            let denial = Denial { decision: decision.clone(), since };
            denials.put(command.words().join("\0"), denial);
        }
    }

    fn is_fresh(&self, command: &Command<'_>, since: Since) -> bool {
        self.forgotten.is_fresh(words::keys(command), since)
    }
}

pub(crate) fn whole_ms(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a denial of the server as this process repeats it after a while.
pub(crate) fn aged(denial: &Decision, passed: Duration) -> Decision {
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
    use crate::Rule;
    use crate::rules::clock;

    fn command<'a>(words: &[&'a str]) -> Command<'a> {
        Command::new(words.iter().map(|word| (*word).into()))
    }

    fn denial() -> Decision {
        let rule = Rule::fixed("one", 1, "1h").unwrap();
        Decision::without_server(rule.name().into(), false, Duration::from_secs(60))
    }

    fn cache(size: usize) -> DenialCache {
        let forgotten = Arc::new(Forgotten::new(size));
        DenialCache::new(&Options::default().denial_cache(size), forgotten)
    }

    #[test]
    fn denial_of_several_rules_is_dropped_with_each_of_its_keys() {
        let all = command(&["RL.ALL", "a", "FIXED 1 60", "b", "FIXED 1 60"]);
        let now = clock::now();
        for (forgotten, kept) in [("a", false), ("b", false), ("FIXED 1 60", true), ("c", true)] {
            let cache = cache(9);
            cache.put(&all, &denial(), cache.forgotten.since(now));
            cache.forgotten.forget(forgotten);
            assert_eq!(cache.get(&all, now).is_some(), kept, "{forgotten}");
        }
    }

    #[test]
    fn pending_denial_is_not_stored_even_if_the_record_of_its_forget_is_evicted() {
        let (one, now) = (command(&["RL.FIXED", "a", "1", "60"]), clock::now());
        let cache = cache(1);
        let since = cache.forgotten.since(now);
        cache.forgotten.forget("a");
        cache.forgotten.forget("b");
        cache.put(&one, &denial(), since);
        assert!(cache.get(&one, now).is_none());
        cache.put(&one, &denial(), cache.forgotten.since(now));
        assert!(cache.get(&one, now).is_some());
    }
}
