use std::collections::BTreeMap;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use redis_throttle_client::prometheus::metrics;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Options, Rule};
use tokio::time::advance;

use crate::{api, ms};

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
async fn gauge_has_the_open_breakers_of_all_limiters() {
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
