//! Compares the library with the module, call by call: on twin keys, each used by only one of them,
//! and on crossing keys, used by both in turn.

use std::collections::BTreeSet;
use std::env;

use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::oracle::example;

use crate::clock::Clock;
use crate::library::{Form, Library, Request};
use crate::schedule;
use crate::steps::{Lane, Outcomes, Scene, Step, Word};
use crate::words::{KINDS, Kind};
use support::{BASE_US, Random, Server, fuzz, raw_error};

/// The number of steps of all runs together. Each step makes one call on every lane.
const CALLS: u64 = 240_000;

/// Three lanes, whose keys are called by the module, by the function and by the script.
const TWINS: [Lane; 3] = [
    Lane { suffix: ":module", form: Some(Form::Module) },
    Lane { suffix: ":function", form: Some(Form::Function) },
    Lane { suffix: ":script", form: Some(Form::Script) },
];

/// Two lanes: keys that only the module calls, and keys that all three forms call in turn.
const CROSSING: [Lane; 2] =
    [Lane { suffix: ":module", form: Some(Form::Module) }, Lane { suffix: ":any", form: None }];

/// Two lanes on which the module makes the same calls, to test the comparison itself.
const SAME: [Lane; 2] = [
    Lane { suffix: ":module", form: Some(Form::Module) },
    Lane { suffix: ":again", form: Some(Form::Module) },
];

fn calls() -> u64 {
    let number = env::var("RL_DIFFERENTIAL_CALLS").unwrap_or_else(|_| CALLS.to_string());
    number.parse().unwrap_or_else(|_| panic!("RL_DIFFERENTIAL_CALLS={number} is no number"))
}

/// Plays schedules until they have sent this many calls.
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

/// Plays schedules with these rules until they have sent this many calls.
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

/// Plays one rule on keys that only one form uses.
fn run_twins(kind: Kind, usual_seed: u64) {
    run(kind.name(), usual_seed, &[kind], &TWINS, calls() / 20);
}

#[test]
fn equal_calls_of_the_module_leave_equal_keys() {
    run("module", 11, &KINDS, &SAME, calls() / 20);
}

/// Plays one algorithm. If the schedules do not support the algorithm, asserts that the library
/// refuses it.
fn run_algorithm(algorithm: Algorithm) {
    if let Some(kind) = Kind::of(algorithm) {
        return run_twins(kind, algorithm as u64 + 1);
    }
    let (_server, mut client, _clock) = Clock::start(Server::setup());
    let library = Library::load(&mut client);
    let request = Request::line(&format!("{} k {}", algorithm.name(), example(algorithm)));
    for form in [Form::Function, Form::Script] {
        let reply = client.call(&request.call(form, &library));
        let error = raw_error(&reply).unwrap_or_else(|| panic!("{algorithm:?}: {reply:?}"));
        assert!(error.ends_with("needs the redis-throttle module"), "{algorithm:?}: {error}");
    }
}

macro_rules! the_same_in_the_library {
    ($($name:ident: $algorithm:ident => $subject:ty,)*) => {
        mod the_same_in_the_library {
            $(
                #[test]
                fn $name() {
                    super::run_algorithm(super::Algorithm::$algorithm);
                }
            )*
        }
    };
}

redis_throttle_engine::for_all_subjects!(the_same_in_the_library);

#[test]
fn library_equals_the_module_for_leases() {
    run_twins(Kind::Lease, 8);
}

#[test]
fn library_equals_the_module_for_a_log_of_thousands_of_calls() {
    let schedule = |random: &mut Random| schedule::long(random, Kind::Windowed("SLIDINGLOG"));
    play("long log", 12, &TWINS, calls() / 40, schedule);
}

#[test]
fn library_equals_the_module_for_a_log_charged_beyond_its_slots() {
    play("charged log", 14, &TWINS, calls() / 40, schedule::charged);
}

#[test]
fn library_equals_the_module_for_hundreds_of_holders() {
    let schedule = |random: &mut Random| schedule::long(random, Kind::Lease);
    play("many holders", 13, &TWINS, calls() / 40, schedule);
}

#[test]
fn library_equals_the_module_for_several_rules() {
    run("several", 9, &KINDS, &TWINS, calls() / 5);
}

#[test]
fn key_used_by_module_and_library_equals_a_key_of_the_module_alone() {
    let texts = run("crossing", 10, &KINDS, &CROSSING, calls() / 5 * 2);
    // Most of the error texts that the library has.
    assert!(texts.len() >= 50, "{texts:#?}");
}

/// When a lease of a year is released, the key keeps the expiry that its other leases need, or is
/// deleted.
#[test]
fn release_shortens_the_expiry_in_the_library_as_in_the_module() {
    let call = |line: &str| Step::Call(Request::line(line), Form::Script);
    let mut steps = vec![Step::Clock(BASE_US)];
    steps.extend(["LEASE k a 40 366d", "LEASE k b 40 80"].map(call));
    steps.extend((0..30).map(|holder| call(&format!("LEASE k h{holder} 40 1"))));
    steps.push(Step::Clock(BASE_US + 1_200_000));
    steps.extend(["RELEASE k a", "RELEASE k b", "PEEK k LEASE a 40 1", "RELEASE k b"].map(call));
    let (_server, mut client, clock) = Clock::start(Server::setup());
    let library = Library::load(&mut client);
    for lanes in [&TWINS[..], &CROSSING] {
        let mut scene = Scene { client: &mut client, clock: &clock, library: &library, lanes };
        scene.play(&steps, &mut Outcomes::default());
    }
}

/// A rule whose refill takes 36,525 days and a microsecond.
const JUST_TOO_LONG: &str = "17469713 1 180.641777";

/// Tests cases that random numbers seldom reach: arguments at a bound and just beyond it, and
/// states with the largest numbers.
#[test]
fn library_equals_the_module_at_every_bound() {
    let call = |line: &str| Step::Call(Request::line(line), Form::Script);
    let store = |key: &str, kind: u8, numbers: &[u64]| {
        let packed = numbers.iter().flat_map(|number| {
            assert!(*number > u64::from(u32::MAX) || *number == 4_294_967_295);
            match u32::try_from(*number) {
                Ok(number) => [&[0xce][..], &number.to_be_bytes()].concat(),
                Err(_) => [&[0xcf][..], &number.to_be_bytes()].concat(),
            }
        });
        let head = [0x91 + numbers.len() as u8, kind];
        let bytes = head.into_iter().chain(packed).collect();
        let key = Word::Key(key.as_bytes().to_vec());
        Step::Meddle(vec![vec![Word::Text(b"SET".to_vec()), key, Word::Text(bytes)]])
    };
    let now_us = BASE_US as u64;
    let most = 1_000_000_000_000_000;
    let mut steps = vec![
        Step::Clock(BASE_US),
        // A backoff whose delay has doubled up to its maximum, and whose last attempt was an hour
        // ago.
        store("b", 0xf7, &[now_us - 3_600_000_000, 4_294_967_295]),
        call("PEEK b BACKOFF 3 1s 1m 2h"),
        call("BACKOFF b 3 1s 1m 2h"),
        call("CHARGE b BACKOFF 3 1s 1m 2h"),
        call("REFUND b BACKOFF 3 1s 1m 2h"),
    ];
    // The largest counts of two windows, read by rules with other windows.
    for (previous, current) in [(most, most), (most, most - 1), (most - 1, most)] {
        steps.push(store("s", 0xfe, &[now_us - 1, previous, current]));
        for rule in ["1000000000000 366d", "999999999999 7d COST 3", "7 1"] {
            steps.extend([
                call(&format!("PEEK s SLIDING {rule}")),
                call(&format!("SLIDING s {rule}")),
            ]);
            steps.push(call(&format!("REFUND s SLIDING {rule}")));
        }
    }
    for name in ["TOKENBUCKET", "LEAKYBUCKET", "GCRA"] {
        // A refill of 36,525 days, and one of a microsecond more; the maximum rate, and one more.
        let rules = ["36525 1 1d", "36526 1 1d", JUST_TOO_LONG, "1 1000000 1ms", "1 1000001 1ms"];
        steps.extend(rules.map(|rule| call(&format!("{name} {name} {rule}"))));
    }
    let (_server, mut client, clock) = Clock::start(Server::setup());
    let library = Library::load(&mut client);
    for lanes in [&TWINS[..], &CROSSING] {
        let mut scene = Scene { client: &mut client, clock: &clock, library: &library, lanes };
        let mut outcomes = Outcomes::default();
        scene.play(&steps, &mut outcomes);
        assert!(outcomes.allowed > 9 && outcomes.errors >= 9, "{outcomes:?}");
    }
}
