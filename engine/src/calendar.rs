//! Calendar periods: which day, week, month, quarter or year of a time zone holds an instant.
//!
//! A period begins at the first instant of a local day and ends where the next one begins. The
//! first instant of a day is the earliest one at which the local date is that day or a later one:
//! mostly midnight, but 01:00 where the clock skips the hour before it, and for a day that is
//! skipped as a whole the beginning of the next, so that such a period is empty. A day
//! has 23, 25, 23.5 or 24.5 hours when the clocks change.
//!
//! The period of an instant is the one that holds it. That is not always the one of its local date:
//! in St. John's, until 2011, clocks went back at 00:01 to 23:01 of a day that was over by then.
//!
//! Periods are numbered, and the first day of each is made from its number alone: the 31st of a
//! month is its last day where it has fewer, and that does not drift from month to month.
//!
//! Each thread remembers the last period of a few hundred calendars, in an array of fixed size: a
//! call within it looks nothing up.

pub mod zone;

use self::zone::Zone;
use crate::time::{Instant, Span};
use jiff::civil::Date;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};
use std::cell::Cell;
use std::ops::RangeInclusive;

/// How long a period is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A local day.
    Day,
    /// Seven of them.
    Week,
    /// A month.
    Month,
    /// Three months, from January, April, July and October on.
    Quarter,
    /// Twelve months.
    Year,
}

/// The periods of a calendar: a unit of a zone, and where it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calendar {
    unit: Unit,
    start: u8,
    zone: Zone,
}

/// One period: from an instant on, until before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarPeriod {
    /// Its first instant; the epoch when it began before.
    pub start: Instant,
    /// The first instant of the next one.
    pub end: Instant,
}

impl Unit {
    /// All of them, the shortest first.
    pub const ALL: [Self; 5] = [Self::Day, Self::Week, Self::Month, Self::Quarter, Self::Year];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Quarter => "quarter",
            Self::Year => "year",
        }
    }

    /// Where it may start, counted from 1, which is where it starts if nothing is said: a week on
    /// Monday to Sunday, a month on a day of it, a year in a month of it. A day and a quarter have
    /// no choice.
    pub const fn starts(self) -> RangeInclusive<u8> {
        1..=match self {
            Self::Day | Self::Quarter => 1,
            Self::Week => 7,
            Self::Month => 31,
            Self::Year => 12,
        }
    }

    /// How many months, or else how many days, from one period to the next.
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

/// A Thursday, from which days are counted.
const EPOCH: Date = Date::constant(1970, 1, 1);
/// From that day to the first Monday, in days.
const FIRST_MONDAY: i32 = 4;

/// No period ends later: the year 9000 is what `jiff` has room for, with some to spare.
const LAST: Instant = Instant::from_us(221_845_392_000_000_000);

impl Calendar {
    /// The periods of `unit` from `start` on, one of [`Unit::starts`], in `zone`; `None` when that
    /// does not start there.
    pub fn new(unit: Unit, start: u8, zone: Zone) -> Option<Self> {
        unit.starts().contains(&start).then_some(Self { unit, start, zone })
    }

    /// The period that holds `instant`.
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

    /// Which of `starts` it starts at, the unit and the zone.
    pub const fn parts(self) -> (Unit, u8, Zone) {
        (self.unit, self.start, self.zone)
    }

    /// A number of its own for each calendar, which is not 0.
    const fn number(self) -> u32 {
        (self.zone.number() as u32) << 16 | (self.unit as u32) << 8 | self.start as u32
    }

    /// Where its last period is remembered.
    const fn place(self) -> usize {
        (self.number().wrapping_mul(0x9e37_79b1) >> (u32::BITS - SEEN_BITS)) as usize
    }

    /// The period that holds `instant`, looked up in the calendar.
    #[cold]
    fn find(self, instant: Instant) -> CalendarPeriod {
        if instant >= LAST {
            return CalendarPeriod { start: LAST, end: Instant::from_us(u64::MAX) };
        }
        // There is no error up to there. If there were one, a single period would keep the limit.
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

    /// The number of the period that has `day` among its days.
    fn number_of(self, day: Date) -> i32 {
        match self.unit.step() {
            Step::Days(step) => (days_since_epoch(day) - self.offset()).div_euclid(step),
            Step::Months(step) => {
                let month = i32::from(day.year()) * 12 + i32::from(day.month()) - 1;
                // Before its start, a month is still the one before.
                let begun = i32::from(day.day() >= self.first_of_month(day));
                (month - 1 + begun - self.offset()).div_euclid(step)
            }
        }
    }

    /// The first instant of the period of this number.
    fn first_instant(self, clock: &TimeZone, number: i32) -> Result<Timestamp, jiff::Error> {
        first_instant(clock, self.first_day(number)?)
    }

    /// The first day of the period of this number.
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

    /// On which day of the month of `day` a period starts.
    fn first_of_month(self, day: Date) -> i8 {
        match self.unit {
            Unit::Month => day.days_in_month().min(self.start.cast_signed()),
            _ => 1,
        }
    }

    /// How far from the epoch, or the year 0, the period of number 0 starts, in days or months.
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
    /// Whether `instant` is in it.
    #[inline]
    pub fn holds(&self, instant: Instant) -> bool {
        self.start <= instant && instant < self.end
    }

    /// How long it is.
    pub const fn span(&self) -> Span {
        self.end.since(self.start)
    }
}

/// The earliest instant at which the local date is `day` or a later one.
fn first_instant(clock: &TimeZone, day: Date) -> Result<Timestamp, jiff::Error> {
    let midnight = clock.to_ambiguous_timestamp(day.at(0, 0, 0, 0));
    let AmbiguousOffset::Gap { before, .. } = midnight.offset() else {
        // Of two midnights the first.
        return midnight.earlier();
    };
    // Skipped: the day begins where the clock is set forward, which is no later than where midnight
    // would have been.
    let unskipped = before.to_timestamp(day.at(0, 0, 0, 0))?;
    let forward = clock.preceding(unskipped.checked_add(SignedDuration::from_nanos(1))?).next();
    Ok(forward.map_or(unskipped, |transition| transition.timestamp()))
}

fn days_since_epoch(day: Date) -> i32 {
    i32::try_from(day.duration_since(EPOCH).as_hours() / 24).unwrap_or(i32::MAX)
}

/// The epoch, when it is before.
fn from_timestamp(timestamp: Timestamp) -> Instant {
    Instant::from_us(u64::try_from(timestamp.as_microsecond()).unwrap_or(0))
}

const SEEN_BITS: u32 = 10;

/// The number of a calendar and the last of its periods that was asked for.
type Seen = Cell<(u32, CalendarPeriod)>;

/// What is remembered before anything is: a period that holds no instant.
const UNSEEN: (u32, CalendarPeriod) =
    (0, CalendarPeriod { start: Instant::from_us(0), end: Instant::from_us(0) });

thread_local! {
    /// Where two calendars share a place, the one that was asked for last has it. Nothing in it has
    /// to be dropped, so it lasts as long as its thread.
    static LAST_SEEN: [Seen; 1 << SEEN_BITS] = const {
        [const { Cell::new(UNSEEN) }; 1 << SEEN_BITS]
    };
}

#[cfg(test)]
mod tests;
