//! The rules, each in the plainest form of its definition, for the calls of one client.

use std::collections::{HashMap, VecDeque};

/// A rule, and the number of calls that it denies: the calls are microseconds, in order.
pub type Rule = (&'static str, fn(&[u64]) -> u64);

/// All algorithms with a limit on units. A rate of 7 leaves fractions that must not be lost.
pub const RULES: [Rule; 6] = [
    ("FIXED 5 60", |calls| fixed(calls, 5)),
    ("SLIDING 6 60", |calls| sliding(calls, 6)),
    ("SLIDINGLOG 5 60", |calls| sliding_log(calls, 5)),
    ("TOKENBUCKET 3 7 60", |calls| token_bucket(calls, 3, 7)),
    ("LEAKYBUCKET 4 7 60", |calls| leaky_bucket(calls, 4, 7)),
    ("GCRA 3 7 60", |calls| gcra(calls, 3, 7)),
];

const MINUTE_US: u64 = 60_000_000;

/// The first call opens a window, which counts to its end.
fn fixed(calls: &[u64], limit: u64) -> u64 {
    let (mut end_us, mut used, mut denied) = (0, 0, 0);
    for at_us in calls {
        if *at_us >= end_us {
            (end_us, used) = (at_us + MINUTE_US, 0);
        }
        if used < limit { used += 1 } else { denied += 1 }
    }
    denied
}

/// The calls of the minute before this one count by the part of it that the last 60 s still cover.
fn sliding(calls: &[u64], limit: u64) -> u64 {
    let mut allowed: HashMap<u64, u64> = HashMap::new();
    let mut denied = 0;
    for at_us in calls {
        let (minute, elapsed_us) = (at_us / MINUTE_US, at_us % MINUTE_US);
        let before = allowed.get(&(minute - 1)).copied().unwrap_or(0);
        let faded = (before * (MINUTE_US - elapsed_us)).div_ceil(MINUTE_US);
        let now = allowed.entry(minute).or_insert(0);
        if faded + *now < limit { *now += 1 } else { denied += 1 }
    }
    denied
}

/// A call counts for 60 s.
fn sliding_log(calls: &[u64], limit: usize) -> u64 {
    let (mut allowed, mut denied) = (VecDeque::new(), 0);
    for at_us in calls {
        while allowed.front().is_some_and(|first| first + MINUTE_US <= *at_us) {
            allowed.pop_front();
        }
        if allowed.len() < limit { allowed.push_back(*at_us) } else { denied += 1 }
    }
    denied
}

/// The tokens are counted in parts, of which one has a minute's microseconds.
fn token_bucket(calls: &[u64], capacity: u64, rate: u64) -> u64 {
    let (mut parts, mut last_us, mut denied) = (capacity * MINUTE_US, 0, 0);
    for at_us in calls {
        parts = (parts + rate * (at_us - last_us)).min(capacity * MINUTE_US);
        last_us = *at_us;
        if parts >= MINUTE_US { parts -= MINUTE_US } else { denied += 1 }
    }
    denied
}

/// The calls that queue are counted in parts.
fn leaky_bucket(calls: &[u64], capacity: u64, rate: u64) -> u64 {
    let (mut parts, mut last_us, mut denied) = (0_u64, 0, 0);
    for at_us in calls {
        parts = parts.saturating_sub(rate * (at_us - last_us));
        last_us = *at_us;
        if parts + MINUTE_US <= capacity * MINUTE_US { parts += MINUTE_US } else { denied += 1 }
    }
    denied
}

/// The calls are spaced evenly, and one may come early by what the burst is worth.
fn gcra(calls: &[u64], burst: u64, rate: u64) -> u64 {
    let interval_ns = (MINUTE_US * 1_000).div_ceil(rate);
    let (mut arrival_ns, mut denied) = (0, 0);
    for at_us in calls {
        let now_ns = at_us * 1_000;
        let next_ns = now_ns.max(arrival_ns) + interval_ns;
        if next_ns <= now_ns + burst * interval_ns { arrival_ns = next_ns } else { denied += 1 }
    }
    denied
}
