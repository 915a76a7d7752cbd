//! The local fallback compared with the engine in the fake server.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{OnError, Rule, Source};
use tokio::time::advance;

use crate::{SUBJECTS, allowed, first_denied, ms, one, times};

#[tokio::test(start_paused = true)]
async fn local_limiter_decides_as_the_engine_does_on_the_same_schedule() {
    for rule in [
        Rule::gcra("api", 6, 10, "60s").unwrap(),
        Rule::gcra("odd", 5, 7, "1s").unwrap(),
        Rule::token_bucket("tb", 5, 2, "1s").unwrap(),
        Rule::token_bucket("slow", 10, 3, "7s").unwrap(),
        Rule::leaky_bucket("lb", 4, 3, "1s").unwrap(),
        Rule::fixed("fx", 5, "10s").unwrap(),
        Rule::sliding_log("sg", 5, "10s").unwrap(),
    ] {
        let (there, down) = (FakeServer::new().limiter(), FakeServer::new());
        down.go_away();
        let down = down.limiter();
        let local = rule.clone().on_error(OnError::Local).unwrap();
        for step in 0..360 {
            let cost = [1, 2, 1, 3, 1, 0, 1, 5, 11][step % 9];
            let (engine, found) = match step % 4 {
                3 => (
                    there.peek(rule.of("42").cost(cost)).await.unwrap(),
                    down.peek(local.of("42").cost(cost)).await.unwrap(),
                ),
                _ => (
                    there.check(rule.of("42").cost(cost)).await.unwrap(),
                    down.check(local.of("42").cost(cost)).await.unwrap(),
                ),
            };
            assert_eq!((engine.source, found.source), (Source::Server, Source::Local));
            let numbers = |decision: &redis_throttle_client::Decision| {
                let waits = (decision.retry_after, decision.reset_after);
                (decision.allowed, decision.limit, decision.remaining, waits)
            };
            assert_eq!(numbers(&found), numbers(&engine), "{rule:?}, step {step}");
            advance(ms([1, 700, 1, 250, 1, 2500, 1, 1, 6000, 0, 90][step % 11])).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn local_limiter_with_a_fractional_rate_loses_no_units() {
    let server = FakeServer::new();
    server.go_away();
    let limiter = server.limiter();
    for rule in [
        Rule::gcra("g", 5, 7, "1s").unwrap(),
        Rule::token_bucket("t", 5, 7, "1s").unwrap(),
        Rule::leaky_bucket("l", 5, 7, "1s").unwrap(),
    ] {
        let local = rule.on_error(OnError::Local).unwrap();
        assert_eq!(allowed(&times(&limiter, &local, 6).await), first_denied(5));
        advance(ms(143)).await;
        assert_eq!(allowed(&times(&limiter, &local, 2).await), [true, false]);
    }
}

#[tokio::test(start_paused = true)]
async fn limiter_keeps_local_states_of_a_bounded_number_of_keys() {
    let server = FakeServer::new();
    server.go_away();
    let (limiter, one) = (server.limiter(), one().on_error(OnError::Local).unwrap());
    for subject in 0..SUBJECTS {
        assert!(limiter.check(one.of(&subject.to_string())).await.unwrap().allowed);
    }
    assert!(!limiter.check(one.of("10000")).await.unwrap().allowed);
    assert!(limiter.check(one.of("0")).await.unwrap().allowed);
}
