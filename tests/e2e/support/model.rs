//! The six algorithms once more, as plainly as the documentation tells them: what a call of
//! cost 1 must answer on a state that RL.INSPECT shows. Wide integers, no care for speed.

use super::algorithms::{Algorithm, FIXED, GCRA, LEAKYBUCKET, SLIDING, SLIDINGLOG, TOKENBUCKET};
use super::{Random, Reply};

/// The fields of a state by name, in the order of INSPECT.
pub type Fields = Vec<(String, i128)>;

/// `limit` per `period`: as in [`Algorithm::arguments`], capacity and rate are both `limit`.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub limit: i128,
    pub period_us: i128,
}

/// Allowed, limit, remaining, retry after, reset after.
type Numbers = [i128; 5];

fn ceil_div(dividend: i128, divisor: i128) -> i128 {
    (dividend + divisor - 1).div_euclid(divisor)
}

fn ms(us: i128) -> i128 {
    ceil_div(us.max(0), 1_000)
}

/// The reply that a state explains; `None` for a log out of order, whose middle is anything.
pub fn expected(
    algorithm: Algorithm,
    fields: &Fields,
    bytes: &[u8],
    rule: Rule,
    now: i128,
) -> Option<Numbers> {
    let field = |place: usize| fields[place].1;
    match algorithm {
        FIXED => Some(fixed(field(0), field(1), rule, now)),
        SLIDING => Some(sliding(field(0), field(1), field(2), rule, now)),
        TOKENBUCKET => Some(token_bucket(field(0), field(1), field(2), rule, now)),
        LEAKYBUCKET => Some(leaky_bucket(field(0), field(1), field(2), rule, now)),
        GCRA => Some(gcra(field(0), field(1), rule, now)),
        _ => log_entries(fields, bytes).map(|log| sliding_log(&log, field(4), rule, now)),
    }
}

fn fixed(start: i128, used: i128, rule: Rule, now: i128) -> Numbers {
    let Rule { limit, period_us: window } = rule;
    let (start, used) = match start {
        // Ahead by more than a window: the clock stepped back, and the window opens anew.
        start if start - now > window => (now, used),
        start if now < start + window => (start, used),
        _ => (now, 0),
    };
    let until_end = ms(start + window - now);
    if used < limit {
        [1, limit, limit - used - 1, 0, until_end]
    } else {
        [0, limit, 0, until_end, until_end]
    }
}

fn sliding(start: i128, previous: i128, current: i128, rule: Rule, now: i128) -> Numbers {
    let Rule { limit, period_us: window } = rule;
    let this_window = now - now % window;
    let mut state = (start, previous, current);
    if start % window != 0 {
        state = (start - start % window, 0, (previous + current).min(1_000_000_000_000_000));
    }
    let (start, previous, current) = match state {
        (start, previous, current) if start - now > window => (this_window, previous, current),
        state if state.0 >= this_window => state,
        (start, _, current) if start + window == this_window => (this_window, current, 0),
        _ => (this_window, 0, 0),
    };
    // What still counts of the window before, `elapsed` into this one.
    let counting =
        |count: i128, elapsed: i128| ceil_div(count * (window - elapsed.max(0)).max(0), window);
    let estimate = counting(previous, now - start) + current;
    let lapse = |current: i128| match (previous, current) {
        (0, 0) => 0,
        (_, 0) => start + window,
        _ => start + 2 * window,
    };
    if estimate < limit {
        return [1, limit, limit - estimate - 1, 0, ms(lapse(current + 1) - now)];
    }
    // The first instant at which one more fits, in this window or in the next.
    let fits = |count: i128, room: i128| match count {
        0 => 0,
        count => (window - room * window / count).max(0),
    };
    let room = limit - 1 - current;
    let at = if room >= 0 {
        start + fits(previous, room)
    } else {
        start + window + fits(current, limit - 1)
    };
    [0, limit, (limit - estimate).max(0), ms(at - now), ms(lapse(current) - now)]
}

/// The parts that a bucket holds, where a unit is `period_us` parts, and from when on time
/// counts, with the parts that this time is worth.
fn bucket(held: i128, updated: i128, rule: Rule, now: i128) -> (i128, i128, i128) {
    let full = rule.limit * rule.period_us;
    let held = held.min(full);
    if updated - now > ceil_div(full, rule.limit) {
        return (held, now, 0);
    }
    (held, updated.max(now), rule.limit * (now - updated).max(0))
}

fn token_bucket(tokens: i128, fraction: i128, updated: i128, rule: Rule, now: i128) -> Numbers {
    let Rule { limit, period_us: period } = rule;
    let full = limit * period;
    let fraction = if fraction < period { fraction } else { 0 };
    let held = tokens * period + fraction;
    let (held, origin, earned) =
        if held >= full { (full, now, 0) } else { bucket(held, updated, rule, now) };
    let parts = (held + earned).min(full);
    let until = |parts: i128| match parts {
        0 => 0,
        parts => ms(origin - now + ceil_div(parts, limit)),
    };
    if parts >= period {
        let left = parts - period;
        [1, limit, left / period, 0, until(full - left)]
    } else {
        [0, limit, parts / period, until(period - parts), until(full - parts)]
    }
}

fn leaky_bucket(level: i128, fraction: i128, updated: i128, rule: Rule, now: i128) -> Numbers {
    let Rule { limit, period_us: period } = rule;
    let full = limit * period;
    let held = level * period + fraction.min(period);
    let (held, origin, drained) = bucket(held, updated, rule, now);
    let parts = (held - drained).max(0);
    let until = |parts: i128| match parts {
        0 => 0,
        parts => ms(origin - now + ceil_div(parts, limit)),
    };
    if parts + period <= full {
        let after = parts + period;
        [1, limit, (full - after) / period, until(parts), until(after)]
    } else {
        [0, limit, (full - parts) / period, until(parts + period - full), until(parts)]
    }
}

fn gcra(arrival_ns: i128, tolerance_log2: i128, rule: Rule, now: i128) -> Numbers {
    let interval = ceil_div(rule.period_us * 1_000, rule.limit);
    let tolerance = interval * rule.limit;
    let ahead = (arrival_ns - now * 1_000).max(0);
    let forged = ahead > 1 << tolerance_log2 && ahead > tolerance;
    let owed = if forged { tolerance } else { ahead };
    let ms_of = |ns: i128| ceil_div(ceil_div(ns, 1_000), 1_000);
    if owed + interval <= tolerance {
        let after = owed + interval;
        [1, rule.limit, (tolerance - after) / interval, 0, ms_of(after)]
    } else {
        let early = owed + interval - tolerance;
        [0, rule.limit, (tolerance - owed).max(0) / interval, ms_of(early), ms_of(owed)]
    }
}

/// The entries of a log, as (instant, total), when they are in order.
fn log_entries(fields: &Fields, bytes: &[u8]) -> Option<Vec<(i128, i128)>> {
    let (count, base) = (fields[0].1 as usize, fields[2].1);
    let header = bytes.len() - 12 * count;
    let number = |six: &[u8]| six.iter().fold(0, |number, byte| number << 8 | i128::from(*byte));
    let entries = bytes[header..].chunks(12);
    let entries = entries.map(|raw| (base + number(&raw[..6]), number(&raw[6..])));
    let entries = entries.collect::<Vec<_>>();
    let ordered = entries.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1);
    ordered.then_some(entries)
}

fn sliding_log(log: &[(i128, i128)], slot: i128, rule: Rule, now: i128) -> Numbers {
    let Rule { limit, period_us: window } = rule;
    let my_slot = if limit <= 1_024 { 1 } else { ceil_div(window, 1_024) };
    let rounded = ceil_div(now, my_slot) * my_slot;
    let (newest, total) = *log.last().expect("a log has an entry");
    // Ahead by more than the window and any rounding: what is ahead happened just now.
    let repaired = newest - now > window.max(slot);
    let moved = |instant: i128| if repaired && instant > now { rounded } else { instant };
    let mut newest_first = log.iter().rev();
    let passed = newest_first.find(|(instant, _)| instant + window <= now).map_or(0, |dead| dead.1);
    let used = total - passed;
    if used < limit {
        let last = if repaired { rounded } else { newest.max(rounded) };
        return [1, limit, limit - used - 1, 0, ms(last + window - now)];
    }
    let excess = used - (limit - 1);
    let mut live = log.iter().filter(|(instant, _)| instant + window > now);
    let freed = live.find(|(_, total)| total - passed >= excess).expect("enough is used");
    let last = if repaired { rounded } else { newest };
    [0, limit, 0, ms(moved(freed.0) + window - now), ms(last + window - now)]
}

/// What holds even of a log out of order: between nothing and everything of it counts.
pub fn is_plausible(fields: &Fields, reply: Reply, rule: Rule) -> bool {
    let used = fields[1].1;
    let [allowed, limit, remaining, retry_ms, reset_ms] = reply.map(i128::from);
    let bounded = limit == rule.limit && reset_ms >= 0 && remaining < limit;
    bounded
        && match allowed {
            1 => retry_ms == 0 && remaining >= (limit - used - 1).max(0),
            _ => remaining == 0 && used >= limit && retry_ms >= 1,
        }
}

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
        9 => random.next(),
        _ => random.below(10),
    }
}

/// One number as MessagePack writes it, in the fewest bytes; now and then in more.
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

/// A state of this kind that nobody has written: the right shape, and any numbers.
pub fn forge(random: &mut Random, algorithm: Algorithm, now: u64) -> Vec<u8> {
    let (kind, mut numbers) = match algorithm {
        FIXED => (0xff, vec![number(random, now), number(random, 5)]),
        SLIDING => {
            let previous = number(random, 5);
            (0xfe, vec![number(random, now), previous, number(random, 5)])
        }
        SLIDINGLOG => (0xfd, vec![number(random, now), *random.pick(&[1, 1, 9_766, 1 << 40])]),
        TOKENBUCKET => (0xfc, vec![number(random, now), random.below(12), number(random, 1)]),
        LEAKYBUCKET => (0xfb, vec![number(random, now), random.below(12), number(random, 1)]),
        _ => (0xfa, vec![number(random, now).saturating_mul(1_000), random.below(66)]),
    };
    if random.below(30) == 0 {
        // A field too many, or one too few.
        if random.below(2) == 0 { numbers.push(1) } else { numbers.truncate(1) }
    }
    let mut bytes = vec![0x91 + numbers.len() as u8, kind];
    numbers.iter().for_each(|number| packed(random, *number, &mut bytes));
    if algorithm == SLIDINGLOG {
        // Mostly in order, and the first at the base.
        let (mut offset, mut total) = (0, 0);
        for _ in 0..random.below(9) {
            total += random.below(4);
            let entry = [offset, total].map(|number: u64| number.to_be_bytes());
            bytes.extend(entry.iter().flat_map(|number| number[2..].to_vec()));
            offset = match random.below(12) {
                0 => random.next() >> 16,
                _ => offset + random.below(5_000_000),
            };
        }
    }
    bytes
}
