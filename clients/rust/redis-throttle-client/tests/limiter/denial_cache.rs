//! The denial cache.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Error, Limiter, Options, Rule, Source};

use crate::{api, ms, times};

fn caching(server: &FakeServer, size: usize) -> Limiter {
    let options = Options::default().denial_cache(size).denial_cache_max(ms(60_000));
    server.limiter_with(options).unwrap()
}

#[tokio::test(start_paused = true)]
async fn limiter_sends_every_call_when_the_denial_cache_is_off() {
    let server = FakeServer::new();
    times(&server.limiter(), &api(), 9).await;
    assert_eq!(server.calls().len(), 9);
}

#[tokio::test(start_paused = true)]
async fn denial_cache_is_per_cost_and_bounded_and_cleared_by_refund_and_forget() {
    let server = FakeServer::new();
    let (limiter, api) = (caching(&server, 1), api());
    let source =
        async |subject: &str, cost| limiter.check(api.of(subject).cost(cost)).await.unwrap().source;
    assert_eq!(source("42", 4).await, Source::Server);
    assert_eq!(source("42", 3).await, Source::Server);
    assert_eq!(source("42", 3).await, Source::Local);
    assert!(limiter.check(api.of("42").cost(2)).await.unwrap().allowed);
    limiter.forget(api.of("42")).await.unwrap();
    assert!(limiter.check(api.of("42").cost(6)).await.unwrap().allowed);
    assert!(!limiter.check(api.of("42")).await.unwrap().allowed);
    let _ = limiter.refund(api.of("42")).await.unwrap();
    assert!(limiter.check(api.of("42")).await.unwrap().allowed);
    assert_eq!(source("42", 1).await, Source::Server);
    assert_eq!(source("42", 1).await, Source::Local);
    // Of two denials, the least recently used one is evicted.
    assert_eq!(source("x", 6).await, Source::Server);
    assert_eq!(source("x", 1).await, Source::Server);
    assert_eq!(source("42", 1).await, Source::Server);
}

#[tokio::test(start_paused = true)]
async fn limiter_caches_no_denied_leases() {
    let server = FakeServer::new();
    let limiter = caching(&server, 10);
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let held = limiter.lease(jobs.of("42")).await.unwrap();
    let denied = limiter.lease(jobs.of("42")).await.unwrap_err();
    assert!(matches!(denied, Error::Denied(decision) if decision.retry_after == ms(60_000)));
    held.release().await;
    limiter.lease(jobs.of("42")).await.unwrap().release().await;
}
