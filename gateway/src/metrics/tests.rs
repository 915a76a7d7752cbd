use super::*;

#[test]
fn metrics_have_the_names_of_the_gateway() {
    let metrics = Metrics::new(Registry::default());
    metrics.refused(Protocol::Http, Refusal::UnknownDomain);
    metrics.responded(Protocol::Http, Duration::from_millis(3));
    metrics.reloaded(false);
    let text = metrics.text();
    for line in [
        r#"refused_total{protocol="http",reason="unknown_domain"} 1"#,
        r#"latency_seconds_bucket{le="0.005",protocol="http"} 1"#,
        r#"reloads_total{outcome="refused"} 1"#,
        r#"reloads_total{outcome="loaded"} 0"#,
    ] {
        let line = format!("redis_throttle_gateway_{line}\n");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}
