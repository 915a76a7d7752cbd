//! The calendar, compared with a table that another implementation made from the same database.

use crate::calendar::zone::DATABASE_VERSION;
use crate::calendar::*;
use proptest::prelude::*;

/// Written by `scripts/boundaries.py`, which explains the format.
const BOUNDARIES: &str = include_str!("../../testdata/boundaries.txt");

const SECOND_US: u64 = 1_000_000;
const HOUR: i64 = 3_600;

fn zone(name: &str) -> Zone {
    Zone::named(name.as_bytes()).expect(name)
}

fn calendar(unit: Unit, start: u8, name: &str) -> Calendar {
    Calendar::new(unit, start, zone(name)).expect("a start of the unit")
}

/// Returns the instant `second` seconds after the epoch; the epoch if `second` is negative.
fn seconds(second: i64) -> Instant {
    Instant::from_us(u64::try_from(second).unwrap_or(0) * SECOND_US)
}

/// Parses an instant in the format of RFC 3339, without the final `Z`.
fn utc(text: &str) -> Instant {
    seconds(format!("{text}Z").parse::<Timestamp>().expect(text).as_second())
}

/// Parses a calendar: the first letter of its unit, and its start, such as `m31`.
fn calendar_named(unit: &str, name: &str) -> Calendar {
    let (unit, start) = unit.split_at(1);
    let unit = *Unit::ALL.iter().find(|known| known.name().starts_with(unit)).expect("a unit");
    let start = if start.is_empty() { 1 } else { start.parse().expect("a start") };
    calendar(unit, start, name)
}

/// Parses a line of the table: a calendar, and the start and end of its period.
fn boundaries(name: &str, line: &str) -> (Calendar, i64, i64) {
    let mut words = line.split(' ');
    let unit = words.next().expect("a unit");
    let mut number = || words.next().expect("a number").parse::<i64>().expect("a number");
    let (began, length) = (number(), number());
    (calendar_named(unit, name), began, began + length)
}

#[test]
fn every_period_of_the_table_begins_and_ends_as_in_python() {
    let (mut name, mut zones, mut periods, mut short) = ("", 0, 0, 0);
    for line in BOUNDARIES.lines().skip(1) {
        if !line.contains(' ') {
            (name, zones) = (line, zones + 1);
            continue;
        }
        let (calendar, began, ends) = boundaries(name, line);
        let expected = CalendarPeriod { start: seconds(began), end: seconds(ends) };
        let last = seconds(ends).before(Span::from_us(1)).expect("after the epoch");
        // If the clock goes back over midnight, the local date is that of the day before again, for
        // up to an hour after the period began.
        let early = [0, 59, 60, HOUR / 2, HOUR - 1, HOUR].map(|after| seconds(began + after));
        let middle = seconds(i64::midpoint(began, ends));
        for instant in early.into_iter().chain([middle, last]) {
            // A day that is almost entirely skipped ends within an hour.
            if instant < expected.end {
                assert_eq!(calendar.period_at(instant), expected, "{name} {line} at {instant:?}");
            }
        }
        assert_eq!(calendar.period_at(expected.end).start, expected.end, "{name} {line}");
        periods += 1;
        short += usize::from(ends - began < 23 * HOUR);
    }
    assert_eq!(zones, Zone::all().count(), "the table has all zones");
    assert!(periods > 9_000, "{periods} periods");
    assert!(short > 0, "days that are cut short");
}

#[test]
fn table_matches_the_built_in_time_zone_release() {
    let (first, _) = BOUNDARIES.split_once('\n').expect("lines");
    let release = first.split(' ').find_map(|word| word.strip_suffix(',')).expect("a release");
    assert_eq!(release, DATABASE_VERSION, "scripts/boundaries.py says how to generate it");
}

/// A calendar as in the table, an instant, and the start and end of the period that holds the
/// instant, all in UTC.
type Row = (&'static str, &'static str, &'static str, &'static str);

#[test]
fn days_with_clock_changes_have_their_real_length() {
    let rows: [Row; 19] = [
        // The worked example: a day of 23 hours, and in autumn one of 25.
        ("d Europe/Berlin", "2026-03-28T23:30", "2026-03-28T23:00", "2026-03-29T22:00"),
        ("d Europe/Berlin", "2026-10-25T12:00", "2026-10-24T22:00", "2026-10-25T23:00"),
        // Half an hour forward and back.
        ("d Australia/Lord_Howe", "2026-10-04T00:00", "2026-10-03T13:30", "2026-10-04T13:00"),
        ("d Australia/Lord_Howe", "2026-04-05T00:00", "2026-04-04T13:00", "2026-04-05T13:30"),
        // Days that begin at 01:00.
        ("d America/Santiago", "2026-09-06T12:00", "2026-09-06T04:00", "2026-09-07T03:00"),
        ("d Africa/Cairo", "2026-04-24T12:00", "2026-04-23T22:00", "2026-04-24T21:00"),
        ("d America/Havana", "2026-03-08T12:00", "2026-03-08T05:00", "2026-03-09T04:00"),
        // The hour after midnight comes twice: the day begins with the first of the two.
        ("d America/Havana", "2026-11-01T05:30", "2026-11-01T04:00", "2026-11-02T05:00"),
        // The hour before midnight comes twice.
        ("d America/Santiago", "2026-04-05T03:30", "2026-04-04T03:00", "2026-04-05T04:00"),
        // The 30th of December 2011 was skipped: a month that starts on the 30th starts on the
        // 31st.
        ("d Pacific/Apia", "2011-12-30T09:59", "2011-12-29T10:00", "2011-12-30T10:00"),
        ("d Pacific/Apia", "2011-12-30T10:00", "2011-12-30T10:00", "2011-12-31T10:00"),
        ("m30 Pacific/Apia", "2011-12-31T00:00", "2011-12-30T10:00", "2012-01-29T10:00"),
        // From 00:01, the clock goes back to 23:01 of the day before: the new day continues.
        ("d America/St_Johns", "2010-11-07T03:00", "2010-11-07T02:30", "2010-11-08T03:30"),
        // At 23:30 the clock went to midnight: a day of 23.5 hours.
        ("d Asia/Pyongyang", "2018-05-04T14:59", "2018-05-03T15:30", "2018-05-04T15:00"),
        // 44.5 minutes behind UTC.
        ("d Africa/Monrovia", "1970-01-02T00:44:30", "1970-01-02T00:44:30", "1970-01-03T00:44:30"),
        // A period that began before the epoch gets the epoch as its start.
        ("y7 Asia/Kathmandu", "1970-01-01T00:00", "1970-01-01T00:00", "1970-06-30T18:30"),
        // The first of April on an island that is 14 hours ahead of UTC.
        ("q Pacific/Kiritimati", "2027-03-31T09:59", "2026-12-31T10:00", "2027-03-31T10:00"),
        ("w7 America/New_York", "2026-03-08T12:00", "2026-03-08T05:00", "2026-03-15T04:00"),
        ("y4 Asia/Tokyo", "2027-03-31T14:59", "2026-03-31T15:00", "2027-03-31T15:00"),
    ];
    for row @ (kind, at, began, ends) in rows {
        let (unit, name) = kind.split_once(' ').expect("a unit and a zone");
        let expected = CalendarPeriod { start: utc(began), end: utc(ends) };
        assert_eq!(calendar_named(unit, name).period_at(utc(at)), expected, "{row:?}");
    }
}

#[test]
fn month_that_starts_on_day_31_starts_on_the_last_day_of_each_month_without_drift() {
    let billing = calendar(Unit::Month, 31, "UTC");
    let mut at = utc("2028-01-31T00:00");
    let days = [
        "01-31", "02-29", "03-31", "04-30", "05-31", "06-30", "07-31", "08-31", "09-30", "10-31",
        "11-30", "12-31", "01-31", "02-28", "03-31",
    ];
    for day in days {
        let period = billing.period_at(at);
        assert_eq!(period.start, at);
        let text = Timestamp::from_microsecond(at.as_us().cast_signed()).unwrap().to_string();
        assert_eq!(text.get(5..10), Some(day));
        at = period.end;
    }
}

#[test]
fn calendar_rejects_a_start_that_its_unit_does_not_have() {
    for unit in Unit::ALL {
        let most = match unit {
            Unit::Day | Unit::Quarter => 1,
            Unit::Week => 7,
            Unit::Month => 31,
            Unit::Year => 12,
        };
        let starts = (0..=u8::MAX).filter(|start| Calendar::new(unit, *start, Zone::UTC).is_some());
        assert_eq!(starts.collect::<Vec<_>>(), (1..=most).collect::<Vec<_>>(), "{unit:?}");
    }
}

#[test]
fn last_period_has_no_end() {
    assert_eq!(LAST, utc("9000-01-01T00:00"));
    for unit in Unit::ALL {
        for name in ["UTC", "Pacific/Kiritimati", "Etc/GMT+12"] {
            let calendar = calendar(unit, 1, name);
            let last = calendar.period_at(LAST.before(Span::from_us(1)).unwrap());
            assert_eq!(last.end, LAST, "{unit:?} {name}");
            assert!(last.span() <= Span::from_days(367), "{unit:?} {name}");
            let endless = CalendarPeriod { start: LAST, end: Instant::from_us(u64::MAX) };
            for us in [LAST.as_us(), u64::MAX / 2, u64::MAX - 1, u64::MAX] {
                assert_eq!(calendar.period_at(Instant::from_us(us)), endless, "{unit:?} {name}");
            }
        }
    }
}

#[test]
fn calendars_that_share_a_cache_place_keep_their_own_periods() {
    let all = Zone::all().flat_map(|zone| {
        let starts = |unit: Unit| unit.starts().map(move |start| (unit, start));
        let kinds = Unit::ALL.into_iter().flat_map(starts);
        kinds.map(move |(unit, start)| Calendar::new(unit, start, zone).unwrap())
    });
    let at = utc("2026-08-01T00:00");
    let mut numbers: Vec<_> = all.map(Calendar::number).collect();
    let days: Vec<_> = Zone::all().map(|zone| Calendar::new(Unit::Day, 1, zone).unwrap()).collect();
    for calendar in days.iter().chain(&days) {
        assert_eq!(calendar.period_at(at), calendar.find(at), "{}", calendar.zone.name());
    }
    let before = numbers.len();
    assert!(before > 30_000 && !numbers.contains(&0));
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), before);
}

fn calendars() -> impl Strategy<Value = Calendar> {
    (0..5_usize, any::<u8>(), any::<prop::sample::Index>()).prop_map(|(unit, start, zone)| {
        let zones: Vec<_> = Zone::all().collect();
        let unit = Unit::ALL[unit];
        Calendar::new(unit, start % unit.starts().end() + 1, *zone.get(&zones)).unwrap()
    })
}

proptest! {
    #![proptest_config(crate::properties::config())]

    /// Checks that a period holds the instant it was found for: any instant that a state may hold,
    /// or a later one. Checks that periods follow each other without a gap, and that the remembered
    /// period equals the one found.
    #[test]
    fn periods_contain_their_instants_and_leave_no_gap(
        calendar in calendars(),
        us in prop_oneof![
            8 => 0..=Instant::MAX.as_us(),
            1 => any::<u64>(),
            1 => 0..=200_000_000_000_u64,
        ],
    ) {
        let instant = Instant::from_us(us.min(u64::MAX - 1));
        let period = calendar.period_at(instant);
        prop_assert!(period.holds(instant), "{period:?}");
        prop_assert_eq!(calendar.find(instant), period);
        prop_assert_eq!(calendar.period_at(period.start), period);
        prop_assert!(period.start == Instant::from_us(0) || period.span() <= Span::from_days(368)
            || period.start == LAST);
        if let Some(before) = period.start.before(Span::from_us(1)) {
            prop_assert_eq!(calendar.period_at(before).end, period.start);
        }
        if period.end < LAST {
            prop_assert_eq!(calendar.period_at(period.end).start, period.end);
        }
    }
}
