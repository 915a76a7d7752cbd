//! Reload and end.

use std::fs;
use std::net::TcpListener;

use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::started::{Gateway, LIMITS};
use crate::wire::{allows, ask, channel};

#[tokio::test]
async fn sighup_reads_the_configuration_again() {
    let gateway = Gateway::start("redis://127.0.0.1:1", &[]);
    let status = async |domain: &str| {
        let answer = ask(gateway.http(), &format!("/check/{domain}"), &[("x-user", "a")]).await;
        answer[9..12].to_owned()
    };
    assert_eq!([status("api").await, status("web").await], ["200", "404"]);
    fs::write(gateway.path("api.yaml"), LIMITS.replace("api", "web")).unwrap();
    gateway.signal("HUP");
    gateway.event("configuration_loaded", 1).await;
    assert_eq!([status("api").await, status("web").await], ["404", "200"]);
    fs::write(gateway.path("api.yaml"), "domain: web\nlimits: 1\n").unwrap();
    gateway.signal("HUP");
    gateway.event("configuration_refused", 1).await;
    let mistake = gateway.events("configuration_mistake").remove(0);
    let place = format!("{}:2:9: ", gateway.path("limits/api.yaml").display());
    assert!(mistake["message"].as_str().unwrap().starts_with(&place), "{mistake}");
    assert_eq!(status("web").await, "200");
    let metrics = ask(gateway.http(), "/metrics", &[]).await;
    for outcome in ["loaded", "refused"] {
        let line = format!("redis_throttle_gateway_reloads_total{{outcome=\"{outcome}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    assert!(metrics.contains("redis_throttle_checks_total{"), "{metrics}");
}

#[tokio::test]
async fn sigterm_lets_a_call_under_way_end() {
    // A server that accepts connections and never answers: a call lasts as long as it may.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let mut gateway = Gateway::start(&url, &["--timeout-ms", "1000"]);
    let stream = tokio::net::TcpStream::connect(gateway.grpc()).await.unwrap();
    let channel = channel(stream).await.unwrap();
    let call = tokio::spawn(allows(channel.clone()));
    // The gateway reads a connection in order: when it answers these, it has the call.
    let mut health = HealthClient::new(channel);
    for _ in 0..3 {
        health.check(HealthCheckRequest::default()).await.unwrap();
    }
    gateway.signal("TERM");
    gateway.event("draining", 1).await;
    assert!(!call.is_finished());
    assert!(call.await.unwrap().unwrap());
    assert!(gateway.ended().await.success());
    assert!(gateway.events("calls_cut_off").is_empty());
    assert!(tokio::net::TcpStream::connect(gateway.http()).await.is_err());
}
