//! The counters of a limiter.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Decision, Source};

/// The counts of the calls of a limiter and its clones, since the limiter was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Decisions that allowed the call.
    pub allowed: u64,
    /// Decisions that denied the call.
    pub denied: u64,
    /// Decisions, allowed or denied, that known denials or `on_error` made because the server did
    /// not decide.
    pub degraded: u64,
    /// Decisions, allowed or denied, made without a request to the server: by a cached denial, a
    /// prefetched permit, or a known denial under pressure.
    pub local: u64,
    /// Calls that returned [`Error::CommandRejected`](crate::Error::CommandRejected). They are not
    /// decisions.
    pub rejected: u64,
    /// Ends of admissions that failed, and ends without a reply when the limiter was closed: the
    /// units or the permit of an item may be wrong until they expire.
    pub unsettled: u64,
}

/// The live counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
    degraded: AtomicU64,
    local: AtomicU64,
    rejected: AtomicU64,
    unsettled: AtomicU64,
}

impl Counts {
    pub fn decision(&self, decision: &Decision) {
        let verdict = if decision.allowed { &self.allowed } else { &self.denied };
        verdict.fetch_add(1, Ordering::Relaxed);
        if decision.degraded {
            self.degraded.fetch_add(1, Ordering::Relaxed);
        } else if decision.source == Source::Local {
            self.local.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn rejection(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub fn unsettled(&self) {
        self.unsettled.fetch_add(1, Ordering::Relaxed);
    }

    pub fn so_far(&self) -> Counters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            allowed: of(&self.allowed),
            denied: of(&self.denied),
            degraded: of(&self.degraded),
            local: of(&self.local),
            rejected: of(&self.rejected),
            unsettled: of(&self.unsettled),
        }
    }
}
