//! The hook, the keys, and the validation of options.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{DecisionEvent, Error, EventKind, HashTag, Options, QuotaUnit, Rule};

use crate::{api, distant, ms, one};

#[tokio::test(start_paused = true)]
async fn hook_that_panics_changes_no_decision_and_no_other_hook() {
    let server = FakeServer::new();
    let broken = |_: &DecisionEvent<'_>| panic!("a hook that fails");
    let limiter = server.limiter_with(Options::default().on_decision(broken)).unwrap();
    let added = Arc::new(Mutex::new(Vec::new()));
    let kinds = added.clone();
    limiter.clone().on_decision(move |event| kinds.lock().unwrap().push(event.kind));
    assert!(limiter.check(api().of("alice")).await.unwrap().allowed);
    assert_eq!(*added.lock().unwrap(), [EventKind::Check]);
}

#[tokio::test(start_paused = true)]
async fn rejected_forget_is_an_event_and_one_without_a_reply_is_not() {
    let server = FakeServer::new();
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = kinds.clone();
    let limiter = server.limiter();
    limiter.on_decision(move |event| seen.lock().unwrap().push(event.kind));
    server.reply_with("WRONGTYPE x");
    assert!(limiter.forget(api().of("alice")).await.is_err());
    server.go_away();
    assert!(limiter.refund(api().of("alice")).await.is_err());
    assert!(limiter.forget(api().of("alice")).await.is_err());
    assert_eq!(*kinds.lock().unwrap(), [EventKind::Rejected]);
}

#[tokio::test]
async fn limiter_rejects_options_out_of_range() {
    let of = Options::default;
    for (named, options) in [
        ("timeout", of().timeout(ms(0))),
        ("max_in_flight", of().max_in_flight(0)),
        ("breaker_failures", of().breaker_failures(0)),
        ("breaker_pause", of().breaker_pause(ms(0))),
        ("denial_cache_max", of().denial_cache_max(ms(0))),
        // Times are whole microseconds, and are not rounded to them.
        ("timeout", of().timeout(Duration::from_nanos(2_000_500))),
        ("silence", of().silence(Duration::from_nanos(1_000_001))),
        ("breaker_pause", of().breaker_pause(Duration::from_secs(1) / 3)),
        ("denial_cache_max", of().denial_cache_max(Duration::from_nanos(1_000_999))),
        ("prefetch", of().prefetch(0)),
        ("prefetch", of().prefetch(10_001)),
        ("prefix", of().prefix("{")),
        ("hmac_secret", of().hmac_secret("short")),
    ] {
        let error = FakeServer::new().limiter_with(options).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == named));
    }
}

#[tokio::test]
async fn keys_follow_the_options() {
    let server = FakeServer::new();
    let options = Options::default().prefix("app").hash_tag(HashTag::Subject);
    let limiter = server.limiter_with(options).unwrap();
    let quota = Rule::quota("q", 5, QuotaUnit::Day).unwrap();
    let _ = limiter.check(quota.of("42")).await.unwrap();
    assert_eq!(server.calls()[0][1], "app:q:{42}");
    let options = Options::default().hmac_secret("0123456789abcdef");
    let limiter = server.limiter_with(options).unwrap();
    let _ = limiter.check(quota.of("alice")).await.unwrap();
    assert!(!server.calls()[1][1].contains("alice"));
}

#[tokio::test(start_paused = true)]
async fn hook_gets_the_latency_and_a_hash_keyed_by_the_secret() {
    let events = Arc::new(Mutex::new(Vec::new()));
    for secret in [None, Some("0123456789abcdef")] {
        let reported = events.clone();
        let report = move |event: &DecisionEvent<'_>| {
            reported.lock().unwrap().push((event.key_hash.clone(), event.latency));
        };
        let mut options = Options::default().on_decision(report);
        if let Some(secret) = secret {
            options = options.hmac_secret(secret);
        }
        let limiter = distant(&FakeServer::new(), [0, 50], options);
        let _ = limiter.check(api().of("alice")).await.unwrap();
    }
    let events = events.lock().unwrap();
    // Without a secret it is not the plain hash, which anyone can compute.
    assert_ne!(events[0].0, "2bd806c97f0e00af");
    assert_eq!(events[1], ("fdbf8b1cacd3d578".to_owned(), ms(50)));
    assert_eq!(events[0].0.len(), 16);
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
