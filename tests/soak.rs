//! Random traffic against a real server for some minutes, with faults and clock changes. Every
//! reply is compared with naive models.
//!
//! ```text
//! SOAK_MINUTES=5 cargo test --locked --test soak
//! ```
//!
//! `SOAK_MINUTES` may be a fraction; without it, the test runs for a few seconds. `SOAK_SEED`
//! repeats the same calls and faults. `SERVER` and `RL_MODULE` have the same meaning as in the
//! end-to-end suite. The test ends by printing its counts, and fails on any difference.

#[path = "soak/fleet.rs"]
mod fleet;
#[path = "soak/held.rs"]
mod held;
#[path = "soak/key.rs"]
mod key;
#[path = "soak/named.rs"]
mod named;
#[path = "soak/reserved.rs"]
mod reserved;
#[path = "soak/traffic.rs"]
mod traffic;

use std::collections::BTreeMap;
use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis_throttle_engine::oracle::{CLOCK_MAX_US, Step};

use fleet::{FAULTS, Fleet};
use support::{BASE_US, Random};
use traffic::Traffic;

/// The duration without `SOAK_MINUTES`.
const DEFAULT: Duration = Duration::from_secs(6);

/// The number of batches of calls between two faults.
const BATCHES: u64 = 60;

/// Kinds of calls that even the shortest soak must make.
const MUST_HAPPEN: [&str; 21] = [
    "calls about leases",
    "calls next to reservations",
    "calls decided",
    "calls granted in part",
    "calls of ALL allowed",
    "calls of ALL denied",
    "calls of BACKOFF",
    "calls of CHARGE",
    "calls of CHARGE in debt",
    "calls of PEEKALL",
    "calls of REFUND",
    "calls of REFUND to nothing",
    "calls of USE allowed",
    "calls of USE denied",
    "calls of USE denied in shadow mode",
    "keys banned",
    "reservations given up",
    "reservations in ALL",
    "reservations opened",
    "reservations settled",
    "statistics compared",
];

/// The number of times each kind of event happened.
#[derive(Default)]
pub struct Counts(BTreeMap<&'static str, u64>);

impl Counts {
    fn add(&mut self, name: &'static str, number: u64) {
        *self.0.entry(name).or_default() += number;
    }

    /// Returns the required kinds of calls that never happened. A soak without them proves little.
    fn missing(&self) -> Vec<&'static str> {
        MUST_HAPPEN
            .into_iter()
            .filter(|name| self.0.get(name).is_none_or(|number| *number == 0))
            .collect()
    }

    fn print(&self) {
        self.0.iter().for_each(|(name, number)| println!("  {name:<45} {number:>10}"));
    }
}

/// Reads a number from the environment, if the variable is set.
fn number<N: std::str::FromStr>(name: &str) -> Option<N> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

fn main() -> ExitCode {
    let minutes = number::<f64>("SOAK_MINUTES");
    let time = minutes.map_or(DEFAULT, |minutes| Duration::from_secs_f64(minutes * 60.0));
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    let seed = number("SOAK_SEED").unwrap_or(u64::from(since_epoch.subsec_nanos()));
    println!("soak: SOAK_SEED={seed}, {} s", time.as_secs());

    let mut counts = Counts::default();
    let ended = soak(seed, time, &mut counts).and_then(|()| match counts.missing() {
        missing if missing.is_empty() => Ok(()),
        missing => Err(format!("never: {missing:?}")),
    });
    counts.add("differences", ended.is_err().into());
    println!("soak: SOAK_SEED={seed}");
    counts.print();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(difference) => {
            eprintln!("{difference}\nto see it again: SOAK_SEED={seed}");
            ExitCode::FAILURE
        }
    }
}

/// Alternates traffic and faults until the time is up or a reply differs.
fn soak(seed: u64, time: Duration, counts: &mut Counts) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut traffic = Traffic::new(&mut random);
    let mut fleet = Fleet::start(BASE_US.into(), traffic.slots());
    traffic.begin_statistics(&mut fleet);
    let started = Instant::now();
    for fault in (random.below(FAULTS.len() as u64) as usize..).map(|turn| turn % FAULTS.len()) {
        for _ in 0..BATCHES {
            if started.elapsed() >= time {
                traffic.check_statistics(&mut fleet, counts)?;
                return traffic.check_replica(&mut fleet, counts);
            }
            set_clock(&mut random, &traffic, &mut fleet, counts);
            traffic.batch(&mut random, &mut fleet, counts)?;
        }
        if random.below(2) == 0 {
            let slots = traffic.change_slots(&mut random);
            fleet.set_slots(slots);
            counts.add("changes of rl.sliding-log-slots", 1);
        }
        traffic.check_replica(&mut fleet, counts)?;
        traffic.check_statistics(&mut fleet, counts)?;
        let (name, fault) = FAULTS[fault];
        fault(&mut fleet);
        traffic.begin_statistics(&mut fleet);
        counts.add(name, 1);
    }
    unreachable!("there is always another fault")
}

/// Sets the clock. Mostly it moves forward a little or does not move; sometimes it jumps by up to
/// ten years.
fn set_clock(random: &mut Random, traffic: &Traffic, fleet: &mut Fleet, counts: &mut Counts) {
    let is_set = random.below(12) == 0;
    let step = if is_set { Step::draw_set(random) } else { Step::draw_good(random) };
    let now = fleet.now_us();
    let moved = (now + step.us(traffic.some_span_us(random))).clamp(0, CLOCK_MAX_US);
    // The clock cannot move past the end of its range. Go back after some calls there.
    let then = if now == CLOCK_MAX_US { BASE_US.into() } else { moved };
    match then - now {
        0 => return,
        1.. if !is_set => counts.add("clock steps: time goes on", 1),
        1.. => counts.add("clock steps: set forward", 1),
        _ => counts.add("clock steps: set back", 1),
    }
    fleet.freeze(then);
}
