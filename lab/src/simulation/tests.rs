use super::column::Column;
use super::measures::{BusiestWindow, LEVELS};
use super::retries::{ATTEMPTS_MAX, Retries};
use super::{Columns, Outcome, Results, Scenario, run};
use crate::traffic::random::Random;
use crate::traffic::{CALLS_MAX, Shape, TooManyCalls, Traffic};
use crate::wording::Bound;
use redis_throttle_engine::time::Span;

/// One key, no retries, and one choice for each rule.
fn scenario(shape: Shape, duration_ms: u64, rules: &[&str]) -> Scenario {
    Scenario {
        traffic: Traffic { shape, duration_ms, seed: 1, keys: 1 },
        cost: 1,
        retries: Retries::None,
        watch: 0,
        choices: rules.iter().map(|rule| vec![(*rule).to_owned()]).collect(),
    }
}

fn outcomes(scenario: &Scenario) -> Vec<Outcome> {
    let Results { choices, .. } = run(scenario, |outcome| outcome).expect("few calls");
    choices.into_iter().map(|choice| choice.expect("valid rules")).collect()
}

fn outcome(scenario: &Scenario) -> Outcome {
    outcomes(scenario).remove(0)
}

/// Returns the instant in ms, the attempt and the five integers of each call.
fn rows(columns: &Columns) -> Vec<(i64, i64, [i64; 5])> {
    let (at_us, attempt) = (columns.at_us.to_vec(), columns.attempt.to_vec());
    let columns = columns.integers.each_ref().map(Column::to_vec);
    let row = |at: usize| (at_us[at] / 1_000, attempt[at], columns.each_ref().map(|of| of[at]));
    (0..at_us.len()).map(row).collect()
}

#[test]
fn calls_get_the_replies_of_the_commands_page() {
    // Eight calls within a second against a burst of 6, 10 per minute.
    let steady = Shape::Steady(8.0);
    let outcome = outcome(&scenario(steady, 1_000, &["GCRA 6 10 60"]));
    let expected = [
        (0, 1, [1, 6, 5, 0, 6_000]),
        (125, 1, [1, 6, 4, 0, 11_875]),
        (250, 1, [1, 6, 3, 0, 17_750]),
        (375, 1, [1, 6, 2, 0, 23_625]),
        (500, 1, [1, 6, 1, 0, 29_500]),
        (625, 1, [1, 6, 0, 0, 35_375]),
        (750, 1, [0, 6, 0, 5_250, 35_250]),
        (875, 1, [0, 6, 0, 5_125, 35_125]),
    ];
    assert_eq!(rows(&outcome.columns), expected);
    let summary = &outcome.summary;
    assert_eq!((summary.allowed, summary.denied, summary.granted_units), (6, 2, 6));
    assert_eq!(summary.longest_wait_ms, Some(5_250));
}

#[test]
fn client_that_obeys_is_never_denied_twice_in_a_row_without_rivals() {
    // Two calls at once every 5 s against one per second: the second is denied and comes again.
    let mut herd = scenario(Shape::Herd(24.0 / 60.0), 60_000, &["GCRA 1 1 1s", "FIXED 1 1s"]);
    herd.retries = Retries::Obey;
    for outcome in outcomes(&herd) {
        let rows = rows(&outcome.columns);
        assert_eq!(rows.len(), 36);
        for (at, (at_ms, attempt, integers)) in rows.iter().enumerate() {
            assert_eq!(*attempt, if at % 3 == 2 { 2 } else { 1 }, "{rows:?}");
            assert_eq!(integers[0], i64::from(at % 3 != 1), "{rows:?}");
            assert_eq!(at_ms % 5_000, if at % 3 == 2 { 1_000 } else { 0 }, "{rows:?}");
        }
        assert_eq!(outcome.summary.first_attempts_denied, 12);
        assert!(!outcome.truncated);
    }
}

#[test]
fn client_that_obeys_does_not_repeat_a_call_that_is_never_allowed() {
    let mut steady = scenario(Shape::Steady(1.0), 10_000, &["GCRA 6 10 60"]);
    steady.cost = 7;
    steady.retries = Retries::Obey;
    let outcome = outcome(&steady);
    assert_eq!(outcome.columns.integers[3].to_vec(), [-1; 10]);
    assert_eq!(outcome.summary.longest_wait_ms, None);
    assert_eq!(outcome.texts.rules, ["GCRA 6 10 1m COST 7"]);
}

#[test]
fn client_that_hammers_calls_ten_times_every_100_ms() {
    let mut steady = scenario(Shape::Steady(1.0 / 30.0), 60_000, &["FIXED 1 1h"]);
    steady.retries = Retries::Hammer;
    let rows = rows(&outcome(&steady).columns);
    let calls: Vec<_> = rows.iter().map(|(at_ms, attempt, _)| (*at_ms, *attempt)).collect();
    let retries = (1..=10).map(|attempt| (29_900 + 100 * attempt, attempt));
    let expected: Vec<_> = [(0, 1)].into_iter().chain(retries).collect();
    assert_eq!(calls, expected);
}

#[test]
fn retries_end_with_the_time_line() {
    let mut steady = scenario(Shape::Steady(2.0), 1_000, &["FIXED 1 1h"]);
    steady.retries = Retries::Hammer;
    let rows = rows(&outcome(&steady).columns);
    assert_eq!(
        rows.iter().map(|(at_ms, ..)| *at_ms).collect::<Vec<_>>(),
        [0, 500, 600, 700, 800, 900]
    );
    steady.retries = Retries::Obey;
    assert_eq!(outcome(&steady).columns.len(), 2);
}

#[test]
fn retries_above_the_maximum_are_left_out_and_calls_are_not() {
    let mut steady = scenario(Shape::Steady(1_000.0), 60_000, &["FIXED 1 1h", "FIXED 60000 1h"]);
    steady.retries = Retries::Hammer;
    let outcomes = outcomes(&steady);
    assert_eq!(outcomes[0].columns.len(), CALLS_MAX);
    assert!(outcomes[0].truncated && !outcomes[1].truncated);
    let attempts = outcomes[0].columns.attempt.to_vec();
    assert_eq!(attempts.iter().filter(|attempt| **attempt == 1).count(), 60_000);
    assert!(outcomes[0].columns.at_us.to_vec().is_sorted());
    let many = scenario(Shape::Steady(1_000.0), 101_000, &["FIXED 1 1h"]);
    assert_eq!(run(&many, |_| ()), Err(TooManyCalls));
}

#[test]
fn level_is_measured_after_the_calls_of_its_instant() {
    // 600 steps of 100 ms. The calls come at 0, 20 and 40 s; the window ends at 30 s.
    let steady = scenario(Shape::Steady(0.05), 60_000, &["FIXED 5 30s"]);
    let outcome = outcome(&steady);
    let level = outcome.levels[0].to_vec();
    assert_eq!(level.len() as u64, LEVELS);
    for (step, expected) in
        [(0, 4), (199, 4), (200, 3), (299, 3), (300, 5), (399, 5), (400, 4), (600, 4)]
    {
        assert_eq!(level[step], expected, "step {step}");
    }
}

#[test]
fn level_is_that_of_the_watched_key() {
    let mut steady = scenario(Shape::Steady(0.05), 60_000, &["FIXED 5 1h"]);
    steady.traffic.keys = 4;
    for (watch, expected) in [(0, 4), (1, 4), (2, 4), (3, 5)] {
        steady.watch = watch;
        assert_eq!(outcome(&steady).levels[0].to_vec().last(), Some(&expected), "{watch}");
    }
}

#[test]
fn several_rules_grant_all_or_nothing() {
    let mut steady = scenario(Shape::Steady(1.0), 10_000, &[]);
    steady.choices = vec![vec!["FIXED 8 1h COST 2".to_owned(), "FIXED 9 1h".to_owned()]];
    steady.cost = 3;
    let outcome = outcome(&steady);
    // The second rule allows three calls and the first one would allow a fourth.
    assert_eq!(outcome.columns.integers[0].to_vec(), [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(outcome.columns.rule.to_vec(), [1; 10]);
    let last: Vec<_> = outcome.levels.iter().map(|level| level.to_vec()[600]).collect();
    assert_eq!(last, [2, 0]);
    assert_eq!(outcome.summary.granted_units, 6);
    let most: Vec<_> = outcome.summary.windows.iter().map(|window| window.most_units).collect();
    assert_eq!(most, [6, 9]);
}

#[test]
fn partial_grants_count_their_units() {
    let steady =
        scenario(Shape::Steady(1.0), 3_000, &["FIXED 10 1h COST 4 PARTIAL", "FIXED 10 1h COST 4"]);
    let outcomes = outcomes(&steady);
    assert_eq!(outcomes[0].columns.integers[0].to_vec(), [4, 4, 2]);
    assert_eq!(outcomes[0].summary.granted_units, 10);
    assert_eq!(outcomes[0].summary.windows[0].most_units, 10);
    assert_eq!(outcomes[1].columns.integers[0].to_vec(), [1, 1, 0]);
    assert_eq!(outcomes[1].summary.windows[0].most_units, 8);
}

#[test]
fn busiest_window_does_not_include_its_end() {
    // A call each second; a window of 3 s from one call on has three.
    let steady = scenario(Shape::Steady(1.0), 10_000, &["SLIDINGLOG 3 3s"]);
    let window = outcome(&steady).summary.windows[0];
    let bound = Bound { window: Span::from_ms(3_000), units: Some(3) };
    assert_eq!(window, BusiestWindow { bound, most_units: 3 });
}

#[test]
fn invalid_rule_in_one_choice_leaves_the_others() {
    let steady = scenario(Shape::Steady(1.0), 1_000, &["GCRA 0 1 1s", "GCRA 1 1 1s"]);
    let results = run(&steady, |outcome| outcome.columns.len()).expect("few calls");
    assert_eq!(results.offered, 1);
    assert_eq!(results.choices[1], Ok(1));
    let error = results.choices[0].as_ref().expect_err("an error");
    assert!(error.rule == 0 && error.text.starts_with("ERR invalid burst: "), "{error:?}");
}

/// Draws a scenario of up to 400 calls for each shape and rule.
fn random_scenario(random: &mut Random) -> Scenario {
    let duration_ms = 1_000 + random.below(120_000);
    let rate = random.part() * 400_000.0 / duration_ms as f64;
    let shapes =
        [Shape::Steady, Shape::Bursty, Shape::Greedy, Shape::Herd, Shape::Day, Shape::Abuser];
    let shape = shapes[usize::try_from(random.below(6)).expect("a place")](rate);
    let (limit, rate) = (1 + random.below(20), 1 + random.below(20));
    let period_ms = 1 + random.below(30_000);
    let rules = [
        format!("GCRA {limit} {rate} {period_ms}ms"),
        format!("TOKENBUCKET {limit} {rate} {period_ms}ms"),
        format!("LEAKYBUCKET {limit} {rate} {period_ms}ms"),
        format!("FIXED {limit} {period_ms}ms"),
        format!("FIXED {limit} {period_ms}ms ALIGNED"),
        format!("SLIDING {limit} {period_ms}ms"),
        format!("SLIDINGLOG {limit} {period_ms}ms SLOTS 16"),
        format!("QUOTA {limit} day"),
        format!("BACKOFF {limit} 1s 5s 1h"),
    ];
    let retries = [Retries::None, Retries::Obey, Retries::Hammer];
    Scenario {
        traffic: Traffic {
            shape,
            duration_ms,
            seed: u32::try_from(random.below(100)).expect("a seed"),
            keys: u8::try_from(1 + random.below(5)).expect("a number of keys"),
        },
        cost: random.below(4),
        retries: retries[usize::try_from(random.below(3)).expect("a place")],
        watch: 0,
        choices: rules.iter().map(|rule| vec![rule.clone()]).chain([rules.to_vec()]).collect(),
    }
}

#[test]
fn no_rule_lets_more_through_than_it_promises() {
    let mut random = Random::new(28);
    let mut reached = 0;
    for _ in 0..300 {
        let scenario = random_scenario(&mut random);
        for outcome in outcomes(&scenario) {
            for window in &outcome.summary.windows {
                let Some(promised) = window.bound.units else { continue };
                assert!(window.most_units <= promised, "{scenario:?}: {window:?}");
                reached += usize::from(window.most_units == promised);
            }
        }
    }
    assert!(reached > 100, "the bounds are tight: {reached}");
}

#[test]
fn outcome_depends_on_the_scenario_only_and_adds_up() {
    let mut random = Random::new(82);
    for _ in 0..100 {
        let scenario = random_scenario(&mut random);
        let outcomes = outcomes(&scenario);
        assert_eq!(outcomes, self::outcomes(&scenario));
        let offered = scenario.traffic.calls().expect("few calls").len();
        for Outcome { columns, summary, levels, .. } in outcomes {
            let attempts = columns.attempt.to_vec();
            assert_eq!(attempts.iter().filter(|attempt| **attempt == 1).count(), offered);
            assert_eq!(summary.allowed + summary.denied, columns.len() as u64);
            assert!(columns.at_us.to_vec().is_sorted());
            assert!(attempts.iter().all(|attempt| *attempt <= ATTEMPTS_MAX.into()));
            assert!(levels.iter().all(|level| level.len() as u64 == LEVELS));
        }
    }
}
