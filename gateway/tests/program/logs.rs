//! The log.

use std::time::Duration;

use serde_json::Value;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;

use crate::server::{Server, until};
use crate::started::Gateway;
use crate::wire::{TRACE, allows, channel, get_from};

#[tokio::test]
async fn refused_calls_are_logged_with_their_trace_and_a_bounded_rate() {
    let server = Server::start().await;
    server.run(&["ACL", "SETUSER", "gateway", "on", ">pw", "~*", "+@all", "-rl.fixed"]).await;
    let url = server.url().replace("redis://", "redis://gateway:pw@");
    let gateway = Gateway::start(&url, &["--timeout-ms", "1000"]);
    let refused =
        get_from(gateway.http(), "/check/api", &[("x-user", "a"), ("traceparent", TRACE)]);
    assert!(refused.await.starts_with("HTTP/1.1 200 "));
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
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("NOPERM") || message.contains("no permissions"), "{message}");
    for _ in 0..200 {
        get_from(gateway.http(), "/check/api", &[("x-user", "a"), ("traceparent", "00-x")]).await;
    }
    // The next line after a second has the number of those that were dropped.
    let shows_dropped = async || {
        let stream = TcpStream::connect(gateway.grpc()).await.unwrap();
        assert!(allows(channel(stream).await.unwrap()).await.unwrap());
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
async fn outage_and_return_of_the_server_are_logged_once_and_denials_are_not() {
    let mut server = Server::start().await;
    let gateway = Gateway::start(&server.url(), &["--timeout-ms", "1000"]);
    let check = async || get_from(gateway.http(), "/check/api", &[("x-user", "secret")]).await;
    until("a check is denied", async || check().await.starts_with("HTTP/1.1 429 ")).await;
    server.end();
    let is_down = async || {
        check().await;
        !gateway.events("server_away").is_empty()
    };
    until("the server is down", is_down).await;
    server.begin().await;
    gateway.event("server_back", 1).await;
    let all = gateway.lines();
    let (warnings, others): (Vec<_>, Vec<_>) =
        all.iter().partition(|line| line["event"] == "client_warning");
    let named: Vec<_> = others.iter().map(|line| &line["event"]).collect();
    assert_eq!(named, ["configuration_loaded", "server_away", "server_back"], "{all:?}");
    // The client logs its decisions without the server.
    assert!(!warnings.is_empty(), "{all:?}");
    for line in warnings {
        assert_eq!(line["level"], "warning", "{line}");
        let message = line["message"].as_str().unwrap();
        assert!(message.contains(" calls decided without the server: "), "{message}");
    }
    assert!(!format!("{all:?}").contains("secret"));
}

/// One call fails, which opens no breaker.
#[tokio::test]
async fn outage_of_a_moment_is_logged() {
    let mut server = Server::start().await;
    let gateway = Gateway::start(&server.url(), &["--timeout-ms", "1000"]);
    let check = async |user| get_from(gateway.http(), "/check/api", &[("x-user", user)]).await;
    assert!(check("a").await.contains("\r\nratelimit: "));
    server.end();
    let response = check("b").await;
    assert!(
        response.starts_with("HTTP/1.1 200 ") && !response.contains("ratelimit: "),
        "{response}"
    );
    server.begin().await;
    let line = gateway.event("server_away", 1).await;
    assert_eq!(line["level"], "error", "{line}");
    gateway.event("server_back", 1).await;
}

/// A server behind a slow network, or on a busy machine.
#[tokio::test]
async fn late_first_connection_is_not_an_absent_server() {
    let server = Server::start().await;
    let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", slow.local_addr().unwrap());
    let port = server.port;
    // A busy machine may lose the first connection to its deadline, so more of them may come.
    tokio::spawn(async move {
        loop {
            let (mut client, _) = slow.accept().await.unwrap();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    // The gateway starts in another thread, because the test is that server.
    let gateway = spawn_blocking(move || Gateway::start(&url, &["--timeout-ms", "200"]));
    let gateway = gateway.await.unwrap();
    assert_eq!(gateway.events("server_away"), [Value::Null; 0]);
    let denied = async || {
        let response = get_from(gateway.http(), "/check/api", &[("x-user", "a")]).await;
        response.starts_with("HTTP/1.1 429 ")
    };
    until("the server denies", denied).await;
    assert_eq!(gateway.events("server_away"), [Value::Null; 0]);
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
        let metrics = get_from(gateway.http(), "/metrics", &[]).await;
        let line = "redis_throttle_gateway_reloads_total{outcome=\"refused\"} ";
        let (_, count) = metrics.split_once(line)?;
        count.lines().next()?.parse::<u64>().ok()
    };
    for _ in 0..3 {
        let before = refused().await;
        gateway.signal("HUP");
        until("it is refused", async || refused().await > before).await;
        let response = get_from(gateway.http(), "/check/api", &[("x-user", "a")]).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
}
