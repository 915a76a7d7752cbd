//! The keys whose state was replaced in this process: a denial that is older says nothing more.
//!
//! A refund or a forget does not search for the denials of its key. It records the key, and a
//! denial that is older than the record of one of its keys is not used.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use lru::LruCache;
use tokio::time::Instant;

/// The moment at which a call began or was sent, by the clock, and the number of keys forgotten
/// before it began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since {
    pub at: Instant,
    forgets: u64,
}

#[derive(Debug)]
struct Records {
    /// The forgotten keys, each with the number of its last forget.
    by_key: LruCache<String, u64>,
    /// The number of the last forget whose record was evicted. Denials older than that are not
    /// used, whatever their key. Each costs at most one more request.
    evicted: u64,
}

/// The keys that were forgotten.
#[derive(Debug)]
pub(crate) struct Forgotten {
    forgets: AtomicU64,
    records: Mutex<Records>,
}

impl Forgotten {
    pub fn new(size: usize) -> Self {
        let by_key = LruCache::new(NonZeroUsize::new(size).unwrap_or(NonZeroUsize::MIN));
        Self { forgets: AtomicU64::new(0), records: Mutex::new(Records { by_key, evicted: 0 }) }
    }

    /// Returns the moment for a call that begins now.
    pub fn since(&self, now: Instant) -> Since {
        Since { at: now, forgets: self.forgets.load(Ordering::Acquire) }
    }

    /// Records a key that was refunded or deleted here.
    pub fn forget(&self, key: &str) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.forgets.load(Ordering::Relaxed) + 1;
        let evicted = records.by_key.push(key.to_owned(), number);
        if let Some((_, number)) = evicted.filter(|(other, _)| other != key) {
            records.evicted = number;
        }
        self.forgets.store(number, Ordering::Release);
    }

    /// Returns true if none of the keys has been forgotten since that moment.
    pub fn is_fresh<'a>(&self, mut keys: impl Iterator<Item = &'a str>, since: Since) -> bool {
        if since.forgets == self.forgets.load(Ordering::Acquire) {
            return true;
        }
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |key: &str| records.by_key.peek(key).is_none_or(|at| since.forgets >= *at);
        since.forgets >= records.evicted && keys.all(is_fresh)
    }
}
