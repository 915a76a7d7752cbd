//! Sliding log: remember every call, so that no window of any position holds more than the limit.
//!
//! The state is a list of entries, each an instant and the running total up to it:
//!
//! ```text
//!  base  slot │ 0  2 │ 3  5 │ 3.5  6 │ ...     entry: us since base, total so far
//!             └ dead ┘└──── live ────┘         an event at t counts until t + window
//! ```
//!
//! Totals make the cost used in a window the difference of two entries, found by binary search in
//! place. Calls of one microsecond share an entry, and instants never decrease. Dead entries are
//! dropped when they are half as many as the live ones, so that a call adds an amortised constant.
//!
//! With a limit above the number of slots, instants are rounded up to `window / slots`: never
//! more entries than slots (and one), never more than the limit in any window, and a unit is held
//! at most one slot longer than exact.
//!
//! A charge takes what is not there, so a limit does not bound how many entries charges leave. One
//! that finds as many entries as slots is rounded in the same way, whatever the limit: at most
//! twice as many live entries as slots, and one. The slot is stored with it, or a shorter rule
//! would take the rounded instant for a clock that stepped back.
//!
//! A refund gives back the newest entries. No command truncates a string, so it overwrites them
//! with the entry that is now the last one: equal entries count as one. The next call that takes
//! something overwrites these repetitions, so that a log never grows while it ends in one. If there
//! are too many of them, the call rewrites the log without them.
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

/// The rule: never more than `limit` units in any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// Units per window.
    pub limit: Limit,
    /// Length of the window.
    pub window: Period,
    /// Above which limit, and how finely, instants are rounded.
    pub slots: Slots,
}

/// A log that is not empty, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log<'a> {
    /// What instants are counted from: that of the first entry.
    pub base: Instant,
    /// The coarsest rounding among the entries; 1 us when all are exact.
    pub slot: Span,
    /// The entries, oldest first.
    pub entries: &'a [RawEntry],
}

/// A log to keep: some entries of the one that was read, and one at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// The log that was read, if there was one.
    pub log: Option<Log<'a>>,
    /// Which of its entries stay. From 0 on, the change is a patch at the end.
    pub kept: Range<usize>,
    /// The entry after them, with its total in the terms of the log that was read.
    pub last: Entry,
    /// The coarsest rounding from now on.
    pub slot: Span,
    /// Whether the log is to be written anew, even if nothing but its end changes.
    pub rewrites: bool,
}

impl<'a> Log<'a> {
    /// The entry at `index`, which is in range.
    pub fn entry(&self, index: usize) -> Entry {
        let none = Entry { instant: self.base, total: 0 };
        self.entries.get(index).map_or(none, |raw| Entry::unpack(raw, self.base))
    }

    /// The last entry: the newest instant and the total of all.
    pub fn last(&self) -> Entry {
        self.entry(self.entries.len().saturating_sub(1))
    }

    /// The total of the entries before `index`.
    pub fn total_before(&self, index: usize) -> u64 {
        index.checked_sub(1).map_or(0, |before| self.entry(before).total)
    }

    /// The index of the first entry in `range` for which `before` no longer holds.
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
    /// How many entries at the end of the stored bytes become the last one, when only those
    /// change; 0 is one more entry. `None` where the log is to be written anew.
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

/// What the log says at one instant.
struct View<'a, 'log> {
    rule: &'a SlidingLog,
    now: Instant,
    /// How finely a change rounds; set where there is one.
    slot: Span,
    log: Option<Log<'log>>,
    /// How many entries no longer count.
    dead: usize,
    /// Their total.
    passed: u64,
    /// What counts.
    used: u64,
    /// The entries that a change would keep.
    kept: Range<usize>,
    /// The entry that it would put after them.
    last: Entry,
    /// Set when the clock stepped back: all entries after the kept ones happened at this instant.
    moved_to: Option<Instant>,
    /// Whether a change writes the log anew, even if nothing but its end changes.
    rewrites: bool,
}

impl<'log> Limiter<'log> for SlidingLog {
    type State = Log<'log>;
    type NewState = Edit<'log>;

    /// Entries ahead of `now` count in full. Further ahead than the window, and than any rounding,
    /// they are moved to `now`.
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
            return View {
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
        // Where entries were moved they are many, or it does not matter.
        let rewrites = moved_to.is_some();
        let log = stored;
        View { rule: self, now, slot, log, dead, passed, used, kept, last, moved_to, rewrites }
    }
}

impl<'log> Standing for View<'_, 'log> {
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

    /// Rounds up to the slot if there are as many entries as slots, whatever the limit.
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
        // The first entry that reaches what is left is the last one now. Those of them that say
        // more than that are gone.
        let counting = self.dead..self.kept.end;
        let last = log.first_not(counting, |entry| entry.total < self.last.total);
        if last < self.kept.end {
            self.last.instant = log.entry(last).instant;
            let tells = |entry: Entry| entry.total <= self.last.total;
            self.kept.end = log.first_not(last..self.kept.end, tells);
            // Unless it is where the entries ahead were moved to, it is none of them.
            self.moved_to = self.moved_to.filter(|moved_to| *moved_to == self.last.instant);
        }
        if self.last.total < log.entry(0).total {
            // Nothing before it stays; also of a forged log, whose totals may fall.
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
        if self.used == 0 { Span::ZERO } else { self.lapses_at().since(self.now) }
    }

    #[inline(always)]
    fn next(self, _decision: &Decision) -> Next<Edit<'log>> {
        Next::drifting(self.lapses_at(), self.rule.window.span(), self.edit())
    }
}

impl SlidingLog {
    /// The numbers that are stored in front of the entries.
    pub const HEADER: [Field; 2] =
        [Field::instant("base_us"), Field::new("slot_us", 1, Period::MAX.as_us())];

    /// The log in figures, for people: its entries may be many.
    pub fn shown(log: &Log<'_>) -> Vec<(&'static str, u64)> {
        let newest = log.last();
        vec![
            ("entries", log.entries.len() as u64),
            ("used", newest.total),
            ("oldest_us", log.base.as_us()),
            ("newest_us", newest.instant.as_us()),
            ("slot_us", log.slot.as_us()),
        ]
    }

    /// The width that instants are rounded up to; 1 us, which is none, for up to `slots` units.
    fn slot(&self) -> Span {
        if self.limit.units() <= self.slots.count() { Span::from_us(1) } else { self.grid() }
    }

    /// The width of a slot.
    fn grid(&self) -> Span {
        Span::from_us(self.window.as_us().div_ceil(self.slots.count()))
    }
}

impl<'log> View<'_, 'log> {
    /// Takes the entries that only repeat the last one out of those that a change keeps.
    #[cold]
    fn overwrite_stale(&mut self, log: &Log<'_>) {
        // Where entries were moved, the log is rewritten without repetitions anyway.
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

    /// Returns how many entries at the end only repeat the last one, as refunds leave them.
    fn stale(&self, log: &Log<'_>) -> usize {
        let newest = log.last().total;
        let count = log.entries.len();
        count - 1 - log.first_not(self.dead..count - 1, |entry| entry.total < newest)
    }

    /// Returns true if a refund rewrites the log rather than overwrite the entries that are gone:
    /// such an entry has been sent once and may be sent once more.
    #[cold]
    fn is_worth_rewriting(&self, log: &Log<'_>, stale: usize) -> bool {
        let stays = self.kept.end.saturating_sub(self.dead);
        let gone = log.entries.len() - self.kept.end;
        // At most one entry a unit and one a slot. Charges may leave as many exact ones as well.
        let slots = self.rule.slots.count();
        let is_rounded = self.rule.slot() > Span::from_us(1);
        let counting_max = self.used.min(if is_rounded { slots + 1 } else { 2 * slots + 1 });
        let has_waste = log.entries.len() as u64 > (counting_max + 1) * 3 / 2 + 1;
        has_waste || gone > stays + 1 || is_too_many(stale, stays)
    }

    /// When the last entry no longer counts.
    fn lapses_at(&self) -> Instant {
        self.last.instant.after(self.rule.window.span())
    }

    /// When so many of the entries that count no longer do that `excess` units are free.
    fn freed_at(&self, excess: u64) -> Instant {
        let freed = self.log.map_or(self.last.instant, |log| {
            let counting = self.dead..self.kept.end;
            let too_few = |entry: Entry| entry.total.saturating_sub(self.passed) < excess;
            let index = log.first_not(counting, too_few);
            if index < self.kept.end { log.entry(index).instant } else { self.last.instant }
        });
        freed.after(self.rule.window.span())
    }

    /// The change that makes `last` the last entry.
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
                // The same instant: that entry is written again, with the new total.
                kept.end = before;
            }
        }
        if !last.fits(log.base) {
            // Years of one base, or an immense total: count anew from what still matters.
            kept.start = self.dead.min(kept.end);
        }
        // What still counts keeps its rounding, also the instant that `last` takes over: forgotten,
        // it would look like a clock that stepped back.
        let survivors = kept.start.max(self.dead) < kept.end;
        let taken_over = self.moved_to.is_none() && last.instant <= log.last().instant;
        let inherits = survivors || taken_over;
        let slot = if inherits { log.slot.max(self.slot) } else { self.slot };
        Edit { log: self.log, kept, last, slot, rewrites: self.rewrites }
    }
}

/// Returns true if rewriting the entries that stay costs less than overwriting the stale again.
///
/// Each call that reaches stale entries sends them again. With the root of twice the entries that
/// stay as the bound, a row of such calls sends as much by the one as by the other.
fn is_too_many(stale: usize, stays: usize) -> bool {
    stale > (2 * stays).isqrt() + 1
}
