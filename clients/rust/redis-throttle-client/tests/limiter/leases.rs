//! Leases.

use std::sync::Arc;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Error, OnError, Options, Rule, Source};
use tokio::time::Instant;

use crate::{commands, ms};

#[tokio::test(start_paused = true)]
async fn dropped_lease_is_released_once() {
    let server = FakeServer::new();
    let (limiter, jobs) = (server.limiter(), Rule::lease("jobs", 1, "60s").unwrap());
    drop(limiter.lease(jobs.of("42")).await.unwrap());
    tokio::time::sleep(ms(1)).await;
    assert_eq!(commands(&server), ["RL.LEASE", "RL.RELEASE"]);
    limiter.lease(jobs.of("42")).await.unwrap().release().await;
    tokio::time::sleep(ms(1)).await;
    assert_eq!(commands(&server)[2..], ["RL.LEASE", "RL.RELEASE"]);
}

#[tokio::test(start_paused = true)]
async fn lease_is_lost_when_a_renewal_reports_it_missing() {
    let server = FakeServer::new();
    let (limiter, jobs) = (server.limiter(), Rule::lease("jobs", 1, "60s").unwrap());
    let held = limiter.lease(jobs.of("42")).await.unwrap();
    assert!(held.renew().await.unwrap());
    limiter.forget(jobs.of("42")).await.unwrap();
    assert!(!held.renew().await.unwrap());
    let began = Instant::now();
    held.lost().await;
    assert!(!held.held() && began.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn lease_with_on_error_deny_is_denied_without_a_server_and_check_rejects_leases() {
    let server = FakeServer::new();
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let error = server.limiter().check(jobs.of("42")).await.unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "rule", .. }));
    server.go_away();
    let closed = jobs.on_error(OnError::Deny).unwrap();
    let denied = server.limiter().lease(closed.of("42")).await.unwrap_err();
    assert!(matches!(denied, Error::Denied(decision) if decision.source == Source::Error));
}

#[tokio::test(start_paused = true)]
async fn renewals_and_ends_do_not_wait_for_each_other() {
    let server = FakeServer::new();
    let options = Options::default().timeout(ms(60_000)).silence(ms(30_000));
    let limiter = server.limiter_with(options).unwrap();
    let jobs = Rule::lease("jobs", 100, "60s").unwrap();
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(Arc::new(limiter.lease(jobs.of("42")).await.unwrap()));
    }
    server.hang();
    let sent = |name| commands(&server).iter().filter(|sent| *sent == name).count();
    held.truncate(20);
    tokio::time::sleep(ms(1)).await;
    assert_eq!((sent("RL.RELEASE"), sent("RL.RENEW")), (32, 0));
    let renewals: Vec<_> = held
        .iter()
        .cloned()
        .map(|lease| tokio::spawn(async move { lease.renew().await }))
        .collect();
    tokio::time::sleep(ms(1)).await;
    assert_eq!((sent("RL.RELEASE"), sent("RL.RENEW")), (32, 8));
    server.recover();
    for renewal in renewals {
        assert!(renewal.await.unwrap().unwrap());
    }
    assert_eq!((sent("RL.RELEASE"), sent("RL.RENEW")), (40, 20));
    // Now renewals fill their slots, and an end passes them.
    let ended = held.pop();
    server.hang();
    for lease in held {
        tokio::spawn(async move { lease.renew().await });
    }
    tokio::time::sleep(ms(1)).await;
    drop(ended);
    tokio::time::sleep(ms(1)).await;
    assert_eq!((sent("RL.RELEASE"), sent("RL.RENEW")), (41, 28));
}
