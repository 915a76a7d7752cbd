//! Times of log lines.

use jiff::Timestamp;
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

/// A parser of times that remembers the last day and offset, which most lines share.
#[derive(Debug, Default)]
pub struct Stamps {
    /// The day with its colon, `10/Oct/2026:`, then the offset, `+0200`.
    day: [u8; 17],
    /// The first second of the day, since the Unix epoch.
    day_start_s: i64,
}

const SECOND_US: u64 = 1_000_000;

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

impl Stamps {
    /// Reads a time: nginx's `$time_local`, RFC 3339 (UTC if it has no offset), or a number of
    /// seconds, milliseconds, microseconds or nanoseconds since the Unix epoch, which are told
    /// apart by their size. Returns `None` for anything else, and for times before 1970 or after
    /// 2199.
    pub fn read(&mut self, text: &[u8]) -> Option<Stamp> {
        let stamp = match (text.get(2), text.get(4)) {
            (Some(b'/'), _) => self.local(text)?,
            (_, Some(b'-')) => iso(text)?,
            _ => number(text)?,
        };
        (stamp.us < Instant::CLOCK_MAX.as_us()).then_some(stamp)
    }

    /// Reads `10/Oct/2026:13:55:36 +0200`, optionally with a fraction of the second.
    fn local(&mut self, text: &[u8]) -> Option<Stamp> {
        let (day, rest) = text.split_first_chunk::<12>()?;
        let (clock, rest) = rest.split_first_chunk::<8>()?;
        let (fraction, offset) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
        let offset: &[u8; 5] = offset.get(1..)?.try_into().ok()?;
        if self.day[..12] != day[..] || self.day[12..] != offset[..] {
            self.day_start_s = day_start_s(day, offset)?;
            self.day[..12].copy_from_slice(day);
            self.day[12..].copy_from_slice(offset);
        }
        let [h, hh, b':', m, mm, b':', s, ss] = clock else { return None };
        let (hour, minute, second) = (two(*h, *hh)?, two(*m, *mm)?, two(*s, *ss)?);
        if hour > 23 || minute > 59 || second > 60 {
            return None;
        }
        let of_day_s = i64::from(hour * 3_600 + minute * 60 + second);
        let us = u64::try_from(self.day_start_s + of_day_s).ok()?.checked_mul(SECOND_US)?;
        match fraction.split_first() {
            None => Some(Stamp { us, whole_second: true }),
            Some((b'.' | b',', digits)) => {
                let us = us + fraction_ns(digits)? / 1_000;
                Some(Stamp { us, whole_second: false })
            }
            Some(_) => None,
        }
    }
}

/// Reads a duration of seconds, such as `$request_time`, in microseconds; zero if it is missing.
pub fn seconds_us(text: &[u8]) -> Option<u64> {
    if matches!(text, b"" | b"-") {
        return Some(0);
    }
    let (whole, fraction) = split_fraction(text);
    let whole_us = digits(whole)?.checked_mul(SECOND_US)?;
    whole_us.checked_add(fraction_ns(fraction.unwrap_or(b"0"))? / 1_000)
}

fn day_start_s(day: &[u8; 12], offset: &[u8; 5]) -> Option<i64> {
    let [d, dd, b'/', month @ .., b'/', y, yy, yyy, yyyy, b':'] = day else { return None };
    let month = MONTHS.iter().position(|name| name[..] == *month)?;
    let year = two(*y, *yy)? * 100 + two(*yyy, *yyyy)?;
    let [sign, h, hh, m, mm] = offset;
    let ahead_s = i32::try_from(two(*h, *hh)? * 3_600 + two(*m, *mm)? * 60).ok()?;
    let ahead_s = match sign {
        b'+' => ahead_s,
        b'-' => -ahead_s,
        _ => return None,
    };
    let (year, month) = (i16::try_from(year).ok()?, i8::try_from(month + 1).ok()?);
    let date = Date::new(year, month, i8::try_from(two(*d, *dd)?).ok()?).ok()?;
    let offset = Offset::from_seconds(ahead_s).ok()?;
    Some(offset.to_timestamp(DateTime::from_parts(date, Time::midnight())).ok()?.as_second())
}

fn iso(text: &[u8]) -> Option<Stamp> {
    let text = std::str::from_utf8(text).ok()?;
    let stamp = text.parse::<Timestamp>().or_else(|_| {
        let civil = text.parse::<DateTime>()?;
        Offset::UTC.to_timestamp(civil)
    });
    let us = u64::try_from(stamp.ok()?.as_microsecond()).ok()?;
    Some(Stamp { us, whole_second: !text.contains(['.', ',']) })
}

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
        Stamps::default().read(text.as_bytes()).map(|stamp| (stamp.us, stamp.whole_second))
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
    fn durations_in_seconds_are_read_in_microseconds() {
        for (text, us) in [("0.123", Some(123_000)), ("-", Some(0)), ("2", Some(2_000_000))] {
            assert_eq!(seconds_us(text.as_bytes()), us, "{text}");
        }
        assert_eq!(seconds_us(b"0.1, 0.2"), None);
    }
}
