//! A seeded simulation in one process: a primary, a replica that lags behind, disks that lag behind
//! their servers, restarts, promotions, and clocks that are set by up to ten years.
//!
//! ```text
//! cargo test --locked -p redis-throttle-engine --features oracle --test simulation
//! ```
//!
//! A run draws its limits and all events from its seed. A failure names the seed:
//! `SIMULATION_SEED=n` plays only that run, `SIMULATION_RUNS=n` plays `n` runs.

#[path = "simulation/cluster.rs"]
mod cluster;
// Of the suites on real servers. A simulation uses only a part of it.
#[path = "../../tests/support/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "simulation/run.rs"]
mod run;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use redis_throttle_engine::oracle::Subject;

use run::{Counts, Run};

/// The number of runs for each algorithm, unless the environment sets another.
const RUNS: u64 = 2_000;

/// Returns a number from the environment.
fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Plays the runs of one algorithm and prints how often each kind of event happened.
fn simulate<S: Subject>(test: &str) {
    let seeds = match number("SIMULATION_SEED") {
        Some(seed) => seed..seed + number("SIMULATION_RUNS").unwrap_or(1),
        None => 0..number("SIMULATION_RUNS").unwrap_or(RUNS),
    };
    let mut counts = Counts::default();
    for seed in seeds {
        let mut run = Run::<S>::new(seed);
        // A panic of the engine is a failure too, and its seed must be printed.
        let ended = catch_unwind(AssertUnwindSafe(|| run.play()));
        let ended = ended.unwrap_or_else(|_| Err("it panicked, see above".to_owned()));
        if let Err(failure) = ended {
            let again = format!("SIMULATION_SEED={seed} cargo test -p redis-throttle-engine");
            let test = format!("--features oracle --test simulation -- --nocapture {test}");
            panic!("{failure}\nto play it again: {again} {test}");
        }
        counts.add(&run.counts);
    }
    println!("{test}: {counts}");
    counts.check_that_all_happened();
}

macro_rules! simulations {
    ($($name:ident: $_algorithm:ident => $subject:ty,)*) => {$(
        mod $name {
            #[test]
            fn keeps_its_bounds() {
                super::simulate::<$subject>(concat!(stringify!($name), "::keeps_its_bounds"));
            }
        }
    )*};
}

redis_throttle_engine::for_all_subjects!(simulations);
