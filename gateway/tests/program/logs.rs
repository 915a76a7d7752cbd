//! The log.

use serde_json::Value;

use crate::server::{Server, until};
use crate::started::Gateway;
use crate::wire::{TRACE, allows, ask, channel};

#[tokio::test]
async fn refused_calls_are_logged_with_their_trace_and_a_bounded_rate() {
    let server = Server::start().await;
    server.run(&["ACL", "SETUSER", "gateway", "on", ">pw", "~*", "+@all", "-rl.fixed"]).await;
    let url = server.url().replace("redis://", "redis://gateway:pw@");
    let gateway = Gateway::start(&url, &["--timeout-ms", "1000"]);
    let refused = ask(gateway.http(), "/check/api", &[("x-user", "a"), ("traceparent", TRACE)]);
    assert!(refused.await.starts_with("HTTP/1.1 500 "));
    let line = gateway.event("call_refused", 1).await;
    for (name, value) in [
        ("level", "error"),
        ("protocol", "http"),
        ("domain", "api"),
        ("rule", "user"),
        ("outcome", "rejected"),
        ("traceparent", TRACE),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    let said = line["message"].as_str().unwrap();
    assert!(said.contains("NOPERM") || said.contains("no permissions"), "{said}");
    for _ in 0..200 {
        ask(gateway.http(), "/check/api", &[("x-user", "a"), ("traceparent", "00-x")]).await;
    }
    // The next line after a second has the number of those that were dropped.
    let shows_dropped = async || {
        let stream = tokio::net::TcpStream::connect(gateway.grpc()).await.unwrap();
        assert!(allows(channel(stream).await.unwrap()).await.is_err());
        let lines = gateway.events("call_refused");
        lines.iter().any(|line| line["protocol"] == "grpc" && !line["dropped"].is_null())
    };
    until("the number of dropped lines is logged", shows_dropped).await;
    let lines = gateway.events("call_refused");
    assert!(lines.len() < 200, "{}", lines.len());
    let [http, grpc] = ["http", "grpc"].map(|protocol| {
        let of_protocol = lines.iter().filter(|line| line["protocol"] == protocol);
        of_protocol.map(|line| line["traceparent"].clone()).collect::<Vec<_>>()
    });
    // Those after the first are not valid.
    assert!(http[0] == TRACE && http[1..].iter().all(Value::is_null));
    assert!(grpc.iter().all(|trace| trace == TRACE));
}

#[tokio::test]
async fn server_away_and_back_are_logged_once_and_denials_are_not() {
    let mut server = Server::start().await;
    let gateway = Gateway::start(&server.url(), &["--timeout-ms", "1000"]);
    let check = async || ask(gateway.http(), "/check/api", &[("x-user", "secret")]).await;
    until("a check is denied", async || check().await.starts_with("HTTP/1.1 429 ")).await;
    let times = |event| gateway.events(event).len();
    // On a busy machine, the first connection may be late.
    let is_settled = async || times("server_away") == times("server_back");
    until("the server is there", is_settled).await;
    let before = times("server_away");
    server.end();
    let is_away = async || {
        check().await;
        times("server_away") > before
    };
    until("the server is away", is_away).await;
    server.begin().await;
    gateway.event("server_back", before + 1).await;
    let all = gateway.lines();
    assert_eq!(all.len(), 2 * (before + 1), "{all:?}");
    assert!(!format!("{all:?}").contains("secret"));
}

#[tokio::test]
async fn unread_log_stops_no_call() {
    let both = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let gateway = Gateway::unread("redis://127.0.0.1:1", &both, &[]);
    // The mistakes of one reading are more than the pipe takes.
    let mistakes = "- {match: {user: '*'}, rule: FIXD 1 1h}\n".repeat(100);
    for number in 0..20 {
        let text = format!("domain: d{number}\nlimits:\n{mistakes}");
        std::fs::write(gateway.path(&format!("limits/{number}.yaml")), text).unwrap();
    }
    let refused = async || {
        let metrics = ask(gateway.http(), "/metrics", &[]).await;
        let line = "redis_throttle_gateway_reloads_total{outcome=\"refused\"} ";
        let (_, count) = metrics.split_once(line)?;
        count.lines().next()?.parse::<u64>().ok()
    };
    for _ in 0..3 {
        let before = refused().await;
        gateway.signal("HUP");
        until("it is refused", async || refused().await > before).await;
        let answer = ask(gateway.http(), "/check/api", &[("x-user", "a")]).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}
