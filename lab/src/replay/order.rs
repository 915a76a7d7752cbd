//! The order of calls in time.
//!
//! ```text
//! lines ──> Sorting by the time of the line ──> Spreading over the second ──> calls
//!                                                      │ if the line has its request's time
//!                                                      └──> Sorting by the beginning ──> calls
//! ```
//!
//! A log is nearly in order: requests of one second are logged as they end, and a long request is
//! logged long after it began. A number of calls is kept and sorted, and a call that is older than
//! all that were kept is late. A replay with too many late calls fails: its figures would be wrong.

use super::event::Event;
use std::collections::VecDeque;
use std::mem;

/// The calls that are kept to be sorted, whatever their times.
pub const KEPT_LEN: usize = 250_000;

/// The most calls that are kept, if they are needed for the window.
pub const KEPT_MAX: usize = 16_000_000;

/// The calls that are sorted at once before they join those that are kept.
const NEW_LEN: usize = 4_096;

/// The longest window of time in which lines are sorted, in microseconds: 366 days.
pub const WINDOW_MAX_US: u64 = 366 * 86_400 * SECOND_US;

const SECOND_US: u64 = 1_000_000;

/// Sorts calls that are out of order.
#[derive(Debug)]
pub struct Sorting {
    /// The calls of this time before the latest one are kept.
    window_us: u64,
    /// This number of calls is kept, also if they are older.
    kept_len: usize,
    kept_max: usize,
    new_len: usize,
    /// The calls that are kept, in the order of time.
    kept: VecDeque<Event>,
    /// The newest calls, as they came.
    new: Vec<Event>,
    /// The latest time so far.
    latest_us: u64,
    /// The time of the last call that was passed on.
    floor_us: u64,
    late: u64,
}

impl Sorting {
    /// Creates a sorting with a window of time.
    pub const fn new(window_us: u64) -> Self {
        Self::with_room(window_us, KEPT_LEN, KEPT_MAX, NEW_LEN)
    }

    const fn with_room(window_us: u64, kept_len: usize, kept_max: usize, new_len: usize) -> Self {
        Self {
            window_us,
            kept_len,
            kept_max,
            new_len,
            kept: VecDeque::new(),
            new: Vec::new(),
            latest_us: 0,
            floor_us: 0,
            late: 0,
        }
    }

    /// Returns the number of calls that were late.
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Makes the window at least this long from now on.
    pub fn widen(&mut self, window_us: u64) {
        self.window_us = self.window_us.max(window_us);
    }

    /// Adds a call, and passes calls that are now in order to `take`.
    pub fn push(&mut self, mut event: Event, take: &mut impl FnMut(Event)) {
        if event.at_us < self.floor_us {
            self.late += 1;
            event.at_us = self.floor_us;
        }
        self.latest_us = self.latest_us.max(event.at_us);
        self.new.push(event);
        if self.new.len() >= self.new_len {
            self.join();
            let before_us = self.latest_us.saturating_sub(self.window_us);
            while let Some(first) = self.kept.front()
                && self.kept.len() > self.kept_len
                && (first.at_us < before_us || self.kept.len() > self.kept_max)
            {
                self.floor_us = first.at_us;
                self.kept.pop_front().into_iter().for_each(&mut *take);
            }
        }
    }

    /// Passes the calls that are left to `take`.
    pub fn finish(&mut self, take: &mut impl FnMut(Event)) {
        self.join();
        self.kept.drain(..).for_each(take);
    }

    /// Sorts the new calls in among those that are kept. Calls of one time keep their order.
    fn join(&mut self) {
        self.new.sort_by_key(|event| event.at_us);
        let Some(first_us) = self.new.first().map(|event| event.at_us) else { return };
        let at = match self.kept.back() {
            Some(last) if last.at_us > first_us => {
                self.kept.partition_point(|event| event.at_us <= first_us)
            }
            _ => self.kept.len(),
        };
        let mut later = self.kept.split_off(at);
        for event in self.new.drain(..) {
            while later.front().is_some_and(|kept| kept.at_us <= event.at_us) {
                self.kept.extend(later.pop_front());
            }
            self.kept.push_back(event);
        }
        self.kept.append(&mut later);
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
        if self.kept.len() >= KEPT_LEN {
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
    window_us: u64,
    /// The longest time that a request took so far.
    longest_us: u64,
    by_line: Sorting,
    spreading: Option<Spreading>,
    /// Used if the lines have whole seconds and the time of their request.
    by_start: Option<Sorting>,
    spread: Vec<Event>,
}

impl Timeline {
    /// Creates a timeline.
    pub fn new(window_us: u64, spreads: bool, subtracts: bool) -> Self {
        Self {
            window_us,
            longest_us: 0,
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
        if event.request_us > self.longest_us {
            // A request is logged when it ends, so lines are out of order by its length.
            self.longest_us = event.request_us;
            let window_us = self.window_us.saturating_add(self.longest_us);
            self.by_line.widen(window_us);
            if let Some(by_start) = &mut self.by_start {
                by_start.widen(window_us);
            }
        }
        if self.spreading.is_none() || !event.whole_second {
            // An exact time needs no spreading, so the request's time is subtracted at once.
            subtract(&mut event);
        }
        let Self { by_line, spreading, by_start, spread, .. } = self;
        by_line.push(event, &mut |event| match spreading {
            Some(spreading) => spreading.push(event, &mut |event| spread.push(event)),
            None => spread.push(event),
        });
        pass_on(spread, by_start, take);
    }

    /// Passes the calls that are left to `take`.
    pub fn finish(&mut self, take: &mut impl FnMut(Event)) {
        let Self { by_line, spreading, by_start, spread, .. } = self;
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
    // The reader refuses a request that is longer than the time since 1970.
    event.at_us = event.at_us.saturating_sub(request_us);
}

#[cfg(test)]
mod tests;
