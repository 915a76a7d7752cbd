use std::time::Duration;

use redis_throttle_client::{Rule, Source, testing::FakeServer};

#[tokio::test(start_paused = true)]
async fn the_eleventh_waits() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let api = Rule::gcra("api", 10, 10, "1m").unwrap();
    for _ in 0..10 {
        assert!(limiter.check(api.of("alice")).await.unwrap().allowed);
    }
    assert_eq!(limiter.check(api.of("alice")).await.unwrap().retry_after, Duration::from_secs(6));
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(limiter.check(api.of("alice")).await.unwrap().allowed);
    server.go_away(); // or hang(), or reply_with("OOM ...")
    assert_eq!(limiter.check(api.of("alice")).await.unwrap().source, Source::Error);
}
