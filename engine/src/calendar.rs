//! Calendar periods: the day, week, month, quarter or year, in a time zone, that holds an instant.
//!
//! A period begins at the first instant of its first local day and ends where the next period
//! begins. The first instant of a day is the earliest one at which the local date is that day or a
//! later one: usually midnight, or 01:00 if the clock skips the hour between. A day that is skipped
//! as a whole begins together with the day after it, so its period is empty. When the clocks
//! change, a day has 23, 25, 23.5 or 24.5 hours.
//!
//! The period of an instant is the one whose start and end enclose it. That is not always the
//! period of its local date: in St. John's, until 2011, clocks went back from 00:01 to 23:01 of a
//! day that had already ended.
//!
//! Periods are numbered, and the first day of each is computed from its number alone, so starts do
//! not drift from month to month. Day 31 means the last day of a shorter month.
//!
//! Each thread remembers the last period of up to 1,024 calendars in an array of 24 kB. A call
//! within a remembered period needs no search. Two calendars may share a place in the array; it
//! holds the period that was found last.

pub mod zone;

use self::zone::Zone;
use crate::time::{Instant, Span};
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use std::cell::Cell;
use std::ops::RangeInclusive;

/// The length of a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A local day.
    Day,
    /// Seven days.
    Week,
    /// A month.
    Month,
    /// Three months, from January, April, July or October on.
    Quarter,
    /// Twelve months.
    Year,
}

/// The periods of a calendar: their unit, their start and their zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: Unit,
    start: u8,
    zone: Zone,
}

/// One period, from `start` up to but not including `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarPeriod {
    /// The first instant; the epoch if the period began before the epoch.
    pub start: Instant,
    /// The first instant of the next period.
    pub end: Instant,
}

impl Unit {
    /// All units, the shortest first.
    pub const ALL: [Self; 5] = [Self::Day, Self::Week, Self::Month, Self::Quarter, Self::Year];

    /// Returns the name, as the grammar reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    /// Returns the valid starts, counted from 1. The default is 1. A week starts on Monday to
    /// Sunday, a month on one of its days, a year in one of its months. A day and a quarter have
    /// only one start.
    pub const fn starts(self) -> RangeInclusive<u8> {
        1..=match self {
            Self::Day | Self::Quarter => 1,
            Self::Week => 7,
            Self::Month => 31,
            Self::Year => 12,
        }
    }

    /// Returns the number of months, or of days, from one period to the next.
    const fn step(self) -> Step {
        match self {
            Self::Day => Step::Days(1),
            Self::Week => Step::Days(7),
            Self::Month => Step::Months(1),
            Self::Quarter => Step::Months(3),
            Self::Year => Step::Months(12),
        }
    }
}

enum Step {
    Days(i32),
    Months(i32),
}

/// The Unix epoch, a Thursday. Days are counted from it.
const EPOCH: Date = Date::constant(1970, 1, 1);
/// The number of days from the epoch to the first Monday.
const FIRST_MONDAY: i32 = 4;

/// The start of the last period, which has no end: the beginning of the year 9000. `jiff` can
/// represent later instants too.
const LAST: Instant = Instant::from_us(221_845_392_000_000_000);

impl Calendar {
    /// Makes the calendar of `unit` in `zone` with the start `start`; `None` if `start` is not one
    /// of [`Unit::starts`].
    pub fn new(unit: Unit, start: u8, zone: Zone) -> Option<Self> {
        unit.starts().contains(&start).then_some(Self { unit, start, zone })
    }

    /// Returns the period that holds `instant`.
    #[inline]
    pub fn period_at(self, instant: Instant) -> CalendarPeriod {
        LAST_SEEN.with(|places| {
            let Some(last_seen) = places.get(self.place()) else { return self.find(instant) };
            let (calendar, mut period) = last_seen.get();
            if calendar != self.number() || !period.holds(instant) {
                period = self.find(instant);
                last_seen.set((self.number(), period));
            }
            period
        })
    }

    /// Returns the unit, the start and the zone.
    pub const fn parts(self) -> (Unit, u8, Zone) {
        (self.unit, self.start, self.zone)
    }

    /// Returns the number of the calendar: unique, and never 0.
    const fn number(self) -> u32 {
        (self.zone.number() as u32) << 16 | (self.unit as u32) << 8 | self.start as u32
    }

    /// Returns the place of the calendar in `LAST_SEEN`.
    const fn place(self) -> usize {
        (self.number().wrapping_mul(0x9e37_79b1) >> (u32::BITS - SEEN_BITS)) as usize
    }

    /// Searches the calendar for the period that holds `instant`.
    #[cold]
    fn find(self, instant: Instant) -> CalendarPeriod {
        if instant >= LAST {
            return CalendarPeriod { start: LAST, end: Instant::from_us(u64::MAX) };
        }
        // No error occurs before `LAST`. If one did, the limit would apply to one endless period.
        self.search(instant).unwrap_or(CalendarPeriod { start: Instant::from_us(0), end: LAST })
    }

    fn search(self, instant: Instant) -> Result<CalendarPeriod, jiff::Error> {
        let clock = self.zone.clock();
        let at = Timestamp::from_microsecond(i64::try_from(instant.as_us()).unwrap_or(i64::MAX))?;
        let mut number = self.number_of(clock.to_datetime(at).date());
        let mut start = self.first_instant(clock, number)?;
        while at < start {
            number -= 1;
            start = self.first_instant(clock, number)?;
        }
        loop {
            let end = self.first_instant(clock, number + 1)?;
            if at < end {
                let (start, end) = (from_timestamp(start), from_timestamp(end).min(LAST));
                return Ok(CalendarPeriod { start, end });
            }
            (number, start) = (number + 1, end);
        }
    }

    /// Returns the number of the period that includes `day`.
    fn number_of(self, day: Date) -> i32 {
        match self.unit.step() {
            Step::Days(step) => (days_since_epoch(day) - self.offset()).div_euclid(step),
            Step::Months(step) => {
                let month = i32::from(day.year()) * 12 + i32::from(day.month()) - 1;
                // A day before the period's start in its month belongs to the previous month's
                // period.
                let begun = i32::from(day.day() >= self.first_of_month(day));
                (month - 1 + begun - self.offset()).div_euclid(step)
            }
        }
    }

    /// Returns the first instant of the period with this number.
    fn first_instant(self, clock: &TimeZone, number: i32) -> Result<Timestamp, jiff::Error> {
        first_instant(clock, self.first_day(number)?)
    }

    /// Returns the first day of the period with this number.
    fn first_day(self, number: i32) -> Result<Date, jiff::Error> {
        match self.unit.step() {
            Step::Days(step) => {
                let days = i64::from(number) * i64::from(step) + i64::from(self.offset());
                EPOCH.checked_add(SignedDuration::from_hours(days * 24))
            }
            Step::Months(step) => {
                let month = number * step + self.offset();
                let year = i16::try_from(month.div_euclid(12)).unwrap_or(i16::MAX);
                let month = i8::try_from(month.rem_euclid(12) + 1).unwrap_or(i8::MAX);
                let first = Date::new(year, month, 1)?;
                Date::new(year, month, self.first_of_month(first))
            }
        }
    }

    /// Returns the day on which a period starts in the month of `day`.
    fn first_of_month(self, day: Date) -> i8 {
        match self.unit {
            Unit::Month => day.days_in_month().min(self.start.cast_signed()),
            _ => 1,
        }
    }

    /// Returns the start of period 0, in days from the epoch, or in months from the year 0.
    fn offset(self) -> i32 {
        let later = i32::from(self.start) - 1;
        match self.unit {
            Unit::Day | Unit::Month | Unit::Quarter => 0,
            Unit::Week => FIRST_MONDAY + later,
            Unit::Year => later,
        }
    }
}

impl CalendarPeriod {
    /// Returns true if `instant` is in the period.
    #[inline]
    pub fn holds(&self, instant: Instant) -> bool {
        self.start <= instant && instant < self.end
    }

    /// Returns the length of the period.
    pub const fn span(&self) -> Span {
        self.end.since(self.start)
    }
}

/// Returns the earliest instant at which the local date is `day` or a later one.
fn first_instant(clock: &TimeZone, day: Date) -> Result<Timestamp, jiff::Error> {
    let midnight = clock.to_ambiguous_timestamp(day.at(0, 0, 0, 0));
    let AmbiguousOffset::Gap { before, .. } = midnight.offset() else {
        // Midnight comes once or twice: returns the first.
        return midnight.earlier();
    };
    // The clock skips midnight: the day begins at the instant at which the clock is set forward.
    let unskipped = before.to_timestamp(day.at(0, 0, 0, 0))?;
    let forward = clock.preceding(unskipped.checked_add(SignedDuration::from_nanos(1))?).next();
    Ok(forward.map_or(unskipped, |transition| transition.timestamp()))
}

fn days_since_epoch(day: Date) -> i32 {
    i32::try_from(day.duration_since(EPOCH).as_hours() / 24).unwrap_or(i32::MAX)
}

/// Converts a timestamp; one before the epoch becomes the epoch.
fn from_timestamp(timestamp: Timestamp) -> Instant {
    Instant::from_us(u64::try_from(timestamp.as_microsecond()).unwrap_or(0))
}

const SEEN_BITS: u32 = 10;

/// The number of a calendar, and the period found last for it.
type Seen = Cell<(u32, CalendarPeriod)>;

/// The initial value: a period that holds no instant.
const UNSEEN: (u32, CalendarPeriod) =
    (0, CalendarPeriod { start: Instant::from_us(0), end: Instant::from_us(0) });

thread_local! {
    /// The periods found last by this thread. If two calendars share a place, it holds the period
    /// of the calendar used last. The array needs no destructor, so it lasts as long as the thread.
    static LAST_SEEN: [Seen; 1 << SEEN_BITS] = const {
        [const { Cell::new(UNSEEN) }; 1 << SEEN_BITS]
    };
}

#[cfg(test)]
mod tests;
