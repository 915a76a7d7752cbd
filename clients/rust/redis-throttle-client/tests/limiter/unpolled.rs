//! Futures that are held without being polled, as in a `select` whose other branch takes long.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Options, Reason, Rule, Source};
use tokio::time::sleep;

use crate::{api, ms};

/// Polls a future once.
async fn begin<F: Future>(future: &mut Pin<Box<F>>) {
    let is_pending = poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()));
    assert!(is_pending.await);
}

#[tokio::test(start_paused = true)]
async fn held_probe_leaves_the_probe_to_others() {
    let server = FakeServer::new();
    let options = Options::default().timeout(ms(100)).breaker_failures(1);
    let (limiter, api) = (server.limiter_with(options).unwrap(), api());
    server.hang();
    assert_eq!(limiter.check(api.of("42")).await.unwrap().reason, Some(Reason::Timeout));
    server.recover();
    sleep(ms(1000)).await;
    // It waits for a dial.
    let mut probe = Box::pin(limiter.check(api.of("42")));
    begin(&mut probe).await;
    let during = limiter.check(api.of("42")).await.unwrap();
    assert_eq!(during.reason, Some(Reason::Circuit));
    sleep(ms(5000)).await;
    assert_eq!(limiter.check(api.of("42")).await.unwrap().source, Source::Server);
    assert_eq!(probe.await.unwrap().reason, Some(Reason::Overloaded));
}

#[tokio::test(start_paused = true)]
async fn held_call_keeps_no_place() {
    for is_sent in [false, true] {
        let server = FakeServer::new();
        let options = Options::default().timeout(ms(200)).max_in_flight(1);
        let (limiter, api) = (server.limiter_with(options).unwrap(), api());
        if is_sent {
            limiter.ready().await.unwrap();
        }
        let mut held = Box::pin(limiter.check(api.of("held")));
        begin(&mut held).await;
        sleep(ms(5000)).await;
        let decision = limiter.check(api.of("42")).await.unwrap();
        assert_eq!(decision.source, Source::Server, "sent: {is_sent}");
        drop(held);
        assert_eq!(limiter.check(api.of("42")).await.unwrap().source, Source::Server);
    }
}

#[tokio::test(start_paused = true)]
async fn held_call_that_ended_in_line_gets_no_place() {
    let server = FakeServer::new();
    let options = Options::default().timeout(ms(200)).max_in_flight(1);
    let (limiter, api) = (server.limiter_with(options).unwrap(), api());
    limiter.ready().await.unwrap();
    server.hang();
    let mut sent = Box::pin(limiter.check(api.of("sent")));
    begin(&mut sent).await;
    let mut in_line = Box::pin(limiter.check(api.of("held")));
    begin(&mut in_line).await;
    sleep(ms(150)).await;
    server.recover();
    assert_eq!(sent.await.unwrap().source, Source::Server);
    let decision = limiter.check(api.of("42")).await.unwrap();
    assert_eq!(decision.source, Source::Server);
    assert_eq!(in_line.await.unwrap().reason, Some(Reason::Overloaded));
}

#[tokio::test(start_paused = true)]
async fn held_renewals_keep_no_slot() {
    let server = FakeServer::new();
    let (limiter, jobs) = (server.limiter(), Rule::lease("jobs", 1, "60s").unwrap());
    let lease = limiter.lease(jobs.of("42")).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut renewal = Box::pin(lease.renew());
        begin(&mut renewal).await;
        held.push(renewal);
    }
    assert!(lease.renew().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn permit_of_a_caller_that_goes_after_a_forget_is_not_kept() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().prefetch(2)).unwrap();
    let rule = Rule::fixed("two", 2, "1h").unwrap();
    let (mut first, mut second) =
        (Box::pin(limiter.check(rule.of("42"))), Box::pin(limiter.check(rule.of("42"))));
    begin(&mut first).await;
    begin(&mut second).await;
    sleep(ms(1)).await;
    limiter.forget(rule.of("42")).await.unwrap();
    drop((first, second));
    let decision = limiter.check(rule.of("42")).await.unwrap();
    assert_eq!(decision.source, Source::Server);
}
