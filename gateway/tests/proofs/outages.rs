//! Redis sends no reply.

use crate::chain::{Chain, Changes, Envoy, envoy_program};
use crate::program::signal;
use crate::server::until;

/// Waits until the limits are enforced.
async fn enforced(chain: &Chain, user: &str) {
    let decided = async || {
        let response = chain.envoy.get("/payments", user).await;
        response.status == 200 && response.field("ratelimit").contains("route_payments")
    };
    until("the limits are enforced", decided).await;
}

/// Asserts that the gateway responds by `on_error`. Returns the number of requests for which it did
/// not.
async fn lost(envoy: &Envoy) -> u64 {
    let before = envoy.undecided().await;
    let mut lost = 0;
    for user in 0..10 {
        let user = format!("down-{user}");
        let search = envoy.get("/search", &user).await;
        assert_eq!((search.status, &*search.field("ratelimit")), (200, ""));
        let payment = envoy.get("/payments", &user).await;
        if payment.status == 200 {
            lost += 1;
            continue;
        }
        assert_eq!(payment.status, 503);
        assert_eq!(payment.field("x-envoy-ratelimited"), "true");
        assert_eq!(payment.field("content-type"), "application/problem+json");
        let body: serde_json::Value = serde_json::from_str(&payment.body).unwrap();
        assert_eq!(body["status"], 503);
    }
    lost.max(envoy.undecided().await - before)
}

#[tokio::test]
async fn on_error_decides_while_redis_is_stopped_and_limits_return() {
    let changes = Changes { envoy: &[("0.25s", "10s")], ..Changes::default() };
    let Some(mut chain) = Chain::start(changes, 1).await else { return };
    enforced(&chain, "before").await;
    chain.redis.end();
    assert_eq!(lost(&chain.envoy).await, 0);
    chain.redis.begin().await;
    enforced(&chain, "after").await;
    until("the limit denies", async || chain.envoy.get("/payments", "ann").await.status == 429)
        .await;
    assert_eq!(chain.envoy.undecided().await, 0);
}

#[tokio::test]
async fn on_error_decides_while_redis_hangs_and_limits_return() {
    let changes = Changes { envoy: &[("0.25s", "1s")], ..Changes::default() };
    let Some(chain) = Chain::start(changes, 1).await else { return };
    enforced(&chain, "before").await;
    let redis = chain.redis.info("server", "process_id").await;
    signal("STOP", redis);
    assert_eq!(lost(&chain.envoy).await, 0);
    signal("CONT", redis);
    enforced(&chain, "after").await;
    until("the limit denies", async || chain.envoy.get("/payments", "ann").await.status == 429)
        .await;
}

#[tokio::test]
async fn on_error_decides_before_envoy_gives_up() {
    // The breaker, behind which every response is in time, opens after five failures. A busy
    // machine may take longer now and then, so there are five tries, each with a closed breaker.
    let mut late = Vec::new();
    while late.len() < 5 {
        let Some(chain) = Chain::start(Changes::default(), 1).await else { return };
        enforced(&chain, "before").await;
        signal("STOP", chain.redis.info("server", "process_id").await);
        match lost(&chain.envoy).await {
            0..5 => return,
            lost => late.push(lost),
        }
    }
    panic!("requests without a response in time, of 20: {late:?}");
}

#[tokio::test]
async fn unavailable_is_left_to_envoy() {
    let changes = Changes {
        envoy: &[("0.25s", "10s")],
        limits: &[("on_error: deny", "on_error: unavailable")],
        ..Changes::default()
    };
    let Some(mut chain) = Chain::start(changes, 1).await else { return };
    let edits = &[("0.25s", "10s"), ("failure_mode_deny: false", "failure_mode_deny: true")];
    let ports = [chain.gateways[0].port];
    let program = envoy_program().unwrap();
    let closed = Envoy::start(&program, &ports, chain.folder.path(), edits).await;
    enforced(&chain, "before").await;
    chain.redis.end();
    for (envoy, status) in [(&chain.envoy, 200), (&closed, 503)] {
        let before = envoy.undecided().await;
        let response = envoy.get("/payments", "ann").await;
        assert_eq!((response.status, &*response.field("x-envoy-ratelimited")), (status, ""));
        assert_eq!(envoy.get("/search", "ann").await.status, 200);
        assert_eq!(envoy.undecided().await, before + 1);
        assert_eq!(envoy.count("cluster.gateway.upstream_rq_timeout").await, 0);
        assert_eq!(envoy.count("cluster.gateway.upstream_rq_per_try_timeout").await, 0);
    }
}
