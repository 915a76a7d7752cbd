//! Methods that make more than one call: `check_each` and `wait`.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{OnError, Rule};
use tokio::time::Instant;

use crate::{api, ms, times};

#[tokio::test(start_paused = true)]
async fn check_each_refunds_after_a_denial_or_an_error() {
    let server = FakeServer::new();
    let (limiter, api) = (server.limiter(), api());
    let day = Rule::fixed("day", 1, "1d").unwrap();
    let both = [api.of("42"), day.of("42")];
    assert!(limiter.check_each(&both).await.unwrap().allowed);
    let denied = limiter.check_each(&both).await.unwrap();
    assert_eq!((denied.allowed, &*denied.rule, denied.rows.len()), (false, "day", 2));
    assert_eq!(limiter.peek(api.of("42").cost(0)).await.unwrap().remaining, 5);
    let policy = Rule::policy("nobody-knows").unwrap();
    assert!(limiter.check_each(&[api.of("42"), policy.of("42")]).await.is_err());
    assert_eq!(limiter.peek(api.of("42").cost(0)).await.unwrap().remaining, 5);
}

#[tokio::test(start_paused = true)]
async fn wait_sleeps_for_the_retry_time() {
    let server = FakeServer::new();
    let (limiter, api) = (server.limiter(), api());
    let _ = limiter.check(api.of("42").cost(6)).await.unwrap();
    let began = Instant::now();
    assert!(limiter.wait(api.of("42"), ms(6000)).await.unwrap().allowed);
    assert_eq!(began.elapsed(), ms(6000));
    assert!(!limiter.wait(api.of("42"), ms(5999)).await.unwrap().allowed);
    assert!(limiter.wait(api.of("42").cost(7), ms(60_000)).await.unwrap().never());
    assert_eq!(began.elapsed(), ms(6000));
    server.go_away();
    let closed = api.clone().on_error(OnError::Deny).unwrap();
    assert!(!limiter.wait(closed.of("42"), ms(60_000)).await.unwrap().allowed);
    assert_eq!(began.elapsed(), ms(6000));
}

#[tokio::test(start_paused = true)]
async fn wait_refunds_a_leaky_bucket_place_whose_turn_comes_too_late() {
    let server = FakeServer::new();
    let (limiter, queue) = (server.limiter(), Rule::leaky_bucket("q", 4, 1, "1s").unwrap());
    let waits: Vec<_> =
        times(&limiter, &queue, 3).await.iter().map(|found| found.retry_after).collect();
    assert_eq!(waits, [0, 1000, 2000].map(ms));
    let late = limiter.wait(queue.of("42"), ms(2500)).await.unwrap();
    assert_eq!((late.allowed, late.retry_after), (false, ms(3000)));
    assert_eq!(limiter.peek(queue.of("42").cost(0)).await.unwrap().remaining, 1);
    let began = Instant::now();
    assert!(limiter.wait(queue.of("42"), ms(3000)).await.unwrap().allowed);
    assert_eq!(began.elapsed(), ms(3000));
}
