//! The hook, the keys, and the validation of options.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Decision, Error, HashTag, Options, QuotaUnit, Rule};

use crate::{api, ms, times};

#[tokio::test(start_paused = true)]
async fn hook_gets_no_subject_and_changes_no_decision() {
    let server = FakeServer::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let telling = seen.clone();
    let tell = move |decision: &Decision, rule: &Rule, hash: &str, latency: Duration| {
        let told = (decision.clone(), rule.name().to_owned(), hash.to_owned(), latency);
        telling.lock().unwrap().push(told);
    };
    let limiter = server.limiter_with(Options::default().on_decision(tell)).unwrap();
    let decision = limiter.check(api().of("alice")).await.unwrap();
    let (told, rule, hash, latency) = seen.lock().unwrap().pop().unwrap();
    assert_eq!((told, rule.as_str(), latency), (decision, "api", ms(0)));
    assert!(hash.len() == 16 && !hash.contains("alice"));

    let broken = |_: &Decision, _: &Rule, _: &str, _: Duration| panic!("a hook that fails");
    let limiter = server.limiter_with(Options::default().on_decision(broken)).unwrap();
    assert!(limiter.check(api().of("alice")).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn limiter_counts_decisions_and_mistakes() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().denial_cache(9)).unwrap();
    times(&limiter, &api(), 8).await;
    let _ = limiter.peek(api().of("42")).await.unwrap();
    server.go_away();
    let _ = limiter.check(api().of("43")).await.unwrap();
    server.reply_with("WRONGTYPE x");
    assert!(limiter.check(api().of("44")).await.unwrap_err().is_mistake());
    let counters = limiter.clone().counters();
    assert_eq!((counters.allowed, counters.denied, counters.degraded), (7, 2, 1));
    assert_eq!((counters.local, counters.mistakes), (1, 1));
}

#[tokio::test]
async fn limiter_rejects_options_out_of_range() {
    let of = Options::default;
    for (named, options) in [
        ("timeout_ms", of().timeout_ms(0)),
        ("max_in_flight", of().max_in_flight(0)),
        ("breaker_failures", of().breaker_failures(0)),
        ("breaker_pause_ms", of().breaker_pause_ms(0)),
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
