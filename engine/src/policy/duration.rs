//! The text of a duration, in the form that the grammar parses.

use crate::time::Span;

/// Formats a duration in the largest unit in which it is a whole number. A duration that is not a
/// whole number of milliseconds is in milliseconds with up to three digits after the point.
///
/// `60` and `1m` become `1m`, `90` becomes `90s`, `0.5` becomes `500ms`, `0.0015` becomes `1.5ms`.
pub fn duration_text(duration: Span) -> String {
    const UNITS: [(u64, &str); 5] = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    let us = duration.as_us();
    match UNITS.into_iter().find(|(unit_us, _)| us.is_multiple_of(*unit_us)) {
        Some((unit_us, name)) => format!("{}{name}", us / unit_us),
        None => {
            let decimals = format!("{:03}", us % 1_000);
            format!("{}.{}ms", us / 1_000, decimals.trim_end_matches('0'))
        }
    }
}
