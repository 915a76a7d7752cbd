//! Known denials: the server's last denial of each key. It denies calls under pressure without a
//! request, and calls that get no final reply.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::calls::denial_cache::{aged, whole_ms};
use crate::calls::forgotten::{Forgotten, Since};
use crate::net::pass::OnLate;
use crate::rules::clock;
use crate::rules::item::{Keyed, Leave};
use crate::wire::replies;
use crate::{Decision, Options, Reason, Rule, Source};

/// The longest time for which a denial decides calls that get no final reply.
const LIFE_MAX: Duration = Duration::from_secs(3600);
/// The part of the denials that is evicted in one go.
const EVICTED_PART: usize = 10;

/// A denial by the server.
#[derive(Debug)]
struct Known {
    rule: Rule,
    leave: Option<Leave>,
    cost: u64,
    row: Decision,
    read_at: Instant,
    /// Whether this process keeps the limit of the key, because the retry time is over.
    is_local: bool,
}

impl Known {
    /// Returns true if the call has the same words, apart from its cost.
    fn is_of(&self, call: &Keyed<'_>) -> bool {
        self.leave == call.leave && self.rule.has_words_of(call.rule)
    }

    fn denies(&self, call: &Keyed<'_>) -> bool {
        self.is_of(call) && self.cost <= cost_of(call)
    }

    fn ends_within(&self, life: Duration, now: Instant) -> bool {
        whole_ms(now - self.read_at) >= self.row.retry_after.min(life)
    }
}

/// Returns the cost that a denial of the call has: a partial call needs one unit.
fn cost_of(call: &Keyed<'_>) -> u64 {
    if call.partial { 1 } else { call.cost }
}

/// A call without a final reply whose key was denied before.
pub(crate) struct Over {
    /// The time until all units are back.
    pub reset_after: Duration,
    /// Whether this process begins to keep the limit of the key.
    pub is_new: bool,
}

/// The known denials of a limiter, by key.
#[derive(Debug)]
pub(crate) struct KnownDenials {
    max: usize,
    young: Duration,
    forgotten: Arc<Forgotten>,
    known: Mutex<HashMap<String, Known>>,
    /// The number of the denials, to be read without the lock.
    count: AtomicUsize,
}

impl KnownDenials {
    pub fn new(options: &Options, forgotten: Arc<Forgotten>) -> Self {
        let (max, young) = (options.known_denials, options.denial_cache_max);
        let (known, count) = (Mutex::default(), AtomicUsize::new(0));
        Self { max, young, forgotten, known, count }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Records a reply of the server that is read now, with a row for each call. `since` is a
    /// moment before the command was sent.
    pub fn record(&self, calls: &[Keyed<'_>], decision: &Decision, since: Since) {
        if self.max == 0 {
            return;
        }
        for (call, row) in calls.iter().zip(decision.rows_or_self()) {
            if row.allowed {
                self.allow(call, row);
            } else if !row.retry_after.is_zero() {
                self.deny(call, row, since);
            }
        }
    }

    fn allow(&self, call: &Keyed<'_>, row: &Decision) {
        if self.is_empty() {
            return;
        }
        let mut known = self.known();
        let Some(denial) = known.get_mut(&call.key).filter(|known| known.is_of(call)) else {
            return;
        };
        // What this process has allowed stays: the reply may be late, and the next one missing.
        let cost = if call.partial { row.granted } else { call.cost };
        if denial.cost <= cost {
            known.remove(&call.key);
            self.count.store(known.len(), Ordering::Release);
        }
    }

    fn deny(&self, call: &Keyed<'_>, row: &Decision, since: Since) {
        let mut known = self.known();
        if !self.forgotten.is_fresh(std::iter::once(&*call.key), since) {
            return;
        }
        let (cost, read_at) = (cost_of(call), clock::now());
        if let Some(denial) = known.get_mut(&call.key) {
            if denial.cost < cost && denial.is_of(call) && !denial.ends_within(LIFE_MAX, read_at) {
                return;
            }
            if !denial.is_of(call) {
                (denial.rule, denial.leave) = (call.rule.clone(), call.leave);
            }
            (denial.cost, denial.read_at) = (cost, read_at);
            denial.row.assign(row);
            denial.is_local = false;
            return;
        }
        if known.len() >= self.max {
            evict(&mut known, self.max.div_ceil(EVICTED_PART));
        }
        let (rule, leave, row) = (call.rule.clone(), call.leave, row.clone());
        known.insert(call.key.clone(), Known { rule, leave, cost, row, read_at, is_local: false });
        self.count.store(known.len(), Ordering::Release);
    }

    /// Removes the denial of a key. The key is recorded as forgotten before.
    pub fn forget(&self, key: &str) {
        if !self.is_empty() {
            let mut known = self.known();
            known.remove(key);
            self.count.store(known.len(), Ordering::Release);
        }
    }

    /// Decides calls that would have to wait, without a request: by a denial that is young.
    pub fn under_pressure(
        &self,
        calls: &[Keyed<'_>],
        is_all: bool,
        now: Instant,
    ) -> Option<Decision> {
        self.denial(calls, is_all, self.young, now)
    }

    /// Decides calls that got no final reply: by a denial whose retry time is not over.
    pub fn without_server(
        &self,
        calls: &[Keyed<'_>],
        is_all: bool,
        reason: Reason,
        now: Instant,
    ) -> Option<Decision> {
        let degraded = |row: Decision| Decision { degraded: true, reason: Some(reason), ..row };
        let denial = self.denial(calls, is_all, LIFE_MAX, now)?;
        let rows = denial.rows.into_iter().map(degraded).collect();
        Some(degraded(Decision { rows, ..denial }))
    }

    /// Returns the row of each denial that applies, and rows without units for the other calls.
    fn denial(
        &self,
        calls: &[Keyed<'_>],
        is_all: bool,
        life: Duration,
        now: Instant,
    ) -> Option<Decision> {
        if self.is_empty() {
            return None;
        }
        let known = self.known();
        let row = |call: &Keyed<'_>| {
            let known = known.get(&call.key).filter(|known| known.denies(call))?;
            let passed = whole_ms(now - known.read_at);
            (!known.ends_within(life, now)).then(|| aged(&known.row, passed))
        };
        let rows: Vec<_> = calls.iter().map(row).collect();
        drop(known);
        let wait = |at: &usize| rows[*at].as_ref().map(|row| row.retry_after);
        let deciding = (0..rows.len()).rev().max_by_key(wait)?;
        wait(&deciding)?;
        let allowed = |call: &Keyed<'_>| Decision {
            source: Source::Local,
            degraded: false,
            ..call.rule.without_state(true, Duration::ZERO)
        };
        let rows =
            rows.into_iter().zip(calls).map(|(row, call)| row.unwrap_or_else(|| allowed(call)));
        let mut rows: Vec<_> = rows.collect();
        Some(if is_all { Decision::of_rows(deciding, rows) } else { rows.remove(0) })
    }

    /// Returns what records the reply to the calls if it comes late.
    pub fn on_late(self: &Arc<Self>, calls: &[Keyed<'_>], is_all: bool, since: Since) -> OnLate {
        let kept = |call: &Keyed<'_>| {
            (call.rule.clone(), call.key.clone(), call.cost, call.leave, call.partial)
        };
        let (known, calls) = (self.clone(), calls.iter().map(kept).collect::<Vec<_>>());
        Box::new(move |reply| {
            let calls = calls.iter().map(|(rule, key, cost, leave, partial)| Keyed {
                leave: *leave,
                partial: *partial,
                ..Keyed::of_cost(rule, key.clone(), *cost)
            });
            let calls: Vec<_> = calls.collect();
            if let Ok(decision) = replies::of_calls(&calls, is_all, reply) {
                known.record(&calls, &decision, since);
            }
        })
    }

    /// Returns the end of the denial of a call's key, if its retry time is over and the server has
    /// not decided since.
    pub fn over(&self, call: &Keyed<'_>, now: Instant) -> Option<Over> {
        if self.is_empty() {
            return None;
        }
        let mut known = self.known();
        let known = known.get_mut(&call.key).filter(|known| known.is_of(call))?;
        let reset_after = known.row.reset_after.saturating_sub(now - known.read_at);
        let is_over = known.ends_within(LIFE_MAX, now);
        is_over.then(|| Over { reset_after, is_new: !std::mem::replace(&mut known.is_local, true) })
    }
}

/// Removes the denials whose retry times end first.
fn evict(known: &mut HashMap<String, Known>, count: usize) {
    let ends = |known: &Known| known.read_at.checked_add(known.row.retry_after);
    let mut all: Vec<_> = known
        .iter()
        .map(|(key, known)| (ends(known).is_none(), ends(known), key.clone()))
        .collect();
    if let Some(last) = count.checked_sub(1).filter(|last| *last < all.len()) {
        all.select_nth_unstable(last);
    }
    for (.., key) in all.into_iter().take(count) {
        known.remove(&key);
    }
}
