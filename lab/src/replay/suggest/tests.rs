use super::super::arguments::SuggestedAlgorithm;
use super::super::event::Applied;
use super::*;
use redis_throttle_engine::bounds::{Limit, Slots};
use redis_throttle_engine::grammar::rule::rule_with_cost;
use redis_throttle_engine::time::{Instant, Span};

fn event(at_us: u64, key: u32, cost: u64) -> Event {
    Event { at_us, cost, key, request_us: 0, applied: Applied::NONE, whole_second: false }
}

fn suggest(ladder: Ladder, cover: usize) -> Suggest {
    let rungs = Chunked::new(ladder.rungs.len() * len_at(&ladder.rungs[0]));
    let horizon = Period::new(Span::from_ms(60_000)).unwrap();
    let keys = Chunked::new(1);
    Suggest { ladder, cover, horizon, margin_percent: 0, keys, rungs, with_rungs: 0 }
}

fn rate(rate: u64, period_ms: u64) -> Rung {
    Rung::Rate(Limit::new(rate).unwrap(), Period::new(Span::from_ms(period_ms)).unwrap())
}

#[test]
fn rank_is_the_share_of_the_keys_rounded_up() {
    for (keys, one_in, expected) in
        [(1, 100, 1), (99, 100, 99), (100, 100, 99), (101, 100, 100), (200, 100, 198), (0, 100, 0)]
    {
        assert_eq!(rank(keys, one_in), expected, "{keys} {one_in}");
    }
}

/// Random calls of several keys: `(time, key, cost)`, in the order of time.
fn calls() -> Vec<Event> {
    // A linear congruential generator: the same calls in each run.
    let mut state = 7_u64;
    let mut random = |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut at_us = 1_700_000_000_000_000;
    let mut events = Vec::new();
    for _ in 0..4_000 {
        at_us += random(400_000);
        let key = random(20) * random(20);
        events.push(event(at_us, key as u32, random(4)));
    }
    events
}

/// Returns true if the engine denies a call of the key under the rule.
fn is_denied(rule: &str, key: u32) -> bool {
    let words: Vec<_> = rule.split(' ').map(str::as_bytes).collect();
    let rule = rule_with_cost(&words, Slots::DEFAULT).unwrap().rule;
    let mut state = Vec::new();
    calls().iter().filter(|event| event.key == key).any(|event| {
        let stored =
            (!state.is_empty()).then(|| redis_throttle_engine::state::decode(&state).unwrap());
        let cost = redis_throttle_engine::bounds::Cost::new(event.cost).unwrap();
        let outcome = rule.decide(stored, Instant::from_us(event.at_us), cost).unwrap();
        let change =
            outcome.next.kept().map(|next| redis_throttle_engine::state::encode(&next.state));
        let is_allowed = outcome.decision.verdict.is_allowed();
        if let Some(change) = change {
            change.apply(&mut state);
        }
        !is_allowed
    })
}

#[test]
fn needs_of_a_key_are_the_smallest_limits_under_which_the_engine_denies_nothing() {
    use SuggestedAlgorithm::{Fixed, Gcra, Tokenbucket};
    let rates = vec![rate(1, 1_000), rate(7, 9_000), rate(10, 60_000), rate(3, 1_000)];
    let windows =
        [1, 10, 600].map(|s| Rung::Window(Period::new(Span::from_ms(s * 1_000)).unwrap()));
    // A token bucket does not round its interval, so only even rates have exactly these needs.
    let even = vec![rate(1, 1_000), rate(10, 60_000), rate(2, 1_000)];
    for (algorithm, rungs) in [(Gcra, rates), (Fixed, windows.to_vec()), (Tokenbucket, even)] {
        let mut suggest = suggest(Ladder { algorithm, rungs }, 0);
        calls().iter().for_each(|event| suggest.call(event));
        for (at, rung) in suggest.ladder.rungs.iter().enumerate() {
            for key in [0, 1, 4, 6, 12, 19, 36, 72, 361] {
                let needs = suggest.needs(key, at);
                assert!(
                    suggest
                        .ladder
                        .rule(*rung, needs.max(1))
                        .is_some_and(|rule| { !is_denied(&rule, key) })
                );
                let less = suggest.ladder.rule(*rung, needs.saturating_sub(1));
                let less = less.is_none_or(|rule| is_denied(&rule, key));
                assert!(less, "{algorithm:?} {rung:?} key {key} needs {needs}");
            }
        }
    }
}

#[test]
fn the_suggested_rung_allows_the_fewest_units_in_the_horizon() {
    // One key with 10 calls at once each minute: the slow rate needs a burst of 10 only.
    let ladder = Ladder {
        algorithm: SuggestedAlgorithm::Gcra,
        rungs: vec![rate(1, 60_000), rate(10, 60_000), rate(10, 1_000)],
    };
    let mut suggest = suggest(ladder, 1);
    for minute in 0..100 {
        for _ in 0..10 {
            suggest.call(&event(minute * 60_000_000, 0, 1));
        }
    }
    let suggestion = suggest.finish(1).unwrap();
    let units: Vec<_> = suggestion.frontier.iter().map(|covered| covered.units[0]).collect();
    assert_eq!(units, [Some(901), Some(10), Some(10)]);
    assert_eq!(suggestion.rule, Some(("GCRA 10 10 1m".to_owned(), 1)));
    assert_eq!((suggestion.excluded_keys, suggestion.excluded_calls), (0, 0));
}

#[test]
fn a_need_beyond_every_rule_is_none() {
    let ladder = Ladder { algorithm: SuggestedAlgorithm::Gcra, rungs: vec![rate(1, 86_400_000)] };
    let mut suggest = suggest(ladder, 0);
    for _ in 0..2 {
        suggest.call(&event(u64::MAX / 2, 0, 1_000_000_000_000));
    }
    let suggestion = suggest.finish(1).unwrap();
    assert_eq!((suggestion.frontier[0].units[0], suggestion.rule), (None, None));
}
