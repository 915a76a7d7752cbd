//! Forged states: the right kind and number of fields, with random numbers.

use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::oracle::{AnySubject, Key, Limits};

use super::Random;

fn number(random: &mut Random, near: u64) -> u64 {
    match random.below(12) {
        0 => near,
        1 => near + random.below(10_000_000),
        2 => near.saturating_sub(random.below(20_000_000)),
        3 => near + random.below(100_000_000_000),
        4 => near.saturating_sub(random.below(100_000_000_000)),
        5 => random.below(3),
        6 => random.below(1 << 16),
        7 => 1_000_000_000_000 - random.below(2),
        8 => (1 << 53) - 1 - random.below(2) + random.below(2),
        9 => random.number(),
        _ => random.below(10),
    }
}

/// Appends a number in MessagePack's shortest encoding, or occasionally in a longer one.
fn packed(random: &mut Random, number: u64, bytes: &mut Vec<u8>) {
    let width = match number {
        0..=0x7f => 0,
        0x80..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    };
    let width = if random.below(60) == 0 { 8 } else { width };
    match width {
        0 => bytes.push(number as u8),
        1 => bytes.extend([0xcc, number as u8]),
        2 => bytes.extend([&[0xcd][..], &(number as u16).to_be_bytes()].concat()),
        4 => bytes.extend([&[0xce][..], &(number as u32).to_be_bytes()].concat()),
        _ => bytes.extend([&[0xcf][..], &number.to_be_bytes()].concat()),
    }
}

/// Returns the kind of an algorithm's states and how many numbers follow it.
fn shape(algorithm: Algorithm, now: u64) -> (u8, usize) {
    let limits =
        Limits { capacity: 5, rate: 5, period_us: 60_000_000, aligned: false, slots: 1_024 };
    let mut key = Key::default();
    key.call(&(AnySubject::of(algorithm).rule)(&limits), now.into(), 1);
    let bytes = key.bytes.expect("an allowed call stores a state");
    (bytes[1], usize::from(bytes[0] - 0x91))
}

/// Forges a state of `algorithm`.
pub fn forge(random: &mut Random, algorithm: Algorithm, now: u64) -> Vec<u8> {
    let (kind, count) = shape(algorithm, now);
    let first = number(random, now);
    let rest = |place: usize| match algorithm {
        Algorithm::SlidingLog => *random.pick(&[1, 1, 9_766, 1 << 40]),
        Algorithm::Gcra => random.below(66),
        Algorithm::TokenBucket | Algorithm::LeakyBucket if place == 1 => random.below(12),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => number(random, 1),
        _ => number(random, 5),
    };
    let is_ns = algorithm == Algorithm::Gcra;
    let first = if is_ns { first.saturating_mul(1_000) } else { first };
    let mut numbers: Vec<_> = [first].into_iter().chain((1..count).map(rest)).collect();
    if random.below(30) == 0 {
        // One field too many, or too few.
        if random.below(2) == 0 { numbers.push(1) } else { numbers.truncate(1) }
    }
    let mut bytes = vec![0x91 + numbers.len() as u8, kind];
    numbers.iter().for_each(|number| packed(random, *number, &mut bytes));
    if algorithm == Algorithm::SlidingLog {
        // Entries are mostly in order, and the first is at offset 0.
        let (mut offset, mut total) = (0, 0);
        for _ in 0..random.below(9) {
            total += random.below(4);
            let entry = [offset, total].map(|number: u64| number.to_be_bytes());
            bytes.extend(entry.iter().flat_map(|number| number[2..].to_vec()));
            offset = match random.below(12) {
                0 => random.number() >> 16,
                _ => offset + random.below(5_000_000),
            };
        }
    }
    bytes
}
