//! Random schedules: calls in every form on a few keys, whose limits change, on a clock that moves
//! forward, stops and steps back, while another client changes the keys.

use crate::library::{Call, FORMS, Request};
use crate::steps::{Step, Word};
use redis_throttle_engine::algorithms::Algorithm;

use crate::words::{self, Kind};
use support::forge::forge;
use support::{BASE_US, Random};

/// The last instant of the module's clock: 2200-01-01.
const CLOCK_MAX_US: i64 = 7_258_118_400_000_000;

/// An instant shortly after the end of the module's clock, where that clock has stopped and no key
/// expires soon.
const LATEST_US: i64 = CLOCK_MAX_US + 100;

/// The number of steps of an ordinary schedule, small enough to read a failing one.
const STEPS: usize = 200;

/// The number of steps of a schedule that stores many entries.
const LONG_STEPS: usize = 2_400;

/// The limits that a rule has in turn, as words, and how long a state under them is valid.
type Limits = (Call, i64);

struct Subject {
    key: Vec<u8>,
    kind: Kind,
    limits: Vec<Limits>,
}

/// Returns an ordinary schedule, which starts on an empty database.
pub fn age(random: &mut Random, kinds: &[Kind]) -> Vec<Step> {
    let subjects = (0..1 + random.below(5)).map(|number| subject(random, kinds, number));
    let subjects = subjects.collect::<Vec<_>>();
    let mut now_us = match random.below(12) {
        0 => 1,
        1 => 1_000_000,
        2 => CLOCK_MAX_US - random.below(5_000_000) as i64,
        3 => random.below(CLOCK_MAX_US as u64) as i64,
        4 => 4_294_967_296_000_000 - 1,
        _ => BASE_US,
    };
    let mut steps = vec![Step::Clock(now_us.max(1))];
    while steps.len() < STEPS {
        for _ in 0..=random.below(6) {
            steps.push(match random.below(32) {
                0 => meddle(random, &subjects, now_us),
                1 | 2 => forget(random, &subjects),
                3..=5 if kinds.len() > 1 => several(random, &subjects),
                _ => single(random, &subjects, kinds),
            });
        }
        now_us = (now_us + jump(random, &subjects)).clamp(1, LATEST_US);
        steps.push(Step::Clock(now_us));
    }
    steps
}

/// Returns a schedule with one large key: a log of thousands of calls, or a set of hundreds of
/// leases, which are taken, released and expire in dozens.
pub fn long(random: &mut Random, kind: Kind) -> Vec<Step> {
    let mut now_us = BASE_US;
    let mut steps = Vec::new();
    let is_small = random.below(2) == 0;
    for _ in 0..LONG_STEPS / 8 {
        steps.push(Step::Clock(now_us));
        for _ in 0..8 {
            // Some phases have many refunds.
            let refunds = if steps.len() / 500 % 2 == 0 { 1 } else { 12 };
            let line = match kind {
                Kind::Lease => of_holder(random),
                _ if is_small => of_small_log(random),
                _ => of_log(random, refunds),
            };
            steps.push(Step::Call(Request::line(&line), *random.pick(&FORMS)));
        }
        now_us += match random.below(60) {
            0 => 20_000_000,
            1 => 70_000_000,
            2 => -5_000_000,
            3 => -200_000_000,
            _ => random.below(200_000) as i64,
        };
    }
    steps
}

/// Returns a schedule with one log that is charged far beyond its limit and its number of slots.
pub fn charged(random: &mut Random) -> Vec<Step> {
    let mut now_us = BASE_US;
    let mut steps = Vec::new();
    for _ in 0..LONG_STEPS {
        steps.push(Step::Clock(now_us));
        let rule = *random.pick(&["1000 60", "1000 60", "1000 60", "1024 61", "1000 60 SLOTS 500"]);
        let line = match random.below(200) {
            0 => format!("REFUND k SLIDINGLOG {rule} COST {}", 1 + random.below(200)),
            1..5 => format!("PEEK k SLIDINGLOG {rule} COST {}", random.below(1_000)),
            5..15 => format!("SLIDINGLOG k {rule}"),
            15..35 => format!("REFUND k SLIDINGLOG {rule} COST {}", 1 + random.below(3)),
            _ => format!("CHARGE k SLIDINGLOG {rule} COST 2"),
        };
        steps.push(Step::Call(Request::line(&line), *random.pick(&FORMS)));
        now_us += match random.below(6_000) {
            0 => 61_000_000,
            1 => -70_000_000,
            2 => 10_000_000,
            _ => 1 + random.below(40_000) as i64,
        };
    }
    steps
}

fn of_holder(random: &mut Random) -> String {
    let id = random.below(400);
    match random.below(8) {
        0 => format!("RENEW k job-{id} {}s", 1 + random.below(60)),
        1 => format!("RELEASE k job-{id}"),
        2 => format!("PEEK k LEASE job-{id} {} 5", 1 + random.below(300)),
        3 => format!("LEASE k job-{id} {} 5", 1 + random.below(300)),
        _ => format!("LEASE k job-{id} 300 {}s", 1 + random.below(60)),
    }
}

/// Returns a call whose cost is mostly one, so that a log has as many entries as units.
fn of_small_log(random: &mut Random) -> String {
    let rule = *random.pick(&["30 1", "30 1", "30 1", "20 0.5", "1100 2", "30 1 SLOTS 16"]);
    match random.below(12) {
        0 | 1 => format!("REFUND k SLIDINGLOG {rule} COST {}", 1 + random.below(6)),
        2 => format!("CHARGE k SLIDINGLOG {rule}"),
        _ => format!("SLIDINGLOG k {rule}"),
    }
}

fn of_log(random: &mut Random, refunds: u64) -> String {
    let cost = 1 + random.below(4);
    let usual = ["3000 60", "3000 60", "3000 60", "3000 60", "1000 60", "9999 90"];
    // Calls of one log may have different slots.
    let own_slots = ["3000 60 SLOTS 100", "1000 60 SLOTS 100", "9999 90 SLOTS 65536"];
    let rule = if random.below(40) == 0 { random.pick(&own_slots) } else { random.pick(&usual) };
    match random.below(30) {
        place if place < refunds => {
            let most = *random.pick(&[5, 30, 300]);
            format!("REFUND k SLIDINGLOG {rule} COST {}", random.below(most))
        }
        13 => format!("CHARGE k SLIDINGLOG {rule} COST {}", random.below(300)),
        14 | 15 => format!("PEEK k SLIDINGLOG {rule} COST {}", random.below(3_000)),
        16 => format!("SLIDINGLOG k {rule} COST 5000 PARTIAL"),
        _ => format!("SLIDINGLOG k {rule} COST {cost}"),
    }
}

fn subject(random: &mut Random, kinds: &[Kind], number: u64) -> Subject {
    let kind = *random.pick(kinds);
    let limits = (0..1 + random.below(3)).map(|_| words::limits(random, kind)).collect();
    let key = match random.below(20) {
        0 => vec![0, 255, number as u8, b'\r', b'\n'],
        _ => format!("{}-{number}", kind.name()).into_bytes(),
    };
    Subject { key, kind, limits }
}

/// Returns a step of the clock that is mostly close to the span of one of the rules.
fn jump(random: &mut Random, subjects: &[Subject]) -> i64 {
    let subject = random.pick(subjects);
    let (_, span_us) = random.pick(&subject.limits);
    let us = match random.below(12) {
        0 => *random.pick(&[0, 1, 999, 1_000, 1_000_000]),
        1 => *random.pick(&[span_us - 1, *span_us, span_us + 1]),
        2 => 2 * span_us + random.below(3) as i64 - 1,
        3 => random.below(3 * *span_us as u64) as i64,
        4 | 5 => span_us / *random.pick(&[2, 3, 4, 7, 10]),
        6 => words::of_any_length(random, 14) as i64,
        _ => random.below(1 + *span_us as u64 / 8) as i64,
    };
    if random.below(6) == 0 { -us } else { us }
}

/// Returns a rule for a key: the key's own, or occasionally another.
fn rule(random: &mut Random, subject: &Subject, kinds: &[Kind]) -> (Kind, Call) {
    if random.below(30) == 0 {
        let kind = *random.pick(kinds);
        return (kind, words::limits(random, kind).0);
    }
    (subject.kind, random.pick(&subject.limits).0.clone())
}

/// Adds the words that a rule needs besides its limits.
fn full(random: &mut Random, kind: Kind, limits: Call) -> Call {
    match kind {
        Kind::Lease => [vec![words::id(random)], limits].concat(),
        kind => [limits, words::options(random, kind)].concat(),
    }
}

/// Returns a call on one key.
fn single(random: &mut Random, subjects: &[Subject], kinds: &[Kind]) -> Step {
    let subject = random.pick(subjects);
    if random.below(24) == 0 {
        return ban(random, subject);
    }
    let (kind, limits) = rule(random, subject, kinds);
    let name = words::any_case(random, kind.name());
    let (verb, mut arguments) = match (random.below(12), kind) {
        (0..=2, Kind::Lease) => ("RENEW", vec![words::id(random), words::ttl(random)]),
        (3..=5, Kind::Lease) => ("RELEASE", vec![words::id(random)]),
        (kind_of_call @ (6 | 7), _) | (kind_of_call @ (8 | 9), _) | (kind_of_call @ 10, _) => {
            let verb = match kind_of_call {
                6 | 10 => "PEEK",
                7 | 8 => "CHARGE",
                _ => "REFUND",
            };
            let verb = if kind == Kind::Lease && random.below(12) > 0 { "PEEK" } else { verb };
            (verb, [vec![name], full(random, kind, limits)].concat())
        }
        _ => (kind.name(), full(random, kind, limits)),
    };
    if random.below(12) == 0 {
        words::spoil(random, &mut arguments);
    }
    let request = Request { verb: verb.into(), keys: vec![subject.key.clone()], arguments };
    Step::Call(request, *random.pick(&FORMS))
}

/// Returns a call that bans a key, mostly for about as long as its state stays valid.
fn ban(random: &mut Random, subject: &Subject) -> Step {
    let (_, span_us) = random.pick(&subject.limits);
    let duration = match random.below(4) {
        0 => words::ttl(random),
        _ => format!("{}.{:06}", span_us / 1_000_000, span_us % 1_000_000).into_bytes(),
    };
    let mut arguments = vec![duration];
    if random.below(12) == 0 {
        words::spoil(random, &mut arguments);
    }
    let request = Request { verb: b"BLOCK".to_vec(), keys: vec![subject.key.clone()], arguments };
    Step::Call(request, *random.pick(&FORMS))
}

/// Returns a call with several rules.
fn several(random: &mut Random, subjects: &[Subject]) -> Step {
    let mut rules = Vec::new();
    let mut keys = Vec::new();
    let first = random.below(subjects.len() as u64) as usize;
    let count = match random.below(20) {
        0 => 15 + random.below(4) as usize,
        _ => 1 + random.below(subjects.len() as u64) as usize,
    };
    for place in 0..count {
        let subject = &subjects[(first + place) % subjects.len()];
        let round = place / subjects.len();
        let limits = random.pick(&subject.limits).0.clone();
        let mut words = full(random, subject.kind, limits);
        if random.below(25) == 0 {
            words::spoil(random, &mut words);
        }
        words.insert(0, words::any_case(random, subject.kind.name()));
        let blanks = if random.below(10) == 0 { "  " } else { " " };
        let mut packed = words.join(blanks.as_bytes());
        if random.below(20) == 0 {
            packed = [b" ", &packed[..], b"  "].concat();
        }
        rules.push(packed);
        let is_repeated = random.below(40) == 0;
        let number = if round == 0 || is_repeated { String::new() } else { format!("/{round}") };
        keys.push([&subject.key[..], number.as_bytes()].concat());
    }
    if random.below(40) == 0 {
        rules.pop();
    }
    let verb = *random.pick(&["ALL", "ALL", "PEEKALL"]);
    let request = Request { verb: verb.into(), keys, arguments: rules };
    Step::Call(request, *random.pick(&FORMS))
}

/// Returns a command that deletes a key.
fn forget(random: &mut Random, subjects: &[Subject]) -> Step {
    let key = random.pick(subjects).key.clone();
    Step::Meddle(vec![vec![Word::Text(b"DEL".to_vec()), Word::Key(key)]])
}

/// Returns commands by which another client overwrites, edits or deletes a key, or changes its
/// expiry.
fn meddle(random: &mut Random, subjects: &[Subject], now_us: i64) -> Step {
    let subject = random.pick(subjects);
    let other = random.pick(subjects);
    let text = |text: &[u8]| Word::Text(text.to_vec());
    let on_key = |name: &str, rest: &[&[u8]]| {
        let head = [text(name.as_bytes()), Word::Key(subject.key.clone())];
        head.into_iter().chain(rest.iter().map(|word| text(word))).collect::<Vec<_>>()
    };
    let noise = (0..random.below(30)).map(|_| random.number() as u8).collect::<Vec<_>>();
    let algorithm = match Algorithm::ALL.iter().find(|one| one.name() == subject.kind.name()) {
        Some(own) if random.below(4) > 0 => *own,
        _ => *random.pick(&Algorithm::ALL),
    };
    let forged = match random.below(3) {
        0 => words::state_of_bounds(random, subject.kind, now_us as u64),
        _ => forge(random, algorithm, now_us as u64),
    };
    let score = *random.pick(&["0", "-1", "0.5", "inf", "-inf", "9007199254740991", "1e300", "7"]);
    let id = words::id(random);
    let ms = words::of_any_length(random, 8).to_string();
    let place = random.below(24).to_string();
    let cut = "local v = redis.call('GET', KEYS[1]) if v then return redis.call('SET', KEYS[1], \
               string.sub(v, 1, ARGV[1]), 'KEEPTTL') end";
    let lines = match random.below(16) {
        0 | 1 => vec![on_key("SET", &[&noise])],
        2..=4 => vec![on_key("SET", &[&forged])],
        5 => vec![on_key("APPEND", &[&noise])],
        6 => vec![on_key("SETRANGE", &[place.as_bytes(), &noise[..noise.len().min(1)]])],
        7 => {
            let head = [text(b"EVAL"), text(cut.as_bytes()), text(b"1")];
            let rest = [Word::Key(subject.key.clone()), text(place.as_bytes())];
            vec![head.into_iter().chain(rest).collect()]
        }
        8 => vec![on_key("DEL", &[]), on_key("RPUSH", &[&noise])],
        9 => vec![on_key("DEL", &[]), on_key("HSET", &[b"", b"0"])],
        10 => vec![on_key("DEL", &[]), on_key("ZADD", &[score.as_bytes(), &id])],
        11 => vec![on_key("ZADD", &[score.as_bytes(), &id])],
        12 => vec![on_key("ZREM", &[b""])],
        13 => vec![on_key("PERSIST", &[])],
        14 => vec![on_key("PEXPIRE", &[ms.as_bytes()])],
        _ => {
            let keys = [Word::Key(other.key.clone()), Word::Key(subject.key.clone())];
            let copy = [text(b"COPY")].into_iter().chain(keys).chain([text(b"REPLACE")]);
            vec![copy.collect()]
        }
    };
    Step::Meddle(lines)
}
