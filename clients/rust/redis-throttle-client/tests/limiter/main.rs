//! The limiter without a real server: every option, over the fake server and a simulated clock.

mod admissions;
mod backends;
mod closing;
mod denial_cache;
mod dial;
mod examples;
mod fallback;
mod leases;
mod local;
mod options;
mod prefetch;
mod several;
mod telemetry;
mod unpolled;
mod within;

use std::time::Duration;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Command, Connection, Decision, Dial, Limiter, Options, Reply, Rule};
use tokio::time::sleep;

/// One more than the maximum number of keys with prefetched permits or local state.
const SUBJECTS: usize = 10_001;

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

/// A server at a distance: a command takes `there` to arrive, and its reply `back`.
#[derive(Clone)]
struct Distant {
    server: FakeServer,
    there: Duration,
    back: Duration,
}

impl Connection for Distant {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            sleep(self.there).await;
            let reply = self.server.send(command).await;
            sleep(self.back).await;
            reply
        })
    }
}

/// Creates a limiter over a distant server.
fn distant(server: &FakeServer, [there, back]: [u64; 2], options: Options) -> Limiter {
    let server = Distant { server: server.clone(), there: ms(there), back: ms(back) };
    Limiter::with_options(over(&server), options).unwrap()
}

/// Returns a rule that allows one call.
fn one() -> Rule {
    Rule::fixed("one", 1, "1h").unwrap()
}
