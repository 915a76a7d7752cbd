//! The end of a limiter.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Error, Options, Rule};
use tokio::time::{Instant, sleep};

use crate::{api, commands, ms};

#[tokio::test(start_paused = true)]
async fn second_close_waits_for_the_first_and_every_call_is_refused() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let held = limiter.lease(jobs.of("42")).await.unwrap();
    server.hang();
    let (began, closing) = (Instant::now(), limiter.clone());
    let first = tokio::spawn(async move { closing.close().await });
    sleep(ms(50)).await;
    assert!(!held.held() && !first.is_finished());
    limiter.close().await;
    // The release got no reply.
    assert_eq!((began.elapsed(), limiter.counters().unsettled), (ms(100), 1));
    server.recover();
    let api = api();
    assert!(matches!(limiter.check(api.of("42")).await, Err(Error::Closed)));
    assert!(matches!(limiter.peek(api.of("42")).await, Err(Error::Closed)));
    assert!(matches!(limiter.forget(api.of("42")).await, Err(Error::Closed)));
    assert!(matches!(limiter.lease(jobs.of("42")).await, Err(Error::Closed)));
    assert!(matches!(limiter.ready().await, Err(Error::Closed)));
    assert!(matches!(held.renew().await, Err(Error::Closed)));
    held.release().await;
    assert_eq!(commands(&server), ["RL.LEASE", "RL.RELEASE"]);
}

#[tokio::test(start_paused = true)]
async fn close_gives_up_a_lease_whose_reply_does_not_come_in_time() {
    let server = FakeServer::new();
    let options = Options::default().timeout(ms(300)).silence(ms(200));
    let limiter = server.limiter_with(options).unwrap();
    limiter.ready().await.unwrap();
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let taking = limiter.clone();
    server.hang();
    let lease = tokio::spawn(async move { taking.lease(jobs.of("42")).await.map(drop) });
    sleep(ms(1)).await;
    lease.abort();
    sleep(ms(1)).await;
    let began = Instant::now();
    limiter.close().await;
    assert!(began.elapsed() <= ms(300), "{:?}", began.elapsed());
    assert_eq!(limiter.counters().unsettled, 1);
}

#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_a_call_whose_caller_goes_meanwhile() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().timeout(ms(60_000))).unwrap();
    limiter.ready().await.unwrap();
    server.hang();
    let (checking, closing) = (limiter.clone(), limiter.clone());
    let check = tokio::spawn(async move { checking.check(api().of("42")).await });
    sleep(ms(1)).await;
    let close = tokio::spawn(async move { closing.close().await });
    sleep(ms(1)).await;
    let began = Instant::now();
    check.abort();
    close.await.unwrap();
    assert_eq!(began.elapsed(), ms(0));
}
