//! The circuit breaker and `max_in_flight`.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Options, Source};
use tokio::time::{Instant, advance};

use crate::{api, ms, times};

#[tokio::test(start_paused = true)]
async fn breaker_pauses_after_five_failures_then_sends_one_probe() {
    let server = FakeServer::new();
    let (limiter, api) = (server.limiter(), api());
    server.reply_with("OOM full");
    times(&limiter, &api, 20).await;
    assert_eq!(server.calls().len(), 5);
    advance(ms(999)).await;
    times(&limiter, &api, 1).await;
    assert_eq!(server.calls().len(), 5);
    advance(ms(1)).await;
    times(&limiter, &api, 5).await;
    assert_eq!(server.calls().len(), 6);
    server.recover();
    advance(ms(1000)).await;
    let found = times(&limiter, &api, 3).await;
    assert!(found.iter().all(|decision| decision.source == Source::Server));
}

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
async fn breaker_sends_a_new_probe_after_one_is_abandoned() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().breaker_failures(1)).unwrap();
    server.go_away();
    times(&limiter, &api(), 1).await;
    advance(ms(1000)).await;
    server.hang();
    let rule = api();
    let given_up = tokio::time::timeout(ms(1), limiter.check(rule.of("42"))).await;
    assert!(given_up.is_err());
    server.recover();
    let decision = limiter.check(api().of("42")).await.unwrap();
    assert_eq!(decision.source, Source::Server);
}

#[tokio::test(start_paused = true)]
async fn limiter_rejects_calls_beyond_max_in_flight_at_once() {
    for (options, most) in [(Options::default(), 256), (Options::default().max_in_flight(2), 2)] {
        let server = FakeServer::new();
        server.hang();
        let limiter = server.limiter_with(options).unwrap();
        let ask = |_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(api().of("42")).await.unwrap() })
        };
        let asking: Vec<_> = (0..most + 3).map(ask).collect();
        while server.calls().len() < most {
            tokio::task::yield_now().await;
        }
        // The last three are answered before any time has passed.
        let began = Instant::now();
        for refused in asking.into_iter().skip(most) {
            assert_eq!(refused.await.unwrap().source, Source::Error);
        }
        assert_eq!((began.elapsed(), server.calls().len()), (ms(0), most));
    }
}
