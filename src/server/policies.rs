//! The policies of this server: the one table of them, and who may touch it when.
//!
//! Commands run one at a time; the lock is there for the compiler, and for a command that another
//! one calls. It is never held while the server is asked for anything.

use super::config;
use crate::limiter::Instant;
use crate::policy::{Counted, Found, FullName, Policies, statistics};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

static POLICIES: LazyLock<Mutex<Policies>> = LazyLock::new(Mutex::default);

/// The table. A panic leaves nothing half done in it: what is changed is changed in one step.
pub fn table() -> MutexGuard<'static, Policies> {
    POLICIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins with an empty table: what an earlier load of the module left, that was refused, is gone.
pub fn clear() {
    *table() = Policies::default();
}

/// What applies at `now` under the first of `names` that is a policy, and which that is.
pub fn find<'a>(names: &'a [FullName], now: Instant) -> Option<(&'a FullName, Found)> {
    let table = table();
    let (name, found) =
        names.iter().find_map(|name| table.find(name, now).map(|found| (name, found)))?;
    let rule = found.rule.with_slots(config::sliding_log_slots());
    Some((name, Found { rule, ..found }))
}

/// Counts a call.
pub fn count(key: statistics::Key, call: &Counted, near_limit_percent: u8, now: Instant) {
    table().statistics.count(key, call, near_limit_percent, now);
}
