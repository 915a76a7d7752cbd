//! Numbers, shares, times and lengths in words.

use super::report::LimitReport;
use jiff::Timestamp;
use redis_throttle_engine::policy::duration::duration_text;
use redis_throttle_engine::time::Span;

/// Returns a number with a comma before every three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a share in per cent, with two decimals. A share that is not zero is never printed as
/// zero, and one that is not all never as all.
pub fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    if part >= whole {
        return "100 %".to_owned();
    }
    let hundredths = u128::from(part) * 10_000 / u128::from(whole);
    let hundredths = hundredths.clamp(1, 9_999);
    let sign = if u128::from(part) * 10_000 < u128::from(whole) { "< " } else { "" };
    format!("{sign}{}.{:02} %", hundredths / 100, hundredths % 100)
}

/// Returns a length of time that is easy to read: two units at most.
pub fn length(us: u64) -> String {
    const UNITS: [(u64, &str, u64, &str); 3] = [
        (86_400_000_000, "d", 3_600_000_000, "h"),
        (3_600_000_000, "h", 60_000_000, "m"),
        (60_000_000, "m", 1_000_000, "s"),
    ];
    for (unit_us, unit, part_us, part) in UNITS {
        if us >= unit_us {
            let parts = us % unit_us / part_us;
            let rest = if parts > 0 { format!(" {parts} {part}") } else { String::new() };
            return format!("{} {unit}{rest}", us / unit_us);
        }
    }
    let ms = us.div_ceil(1_000);
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        _ => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
    }
}

/// Returns the longest wait to a retry; `-` if no caller waits.
pub fn wait(ms: u64) -> String {
    if ms == 0 { "-".to_owned() } else { length(ms.saturating_mul(1_000)) }
}

/// Returns how many of the allowed calls wait in the queue of a leaky bucket; `None` if none does.
pub fn queued(limit: &LimitReport) -> Option<String> {
    let allowed = count(limit.calls - limit.denied, "call", "calls");
    let (queued, longest) = (grouped(limit.queued), wait(limit.longest_queue_ms));
    let text = format!("{allowed} allowed, of them {queued} after a wait of up to {longest}");
    (limit.queued > 0).then_some(text)
}

/// Returns the length of a window as a rule has it: `1m`.
pub fn window(us: u64) -> String {
    duration_text(Span::from_us(us))
}

/// Returns a number of bytes in the largest unit that fits.
pub fn bytes(len: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    for (unit, name) in UNITS {
        if len >= unit {
            let tenths = len / (unit / 10);
            return if tenths < 100 {
                format!("{}.{} {name}", tenths / 10, tenths % 10)
            } else {
                format!("{} {name}", len.div_ceil(unit))
            };
        }
    }
    format!("{len} bytes")
}

/// Returns a time as `2026-10-10 13:55:36`, in UTC.
pub fn clock(us: u64) -> String {
    let at = i64::try_from(us).ok().and_then(|us| Timestamp::from_microsecond(us).ok());
    at.map_or_else(|| "-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}

/// Returns a noun with its number.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_shares_are_never_rounded_to_none_or_all() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123_456), "123,456");
        for (part, whole, text) in [
            (0, 5, "0 %"),
            (5, 5, "100 %"),
            (1, 8, "12.50 %"),
            (1, 1_000_000, "< 0.01 %"),
            (999_999, 1_000_000, "99.99 %"),
            (0, 0, "0 %"),
        ] {
            assert_eq!(share(part, whole), text, "{part} {whole}");
        }
    }

    #[test]
    fn times_lengths_and_bytes_are_in_units_that_are_easy_to_read() {
        for (us, text) in [
            (0, "0 ms"),
            (1, "1 ms"),
            (1_900_000, "1.9 s"),
            (59_000_000, "59 s"),
            (90_000_000, "1 m 30 s"),
            (86_400_000_000, "1 d"),
            (90_000_000_000, "1 d 1 h"),
        ] {
            assert_eq!(length(us), text, "{us}");
        }
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1_550_000), "1.5 MB");
        assert_eq!(bytes(149_300_000), "150 MB");
        assert_eq!(clock(1_791_633_336_000_000), "2026-10-10 11:55:36");
    }
}
