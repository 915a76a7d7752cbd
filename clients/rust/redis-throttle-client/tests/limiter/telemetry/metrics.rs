use std::collections::BTreeMap;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use redis_throttle_client::prometheus::metrics;
use redis_throttle_client::redis::Value;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Command, Connection, Limiter, OnError, Options, Reply, Rule};
use tokio::time::advance;

use super::{calls_of_each_kind, exports};
use crate::{api, ms, over};

/// Returns the samples of a metric that are not 0.
fn series(registry: &Registry, name: &str) -> BTreeMap<String, f64> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    assert!(!text.contains("alice"), "{text}");
    let of = |line: &str| {
        let (sample, value) = line.strip_prefix("redis_throttle_")?.rsplit_once(' ')?;
        Some((sample.to_owned(), value.parse().unwrap()))
    };
    let samples = text.lines().filter_map(of);
    samples.filter(|(sample, value)| sample.starts_with(name) && *value != 0.0).collect()
}

fn expected<const N: usize>(samples: [(&str, f64); N]) -> BTreeMap<String, f64> {
    samples.into_iter().map(|(sample, value)| (sample.to_owned(), value)).collect()
}

#[tokio::test(start_paused = true)]
async fn checks_and_leases_are_counted_and_no_other_calls() {
    let (server, mut registry) = (FakeServer::new(), Registry::default());
    let limiter = server.limiter_with(Options::default().denial_cache(9)).unwrap();
    let shown = metrics(&limiter, &mut registry);
    shown.add(&limiter.clone());
    calls_of_each_kind(&limiter, &server).await;
    for _ in 0..2 {
        let _ = limiter.check(exports().of("alice")).await.unwrap();
    }
    let checks = [
        (r#"checks_total{rule="exports",outcome="allowed",source="server"}"#, 1.0),
        (r#"checks_total{rule="exports",outcome="denied",source="server"}"#, 3.0),
        (r#"checks_total{rule="exports",outcome="denied",source="local"}"#, 1.0),
        (r#"checks_total{rule="jobs",outcome="allowed",source="server"}"#, 1.0),
        (r#"checks_total{rule="jobs",outcome="denied",source="server"}"#, 1.0),
        (r#"checks_total{rule="api",outcome="rejected",source="server"}"#, 1.0),
    ];
    assert_eq!(series(&registry, "checks"), expected(checks));
    let latency = series(&registry, "latency");
    assert_eq!(latency[r#"latency_seconds_count{source="server"}"#], 6.0);
    let ratio = series(&registry, "remaining");
    assert_eq!(ratio[r#"remaining_ratio_count{rule="exports"}"#], 4.0);
    assert_eq!(ratio[r#"remaining_ratio_bucket{le="0.0",rule="exports"}"#], 4.0);
    // The row of the rule that did not decide.
    assert_eq!(ratio[r#"remaining_ratio_sum{rule="api"}"#], 1.0);
}

/// A server that bans every caller.
#[derive(Clone)]
struct Banning;

impl Connection for Banning {
    fn send<'a>(&'a self, _: &'a Command<'a>) -> Reply<'a> {
        let reply = [0, 6, 0, -1, 0].map(Value::Int).to_vec();
        Box::pin(std::future::ready(Ok(Value::Array(reply))))
    }
}

#[tokio::test(start_paused = true)]
async fn banned_calls_have_an_outcome_of_their_own() {
    let (limiter, mut registry) = (Limiter::new(over(&Banning)), Registry::default());
    metrics(&limiter, &mut registry);
    let banned = limiter.check(api().of("alice")).await.unwrap();
    assert!(banned.banned && banned.never());
    let checks = [(r#"checks_total{rule="api",outcome="banned",source="server"}"#, 1.0)];
    assert_eq!(series(&registry, "checks"), expected(checks));
}

#[tokio::test(start_paused = true)]
async fn end_without_an_answer_is_no_rejection() {
    let (server, mut registry) = (FakeServer::new(), Registry::default());
    let limiter = server.limiter();
    metrics(&limiter, &mut registry);
    let admitted = limiter.admit(&[api().of("alice")], None).await.unwrap();
    admitted.settle(&api(), 3).unwrap();
    server.go_away();
    admitted.finish().await;
    assert_eq!(limiter.counters().unsettled, 1);
    let checks = [(r#"checks_total{rule="api",outcome="allowed",source="server"}"#, 1.0)];
    assert_eq!(series(&registry, "checks"), expected(checks));
}

#[tokio::test(start_paused = true)]
async fn degraded_decisions_are_counted_by_on_error_and_reason() {
    let (server, mut registry) = (FakeServer::new(), Registry::default());
    let options = Options::default().breaker_failures(1);
    let limiter = server.limiter_with(options).unwrap();
    metrics(&limiter, &mut registry);
    server.go_away();
    for (name, on_error) in
        [("allow", OnError::Allow), ("deny", OnError::Deny), ("local", OnError::Local)]
    {
        let rule = Rule::gcra(name, 6, 10, "60s").unwrap().on_error(on_error).unwrap();
        let _ = limiter.check(rule.of("alice")).await.unwrap();
    }
    let degraded = [
        (r#"degraded_total{rule="allow",on_error="allow",reason="connection"}"#, 1.0),
        (r#"degraded_total{rule="deny",on_error="deny",reason="circuit"}"#, 1.0),
        (r#"degraded_total{rule="local",on_error="local",reason="circuit"}"#, 1.0),
    ];
    assert_eq!(series(&registry, "degraded"), expected(degraded));
    assert_eq!(series(&registry, "remaining"), expected([]));
}

#[tokio::test(start_paused = true)]
async fn open_breakers_of_all_limiters_are_shown() {
    let mut registry = Registry::default();
    let servers = [FakeServer::new(), FakeServer::new()];
    let options = Options::default().breaker_failures(1).breaker_pause(ms(150));
    let [first, second] =
        servers.each_ref().map(|server| server.limiter_with(options.clone()).unwrap());
    metrics(&first, &mut registry).add(&second);
    for (limiter, server) in [&first, &second].into_iter().zip(&servers) {
        server.hang();
        let _ = limiter.check(api().of("alice")).await.unwrap();
        assert_eq!(limiter.open_breakers(), 1);
    }
    // The pause of the first breaker ends.
    advance(ms(50)).await;
    assert_eq!(first.open_breakers(), 0);
    let _ = first.check(api().of("alice")).await.unwrap();
    assert_eq!(first.open_breakers(), 1);
    servers[0].recover();
    advance(ms(150)).await;
    let _ = first.check(api().of("alice")).await.unwrap();
    assert_eq!(series(&registry, "breaker"), expected([]));
    let _ = second.check(api().of("alice")).await.unwrap();
    assert_eq!(series(&registry, "breaker"), expected([("breaker_open", 1.0)]));
    drop(second);
    let _ = first.check(api().of("alice")).await.unwrap();
    assert_eq!(series(&registry, "breaker"), expected([]));
}

#[tokio::test(start_paused = true)]
async fn rules_after_the_hundredth_share_a_name() {
    let (server, mut registry) = (FakeServer::new(), Registry::default());
    let limiter = server.limiter();
    metrics(&limiter, &mut registry);
    for number in (0..103).chain(0..103) {
        let rule = Rule::gcra(&format!("rule-{number}"), 6, 10, "60s").unwrap();
        let _ = limiter.check(rule.of("alice")).await.unwrap();
    }
    let checks = series(&registry, "checks");
    assert_eq!(checks.len(), 101);
    let of = |rule| {
        checks[&format!(r#"checks_total{{rule="{rule}",outcome="allowed",source="server"}}"#)]
    };
    assert_eq!((of("rule-99"), of("(other)")), (2.0, 6.0));
    let ratio = series(&registry, "remaining");
    assert_eq!(ratio[r#"remaining_ratio_count{rule="(other)"}"#], 6.0);
}
