//! The order of calls in time.
//!
//! ```text
//! lines ──> Sorting by the time in the line ──> Spreading over the second ──> calls
//!                                                      │ if the line has its request's time
//!                                                      └──> Sorting by the beginning ──> calls
//! ```
//!
//! A log is nearly in order: requests of one second are logged as they end. So a window of lines is
//! kept and sorted, and a line that is older than the window is late: it counts as now.

use super::event::Event;
use std::mem;

/// The most calls that are kept to be sorted, or to be spread over one second.
pub const KEPT_MAX: usize = 500_000;

/// The longest window of time in which lines are sorted, in microseconds.
pub const WINDOW_MAX_US: u64 = 3_600_000_000;

const SECOND_US: u64 = 1_000_000;

/// Sorts calls that are out of order by at most a window of time.
#[derive(Debug)]
pub struct Sorting {
    window_us: u64,
    kept_max: usize,
    kept: Vec<Event>,
    /// The latest time so far.
    latest_us: u64,
    /// No call before this time can be put in order any more.
    floor_us: u64,
    /// The latest time at which the calls were sorted.
    sorted_at_us: u64,
    late: u64,
}

impl Sorting {
    /// Makes a sorting with a window of time.
    pub const fn new(window_us: u64) -> Self {
        Self {
            window_us,
            kept_max: KEPT_MAX,
            kept: Vec::new(),
            latest_us: 0,
            floor_us: 0,
            sorted_at_us: 0,
            late: 0,
        }
    }

    /// Returns the number of calls that were late.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Adds a call, and passes calls that are now in order to `take`.
    pub fn push(&mut self, mut event: Event, take: &mut impl FnMut(Event)) {
        if event.at_us < self.latest_us.saturating_sub(self.window_us).max(self.floor_us) {
            self.late += 1;
            event.at_us = self.latest_us;
        }
        self.latest_us = self.latest_us.max(event.at_us);
        if self.kept.is_empty() {
            self.sorted_at_us = self.latest_us;
        }
        self.kept.push(event);
        // Sorting at twice the window moves each call at most a few times.
        let is_due = self.latest_us - self.sorted_at_us > self.window_us.saturating_mul(2);
        if is_due || self.kept.len() >= self.kept_max {
            self.release(take);
        }
    }

    /// Passes the calls that are left to `take`.
    pub fn finish(&mut self, take: &mut impl FnMut(Event)) {
        self.kept.sort_by_key(|event| event.at_us);
        self.kept.drain(..).for_each(take);
    }

    /// Passes the calls before the window, or the older half if there are too many.
    fn release(&mut self, take: &mut impl FnMut(Event)) {
        self.kept.sort_by_key(|event| event.at_us);
        let before_us = self.latest_us.saturating_sub(self.window_us);
        let mut len = self.kept.partition_point(|event| event.at_us < before_us);
        if self.kept.len() - len > self.kept_max / 2 {
            len = self.kept.len() - self.kept_max / 2;
        }
        if let Some(last) = len.checked_sub(1).and_then(|last| self.kept.get(last)) {
            self.floor_us = last.at_us;
        }
        self.kept.drain(..len).for_each(take);
        self.sorted_at_us = self.latest_us;
    }
}

/// Spreads the calls of one second evenly over it, if their lines give only the second.
#[derive(Debug, Default)]
pub struct Spreading {
    second: u64,
    kept: Vec<Event>,
    /// Whether some calls of this second have passed already, because there were too many.
    overflowed: bool,
}

impl Spreading {
    /// Adds a call, which is not before the last one, and passes the calls of a second that ended
    /// to `take`.
    pub fn push(&mut self, mut event: Event, take: &mut impl FnMut(Event)) {
        let second = event.at_us / SECOND_US;
        if second != self.second {
            self.finish(take);
            (self.second, self.overflowed) = (second, false);
        }
        if self.overflowed {
            event.at_us = last_us(second);
            return take(event);
        }
        self.kept.push(event);
        if self.kept.len() >= KEPT_MAX {
            self.finish(take);
            self.overflowed = true;
        }
    }

    /// Passes the calls of the last second to `take`.
    pub fn finish(&mut self, take: &mut impl FnMut(Event)) {
        let count = self.kept.iter().filter(|event| event.whole_second).count() as u64;
        let start_us = self.second * SECOND_US;
        let whole = self.kept.iter_mut().filter(|event| event.whole_second);
        for (at, event) in (0..count).zip(whole) {
            event.at_us = start_us + at * SECOND_US / count;
        }
        if count < self.kept.len() as u64 {
            self.kept.sort_by_key(|event| event.at_us);
        }
        self.kept.drain(..).for_each(take);
    }
}

/// Returns the last microsecond of a second.
const fn last_us(second: u64) -> u64 {
    second * SECOND_US + SECOND_US - 1
}

/// All of it: from the lines as they are read to calls in the order of time.
#[derive(Debug)]
pub struct Timeline {
    by_line: Sorting,
    spreading: Option<Spreading>,
    /// Used if the lines have whole seconds and the time of their request.
    by_start: Option<Sorting>,
    spread: Vec<Event>,
}

impl Timeline {
    /// Makes a timeline.
    pub fn new(window_us: u64, spreads: bool, subtracts: bool) -> Self {
        Self {
            by_line: Sorting::new(window_us),
            spreading: spreads.then(Spreading::default),
            by_start: subtracts.then(|| Sorting::new(window_us)),
            spread: Vec::new(),
        }
    }

    /// Returns the number of lines that were late.
    pub fn late(&self) -> u64 {
        self.by_line.late() + self.by_start.as_ref().map_or(0, Sorting::late)
    }

    /// Adds the call of the next line, and passes calls that are now in order to `take`.
    pub fn push(&mut self, mut event: Event, take: &mut impl FnMut(Event)) {
        if self.spreading.is_none() || !event.whole_second {
            // An exact time needs no spreading, so the request's time is subtracted at once.
            subtract(&mut event);
        }
        let Self { by_line, spreading, by_start, spread } = self;
        by_line.push(event, &mut |event| match spreading {
            Some(spreading) => spreading.push(event, &mut |event| spread.push(event)),
            None => spread.push(event),
        });
        pass_on(spread, by_start, take);
    }

    /// Passes the calls that are left to `take`.
    pub fn finish(&mut self, take: &mut impl FnMut(Event)) {
        let Self { by_line, spreading, by_start, spread } = self;
        by_line.finish(&mut |event| match spreading {
            Some(spreading) => spreading.push(event, &mut |event| spread.push(event)),
            None => spread.push(event),
        });
        if let Some(spreading) = spreading {
            spreading.finish(&mut |event| spread.push(event));
        }
        pass_on(spread, by_start, take);
        if let Some(sorting) = by_start {
            sorting.finish(take);
        }
    }
}

fn pass_on(spread: &mut Vec<Event>, by_start: &mut Option<Sorting>, take: &mut impl FnMut(Event)) {
    for mut event in spread.drain(..) {
        match by_start {
            None => take(event),
            Some(sorting) => {
                subtract(&mut event);
                sorting.push(event, take);
            }
        }
    }
}

/// Moves a call to the beginning of its request.
fn subtract(event: &mut Event) {
    let request_us = mem::take(&mut event.request_us);
    event.at_us = event.at_us.saturating_sub(request_us.into());
}

#[cfg(test)]
mod tests;
