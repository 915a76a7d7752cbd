//! The library beside the module, call by call: on twin keys, which only one of them touches, and
//! on crossing keys, which both do.

use std::collections::BTreeSet;
use std::env;

use crate::clock::Clock;
use crate::library::{Form, Library};
use crate::schedule;
use crate::steps::{Lane, Outcomes, Scene, Step};
use crate::support::{Random, Server, fuzz};
use crate::words::{KINDS, Kind};

/// Steps of the runs together, of which each is a call on every lane.
const CALLS: u64 = 240_000;

/// What only the module has touched, what the function has, and what the script has.
const TWINS: [Lane; 3] = [
    Lane { suffix: ":module", form: Some(Form::Module) },
    Lane { suffix: ":function", form: Some(Form::Function) },
    Lane { suffix: ":script", form: Some(Form::Script) },
];

/// What only the module has touched, and what all of them touch by turns.
const CROSSING: [Lane; 2] =
    [Lane { suffix: ":module", form: Some(Form::Module) }, Lane { suffix: ":any", form: None }];

/// What the module makes of the same twice.
const SAME: [Lane; 2] = [
    Lane { suffix: ":module", form: Some(Form::Module) },
    Lane { suffix: ":again", form: Some(Form::Module) },
];

fn calls() -> u64 {
    let number = env::var("RL_DIFFERENTIAL_CALLS").unwrap_or_else(|_| CALLS.to_string());
    number.parse().unwrap_or_else(|_| panic!("RL_DIFFERENTIAL_CALLS={number} is no number"))
}

/// Plays schedules until there were so many calls.
fn play(
    name: &str,
    usual_seed: u64,
    lanes: &[Lane],
    calls: u64,
    schedule: impl Fn(&mut Random) -> Vec<Step>,
) -> Outcomes {
    let mut random = Random::new(fuzz::seed(name, usual_seed));
    let (server, mut client, clock) = Clock::start(Server::setup());
    let library = Library::load(&mut client);
    let mut scene = Scene { client: &mut client, clock: &clock, library: &library, lanes };
    let mut outcomes = Outcomes::default();
    while outcomes.calls < calls {
        scene.play(&schedule(&mut random), &mut outcomes);
    }
    let Outcomes { calls, allowed, denied, errors, ref texts, .. } = outcomes;
    let texts = texts.len();
    eprintln!(
        "{name}: {calls} calls, {allowed} allowed, {denied} denied, {errors} in {texts} ways"
    );
    assert!(allowed * 5 > calls && denied * 20 > calls, "{outcomes:?}");
    server.assert_alive();
    assert_eq!(client.info_number("rl", "rl_panics"), 0);
    outcomes
}

/// Plays schedules of these rules until there were so many calls.
fn run(
    name: &str,
    usual_seed: u64,
    kinds: &[Kind],
    lanes: &[Lane],
    calls: u64,
) -> BTreeSet<String> {
    let schedule = |random: &mut Random| schedule::age(random, kinds);
    let outcomes = play(name, usual_seed, lanes, calls, schedule);
    let Outcomes { calls, errors, wrongtypes, .. } = outcomes;
    assert!(errors * 50 > calls && wrongtypes * 500 > calls, "{outcomes:?}");
    outcomes.texts
}

/// A run of one rule on keys that only one of the three touches.
fn run_twins(kind: Kind, usual_seed: u64) {
    run(kind.name(), usual_seed, &[kind], &TWINS, calls() / 20);
}

#[test]
fn keys_with_which_the_module_does_the_same_are_the_same() {
    run("module", 11, &KINDS, &SAME, calls() / 20);
}

#[test]
fn gcra_is_the_same_in_the_library() {
    run_twins(KINDS[0], 1);
}

#[test]
fn the_fixed_window_is_the_same_in_the_library() {
    run_twins(KINDS[1], 2);
}

#[test]
fn the_sliding_window_is_the_same_in_the_library() {
    run_twins(KINDS[2], 3);
}

#[test]
fn the_sliding_log_is_the_same_in_the_library() {
    run_twins(KINDS[3], 4);
}

#[test]
fn the_token_bucket_is_the_same_in_the_library() {
    run_twins(KINDS[4], 5);
}

#[test]
fn the_leaky_bucket_is_the_same_in_the_library() {
    run_twins(KINDS[5], 6);
}

#[test]
fn growing_delays_are_the_same_in_the_library() {
    run_twins(KINDS[6], 7);
}

#[test]
fn leases_are_the_same_in_the_library() {
    run_twins(KINDS[7], 8);
}

#[test]
fn a_log_of_thousands_of_calls_is_the_same_in_the_library() {
    let schedule = |random: &mut Random| schedule::long(random, Kind::Windowed("SLIDINGLOG"));
    play("long log", 12, &TWINS, calls() / 40, schedule);
}

#[test]
fn hundreds_of_holders_are_the_same_in_the_library() {
    let schedule = |random: &mut Random| schedule::long(random, Kind::Lease);
    play("many holders", 13, &TWINS, calls() / 40, schedule);
}

#[test]
fn rules_together_are_the_same_in_the_library() {
    run("several", 9, &KINDS, &TWINS, calls() / 5);
}

#[test]
fn a_key_that_module_and_library_share_is_what_the_module_alone_would_have_made_of_it() {
    let texts = run("crossing", 10, &KINDS, &CROSSING, calls() / 5 * 2);
    // Of all that the library can say of a call.
    assert!(texts.len() >= 50, "{texts:#?}");
}
