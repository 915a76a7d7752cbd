//! A link that shows the rate of a log, and the rules, on the lab's page.
//!
//! The page draws at most 20 keys and 100,000 calls. So the link has the log's rate for 20 keys,
//! shared evenly, and the part of the log around its busiest time that has so few calls. The format
//! is that of `lab/page/state.js`.

use super::report::TimelineReport;
use crate::traffic::{CALLS_MAX, KEYS_MAX};
use serde_json::json;

/// The address of the page, as the program serves it by default.
const ADDRESS: &str = "http://127.0.0.1:7780/";

/// The most points of the line. The page draws 200, which would make the link long.
const POINTS_MAX: usize = 60;

/// The shortest and the longest traffic that the page draws.
const DURATION_MIN_MS: u64 = 1_000;
const DURATION_MAX_MS: u64 = 366 * 86_400_000;

/// A link, and the part of the log that it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The address with the state of the page.
    pub address: String,
    /// The keys that the page draws.
    pub keys: u64,
    /// The time that it shows, in microseconds since the Unix epoch.
    pub from_us: u64,
    /// The end of that time.
    pub to_us: u64,
}

/// Creates the link of a log with `keys` keys; `None` without calls. Each choice has one rule, or
/// several for one `RL.ALL`.
pub fn link(timeline: &TimelineReport, keys: u64, choices: &[Vec<String>]) -> Option<Link> {
    let drawn = keys.min(KEYS_MAX.into());
    if drawn == 0 {
        return None;
    }
    // Calls of the drawn keys, in millionths.
    let scaled = |calls: u64| u128::from(calls) * 1_000_000 * u128::from(drawn) / u128::from(keys);
    let calls: Vec<u128> = timeline.calls.iter().map(|calls| scaled(*calls)).collect();
    let (first, end) = around_the_busiest(&calls, CALLS_MAX as u128 * 900_000);
    let busiest = calls.get(first..end).filter(|busiest| !busiest.is_empty())?;
    let per_point = busiest.len().div_ceil(POINTS_MAX);
    let rates: Vec<f64> = busiest
        .chunks(per_point)
        .map(|calls| {
            let length_us = u128::from(timeline.interval_us) * calls.len() as u128;
            // Calls per second with three decimals.
            let thousandths = calls.iter().sum::<u128>() * 1_000 / length_us.max(1);
            thousandths as f64 / 1_000.0
        })
        .collect();
    let points: Vec<(f64, f64)> = match rates.as_slice() {
        [rate] => vec![(0.0, *rate), (1.0, *rate)],
        rates => {
            // The middle of each stretch of time, with four decimals.
            let place = |at: usize| ((2 * at + 1) * 5_000 / rates.len()) as f64 / 10_000.0;
            rates.iter().enumerate().map(|(at, rate)| (place(at), *rate)).collect()
        }
    };
    let duration_ms = timeline.interval_us.saturating_mul(busiest.len() as u64) / 1_000;
    let duration_ms = duration_ms.clamp(DURATION_MIN_MS, DURATION_MAX_MS);
    let state = json!({
        "v": 1,
        "t": ["drawn", duration_ms, 1, 1, drawn, 1, "none"],
        "p": points,
        "w": 0,
        "r": choices,
    });
    let offset_us = |at: usize| timeline.interval_us.saturating_mul(at as u64);
    Some(Link {
        address: format!("{ADDRESS}#{}", base64_url(state.to_string().as_bytes())),
        keys: drawn,
        from_us: timeline.start_us.saturating_add(offset_us(first)),
        to_us: timeline.start_us.saturating_add(offset_us(end)),
    })
}

/// Returns the longest range around the largest number whose sum is at most `most`, or that number
/// alone.
fn around_the_busiest(numbers: &[u128], most: u128) -> (usize, usize) {
    let busiest = numbers.iter().enumerate().max_by_key(|(_, number)| **number);
    let Some((busiest, sum)) = busiest else { return (0, 0) };
    let (mut first, mut end, mut sum) = (busiest, busiest + 1, *sum);
    loop {
        let before = first.checked_sub(1).and_then(|at| numbers.get(at));
        let after = numbers.get(end);
        let fits = |number: &&u128| sum.saturating_add(**number) <= most;
        if let Some(number) = after.filter(fits) {
            (sum, end) = (sum + number, end + 1);
        } else if let Some(number) = before.filter(fits) {
            (sum, first) = (sum + number, first - 1);
        } else {
            return (first, end);
        }
    }
}

/// Returns bytes in base64 for addresses, without padding.
fn base64_url(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..=chunk.len() {
            let digit = bits >> (18 - 6 * at) & 63;
            text.push(char::from(DIGITS[digit as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_as_rfc_4648_has_them() {
        for (text, encoded) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("?>~", "Pz5-")]
        {
            assert_eq!(base64_url(text.as_bytes()), encoded, "{text}");
        }
    }

    #[test]
    fn link_shows_the_busiest_part_that_has_few_enough_calls() {
        let timeline = |calls: Vec<u64>| TimelineReport {
            start_us: 7_000_000,
            interval_us: 1_000_000,
            denied: vec![0; calls.len()],
            shadow_denied: vec![0; calls.len()],
            calls,
        };
        let rules = [vec!["GCRA 20 10 1s".to_owned()]];
        let whole = link(&timeline(vec![100, 200, 300]), 40, &rules).unwrap();
        assert_eq!((whole.keys, whole.from_us, whole.to_us), (20, 7_000_000, 10_000_000));
        let part = link(&timeline(vec![60_000, 50_000, 70_000, 60_000]), 1, &rules).unwrap();
        assert_eq!((part.keys, part.from_us, part.to_us), (1, 9_000_000, 10_000_000));
        let long = link(&timeline(vec![1; 240]), 1, &rules).unwrap();
        assert_eq!((long.from_us, long.to_us), (7_000_000, 247_000_000));
        assert_eq!(link(&timeline(vec![]), 0, &rules), None);
    }
}
