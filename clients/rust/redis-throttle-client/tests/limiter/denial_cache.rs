//! The denial cache.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Error, Limiter, Options, Rule, Source};
use tokio::time::advance;

use crate::{api, distant, ms, one, times};

fn caching(server: &FakeServer, size: usize) -> Limiter {
    let options = Options::default().denial_cache(size).denial_cache_max(ms(60_000));
    server.limiter_with(options).unwrap()
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

#[tokio::test(start_paused = true)]
async fn full_denial_cache_evicts_the_least_recently_used_denial() {
    let server = FakeServer::new();
    let (limiter, api) = (caching(&server, 1), api());
    let source =
        async |subject: &str, cost| limiter.check(api.of(subject).cost(cost)).await.unwrap().source;
    assert!(limiter.check(api.of("42").cost(6)).await.unwrap().allowed);
    assert_eq!(source("x", 6).await, Source::Server);
    for subject in ["42", "x", "42"] {
        assert_eq!(source(subject, 1).await, Source::Server);
        assert_eq!(source(subject, 1).await, Source::Local);
    }
}

#[tokio::test(start_paused = true)]
async fn cached_denial_is_timed_from_before_its_request() {
    let server = FakeServer::new();
    let options = Options::default().denial_cache(9).denial_cache_max(ms(3_600_000));
    let limiter = distant(&server, [0, 50], options);
    let denied = times(&limiter, &one(), 2).await.pop().unwrap();
    // The server decided 50 ms before.
    advance(denied.retry_after - ms(51)).await;
    assert_eq!(times(&limiter, &one(), 1).await[0].source, Source::Local);
    advance(ms(1)).await;
    assert_eq!(times(&limiter, &one(), 1).await[0].source, Source::Server);
}
