//! The limit under pressure: herds, stalls of the server, and callers that go.

use std::time::Instant;

use redis_throttle_client::{Decision, Limiter, Options, Rule, Source};
use tokio::task::JoinHandle;

use crate::proxy::Proxy;
use crate::server::{Server, until};
use crate::{api, ms};

/// Begins a check in a task.
fn begin(limiter: &Limiter, rule: &Rule) -> JoinHandle<Decision> {
    let (limiter, rule) = (limiter.clone(), rule.clone());
    tokio::spawn(async move { limiter.check(rule.of("42")).await.unwrap() })
}

async fn at_once(limiter: &Limiter, rule: &Rule, count: usize) -> Vec<Decision> {
    let calling: Vec<_> = (0..count).map(|_| begin(limiter, rule)).collect();
    let mut found = Vec::with_capacity(count);
    for call in calling {
        found.push(call.await.unwrap());
    }
    found
}

/// Counts the degraded decisions, and those that allow the call.
fn counted(found: &[Decision]) -> (usize, usize) {
    let degraded = found.iter().filter(|decision| decision.degraded).count();
    (degraded, found.iter().filter(|decision| decision.allowed).count())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn herd_of_ten_thousand_calls_takes_the_limit_and_no_more() {
    let server = Server::start().await;
    let per_minute = |name: &str| Rule::gcra(name, 1000, 6000, "60s").unwrap();
    for (rule, refill_per_s) in
        [(Rule::fixed("cold", 1000, "1h").unwrap(), 0.0), (per_minute("rate"), 100.0)]
    {
        for is_warm in [false, true] {
            // A busy machine needs longer for all than the defaults. The figures at the defaults
            // are those of `make bench-clients ONLY=pressure`.
            let options = Options::default().timeout(ms(20_000)).silence(ms(5_000));
            let limiter = Limiter::with_options(server.client(), options).unwrap();
            if is_warm {
                limiter.ready().await.unwrap();
            }
            limiter.forget(rule.of("42")).await.unwrap();
            let began = Instant::now();
            let found = at_once(&limiter, &rule, 10_000).await;
            let (degraded, allowed) = counted(&found);
            let most = 1010.0 + refill_per_s * began.elapsed().as_secs_f64();
            assert!(degraded <= 100, "{degraded} degraded, {}, warm: {is_warm}", rule.name());
            let in_range = allowed >= 1000 && allowed as f64 <= most;
            assert!(in_range, "{allowed} allowed, {}, warm: {is_warm}", rule.name());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_disturb_no_other_call() {
    let server = Server::start().await;
    let proxy = Proxy::with_delay(ms(20)).await;
    proxy.lead_to(server.port);
    let client = redis::Client::open(proxy.url()).unwrap();
    let limiter = Limiter::with_options(client, Options::default().silence(ms(900))).unwrap();
    limiter.ready().await.unwrap();
    let dialled = proxy.accepted();
    let (storming, mine) = (limiter.clone(), Rule::fixed("mine", 30, "1h").unwrap());
    let storm = tokio::spawn(async move {
        for _ in 0..100 {
            let calls: Vec<_> = (0..20).map(|_| begin(&storming, &api())).collect();
            tokio::task::yield_now().await;
            calls.iter().for_each(JoinHandle::abort);
            tokio::time::sleep(ms(2)).await;
        }
    });
    let mut found = Vec::new();
    while !storm.is_finished() {
        found.push(limiter.check(mine.of("42")).await.unwrap());
    }
    let (degraded, allowed) = counted(&found);
    assert_eq!((degraded, allowed.min(30), proxy.accepted()), (0, allowed, dialled));
    // The commands that the callers left behind get their replies, and their places are free.
    until("all places are free", async || {
        let calls: Vec<_> = (0..256).map(|_| begin(&limiter, &mine)).collect();
        let mut sources = Vec::new();
        for call in calls {
            sources.push(call.await.unwrap().source);
        }
        sources.iter().all(|source| *source == Source::Server)
    })
    .await;
}
