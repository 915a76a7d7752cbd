//! The limiter without a real server: every option, over the fake server and a simulated clock.

mod admissions;
mod backends;
mod breaker;
mod closing;
mod denial_cache;
mod dials;
mod failures;
mod held;
mod leases;
mod local;
mod options;
mod prefetch;
mod promises;
mod several;
mod telemetry;
mod within;

use std::time::Duration;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Connection, Decision, Dial, Limiter, Rule};

fn api() -> Rule {
    Rule::gcra("api", 6, 10, "60s").unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn times(limiter: &Limiter, rule: &Rule, count: usize) -> Vec<Decision> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(limiter.check(rule.of("42")).await.unwrap());
    }
    found
}

fn allowed(found: &[Decision]) -> Vec<bool> {
    found.iter().map(|decision| decision.allowed).collect()
}

fn first_denied(allowed: usize) -> Vec<bool> {
    let mut wanted = vec![true; allowed];
    wanted.push(false);
    wanted
}

/// Returns the names of the commands that the server received.
fn commands(server: &FakeServer) -> Vec<String> {
    server.calls().iter().map(|call| call[0].clone()).collect()
}

/// Returns a dialler that opens this connection each time.
fn over<C: Connection + Clone>(connection: &C) -> impl Dial + use<C> {
    let connection = connection.clone();
    move || std::future::ready(Ok(connection.clone()))
}
