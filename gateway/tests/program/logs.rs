//! The log.

use crate::server::{Server, until};
use crate::started::Gateway;
use crate::wire::{allows, ask, channel};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

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
    assert_eq!(lines.iter().filter(|line| !line["traceparent"].is_null()).count(), 1);
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
