//! Edge cases of the limiter's guarantees.

use std::sync::{Arc, Mutex};

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{
    Command, Connection, DecisionEvent, Error, Limiter, OnError, Options, Reply, Rule, Source,
};
use tokio::time::{advance, sleep};

use crate::{allowed, api, first_denied, ms, over, times};

/// A server that decides, and answers 50 ms later.
#[derive(Clone)]
struct SlowServer(FakeServer);

impl Connection for SlowServer {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            let reply = self.0.send(command).await;
            sleep(ms(50)).await;
            reply
        })
    }
}

fn one() -> Rule {
    Rule::fixed("one", 1, "1h").unwrap()
}

// -- without an answer --

#[tokio::test(start_paused = true)]
async fn local_limiter_with_a_fractional_rate_loses_no_units() {
    let server = FakeServer::new();
    server.go_away();
    let limiter = server.limiter();
    for rule in [
        Rule::gcra("g", 5, 7, "1s").unwrap(),
        Rule::token_bucket("t", 5, 7, "1s").unwrap(),
        Rule::leaky_bucket("l", 5, 7, "1s").unwrap(),
    ] {
        let local = rule.on_error(OnError::Local).unwrap();
        assert_eq!(allowed(&times(&limiter, &local, 6).await), first_denied(5));
        advance(ms(143)).await;
        assert_eq!(allowed(&times(&limiter, &local, 2).await), [true, false]);
    }
}

// -- the denial cache --

#[tokio::test(start_paused = true)]
async fn cached_denial_is_timed_from_before_its_request() {
    let server = SlowServer(FakeServer::new());
    let options = Options::default().denial_cache(9).denial_cache_max(ms(3_600_000));
    let limiter = Limiter::with_options(over(&server), options).unwrap();
    let denied = times(&limiter, &one(), 2).await.pop().unwrap();
    // The server decided 50 ms before.
    advance(denied.retry_after - ms(51)).await;
    assert_eq!(times(&limiter, &one(), 1).await[0].source, Source::Local);
    advance(ms(1)).await;
    assert_eq!(times(&limiter, &one(), 1).await[0].source, Source::Server);
}

/// The denial arrives after the key was forgotten or refunded.
#[tokio::test(start_paused = true)]
async fn forget_and_refund_remove_a_pending_denial() {
    let server = FakeServer::new();
    let options = Options::default().denial_cache(9);
    let limiter = Limiter::with_options(over(&SlowServer(server.clone())), options).unwrap();
    for forgets in [true, false] {
        assert!(times(&limiter, &one(), 1).await[0].allowed);
        let asking = limiter.clone();
        let denied = tokio::spawn(async move { asking.check(one().of("42")).await.unwrap() });
        sleep(ms(10)).await;
        if forgets {
            limiter.forget(one().of("42")).await.unwrap();
        } else {
            let _ = limiter.refund(one().of("42")).await.unwrap();
        }
        assert!(!denied.await.unwrap().allowed);
        assert!(times(&limiter, &one(), 1).await[0].allowed);
        limiter.forget(one().of("42")).await.unwrap();
    }
}

// -- prefetch and forget --

#[tokio::test(start_paused = true)]
async fn forget_removes_permits_and_local_state() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().prefetch(4)).unwrap();
    times(&limiter, &api(), 1).await;
    limiter.forget(api().of("42")).await.unwrap();
    assert_eq!(times(&limiter, &api(), 1).await[0].source, Source::Server);
    let local = one().on_error(OnError::Local).unwrap();
    server.go_away();
    assert_eq!(allowed(&times(&limiter, &local, 2).await), [true, false]);
    server.recover();
    limiter.forget(local.of("42")).await.unwrap();
    server.go_away();
    assert_eq!(allowed(&times(&limiter, &local, 1).await), [true]);
}

#[tokio::test(start_paused = true)]
async fn close_refunds_the_permits_of_every_key() {
    let server = FakeServer::new();
    let options = Options::default().prefetch(4).max_in_flight(2);
    let (limiter, api) = (server.limiter_with(options).unwrap(), api());
    for subject in ["a", "b", "c", "d", "e"] {
        let _ = limiter.check(api.of(subject)).await.unwrap();
    }
    limiter.close().await;
    let calls = server.calls();
    let refunds = calls.iter().filter(|call| call[0] == "RL.REFUND");
    assert_eq!(refunds.map(|call| &*call[7]).collect::<Vec<_>>(), ["3"; 5]);
}

#[tokio::test(start_paused = true)]
async fn ready_sends_a_call_that_takes_nothing() {
    let server = FakeServer::new();
    server.limiter().ready().await.unwrap();
    let asked = ["RL.PEEK", "rl:ready:ready", "GCRA", "1", "1", "1", "COST", "0"];
    assert_eq!(server.calls(), [asked]);
}

// -- the hook and the tags --

#[tokio::test(start_paused = true)]
async fn hook_gets_the_latency_and_a_hash_keyed_by_the_secret() {
    let told = Arc::new(Mutex::new(Vec::new()));
    for secret in [None, Some("0123456789abcdef")] {
        let telling = told.clone();
        let tell = move |event: &DecisionEvent<'_>| {
            telling.lock().unwrap().push((event.key_hash.clone(), event.latency));
        };
        let mut options = Options::default().on_decision(tell);
        if let Some(secret) = secret {
            options = options.hmac_secret(secret);
        }
        let limiter = Limiter::with_options(over(&SlowServer(FakeServer::new())), options).unwrap();
        let _ = limiter.check(api().of("alice")).await.unwrap();
    }
    let told = told.lock().unwrap();
    // Without a secret it is not the plain hash, which anyone can compute.
    assert_ne!(told[0].0, "2bd806c97f0e00af");
    assert_eq!(told[1], ("fdbf8b1cacd3d578".to_owned(), ms(50)));
    assert_eq!(told[0].0.len(), 16);
}

#[tokio::test(start_paused = true)]
async fn tag_is_in_every_key_of_its_call() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().prefetch(2)).unwrap();
    let (api, one, jobs) = (api(), one(), Rule::lease("jobs", 1, "60s").unwrap());
    let call = api.of("42").tag("t");
    let _ = limiter.check(call).await.unwrap();
    let _ = limiter.check(call.cost(2)).await.unwrap();
    let _ = limiter.peek(call).await.unwrap();
    let _ = limiter.refund(call).await.unwrap();
    let _ = limiter.charge(call).await.unwrap();
    let _ = limiter.check_all(&[api.of("42"), one.of("42")], Some("t")).await.unwrap();
    let _ = limiter.wait(call, ms(0)).await.unwrap();
    limiter.lease(jobs.of("42").tag("t")).await.unwrap().release().await;
    limiter.forget(call).await.unwrap();
    let empty = limiter.check(api.of("42").tag("")).await;
    assert!(matches!(empty, Err(Error::InvalidArgument { argument: "tag", .. })));
    limiter.close().await;
    assert!(server.calls().iter().all(|call| call[1].starts_with("rl:{t}:")));
    assert_eq!(server.calls()[5][3], "rl:{t}:one:42");
}

// -- bounds of memory --

/// One more than the maximum number of keys with prefetched permits or local state.
const SUBJECTS: usize = 10_001;

#[tokio::test(start_paused = true)]
async fn limiter_keeps_permits_of_a_bounded_number_of_keys() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().prefetch(3)).unwrap();
    let api = api();
    for subject in 0..SUBJECTS {
        let _ = limiter.check(api.of(&subject.to_string())).await.unwrap();
    }
    // The permits of the oldest key were evicted, which only makes the limit stricter.
    let newest = limiter.check(api.of("10000")).await.unwrap();
    let oldest = limiter.check(api.of("0")).await.unwrap();
    assert_eq!((newest.source, oldest.source), (Source::Local, Source::Server));
}

#[tokio::test(start_paused = true)]
async fn limiter_keeps_local_states_of_a_bounded_number_of_keys() {
    let server = FakeServer::new();
    server.go_away();
    let (limiter, one) = (server.limiter(), one().on_error(OnError::Local).unwrap());
    for subject in 0..SUBJECTS {
        assert!(limiter.check(one.of(&subject.to_string())).await.unwrap().allowed);
    }
    assert!(!limiter.check(one.of("10000")).await.unwrap().allowed);
    assert!(limiter.check(one.of("0")).await.unwrap().allowed);
}
