//! The limit under pressure: herds, stalls of the server, and callers that go.

use std::time::{Duration, Instant};

use redis_throttle_client::{Decision, Limiter, Options, Reason, Rule, Source};
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

/// Counts the decisions without an answer, and those that allow the call.
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

/// Blocks the server for so long.
async fn stall(server: &Server, seconds: &str) {
    server.run(&["DEBUG", "SLEEP", seconds]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stall_shorter_than_the_silence_is_waited_out() {
    let server = Server::start().await;
    // As 80 ms within the default silence, but on a busy machine.
    let limiter =
        Limiter::with_options(server.client(), Options::default().silence(ms(900))).unwrap();
    limiter.ready().await.unwrap();
    let many = Rule::fixed("many", 1_000_000, "1h").unwrap();
    let calling: Vec<_> = (0..256)
        .map(|_| {
            let (limiter, many) = (limiter.clone(), many.clone());
            let began = Instant::now();
            tokio::spawn(async move {
                while began.elapsed() < ms(1500) {
                    let _ = limiter.check(many.of("42")).await.unwrap();
                    tokio::time::sleep(ms(5)).await;
                }
            })
        })
        .collect();
    for _ in 0..3 {
        stall(&server, "0.3").await;
        tokio::time::sleep(ms(50)).await;
    }
    for call in calling {
        call.await.unwrap();
    }
    assert_eq!(limiter.counters().degraded, 0);
}

#[tokio::test]
async fn key_that_was_denied_stays_denied_while_the_server_stalls() {
    let server = Server::start().await;
    let limiter = Limiter::new(server.client());
    let once = Rule::fixed("once", 1, "1h").unwrap();
    until("the key is denied", async || {
        let decision = limiter.check(once.of("42")).await.unwrap();
        !decision.allowed && decision.source == Source::Server
    })
    .await;
    let server_of = server.connect().await;
    let stalling = tokio::spawn(async move {
        let mut connection = server_of;
        redis::cmd("DEBUG").arg("SLEEP").arg("0.5").exec_async(&mut connection).await.unwrap();
    });
    let (mut denied, mut degraded) = (0, 0);
    while !stalling.is_finished() {
        let decision = limiter.check(once.of("42")).await.unwrap();
        assert!(!decision.allowed, "{decision:?}");
        denied += 1;
        degraded += usize::from(decision.degraded);
        tokio::time::sleep(ms(5)).await;
    }
    assert!(denied > 1 && degraded > 0, "{denied} denied, {degraded} of them without an answer");
}

#[tokio::test]
async fn paused_writes_end_each_call_and_heal() {
    let server = Server::start().await;
    let limiter = Limiter::new(server.client());
    until("the server decides", async || decided(&limiter).await).await;
    server.run(&["CLIENT", "PAUSE", "1000", "WRITE"]).await;
    let decision = limiter.check(api().of("42")).await.unwrap();
    // On one connection, a paused call holds the replies to those behind it.
    assert_eq!(decision.reason, Some(Reason::Timeout));
    until("the server decides again", async || decided(&limiter).await).await;
}

async fn decided(limiter: &Limiter) -> bool {
    limiter.check(api().of("other")).await.unwrap().source == Source::Server
}

#[tokio::test]
async fn server_that_is_stopped_and_continues_decides_again() {
    let server = Server::start().await;
    let limiter = Limiter::new(server.client());
    until("the server decides", async || decided(&limiter).await).await;
    server.signal("STOP");
    let found = at_once(&limiter, &api(), 50).await;
    assert!(found.iter().all(|decision| decision.reason == Some(Reason::Timeout)));
    server.signal("CONT");
    let began = Instant::now();
    until("the server decides again", async || decided(&limiter).await).await;
    // A busy machine may be late. The timelines have the exact times.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
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
    // What the callers left behind is answered, and their places are free again.
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
