//! The denial cache: denies the same call again without a request, until the retry time that the
//! server returned. When the cache is full, the least recently used denial is evicted.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lru::LruCache;
use tokio::time::Instant;

use crate::connection::Command;
use crate::{Decision, Source};

#[derive(Debug)]
struct Denials {
    /// The denials and the instant before each request. The map's key is the call's words joined by
    /// NUL, which occurs in no word.
    by_words: LruCache<String, (Decision, Instant)>,
    /// The last instant at which any key was forgotten. Denials requested before that instant are
    /// not stored, whatever their key. Each costs at most one more request.
    forgotten: Option<Instant>,
}

/// The denial cache of a limiter.
#[derive(Debug)]
pub(crate) struct DenyCache(Option<Mutex<Denials>>);

impl DenyCache {
    pub fn new(size: usize) -> Self {
        let empty = |size| Denials { by_words: LruCache::new(size), forgotten: None };
        Self(NonZeroUsize::new(size).map(|size| Mutex::new(empty(size))))
    }

    fn denials(&self) -> Option<MutexGuard<'_, Denials>> {
        self.0.as_ref().map(|denials| denials.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the cached denial of the same call, with its times as of now.
    pub fn get(&self, command: &Command<'_>, now: Instant) -> Option<Decision> {
        let mut denials = self.denials()?;
        let words = command.words().join("\0");
        let (denial, asked) = denials.by_words.get(&words)?;
        let passed_ms = u64::try_from((now - *asked).as_millis()).unwrap_or(u64::MAX);
        if Duration::from_millis(passed_ms) < denial.retry_after().unwrap_or_default() {
            return Some(aged(denial, passed_ms));
        }
        denials.by_words.pop(&words);
        None
    }

    /// Stores a denial. `asked` is the instant before the request, so that the denial expires here
    /// no later than on the server.
    pub fn put(&self, command: &Command<'_>, decision: &Decision, asked: Instant) {
        if decision.allowed || decision.retry_after_ms <= 0 {
            return;
        }
        let Some(mut denials) = self.denials() else { return };
        if denials.forgotten.is_none_or(|forgotten| asked >= forgotten) {
            denials.by_words.put(command.words().join("\0"), (decision.clone(), asked));
        }
    }

    /// Removes the denials of a key that was refunded or deleted here. Denials of calls that are
    /// pending at `now` are not stored either.
    pub fn forget(&self, key: &str, now: Instant) {
        let Some(mut denials) = self.denials() else { return };
        denials.forgotten = Some(now);
        let of_key = |words: &&String| words.split('\0').skip(1).any(|word| word == key);
        let all = denials.by_words.iter().map(|(words, _)| words);
        let stale: Vec<_> = all.filter(of_key).cloned().collect();
        for words in stale {
            denials.by_words.pop(&words);
        }
    }
}

fn aged(denial: &Decision, passed_ms: u64) -> Decision {
    let less = |ms: i64| if ms < 0 { ms } else { ms.saturating_sub_unsigned(passed_ms).max(0) };
    Decision {
        source: Source::Local,
        retry_after_ms: less(denial.retry_after_ms),
        would_retry_after_ms: less(denial.would_retry_after_ms),
        reset_after_ms: denial.reset_after_ms.saturating_sub(passed_ms),
        rows: denial.rows.iter().map(|row| aged(row, passed_ms)).collect(),
        ..denial.clone()
    }
}
