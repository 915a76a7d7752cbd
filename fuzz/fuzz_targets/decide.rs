//! Any schedule of calls of any kind, by one or two rules on one key, under any clock: the answers are the
//! naive model's. The bytes say which algorithm, which limits, and what happens.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_throttle::limiter::oracle::{
    AnyCall, CLOCK_MAX_US, CellRate, Delays, Fixed, Leaky, Limits, Log, Reserving, Share, Sliding,
    Source, Step, Subject, Token, Twin, Verb,
};

const START_US: i128 = 1_800_000_000_000_000;

/// Naive models get slow with what they remember.
const CALLS_MAX: usize = 60;

fuzz_target!(|bytes: &[u8]| {
    let mut source = bytes;
    match source.below(8) {
        0 => play::<Fixed>(source),
        1 => play::<Sliding>(source),
        2 => play::<Log>(source),
        3 => play::<Token>(source),
        4 => play::<Leaky>(source),
        5 => play::<Delays>(source),
        6 => reserve(source),
        _ => play::<CellRate>(source),
    }
});

fn play<S: Subject>(mut source: &[u8]) {
    let rules = [Limits::draw(&mut source), Limits::draw(&mut source)];
    let (mut twin, mut now) = (Twin::<S>::default(), START_US);
    for _ in 0..CALLS_MAX {
        if source.is_empty() {
            break;
        }
        // Seven calls in eight are of the first rule.
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

/// Plain calls and reservations by turns.
fn reserve(mut source: &[u8]) {
    let rules = [Limits::draw(&mut source), Limits::draw(&mut source)];
    let (mut twin, mut now) = (Twin::<Reserving>::default(), START_US);
    for _ in 0..CALLS_MAX {
        if source.is_empty() {
            break;
        }
        let limits = &rules[usize::from(source.below(8) == 1)];
        let is_set = source.below(8) == 1;
        let step = if is_set { Step::draw_set(&mut source) } else { Step::draw_good(&mut source) };
        now = (now + step.us(limits.period_us)).clamp(0, CLOCK_MAX_US);
        let call = AnyCall::draw(&mut source, limits);
        if let Err(difference) = twin.any_call(limits, now, call) {
            panic!("{difference}");
        }
    }
}
