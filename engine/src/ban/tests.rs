//! Bans in worked examples: tables of (time, call, expected), and the calls that the property tests
//! do not draw.
//!
//! The expected numbers are `allowed limit remaining retry_after_ms reset_after_ms`.

use crate::algorithms::{NewState, OtherAlgorithm, Rule, State};
use crate::ban::Ban;
use crate::bounds::{Cost, Limit, Period, Slots};
use crate::call::{CallOptions, Mode};
use crate::decision::{Outcome, Verdict};
use crate::grammar::ban::ban;
use crate::grammar::error::GrammarError;
use crate::grammar::redis_cell::throttle;
use crate::grammar::reservation::{ReservationVerb, RuleSource, reservation};
use crate::grammar::rule::rule_with_cost;
use crate::oracle::Reply;
use crate::redis_cell;
use crate::reservations::window::{Hold, Step};
use crate::state::{decode, encode};
use crate::time::{Instant, Span};

const START_US: u64 = 1_700_000_000_000_000;

fn at_ms(ms: i64) -> Instant {
    Instant::from_us(START_US.checked_add_signed(ms * 1_000).unwrap())
}

fn words(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

/// Returns a ban of 10 s that starts at 0 ms.
fn ten_seconds() -> Ban {
    Ban::new(at_ms(0), Period::new(Span::from_ms(10_000)).unwrap())
}

/// Returns the five integers, and the end of the ban that the call stores, in ms.
fn numbers_and_end(outcome: &Outcome<NewState<'_>>) -> ([i128; 5], Option<u64>) {
    let stored = outcome.next.kept().map(|next| {
        let NewState::Banned(ban) = next.state else { panic!("{:?}", next.state) };
        assert_eq!((next.expires_at, next.ttl_slack), (ban.until, Span::ZERO));
        (ban.until.as_us() - START_US) / 1_000
    });
    (Reply::from(outcome.decision).fields(), stored)
}

fn rule(line: &str) -> (Rule, CallOptions) {
    let request = rule_with_cost(&words(line), Slots::DEFAULT).expect(line);
    (request.rule, request.options)
}

const EVERY_RULE: [&str; 8] = [
    "FIXED 5 60",
    "SLIDING 5 60",
    "SLIDINGLOG 5 60",
    "TOKENBUCKET 5 5 60",
    "LEAKYBUCKET 5 5 60",
    "GCRA 5 5 60",
    "BACKOFF 5 1 10 60",
    "QUOTA 5 day",
];

fn decide(line: &str, ban: Ban, ms: i64) -> ([i128; 5], Option<u64>) {
    let (rule, options) = rule(line);
    let stored = Some(State::Banned(ban));
    numbers_and_end(&rule.decide_call(Mode::Take, stored, at_ms(ms), options).unwrap())
}

#[test]
fn ban_denies_every_rule_until_its_end() {
    for line in EVERY_RULE {
        for (ms, left_ms) in [(0, 10_000), (4_000, 6_000), (9_999, 1)] {
            let expected = ([0, 5, 0, left_ms, left_ms], None);
            assert_eq!(decide(line, ten_seconds(), ms), expected, "{line} at {ms} ms");
        }
    }
}

#[test]
fn key_is_unused_when_its_ban_ends() {
    for line in EVERY_RULE {
        let (rule, options) = rule(line);
        let decide = |stored| rule.decide(stored, at_ms(10_000), options.cost);
        assert_eq!(decide(Some(State::Banned(ten_seconds()))), decide(None), "{line}");
    }
}

#[test]
fn ban_denies_calls_with_any_options() {
    let table = [
        ("GCRA 5 5 60 COST 0", [0, 5, 0, 6_000, 6_000]),
        ("GCRA 5 5 60 COST 5", [0, 5, 0, 6_000, 6_000]),
        ("GCRA 5 5 60 COST 6", [0, 5, 0, -1, 6_000]),
        ("FIXED 5 60 COST 3 LEAVE 2", [0, 5, 0, 6_000, 6_000]),
        ("FIXED 5 60 COST 3 LEAVE 3", [0, 5, 0, -1, 6_000]),
        ("FIXED 5 60 COST 0 LEAVE 6", [0, 5, 0, -1, 6_000]),
        ("FIXED 5 60 COST 9 PARTIAL", [0, 5, 0, 6_000, 6_000]),
        ("FIXED 5 60 COST 9 PARTIAL LEAVE 80%", [0, 5, 0, 6_000, 6_000]),
        ("FIXED 5 60 COST 9 PARTIAL LEAVE 100%", [0, 5, 0, -1, 6_000]),
    ];
    for (line, expected) in table {
        assert_eq!(decide(line, ten_seconds(), 4_000), (expected, None), "{line}");
    }
}

#[test]
fn ban_is_rebased_by_a_call_with_a_cost_when_the_clock_steps_back() {
    // 1 ms before the ban's start, more than its length is left.
    let table = [
        ("FIXED 5 60", 0, ([0, 5, 0, 10_000, 10_000], None)),
        ("FIXED 5 60", -1, ([0, 5, 0, 10_000, 10_000], Some(9_999))),
        ("FIXED 5 60 COST 9", -1, ([0, 5, 0, -1, 10_000], Some(9_999))),
        ("FIXED 5 60 COST 0", -1, ([0, 5, 0, 10_000, 10_000], None)),
    ];
    for (line, ms, expected) in table {
        let decided = decide(line, ten_seconds(), ms);
        assert_eq!(decided, expected, "{line} at {ms} ms");
    }
}

#[test]
fn charges_and_refunds_change_nothing_under_a_ban() {
    for line in EVERY_RULE {
        let (rule, _) = rule(line);
        for ms in [4_000, -1] {
            let (stored, now) = (Some(State::Banned(ten_seconds())), at_ms(ms));
            let left = if ms < 0 { 10_000 } else { 6_000 };
            let expected = ([0, 5, 0, left, left], None);
            let cost = Cost::new(9).unwrap();
            assert_eq!(
                numbers_and_end(&rule.charge(stored, now, cost).unwrap()),
                expected,
                "{line}"
            );
            assert_eq!(
                numbers_and_end(&rule.refund(stored, now, cost).unwrap()),
                expected,
                "{line}"
            );
        }
        let (stored, now) = (Some(State::Banned(ten_seconds())), at_ms(10_000));
        assert_eq!(rule.charge(stored, now, Cost::ONE), rule.charge(None, now, Cost::ONE));
        assert_eq!(rule.refund(stored, now, Cost::ONE), rule.refund(None, now, Cost::ONE));
    }
}

#[test]
fn reservations_are_denied_under_a_ban() {
    use ReservationVerb::{Cancel, Commit, Reserve};
    let table = [
        (Reserve, "job 30s FIXED 5 60 COST 5", 4_000, ([0, 5, 0, 6_000, 6_000], None)),
        (Reserve, "job 30s FIXED 5 60 COST 6", 4_000, ([0, 5, 0, -1, 6_000], None)),
        (Reserve, "job 30s QUOTA 5 day LEAVE 5", 4_000, ([0, 5, 0, -1, 6_000], None)),
        (Reserve, "job 30s QUOTA 5 day COST 0", 4_000, ([0, 5, 0, 6_000, 6_000], None)),
        (Reserve, "job 30s FIXED 5 60", -1, ([0, 5, 0, 10_000, 10_000], Some(9_999))),
        (Commit, "job FIXED 5 60 COST 9", 4_000, ([0, 5, 0, 6_000, 6_000], None)),
        (Commit, "job FIXED 5 60", -1, ([0, 5, 0, 10_000, 10_000], None)),
        (Cancel, "job QUOTA 5 day", 4_000, ([0, 5, 0, 6_000, 6_000], None)),
    ];
    for (verb, line, ms, expected) in table {
        let words = words(line);
        let request = reservation(verb, &words, Slots::DEFAULT).expect(line);
        let RuleSource::Call(rule) = request.source else { panic!("{line} has a rule") };
        let step = |stored, ms| rule.take_step(stored, at_ms(ms), request.id, request.step);
        let banned = Some(State::Banned(ten_seconds()));
        assert_eq!(
            numbers_and_end(&step(banned, ms).unwrap()),
            expected,
            "{verb:?} {line} at {ms} ms"
        );
        assert_eq!(step(banned, 10_000), step(None, 10_000), "{verb:?} {line}");
        // As one of several rules, and in shadow mode: the ban denies, and nothing is held.
        let Step::Reserve(hold) = request.step else { continue };
        for (mode, is_shadow) in [(Mode::Take, true), (Mode::TakeNothing, false)] {
            let hold = Hold { is_shadow, ..hold };
            let reserve = |stored, ms| rule.reserve(mode, stored, at_ms(ms), request.id, hold);
            assert_eq!(
                numbers_and_end(&reserve(banned, ms).unwrap()),
                expected,
                "{line} {mode:?} at {ms} ms"
            );
            assert_eq!(reserve(banned, 10_000), reserve(None, 10_000), "{line} {mode:?}");
        }
    }
}

#[test]
fn redis_cell_denial_rounds_its_seconds_up() {
    let call = throttle(&words("4 10 60")).unwrap();
    let table = [
        (1, 1, (1, 1)),
        (999_999, 1, (1, 1)),
        (1_000_000, 1, (1, 1)),
        (1_000_001, 0, (2, 2)),
        (6_000_000, 6, (-1, 6)),
    ];
    for (left_us, quantity, (retry_s, reset_s)) in table {
        let quantity = Cost::new(quantity).unwrap();
        let denial = call.rule.denial(Span::from_us(left_us), quantity);
        let verdict = match retry_s {
            -1 => redis_cell::Verdict::Impossible,
            s => redis_cell::Verdict::Limited { retry_after_s: s.try_into().unwrap() },
        };
        let (limit, remaining) = (Limit::new(5).unwrap(), 0);
        let expected = redis_cell::Decision { verdict, limit, remaining, reset_after_s: reset_s };
        assert_eq!(denial, expected, "{left_us} us left");
    }
}

#[test]
fn ban_is_kept_under_any_algorithm_and_forgotten_at_its_end() {
    for line in EVERY_RULE {
        let algorithm = rule(line).0.algorithm();
        let banned = State::Banned(ten_seconds());
        assert_eq!(banned.under(algorithm, at_ms(9_999)), Ok(Some(banned)), "{line}");
        assert_eq!(banned.under(algorithm, at_ms(10_000)), Ok(None), "{line}");
    }
    assert_eq!(State::Banned(ten_seconds()).algorithm(), None);
}

#[test]
fn states_other_than_a_ban_stay_another_algorithms() {
    let (fixed, options) = rule("FIXED 5 60");
    let outcome = fixed.decide(None, at_ms(0), options.cost).unwrap();
    let mut bytes = Vec::new();
    encode(&outcome.next.kept().unwrap().state).apply(&mut bytes);
    let stored = decode(&bytes).ok();
    for line in EVERY_RULE.iter().filter(|line| !line.starts_with("FIXED")) {
        let (rule, options) = rule(line);
        let decided = rule.decide(stored, at_ms(0), options.cost);
        assert_eq!(decided, Err(OtherAlgorithm), "{line}");
    }
}

#[test]
fn inspection_returns_the_end_of_the_ban() {
    let at = |ms| State::Banned(ten_seconds()).at(at_ms(ms));
    let ban = at(0).expect("live");
    assert_eq!(
        (ban.name(), ban.inspect(at_ms(0))),
        ("BLOCKED", Ok(vec![("until_us", START_US + 10_000_000)]))
    );
    // Re-based if the clock stepped back.
    let ban = at(-5_000).expect("live");
    assert_eq!(ban.inspect(at_ms(0)), Ok(vec![("until_us", START_US + 5_000_000)]));
    assert_eq!(at(10_000), None);
}

#[test]
fn verdict_of_a_ban_is_a_denial() {
    let verdict = Verdict::Banned { retry_after: None };
    assert!(verdict.is_banned() && !verdict.is_allowed());
    assert_eq!(verdict.wait(), None);
    assert!(!Verdict::Impossible.is_banned());
}

#[test]
fn duration_is_parsed_as_every_duration() {
    let table = [
        ("1ms", Ok(1_000)),
        ("366d", Ok(31_622_400_000_000)),
        ("1h", Ok(3_600_000_000)),
        ("0.5", Ok(500_000)),
        ("0", Err(GrammarError::BanDuration)),
        ("0.9ms", Err(GrammarError::BanDuration)),
        ("367d", Err(GrammarError::BanDuration)),
        ("1H", Err(GrammarError::BanDuration)),
        ("", Err(GrammarError::BanDuration)),
        ("1h 1h", Err(GrammarError::Arity)),
    ];
    for (line, expected) in table {
        assert_eq!(ban(&words(line)).map(Period::as_us), expected, "{line}");
    }
    assert_eq!(ban(&[]), Err(GrammarError::Arity));
}
