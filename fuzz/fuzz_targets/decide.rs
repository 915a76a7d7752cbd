//! Runs any schedule of calls of any kind, with any clock: on one key under two rules, or on
//! several keys, each under its own rules. The replies must be those of the naive models. The bytes
//! choose the algorithms, the limits and the steps.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::for_all_subjects;
use redis_throttle_engine::oracle::{
    AnyCall, AnySubject, CLOCK_MAX_US, CellKey, CellLimits, Fixed, Limits, Quotas, Reserving,
    Share, Source, Step, Subject, Twin, TwinOfAny, TwinPart, Verb, Windows, call_all,
};
use redis_throttle_engine::redis_cell::Verdict;
use redis_throttle_engine::time::Instant;

const START_US: i128 = 1_800_000_000_000_000;

/// The maximum number of calls in a schedule. Naive models become slower as their memory grows.
const CALLS_MAX: usize = 60;

/// The number of keys in a schedule with several keys.
const KEYS: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let mut source = bytes;
    let schedules = PLAYS.len() + OTHERS.len();
    // The two extra values draw a schedule with several keys.
    let drawn = source.below(schedules as u64 + 2) as usize;
    match PLAYS.iter().chain(&OTHERS).nth(drawn) {
        Some(play) => play(source),
        None => play_several(source),
    }
});

macro_rules! plays {
    ($($name:ident: $algorithm:ident => $subject:ty,)*) => {
        /// The functions that run a schedule, one for each algorithm.
        const PLAYS: [fn(&[u8]); Algorithm::ALL.len()] = [$(play::<$subject>),*];
    };
}

for_all_subjects!(plays);

/// The functions that run a schedule with reservations, and the one for the commands of redis-cell
/// and Redis.
const OTHERS: [fn(&[u8]); 3] = [reserve::<Fixed>, reserve::<Quotas>, redis_cell];

fn play<S: Subject>(mut source: &[u8]) {
    let rules = [Limits::draw(&mut source), Limits::draw(&mut source)];
    let (mut twin, mut now) = (Twin::<S>::default(), START_US);
    for _ in 0..CALLS_MAX {
        if source.is_empty() {
            break;
        }
        // One of eight calls uses the second rule.
        let limits = &rules[usize::from(source.below(8) == 1)];
        let is_set = source.below(8) == 1;
        let step = if is_set { Step::draw_set(&mut source) } else { Step::draw_good(&mut source) };
        now = (now + step.us(S::span_us(limits))).clamp(0, CLOCK_MAX_US);
        let verb = S::verb(Verb::draw(&mut source));
        let cost = S::cost(Share::draw(&mut source).of(limits));
        if let Err(difference) = twin.call(verb, limits, now, cost) {
            panic!("{difference}");
        }
    }
}

/// Runs redis-cell's command and Redis' `GCRA` on one key, under two rules.
fn redis_cell(mut source: &[u8]) {
    let rules = [Limits::draw(&mut source), Limits::draw(&mut source)];
    let (mut state, mut model, mut now) = (None, CellKey::default(), START_US);
    for _ in 0..CALLS_MAX {
        if source.is_empty() {
            break;
        }
        let drawn = &rules[usize::from(source.below(8) == 1)];
        let is_gcra = source.below(2) == 1;
        let limits = if is_gcra { CellLimits::for_gcra(drawn) } else { CellLimits::of(drawn) };
        let Some(rule) = limits.rule() else { return };
        let step = Step::draw_good(&mut source);
        // The stored form cannot hold a time after the year 2262. So `now` must stay a century
        // below that, because a state can lie a century ahead of it.
        now = (now + step.us(drawn.period_us)).clamp(0, CLOCK_MAX_US / 7 * 5);
        let quantity = Share::draw(&mut source).of(drawn);
        let cost = Cost::new(quantity.try_into().expect("not negative")).expect("in range");
        let instant = Instant::from_us(now.try_into().expect("not negative"));
        let outcome = rule.decide(state, instant, cost);
        let (reply, takes) = model.call(&limits, now, quantity);
        let decision = outcome.decision;
        let numbers = [reply[1], reply[2], reply[4]];
        let found = [decision.limit.units(), decision.remaining, decision.reset_after_s];
        assert_eq!(found.map(i128::from), numbers, "{limits:?} at {now}");
        let retry_after_s = match decision.verdict {
            Verdict::Limited { retry_after_s } => i128::from(retry_after_s),
            Verdict::Allowed | Verdict::Impossible => -1,
        };
        assert_eq!(retry_after_s, reply[3], "{limits:?} at {now}");
        assert_eq!(decision.verdict != Verdict::Allowed, reply[0] == 1, "{limits:?} at {now}");
        assert_eq!(outcome.next.is_some(), takes);
        state = outcome.next.map(|next| next.state).or(state);
        assert_eq!(state.map(|state| state.arrival_ns.into()), model.arrival_ns);
    }
}

/// Runs plain calls and reservations in turn.
fn reserve<S: Subject + Windows>(mut source: &[u8]) {
    let rules = [Limits::draw(&mut source), Limits::draw(&mut source)];
    let (mut twin, mut now) = (Twin::<Reserving<S>>::default(), START_US);
    for _ in 0..CALLS_MAX {
        if source.is_empty() {
            break;
        }
        let limits = &rules[usize::from(source.below(8) == 1)];
        let is_set = source.below(8) == 1;
        let step = if is_set { Step::draw_set(&mut source) } else { Step::draw_good(&mut source) };
        now = (now + step.us(S::span_us(limits))).clamp(0, CLOCK_MAX_US);
        let call = AnyCall::draw(&mut source, limits, S::span_us(limits));
        if let Err(difference) = twin.any_call(limits, now, call) {
            panic!("{difference}");
        }
    }
}

/// Runs calls with several rules, mixed with calls of any kind on one of the same keys.
fn play_several(mut source: &[u8]) {
    let mut twins = Vec::new();
    for _ in 0..KEYS {
        let subject = AnySubject::ALL[source.below(AnySubject::ALL.len() as u64) as usize];
        let rules = [Limits::draw(&mut source), Limits::draw(&mut source)];
        twins.push((TwinOfAny::new(subject), rules));
    }
    let mut now = START_US;
    for _ in 0..CALLS_MAX {
        if source.is_empty() {
            break;
        }
        let is_set = source.below(8) == 1;
        let step = if is_set { Step::draw_set(&mut source) } else { Step::draw_good(&mut source) };
        let (about, rules) = &twins[source.below(KEYS as u64) as usize];
        now = (now + step.us((about.subject.span_us)(&rules[0]))).clamp(0, CLOCK_MAX_US);
        let alone = source.below(2 * KEYS as u64) as usize;
        if source.below(16) == 1 {
            let (twin, rules) = &mut twins[source.below(KEYS as u64) as usize];
            twin.ban(now, rules[0].period_us);
        }
        let difference = match twins.get_mut(alone) {
            Some((twin, rules)) => {
                let limits = &rules[usize::from(source.below(8) == 1)];
                let verb = (twin.subject.verb)(Verb::draw(&mut source));
                let cost = (twin.subject.cost)(Share::draw(&mut source).of(limits));
                twin.call(verb, limits, now, cost).err()
            }
            None => {
                // Each bit of `chosen` selects a key for the call.
                let chosen = source.below(1 << KEYS);
                let mut parts = Vec::<TwinPart<'_>>::new();
                for (at, (twin, rules)) in twins.iter_mut().enumerate() {
                    if chosen >> at & 1 == 1 {
                        let limits = rules[usize::from(source.below(8) == 1)];
                        let cost = (twin.subject.cost)(Share::draw(&mut source).of(&limits));
                        parts.push((twin, limits, cost));
                    }
                }
                if parts.is_empty() { None } else { call_all(&mut parts, now).err() }
            }
        };
        if let Some(difference) = difference {
            panic!("{difference}");
        }
    }
}
