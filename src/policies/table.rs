//! The policies of this server: their only table, and the lock around it.
//!
//! Commands run one at a time. The compiler demands the lock, which also protects the table if one
//! command calls another. The module never calls the server while it holds the lock.

use crate::config;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::policy::name::Name;
use redis_throttle_engine::policy::statistics::{Counted, Key, Statistics};
use redis_throttle_engine::policy::table::{Found, Policies};
use redis_throttle_engine::time::Instant;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

static POLICIES: LazyLock<Mutex<Policies>> = LazyLock::new(Mutex::default);

/// Locks the table. After a panic in an earlier call the table is still consistent, because every
/// change takes one step.
pub fn table() -> MutexGuard<'static, Policies> {
    POLICIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Empties the table: an earlier load of the module that was refused may have left entries in it.
pub fn clear() {
    *table() = Policies::default();
}

/// Returns the rule in effect at `now`: that of the first variant with limits of its own, otherwise
/// that of the policy itself.
#[inline]
pub fn find(policy: Name<'_>, variants: &[Option<Name<'_>>], now: Instant) -> Option<Found> {
    let mut table = table();
    let of_variant =
        variants.iter().flatten().find_map(|name| table.find(policy, Some(*name), now));
    of_variant.or_else(|| table.find(policy, None, now))
}

/// The counters that a call adds to.
#[derive(Clone, Copy)]
pub enum Counter<'a> {
    /// The counters of a policy in the table.
    Of(Key),
    /// The counters of a policy that is known only from the `DEFAULT` of calls.
    OfDefault(Name<'a>),
    /// The counters shared by all calls that have no counters of their own.
    Other,
}

impl Counter<'_> {
    /// Counts a call.
    pub fn count(self, call: &Counted, now: Instant) {
        let near_limit_percent = config::near_limit_percent();
        self.change(|all, key| all.count(key, call, near_limit_percent, now));
    }

    /// Counts a reservation, whose units count when they are committed.
    #[cold]
    pub fn count_reserved(self, call: &Counted, now: Instant) {
        let near_limit_percent = config::near_limit_percent();
        self.change(|all, key| all.count_reserved(key, call, near_limit_percent, now));
    }

    /// Counts units that were charged or committed later.
    #[cold]
    pub fn charge(self, cost: Cost) {
        self.change(|all, key| all.charge(key, cost.units()));
    }

    /// Counts a call that ended in an error.
    #[cold]
    pub fn count_error(self) {
        self.change(Statistics::count_error);
    }

    #[inline(always)]
    fn change(self, change: impl FnOnce(&mut Statistics, Key)) {
        let all = &mut table().statistics;
        let key = match self {
            Self::Of(key) => key,
            Self::OfDefault(name) => all.key_of_default(name.as_bytes()),
            Self::Other => Key::OTHER,
        };
        change(all, key);
    }
}
