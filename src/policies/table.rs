//! The policies of this server: the one table of them, and who may touch it when.
//!
//! Commands run one at a time; the lock is there for the compiler, and for a command that another
//! one calls. It is never held while the server is asked for anything.

use crate::config;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::policy::name::Name;
use redis_throttle_engine::policy::statistics::{Counted, Key, Statistics};
use redis_throttle_engine::policy::table::{Found, Policies};
use redis_throttle_engine::time::Instant;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

static POLICIES: LazyLock<Mutex<Policies>> = LazyLock::new(Mutex::default);

/// The table. A panic leaves nothing half done in it: what is changed is changed in one step.
pub fn table() -> MutexGuard<'static, Policies> {
    POLICIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins with an empty table: an earlier load of the module that was refused may have left one.
pub fn clear() {
    *table() = Policies::default();
}

/// What applies at `now` under the first of the variants that has limits of its own, or else under
/// the policy itself.
#[inline]
pub fn find(policy: Name<'_>, variants: &[Option<Name<'_>>], now: Instant) -> Option<Found> {
    let mut table = table();
    let of_variant =
        variants.iter().flatten().find_map(|name| table.find(policy, Some(*name), now));
    of_variant.or_else(|| table.find(policy, None, now))
}

/// Where a call is counted.
#[derive(Clone, Copy)]
pub enum Counter<'a> {
    /// Where its policy is.
    Of(Key),
    /// Under the name of a policy that is known from the `DEFAULT` of calls only.
    OfDefault(Name<'a>),
    /// With all those that have no counters of their own.
    Other,
}

impl Counter<'_> {
    /// Counts a call.
    pub fn count(self, call: &Counted, now: Instant) {
        let near_limit_percent = config::near_limit_percent();
        self.change(|all, key| all.count(key, call, near_limit_percent, now));
    }

    /// Counts units that were taken afterwards.
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
