//! The public fake beside the server, on one schedule.

use std::time::Duration;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Decision, Limiter, Rule};

use crate::limiter;
use crate::server::Server;

/// What both say; only the server knows that it is one.
fn told(decision: &Decision) -> (bool, u64, u64, i64, u64, String) {
    let Decision { allowed, limit, remaining, retry_after_ms, reset_after_ms, rule, .. } = decision;
    (*allowed, *limit, *remaining, *retry_after_ms, *reset_after_ms, rule.to_string())
}

fn span_after(step: usize) -> Duration {
    Duration::from_millis([1, 700, 1, 250, 1, 2500, 1, 1, 6000][step % 9])
}

async fn schedule(limiter: &Limiter, rule: &Rule, step: usize) -> Decision {
    let cost = [1, 2, 1, 3, 1, 0, 1, 5][step % 8];
    match step % 7 {
        3 => limiter.peek(rule.of("42").cost(cost)).await,
        5 => limiter.refund(rule.of("42").cost(cost.max(1))).await,
        6 => limiter.charge(rule.of("42").cost(cost.max(1))).await,
        _ => limiter.check(rule.of("42").cost(cost)).await,
    }
    .unwrap()
}

#[tokio::test]
async fn it_decides_as_the_module_does() {
    let server = Server::start().await;
    let real = limiter(&server).await;
    let rules = [
        Rule::gcra("api", 6, 10, "60s").unwrap(),
        Rule::gcra("odd", 5, 7, "1s").unwrap(),
        Rule::token_bucket("tb", 5, 2, "1s").unwrap(),
        Rule::token_bucket("slow", 10, 3, "7s").unwrap(),
        Rule::leaky_bucket("lb", 4, 3, "1s").unwrap(),
        Rule::fixed("fx", 5, "10s").unwrap(),
        Rule::sliding_log("sg", 5, "10s").unwrap(),
    ];
    for rule in rules {
        // All of the fake's first, for a paused clock stands still only while no socket is waited
        // for.
        tokio::time::pause();
        let imitated = FakeServer::new().limiter();
        let mut imitations = Vec::new();
        for step in 0..120 {
            imitations.push(schedule(&imitated, &rule, step).await);
            tokio::time::advance(span_after(step)).await;
        }
        tokio::time::resume();
        server.freeze().await;
        for (step, imitation) in imitations.iter().enumerate() {
            let decision = schedule(&real, &rule, step).await;
            assert_eq!(told(imitation), told(&decision), "{rule:?}, {step}");
            server.advance(span_after(step)).await;
        }
    }
}
