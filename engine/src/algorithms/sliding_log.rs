//! Sliding log: records every call, so that no window at any position holds more than the limit.
//!
//! The state is a list of entries, each an instant and the running total up to it:
//!
//! ```text
//!  base  slot │ 0  2 │ 3  5 │ 3.5  6 │ ...     entry: us since base, total so far
//!             └ dead ┘└──── live ────┘         an event at t counts until t + window
//! ```
//!
//! Entries hold running totals. The cost used in a window is the difference of two totals, which a
//! binary search finds in place. Calls in the same microsecond share an entry, and instants never
//! decrease. Dead entries are dropped when there are half as many of them as live ones: the
//! amortised cost per call is constant.
//!
//! If the limit exceeds the number of slots, instants are rounded up to multiples of `window /
//! slots`. The log then has at most one live entry more than slots. Any window still holds at most
//! the limit, and a unit counts at most one slot longer than without rounding.
//!
//! A charge may exceed the limit, so the limit does not bound the number of entries. The instant of
//! a charge that finds at least as many entries as slots is therefore rounded up in the same way,
//! under any limit: the number of live entries stays at most twice the number of slots, plus one.
//! The log stores the width of its slots; otherwise a rule with a shorter window would take the
//! rounded instant for a clock that stepped back.
//!
//! A refund gives back the newest units. The server has no command that shortens a string, so the
//! refund overwrites the entries it removes with copies of the entry that is now the last one;
//! equal entries count once. The next call that takes units overwrites these copies, so a log with
//! copies never grows. If there are too many copies, that call rewrites the log without them.
//!
//! Source: the sorted-set pattern of the Redis documentation, with totals instead of members.

use crate::bounds::{Cost, Limit, Period, Slots};
use crate::call::{Limiter, Standing};
use crate::decision::{Decision, Next};
use crate::fields::Field;
use crate::time::{Instant, Span};
use std::ops::Range;

mod entry;
#[cfg(test)]
mod tests;

pub use self::entry::{ENTRY_LEN, Entry, RawEntry};

/// The rule: at most `limit` units in any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// Units per window.
    pub limit: Limit,
    /// Length of the window.
    pub window: Period,
    /// The number of slots per window. If `limit` exceeds this number, instants are rounded up to a
    /// multiple of a slot.
    pub slots: Slots,
    /// Whether the rule sets `slots` itself. Otherwise it is the setting at the time of a call.
    pub has_own_slots: bool,
}

/// The stored state: a log that is not empty, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log<'a> {
    /// The instant of the first entry. The entries are stored relative to it.
    pub base: Instant,
    /// The coarsest rounding of the entries; 1 us if all are exact.
    pub slot: Span,
    /// The entries, oldest first.
    pub entries: &'a [RawEntry],
}

/// A change of a log: keeps a range of its entries and puts one more after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// The log as read, if there was one.
    pub log: Option<Log<'a>>,
    /// The entries to keep. If they start at 0, writing the end of the log may be enough.
    pub kept: Range<usize>,
    /// The entry to put after the kept ones, with its total relative to the log as read.
    pub last: Entry,
    /// The coarsest rounding of the entries after the change.
    pub slot: Span,
    /// Whether the log is rewritten, even if a change of its end would be enough.
    pub rewrites: bool,
}

impl<'a> Log<'a> {
    /// Returns the entry at `index`, which is in range.
    pub fn entry(&self, index: usize) -> Entry {
        let none = Entry { instant: self.base, total: 0 };
        self.entries.get(index).map_or(none, |raw| Entry::unpack(raw, self.base))
    }

    /// Returns the last entry: the newest instant, and the total cost of all entries.
    pub fn last(&self) -> Entry {
        self.entry(self.entries.len().saturating_sub(1))
    }

    /// Returns the total of the entries before `index`.
    pub fn total_before(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |before| self.entry(before).total)
    }

    /// Returns the index of the first entry in `range` for which `before` is false.
    fn first_not(&self, range: Range<usize>, before: impl Fn(Entry) -> bool) -> usize {
        let Range { start: mut low, end: mut high } = range;
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.entry(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

impl Edit<'_> {
    /// Returns the number of stored entries at the end that `last` replaces; 0 if `last` is
    /// appended. Returns `None` if the log must be rewritten.
    pub fn overwritten(&self) -> Option<usize> {
        let log = self.log.filter(|log| {
            self.kept.start == 0
                && self.slot == log.slot
                && (!self.kept.is_empty() || self.last.instant == log.base)
                && !self.rewrites
        })?;
        Some(log.entries.len() - self.kept.end)
    }
}

/// A log as seen at one instant.
struct LogView<'a, 'log> {
    rule: &'a SlidingLog,
    now: Instant,
    /// The rounding of the entry that a change adds. The change sets this field.
    slot: Span,
    log: Option<Log<'log>>,
    /// The number of entries that no longer count.
    dead: usize,
    /// The total of the entries that no longer count.
    passed: u64,
    /// The units that count as used.
    used: u64,
    /// The entries that a change would keep.
    kept: Range<usize>,
    /// The entry that a change would put after the kept ones.
    last: Entry,
    /// Set if the clock stepped back: the instant to which all entries after the kept ones are
    /// moved.
    moved_to: Option<Instant>,
    /// Whether a change rewrites the log, even if a change of its end would be enough.
    rewrites: bool,
}

impl<'log> Limiter<'log> for SlidingLog {
    type State = Log<'log>;
    type NewState = Edit<'log>;

    /// Returns the log at `now`. Entries after `now` count in full. If the newest entry lies ahead
    /// of `now` by more than the window and the stored slot, the clock stepped back, and the
    /// entries after `now` are moved to `now`.
    #[inline(always)]
    fn standing(
        &self,
        stored: Option<Log<'log>>,
        now: Instant,
    ) -> impl Standing<NewState = Edit<'log>> {
        let mut slot = Span::from_us(1);
        let Some(log) = stored else {
            let last = Entry { instant: now, total: 0 };
            let (log, kept) = (None, 0..0);
            let (dead, passed, used, moved_to) = (0, 0, 0, None);
            let rewrites = false;
            return LogView {
                rule: self,
                now,
                slot,
                log,
                dead,
                passed,
                used,
                kept,
                last,
                moved_to,
                rewrites,
            };
        };
        let count = log.entries.len();
        let window = self.window.span();
        let newest = log.last();
        let dead = log.first_not(0..count, |entry| entry.instant.after(window) <= now);
        let passed = log.total_before(dead);
        let used = newest.total.saturating_sub(passed);
        let (kept, moved_to) = if newest.instant.since(now) > window.max(log.slot) {
            let past = log.first_not(dead..count, |entry| entry.instant <= now);
            slot = self.slot();
            (dead..past, Some(now.ceil_to(slot)))
        } else if dead > 0 && dead * 2 >= count - dead {
            (dead..count, None)
        } else {
            (0..count, None)
        };
        let last = Entry { instant: moved_to.unwrap_or(newest.instant), ..newest };
        // The entries that are moved become one entry, so the log is rewritten.
        let rewrites = moved_to.is_some();
        let log = stored;
        LogView { rule: self, now, slot, log, dead, passed, used, kept, last, moved_to, rewrites }
    }
}

impl<'log> Standing for LogView<'_, 'log> {
    type NewState = Edit<'log>;

    #[inline(always)]
    fn limit(&self) -> Limit {
        self.rule.limit
    }

    #[inline(always)]
    fn is_repaired(&self) -> bool {
        self.moved_to.is_some()
    }

    #[inline(always)]
    fn has_room_for(&self, cost: Cost) -> bool {
        cost.units() <= self.remaining()
    }

    #[inline(always)]
    fn room_in(&self, cost: Cost) -> Span {
        let excess = self.used - (self.rule.limit.units() - cost.units());
        self.freed_at(excess).since(self.now)
    }

    fn used(&self) -> u128 {
        self.used.into()
    }

    #[inline(always)]
    fn take(&mut self, cost: Cost) {
        if let Some(log) = self.log
            && let Some([.., before, last]) = log.entries.get(self.kept.clone())
            && before[6..] == last[6..]
        {
            self.overwrite_stale(&log);
        }
        self.slot = self.rule.slot();
        let at = || self.last.instant.max(self.now.ceil_to(self.slot));
        self.last.instant = self.moved_to.unwrap_or_else(at);
        self.last.total = self.last.total.saturating_add(cost.units());
        self.used = self.used.saturating_add(cost.units());
    }

    /// Takes `cost`. If there are at least as many entries as slots, rounds the instant of the new
    /// entry up to a slot, under any limit.
    #[cold]
    fn take_charged(&mut self, cost: Cost) {
        let is_full = self.kept.len() as u64 >= self.rule.slots.count();
        if is_full && self.moved_to.is_none() {
            self.last.instant = self.last.instant.max(self.now.ceil_to(self.rule.grid()));
        }
        self.take(cost);
        if is_full && self.moved_to.is_none() {
            self.slot = self.rule.grid();
        }
    }

    fn give_back(&mut self, cost: Cost) {
        let given = cost.units().min(self.used);
        self.slot = self.rule.slot();
        self.used -= given;
        self.last.total = self.last.total.saturating_sub(given);
        let Some(log) = self.log else { return };
        let stale = self.stale(&log);
        // The first entry whose total reaches the units left is now the last one. Entries with a
        // larger total are removed.
        let counting = self.dead..self.kept.end;
        let last = log.first_not(counting, |entry| entry.total < self.last.total);
        if last < self.kept.end {
            self.last.instant = log.entry(last).instant;
            let is_kept = |entry: Entry| entry.total <= self.last.total;
            self.kept.end = log.first_not(last..self.kept.end, is_kept);
            // `moved_to` stays only if the last entry is one of the moved ones.
            self.moved_to = self.moved_to.filter(|moved_to| *moved_to == self.last.instant);
        }
        if self.last.total < log.entry(0).total {
            // No earlier entry is kept. This also covers a forged log, in which totals may
            // decrease.
            self.kept.end = self.kept.start;
        }
        if self.rewrites || self.is_worth_rewriting(&log, stale) {
            self.rewrites = true;
            self.kept.start = self.dead.min(self.kept.end);
        }
    }

    #[inline(always)]
    fn remaining(&self) -> u64 {
        self.rule.limit.units().saturating_sub(self.used)
    }

    #[inline(always)]
    fn reset_after(&self) -> Span {
        if self.used == 0 { Span::ZERO } else { self.expires_at().since(self.now) }
    }

    #[inline(always)]
    fn next(self, _decision: &Decision) -> Next<Edit<'log>> {
        Next::drifting(self.expires_at(), self.rule.window.span(), self.edit())
    }
}

impl SlidingLog {
    /// The two numbers stored in front of the entries.
    pub const HEADER: [Field; 2] =
        [Field::instant("base_us"), Field::new("slot_us", 1, Period::MAX.as_us())];

    /// Returns a summary of the log for `RL.INSPECT`, since its entries may be many.
    pub fn inspect(log: &Log<'_>) -> Vec<(&'static str, u64)> {
        let newest = log.last();
        vec![
            ("entries", log.entries.len() as u64),
            ("used", newest.total),
            ("oldest_us", log.base.as_us()),
            ("newest_us", newest.instant.as_us()),
            ("slot_us", log.slot.as_us()),
        ]
    }

    /// Returns the width of the grid to which instants are rounded up: a slot if the limit exceeds
    /// the number of slots, otherwise 1 us, which is exact.
    fn slot(&self) -> Span {
        if self.limit.units() <= self.slots.count() { Span::from_us(1) } else { self.grid() }
    }

    /// Returns the width of a slot.
    fn grid(&self) -> Span {
        Span::from_us(self.window.as_us().div_ceil(self.slots.count()))
    }
}

impl<'log> LogView<'_, 'log> {
    /// Excludes the copies of the last entry from the entries that a change keeps.
    #[cold]
    fn overwrite_stale(&mut self, log: &Log<'_>) {
        // If entries were moved, the log is rewritten without copies anyway.
        if self.rewrites {
            return;
        }
        let stale = self.stale(log);
        self.kept.end -= stale;
        if is_too_many(stale, self.kept.end.saturating_sub(self.dead)) {
            self.rewrites = true;
            self.kept.start = self.dead;
        }
    }

    /// Returns the number of copies of the last entry at the end of the log. Refunds leave them.
    fn stale(&self, log: &Log<'_>) -> usize {
        let newest = log.last().total;
        let count = log.entries.len();
        count - 1 - log.first_not(self.dead..count - 1, |entry| entry.total < newest)
    }

    /// Returns true if a refund rewrites the log instead of overwriting the removed entries with
    /// copies. A copy costs bytes twice: it is sent to replicas now, and a later call that
    /// overwrites it sends the new bytes.
    #[cold]
    fn is_worth_rewriting(&self, log: &Log<'_>, stale: usize) -> bool {
        let stays = self.kept.end.saturating_sub(self.dead);
        let gone = log.entries.len() - self.kept.end;
        // The log has at most one live entry per unit, and at most one live entry more than slots.
        // In addition, charges may leave as many exact entries as there are slots.
        let slots = self.rule.slots.count();
        let is_rounded = self.rule.slot() > Span::from_us(1);
        let counting_max = self.used.min(if is_rounded { slots + 1 } else { 2 * slots + 1 });
        let has_waste = log.entries.len() as u64 > (counting_max + 1) * 3 / 2 + 1;
        has_waste || gone > stays + 1 || is_too_many(stale, stays)
    }

    /// Returns the instant from which the last entry no longer counts.
    fn expires_at(&self) -> Instant {
        self.last.instant.after(self.rule.window.span())
    }

    /// Returns the instant at which enough entries have expired that `excess` units are free.
    fn freed_at(&self, excess: u64) -> Instant {
        let freed = self.log.map_or(self.last.instant, |log| {
            let counting = self.dead..self.kept.end;
            let too_few = |entry: Entry| entry.total.saturating_sub(self.passed) < excess;
            let index = log.first_not(counting, too_few);
            if index < self.kept.end { log.entry(index).instant } else { self.last.instant }
        });
        freed.after(self.rule.window.span())
    }

    /// Returns the change that makes `last` the last entry.
    fn edit(&self) -> Edit<'log> {
        let last = self.last;
        let mut kept = self.kept.clone();
        let Some(log) = self.log else {
            return Edit { log: None, kept, last, slot: self.slot, rewrites: false };
        };
        if let Some(before) = kept.end.checked_sub(1)
            && before >= kept.start
        {
            let entry = log.entry(before);
            if entry.instant == last.instant && (entry.total != last.total || self.rewrites) {
                // At the same instant, the stored entry is overwritten with the new total.
                kept.end = before;
            }
        }
        if !last.fits(log.base) {
            // After years with the same base, or at an immense total, the log is rebuilt from the
            // entries that count.
            kept.start = self.dead.min(kept.end);
        }
        // The log keeps its stored rounding while a kept entry still counts, or if `last` takes
        // over a stored instant. Otherwise a rounded instant would look like a clock that stepped
        // back.
        let survivors = kept.start.max(self.dead) < kept.end;
        let taken_over = self.moved_to.is_none() && last.instant <= log.last().instant;
        let inherits = survivors || taken_over;
        let slot = if inherits { log.slot.max(self.slot) } else { self.slot };
        Edit { log: self.log, kept, last, slot, rewrites: self.rewrites }
    }
}

/// Returns true if rewriting the `stays` kept entries costs less than overwriting the `stale`
/// copies again.
///
/// Each call that reaches the copies sends them again. The bound is the square root of twice the
/// number of kept entries: a series of such calls then sends about as many bytes by overwriting as
/// by rewriting.
fn is_too_many(stale: usize, stays: usize) -> bool {
    stale > (2 * stays).isqrt() + 1
}
