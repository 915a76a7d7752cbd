//! The circuit breaker and `max_in_flight`.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Error, Options, Source};
use tokio::time::advance;

use crate::{api, ms, times};

#[tokio::test(start_paused = true)]
async fn breaker_opens_and_closes_as_set_in_the_options() {
    let server = FakeServer::new();
    let options = Options::default().breaker_failures(2).breaker_pause(ms(50));
    let limiter = server.limiter_with(options).unwrap();
    server.go_away();
    times(&limiter, &api(), 9).await;
    assert_eq!(server.calls().len(), 2);
    advance(ms(50)).await;
    times(&limiter, &api(), 9).await;
    assert_eq!(server.calls().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn call_is_no_longer_in_flight_after_it_ends() {
    let server = FakeServer::new();
    let (limiter, api) = (server.limiter_with(Options::default().max_in_flight(1)).unwrap(), api());
    let found = times(&limiter, &api, 3).await;
    assert!(found.iter().all(|decision| decision.source == Source::Server));
    server.reply_with("WRONGTYPE no");
    for _ in 0..3 {
        let error = limiter.check(api.of("42")).await.unwrap_err();
        assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    }
    server.recover();
    assert_eq!(limiter.check(api.of("42")).await.unwrap().source, Source::Server);
}
