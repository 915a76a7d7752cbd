//! Times of log lines.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;
use redis_throttle_engine::time::Instant;

/// A time of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Microseconds since the Unix epoch.
    pub us: u64,
    /// Whether the line gives only the second.
    pub whole_second: bool,
}

/// The reason why a text is not a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStamp {
    /// It has another form, or is out of range.
    Form,
    /// It is a date without a time of day.
    DateAlone,
    /// It has no offset from UTC, and its form does not imply UTC.
    NoOffset,
}

/// A parser of times that remembers the last day and offset, which most lines share.
#[derive(Debug, Default)]
pub struct Stamps {
    /// The offset of times that name none, in seconds east of UTC.
    utc_offset_s: Option<i32>,
    /// The day and the offset that were read last.
    day: Vec<u8>,
    offset_s: i32,
    /// The first second of that day, since the Unix epoch.
    day_start_s: i64,
}

const SECOND_US: u64 = 1_000_000;

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

impl Stamps {
    /// Creates a parser. Times without an offset have this one, in seconds east of UTC.
    pub fn new(utc_offset_s: Option<i32>) -> Self {
        Self { utc_offset_s, ..Self::default() }
    }

    /// Reads a time: nginx's `$time_local` (`10/Oct/2026:13:55:36 +0200`), a date and a time as in
    /// RFC 3339, also with a space or a tab between them and before the offset, or a number of
    /// seconds, milliseconds, microseconds or nanoseconds since the Unix epoch, whose unit follows
    /// from their size. A fraction of the second follows a point or a comma. Without an
    /// offset, the second form is in UTC unless the parser has an offset, or the date has `/`.
    ///
    /// # Errors
    ///
    /// [`NoStamp`] for anything else, and for times before 1970 or after 2199.
    pub fn read(&mut self, text: &[u8]) -> Result<Stamp, NoStamp> {
        let stamp = match (text.get(2), text.get(4)) {
            (Some(b'/'), _) => self.local(text)?,
            (_, Some(b'-' | b'/')) => self.iso(text)?,
            _ => number(text).ok_or(NoStamp::Form)?,
        };
        if stamp.us < Instant::CLOCK_MAX.as_us() { Ok(stamp) } else { Err(NoStamp::Form) }
    }

    /// Reads `10/Oct/2026:13:55:36 +0200`, optionally with a fraction of the second.
    fn local(&mut self, text: &[u8]) -> Result<Stamp, NoStamp> {
        let (day, rest) = text.split_at_checked(11).ok_or(NoStamp::Form)?;
        let Some((b':', clock)) = rest.split_first() else {
            return Err(if rest.is_empty() { NoStamp::DateAlone } else { NoStamp::Form });
        };
        self.of_day(day, clock, None)
    }

    /// Reads `2026-10-10T13:55:36+02:00` and its kind.
    fn iso(&mut self, text: &[u8]) -> Result<Stamp, NoStamp> {
        let (day, rest) = text.split_at_checked(10).ok_or(NoStamp::Form)?;
        let Some((b'T' | b't' | b' ' | b'\t' | b'_', clock)) = rest.split_first() else {
            return Err(if rest.is_empty() { NoStamp::DateAlone } else { NoStamp::Form });
        };
        // A date with `/` is the local one of Go's programs.
        let implied_s = if day.contains(&b'/') { None } else { Some(0) };
        self.of_day(day, clock, implied_s)
    }

    /// Reads what follows the day: the time of day, a fraction and an offset.
    fn of_day(
        &mut self,
        day: &[u8],
        clock: &[u8],
        implied_s: Option<i32>,
    ) -> Result<Stamp, NoStamp> {
        let (clock, rest) = clock.split_first_chunk::<8>().ok_or(NoStamp::Form)?;
        let of_day_s = clock_s(clock).ok_or(NoStamp::Form)?;
        let (fraction, offset) = match rest.split_first() {
            Some((b'.' | b',', rest)) => {
                let len = rest.iter().position(|byte| !byte.is_ascii_digit());
                let (digits, offset) = rest.split_at(len.unwrap_or(rest.len()));
                (Some(fraction_ns(digits).ok_or(NoStamp::Form)?), offset)
            }
            _ => (None, rest),
        };
        let offset_s = match offset.strip_prefix(b" ").unwrap_or(offset) {
            b"" => self.utc_offset_s.or(implied_s).ok_or(NoStamp::NoOffset)?,
            offset => offset_s(offset).ok_or(NoStamp::Form)?,
        };
        if self.day != day || self.offset_s != offset_s {
            self.day_start_s = day_start_s(day, offset_s).ok_or(NoStamp::Form)?;
            (self.day, self.offset_s) = (day.to_vec(), offset_s);
        }
        let us = u64::try_from(self.day_start_s + of_day_s).ok();
        let us = us.and_then(|s| s.checked_mul(SECOND_US)).ok_or(NoStamp::Form)?;
        let us = us + fraction.unwrap_or(0) / 1_000;
        Ok(Stamp { us, whole_second: fraction.is_none() })
    }
}

/// Reads an offset from UTC: `Z`, `+0200`, `+02:00` or `+02`, in seconds east of it.
pub fn offset_s(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        b"Z" | b"z" | b"UTC" | b"GMT" => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hours, minutes) = match digits {
        [h, hh] => (two(*h, *hh)?, 0),
        [h, hh, b':', m, mm] | [h, hh, m, mm] => (two(*h, *hh)?, two(*m, *mm)?),
        _ => return None,
    };
    let s = i32::try_from(hours * 3_600 + minutes * 60).ok()?;
    (hours < 24 && minutes < 60).then_some(sign * s)
}

/// Reads `13:55:36` as the second of the day.
fn clock_s(clock: &[u8; 8]) -> Option<i64> {
    let [h, hh, b':', m, mm, b':', s, ss] = clock else { return None };
    let (hour, minute, second) = (two(*h, *hh)?, two(*m, *mm)?, two(*s, *ss)?);
    let is_valid = hour <= 23 && minute <= 59 && second <= 60;
    is_valid.then_some(i64::from(hour * 3_600 + minute * 60 + second))
}

/// Returns the first second of `10/Oct/2026` or `2026-10-10`.
fn day_start_s(day: &[u8], offset_s: i32) -> Option<i64> {
    let (year, month, day) = match day {
        [d, dd, b'/', month @ .., b'/', y, yy, yyy, yyyy] => {
            let month = MONTHS.iter().position(|name| name[..] == *month)?;
            let year = two(*y, *yy)? * 100 + two(*yyy, *yyyy)?;
            (year, u32::try_from(month + 1).ok()?, two(*d, *dd)?)
        }
        [y, yy, yyy, yyyy, b'-', m, mm, b'-', d, dd]
        | [y, yy, yyy, yyyy, b'/', m, mm, b'/', d, dd] => {
            (two(*y, *yy)? * 100 + two(*yyy, *yyyy)?, two(*m, *mm)?, two(*d, *dd)?)
        }
        _ => return None,
    };
    let year = i16::try_from(year).ok()?;
    let date = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let offset = Offset::from_seconds(offset_s).ok()?;
    Some(offset.to_timestamp(DateTime::from_parts(date, Time::midnight())).ok()?.as_second())
}

/// The unit of the time that a request took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    #[default]
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
}

/// The units by their names. Where one ends with another, the longer one comes first.
const UNITS: [(&str, Unit); 5] =
    [("ms", Unit::Ms), ("us", Unit::Us), ("\u{b5}s", Unit::Us), ("ns", Unit::Ns), ("s", Unit::S)];

impl Unit {
    /// Returns the unit of that name: `s`, `ms`, `us` or `ns`.
    pub fn named(name: &str) -> Option<Self> {
        UNITS.iter().find(|(known, _)| *known == name).map(|(_, unit)| *unit)
    }

    const fn ns(self) -> u64 {
        match self {
            Self::S => 1_000_000_000,
            Self::Ms => 1_000_000,
            Self::Us => 1_000,
            Self::Ns => 1,
        }
    }

    /// Reads the time that a request took, in microseconds, rounded down: a number of this unit,
    /// or with a unit of its own, such as `0.153s`; also `9.2e-05`. `None` for anything else, and
    /// for more than 366 days.
    pub fn duration_us(self, text: &[u8]) -> Option<u64> {
        let named = UNITS.iter().find_map(|(name, unit)| {
            let number = text.strip_suffix(name.as_bytes())?;
            Some((number, *unit))
        });
        let (number, unit) = named.unwrap_or((text, self));
        let us = if memchr::memchr2(b'e', b'E', number).is_some() {
            let number: f64 = std::str::from_utf8(number).ok()?.parse().ok()?;
            let us = number * (unit.ns() as f64) / 1_000.0;
            // Half a microsecond, because a decimal number of seconds is not exact in binary.
            (us >= 0.0 && us < DURATION_MAX_US as f64).then_some((us + 0.000_5) as u64)?
        } else {
            let (whole, fraction) = split_fraction(number);
            let ns = u128::from(digits(whole)?) * u128::from(unit.ns());
            let fraction = u128::from(fraction_ns(fraction.unwrap_or(b"0"))?);
            u64::try_from((ns + fraction * u128::from(unit.ns()) / 1_000_000_000) / 1_000).ok()?
        };
        (us <= DURATION_MAX_US).then_some(us)
    }
}

/// The longest time that a request may have taken: 366 days.
const DURATION_MAX_US: u64 = 366 * 86_400 * SECOND_US;

fn number(text: &[u8]) -> Option<Stamp> {
    let (whole, fraction) = split_fraction(text);
    let whole = digits(whole)?;
    let unit_ns: u64 = match whole {
        0..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    let fraction_ns = fraction.map_or(Some(0), fraction_ns)?;
    let ns = u128::from(whole) * u128::from(unit_ns)
        + u128::from(fraction_ns) * u128::from(unit_ns) / 1_000_000_000;
    let whole_second = unit_ns == 1_000_000_000 && fraction.is_none();
    Some(Stamp { us: u64::try_from(ns / 1_000).ok()?, whole_second })
}

fn split_fraction(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'.', text) {
        Some(point) => (&text[..point], text.get(point + 1..)),
        None => (text, None),
    }
}

/// Reads up to 19 digits.
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_u64, |value, byte| {
        byte.is_ascii_digit().then(|| value * 10 + u64::from(byte - b'0'))
    })
}

/// Reads the digits after a point as nanoseconds; further digits are cut off.
fn fraction_ns(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nine = text.get(..9).unwrap_or(text);
    let missing = u32::try_from(9 - nine.len()).ok()?;
    Some(digits(nine)? * 10_u64.pow(missing))
}

/// Reads two digits.
fn two(tens: u8, ones: u8) -> Option<u32> {
    let both = tens.is_ascii_digit() && ones.is_ascii_digit();
    both.then(|| u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(u64, bool)> {
        let stamp = Stamps::default().read(text.as_bytes()).ok();
        stamp.map(|stamp| (stamp.us, stamp.whole_second))
    }

    #[test]
    fn stamps_of_every_form_are_read_as_the_same_instant() {
        const AT_US: u64 = 1_791_633_336_000_000;
        for (text, us, whole_second) in [
            ("10/Oct/2026:11:55:36 +0000", AT_US, true),
            ("10/Oct/2026:13:55:36 +0200", AT_US, true),
            ("10/Oct/2026:06:25:36 -0530", AT_US, true),
            ("10/Oct/2026:11:55:36.25 +0000", AT_US + 250_000, false),
            ("2026-10-10T11:55:36Z", AT_US, true),
            ("2026-10-10T13:55:36+02:00", AT_US, true),
            ("2026-10-10T11:55:36.5Z", AT_US + 500_000, false),
            ("2026-10-10T11:55:36", AT_US, true),
            ("2026-10-10\t11:55:36", AT_US, true),
            ("2026-10-10 13:55:36,250 +0200", AT_US + 250_000, false),
            ("2026-10-10T13:55:36.25+02", AT_US + 250_000, false),
            ("2026-10-10T11:55:36.123456789Z", AT_US + 123_456, false),
            ("2026/10/10 13:55:36.25 +0200", AT_US + 250_000, false),
            ("1791633336", AT_US, true),
            ("1791633336.123", AT_US + 123_000, false),
            ("1791633336123", AT_US + 123_000, false),
            ("1791633336123456", AT_US + 123_456, false),
            ("1791633336123456789", AT_US + 123_456, false),
        ] {
            assert_eq!(read(text), Some((us, whole_second)), "{text}");
        }
    }

    #[test]
    fn stamps_that_are_no_times_are_refused() {
        for text in [
            "",
            "-",
            "10/Oct/2026",
            "10/Foo/2026:11:55:36 +0000",
            "10/Oct/2026:24:55:36 +0000",
            "31/Feb/2026:11:55:36 +0000",
            "10/Oct/1969:11:55:36 +0000",
            "2026-13-10T11:55:36Z",
            "99999999999999999999",
            "1.",
            "-5",
            "17e8",
            "9999-10-10T11:55:36Z",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn times_without_an_offset_or_a_time_of_day_have_errors_of_their_own() {
        let mut stamps = Stamps::default();
        assert_eq!(stamps.read(b"10/Oct/2026:11:55:36.250"), Err(NoStamp::NoOffset));
        assert_eq!(stamps.read(b"10/Oct/2026"), Err(NoStamp::DateAlone));
        assert_eq!(stamps.read(b"2026/10/10 11:55:36.250"), Err(NoStamp::NoOffset));
        assert_eq!(stamps.read(b"2026-10-10"), Err(NoStamp::DateAlone));
        assert_eq!(stamps.read(b"2026-10-10T11:55"), Err(NoStamp::Form));
        let mut stamps = Stamps::new(offset_s(b"+02:00"));
        for text in [
            "10/Oct/2026:13:55:36",
            "2026-10-10T13:55:36",
            "2026-10-10T11:55:36Z",
            "2026/10/10 13:55:36",
        ] {
            let stamp = stamps.read(text.as_bytes()).unwrap();
            assert_eq!(stamp.us, 1_791_633_336_000_000, "{text}");
        }
        for text in ["2", "+2", "+25:00", "+02:60", "+2:00", "CET", ""] {
            assert_eq!(offset_s(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn durations_of_every_unit_are_read_in_microseconds() {
        for (text, unit, us) in [
            ("0.123", Unit::S, Some(123_000)),
            ("2", Unit::S, Some(2_000_000)),
            ("24388.5", Unit::S, Some(24_388_500_000)),
            ("31622400", Unit::S, Some(DURATION_MAX_US)),
            ("31622401", Unit::S, None),
            ("0.153s", Unit::Ns, Some(153_000)),
            ("9.2e-05", Unit::S, Some(92)),
            ("1E3", Unit::Ms, Some(1_000_000)),
            ("153", Unit::Ms, Some(153_000)),
            ("153", Unit::Us, Some(153)),
            ("1999", Unit::Ns, Some(1)),
            ("12ms", Unit::S, Some(12_000)),
            ("7us", Unit::S, Some(7)),
            ("7\u{b5}s", Unit::S, Some(7)),
            ("0.1, 0.2", Unit::S, None),
            ("-1", Unit::S, None),
            ("-1e-3", Unit::S, None),
            ("1e400", Unit::S, None),
            ("nan", Unit::S, None),
            ("s", Unit::S, None),
            ("", Unit::S, None),
        ] {
            assert_eq!(unit.duration_us(text.as_bytes()), us, "{text}");
        }
    }
}
