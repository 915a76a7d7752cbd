//! What a limiter has counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Decision, Source};

/// What a limiter and its clones have counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Decisions that allowed.
    pub allowed: u64,
    /// Decisions that denied.
    pub denied: u64,
    /// Of these decisions, those that `on_error` made without an answer.
    pub degraded: u64,
    /// Of these decisions, those that were made without asking: a cached denial, or a permit that
    /// was fetched in advance.
    pub local: u64,
    /// Calls that failed by a mistake of the program or of its server's set-up: no decisions.
    pub mistakes: u64,
}

/// The counts as they grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
    degraded: AtomicU64,
    local: AtomicU64,
    mistakes: AtomicU64,
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

    pub fn mistake(&self) {
        self.mistakes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn so_far(&self) -> Counters {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            allowed: of(&self.allowed),
            denied: of(&self.denied),
            degraded: of(&self.degraded),
            local: of(&self.local),
            mistakes: of(&self.mistakes),
        }
    }
}
