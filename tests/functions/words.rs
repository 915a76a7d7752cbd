//! The words of schedules: valid ones over the whole of each range, and invalid ones.

use std::sync::LazyLock;

use redis_throttle_engine::algorithms::{Algorithm, Argument};

use crate::library::source;
use support::Random;

/// The kinds of rules that the library has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Windowed(&'static str),
    Rated(&'static str),
    Backoff,
    Lease,
}

/// The kinds of the engine's algorithms that the library has, and of leases.
pub static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    Algorithm::ALL.into_iter().filter_map(Kind::of).chain([Kind::Lease]).collect()
});

impl Kind {
    /// Returns the kind of an algorithm; `None` if the library does not have it or schedules cannot
    /// write its rules.
    pub fn of(algorithm: Algorithm) -> Option<Self> {
        use Argument::{Duration, Number};
        // The library registers its functions without flags, except those that need the module.
        if !source().contains(&format!("'{}', {{}})", algorithm.name())) {
            return None;
        }
        match algorithm.arguments() {
            [Number, Duration] => Some(Self::Windowed(algorithm.name())),
            [Number, Number, Duration] => Some(Self::Rated(algorithm.name())),
            _ if algorithm == Algorithm::Backoff => Some(Self::Backoff),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Windowed(name) | Self::Rated(name) => name,
            Self::Backoff => "BACKOFF",
            Self::Lease => "LEASE",
        }
    }
}

/// Limits. Small limits occur often, because calls use them up.
const LIMITS: [&str; 24] = [
    "1",
    "2",
    "3",
    "3",
    "4",
    "5",
    "6",
    "7",
    "7",
    "10",
    "10",
    "16",
    "17",
    "30",
    "100",
    "007",
    "1024",
    "1025",
    "9999",
    "1000000",
    "4294967297",
    "999999999999",
    "1000000000000",
    "0001000000000000",
];

const RATES: [&str; 16] = [
    "1",
    "2",
    "3",
    "5",
    "7",
    "7",
    "9",
    "10",
    "30",
    "100",
    "1000",
    "999999",
    "10000000",
    "1000000000",
    "999999999999",
    "1000000000000",
];

/// Durations, each with its value in microseconds.
const DURATIONS: [(&str, i64); 26] = [
    ("1ms", 1_000),
    ("0.001", 1_000),
    ("1.001ms", 1_001),
    ("2ms", 2_000),
    ("7ms", 7_000),
    ("33.333ms", 33_333),
    ("0.123457", 123_457),
    ("500ms", 500_000),
    ("1", 1_000_000),
    ("1s", 1_000_000),
    ("3.000001s", 3_000_001),
    ("10", 10_000_000),
    ("10s", 10_000_000),
    ("60", 60_000_000),
    ("60", 60_000_000),
    ("000060.000000", 60_000_000),
    ("1m", 60_000_000),
    ("0.5h", 1_800_000_000),
    ("1h", 3_600_000_000),
    ("1d", 86_400_000_000),
    ("1.000001d", 86_400_086_400),
    ("30d", 2_592_000_000_000),
    ("365.999999d", 31_622_399_913_600),
    ("8784h", 31_622_400_000_000),
    ("31622400", 31_622_400_000_000),
    ("366d", 31_622_400_000_000),
];

/// Values of `LEAVE`, mostly valid.
const LEAVES: [&str; 14] = [
    "0",
    "1",
    "1",
    "2",
    "003",
    "7",
    "0%",
    "20%",
    "50%",
    "099%",
    "100%",
    "101%",
    "%",
    "1000000000001",
];

const COSTS: [&str; 14] = [
    "0",
    "00",
    "1",
    "1",
    "2",
    "2",
    "3",
    "5",
    "7",
    "16",
    "1024",
    "1000000",
    "999999999999",
    "1000000000000",
];

const IDS: [&[u8]; 7] = [b"job-1", b"job-2", b"3", b"COST", b"\0\xff\r\n", b"-inf", b"e"];

/// Invalid words: texts that only look valid, and values just beyond a bound.
const WRONG: [&str; 67] = [
    "0",
    "-1",
    "+1",
    "-0",
    "",
    " ",
    " 1",
    "1 ",
    "1.0",
    "1e3",
    "1E3",
    "0x10",
    "0b1",
    "1_0",
    "٣",
    "1000000000001",
    "1000001",
    "2147483648",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
    "0ms",
    "0.999ms",
    "0.000999",
    "0.0009999",
    "366.000001d",
    "367d",
    "31622401",
    "31622400.000001",
    "1.0000001",
    "1.",
    ".5",
    "1..5",
    "1.5.",
    "1MS",
    "1H",
    "1w",
    "1us",
    "1 s",
    "s",
    "1sm",
    "1mss",
    "0.0000001d",
    "nan",
    "inf",
    "-nan",
    "1e-3",
    "1/2",
    "COST",
    "cost",
    "PARTIAL",
    "LEAVE",
    "20%",
    "ALIGNED",
    "SLOTS",
    "15",
    "65537",
    "1\0",
    "\0",
    "0.00000000000000000000001",
    "18446744073709551616ms",
    "213503982334601d",
    "0.5\n",
];

/// Returns a number of up to `digits` digits, in which each length is equally likely.
pub fn of_any_length(random: &mut Random, digits: u64) -> u64 {
    let digits = random.below(digits + 1) as u32;
    random.below(10_u64.pow(digits))
}

/// Returns the word in random upper and lower case.
pub fn any_case(random: &mut Random, word: &str) -> Vec<u8> {
    match random.below(8) {
        0 => word.to_ascii_lowercase().into_bytes(),
        1 => {
            let mut bytes = word.to_ascii_uppercase().into_bytes();
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = bytes[place].to_ascii_lowercase();
            bytes
        }
        _ => word.to_ascii_uppercase().into_bytes(),
    }
}

/// Returns a forged state of a rule's kind, with numbers at the bounds of a state.
pub fn state_of_bounds(random: &mut Random, kind: Kind, now_us: u64) -> Vec<u8> {
    const BOUNDS: [u64; 24] = [
        0,
        1,
        62,
        63,
        64,
        127,
        128,
        255,
        256,
        65_535,
        65_536,
        1_000_000,
        4_294_967_295,
        4_294_967_296,
        1_000_000_000_000,
        2_000_000_000_000,
        2_000_000_000_001,
        31_622_400_000_000,
        1_000_000_000_000_000,
        1_000_000_000_000_001,
        9_007_199_254_740_991,
        9_007_199_254_740_992,
        9_223_372_036_854_775_807,
        18_446_744_073_709_551_615,
    ];
    let kinds = match kind.name() {
        "GCRA" => &[(0xfa, 2)][..],
        "FIXED" => &[(0xff, 2)],
        "SLIDING" => &[(0xfe, 3)],
        "SLIDINGLOG" => &[(0xfd, 2)],
        "TOKENBUCKET" => &[(0xfc, 3), (0xf9, 3)],
        "LEAKYBUCKET" => &[(0xfb, 3), (0xf8, 4)],
        _ => &[(0xf7, 2), (0xf6, 2)],
    };
    // A ban may be in place of any state.
    let (mark, usual) = if random.below(8) == 0 { (0xf3, 2) } else { *random.pick(kinds) };
    // Mostly the right number of fields for the kind, and occasionally another one.
    let count = if random.below(20) == 0 { 1 + random.below(5) as usize } else { usual };
    let mut bytes = vec![0x90 + 1 + count as u8, mark];
    let bound = *random.pick(&BOUNDS);
    for place in 0..count {
        let near = if mark == 0xfa { now_us * 1_000 } else { now_us };
        let number = match random.below(8) {
            0..=5 if place == 0 => near.saturating_sub(random.below(3) * 1_000_000),
            0..=3 => bound,
            6 => of_any_length(random, 18),
            _ => *random.pick(&BOUNDS),
        };
        match number {
            0..=0x7f => bytes.push(number as u8),
            0x80..=0xff => bytes.extend([0xcc, number as u8]),
            0x100..=0xffff => bytes.extend([&[0xcd][..], &(number as u16).to_be_bytes()].concat()),
            0x1_0000..=0xffff_ffff => {
                bytes.extend([&[0xce][..], &(number as u32).to_be_bytes()].concat());
            }
            _ => bytes.extend([&[0xcf][..], &number.to_be_bytes()].concat()),
        }
    }
    bytes
}

pub fn wrong(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => (0..random.below(20)).map(|_| random.number() as u8).collect(),
        1 => vec![b'9'; random.below(300) as usize],
        2 => [vec![b'0'; random.below(400) as usize], b"7".to_vec()].concat(),
        _ => random.pick(&WRONG).as_bytes().to_vec(),
    }
}

fn pick(random: &mut Random, words: &[&str]) -> Vec<u8> {
    // Occasionally a random number of the range instead of a bound.
    if random.below(6) == 0 {
        return (1 + of_any_length(random, 12)).to_string().into_bytes();
    }
    random.pick(words).as_bytes().to_vec()
}

fn duration(random: &mut Random) -> (Vec<u8>, i64) {
    if random.below(8) == 0 {
        let us = 1_000 + of_any_length(random, 14) as i64;
        let us = us.min(31_622_400_000_000);
        return (format!("{}.{:06}", us / 1_000_000, us % 1_000_000).into_bytes(), us);
    }
    let (text, us) = random.pick(&DURATIONS);
    (text.as_bytes().to_vec(), *us)
}

/// Returns a rule's arguments without options, and about how long its state stays valid.
pub fn limits(random: &mut Random, kind: Kind) -> (Vec<Vec<u8>>, i64) {
    match kind {
        Kind::Windowed(_) => {
            let (window, us) = duration(random);
            (vec![pick(random, &LIMITS), window], us)
        }
        Kind::Rated(_) => {
            let mut words = rated(random);
            // Mostly three values that are valid together.
            while !go_together(&words) && random.below(12) > 0 {
                words = rated(random);
            }
            words
        }
        Kind::Backoff => {
            let attempts = match random.below(6) {
                0 => pick(random, &["1000000", "999999"]),
                _ => pick(random, &["1", "2", "3", "007"]),
            };
            // Mostly in the required order.
            let mut three = [duration(random), duration(random), duration(random)];
            if random.below(8) > 0 {
                three.sort_by_key(|(_, us)| *us);
            }
            let us = three[1].1;
            let [base, max, forget] = three.map(|(text, _)| text);
            (vec![attempts, base, max, forget], us)
        }
        Kind::Lease => {
            let (ttl, us) = duration(random);
            let limit = *random.pick(&["1", "2", "2", "3", "3", "10", "1000000"]);
            (vec![limit.as_bytes().to_vec(), ttl], us)
        }
    }
}

/// Returns a size, a rate and a period, each of which is in range.
fn rated(random: &mut Random) -> (Vec<Vec<u8>>, i64) {
    let (period, us) = duration(random);
    (vec![pick(random, &LIMITS), pick(random, &RATES), period], us)
}

/// Returns true if the three values are valid together.
fn go_together((words, period_us): &(Vec<Vec<u8>>, i64)) -> bool {
    let number = |word: &[u8]| String::from_utf8_lossy(word).parse().unwrap_or(1_i128);
    let (size, rate, us) = (number(&words[0]), number(&words[1]), i128::from(*period_us));
    rate <= 1_000 * us && size * us <= rate * 36_525 * 86_400_000_000
}

pub fn ttl(random: &mut Random) -> Vec<u8> {
    duration(random).0
}

/// Returns the id of a holder, mostly one of a few.
pub fn id(random: &mut Random) -> Vec<u8> {
    match random.below(30) {
        0 => Vec::new(),
        1 => vec![b'x'; 127 + random.below(3) as usize],
        2 => random.below(1_000).to_string().into_bytes(),
        _ => random.pick(&IDS).to_vec(),
    }
}

/// Returns options for a rule that takes a cost.
pub fn options(random: &mut Random, kind: Kind) -> Vec<Vec<u8>> {
    let mut options: Vec<Vec<Vec<u8>>> = Vec::new();
    if matches!(kind, Kind::Backoff | Kind::Lease) {
        return Vec::new();
    }
    if random.below(5) < 2 {
        options.push(vec![any_case(random, "COST"), pick(random, &COSTS)]);
    }
    if random.below(8) == 0 {
        options.push(vec![any_case(random, "PARTIAL")]);
    }
    if random.below(6) == 0 {
        options.push(vec![any_case(random, "LEAVE"), pick(random, &LEAVES)]);
    }
    if kind == Kind::Windowed("FIXED") && random.below(4) == 0 {
        options.push(vec![any_case(random, "ALIGNED")]);
    }
    if kind == Kind::Windowed("SLIDINGLOG") && random.below(4) == 0 {
        let slots = random.pick(&["16", "16", "0017", "30", "1024", "65536"]).as_bytes().to_vec();
        options.push(vec![any_case(random, "SLOTS"), slots]);
    }
    if random.below(2) == 0 {
        options.reverse();
    }
    options.concat()
}

/// Spoils one word or several.
pub fn spoil(random: &mut Random, words: &mut Vec<Vec<u8>>) {
    let place = random.below(words.len() as u64 + 1) as usize;
    let is_word = place < words.len();
    match random.below(7) {
        0..=2 if is_word => words[place] = wrong(random),
        3 => words.insert(place, wrong(random)),
        4 if is_word => drop(words.remove(place)),
        5 if is_word => words.insert(place, words[place].clone()),
        6 if is_word => words.extend_from_within(place..),
        _ => words.push(wrong(random)),
    }
}
