//! The HTTP server in front of a real Redis, alone and behind each proxy of `deploy/gateway`.

mod proxies;
#[path = "../../../clients/rust/redis-throttle-client/tests/live/server.rs"]
mod server;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use redis_throttle_client::{Limiter, Options};
use redis_throttle_gateway::decider::{Decider, Tags};
use redis_throttle_gateway::http::{self, Service};
use redis_throttle_gateway::metrics::Metrics;
use redis_throttle_gateway::reload::Live;
use server::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wire::{Response, get};

const FILE: &str = "domain: web
http:
  trusted_proxies: [127.0.0.1]
  descriptors:
    - {client: client_address, path: path}
    - {host: host}
    - {user: 'header:x-user'}
    - {large: 'header:x-large'}
limits:
  - {name: large, match: {large: '*'}, policy: large, default: FIXED 9 1h, cost: 2}
  - {name: strict, match: {client: '*', path: /strict}, rule: FIXED 3 1h, on_error: deny}
  - {name: each, match: {client: '*', path: '*'}, rule: FIXED 3 1h}
  - {name: host, match: {host: shop.example}, rule: FIXED 1 1h}
  - {name: caller, match: {user: eve}, policy: callers, default: FIXED 9 1h}
  - {name: user, match: {user: '*'}, rule: FIXED 1 1h}
";

/// The fields that a proxy sends.
const FIELDS: [(&str, &str); 3] =
    [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-Host", "a"), ("X-Forwarded-Uri", "/")];

/// The server under test, and its Redis.
struct Served {
    redis: Server,
    port: u16,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Served {
    async fn start() -> Self {
        let redis = Server::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("web.yaml");
        std::fs::write(&file, FILE).expect("a file");
        // A busy machine must not make Redis seem down.
        let timeout = Duration::from_secs(10);
        let options = Options::default().timeout(timeout);
        let limiter = Limiter::with_options(redis.client(), options).expect("a limiter");
        let decider = Decider::new(limiter, timeout, Tags::None, false);
        let live = Live::load(file).expect("a configuration");
        let service = Service::new(live, decider, Arc::new(Metrics::new(Registry::default())));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(http::serve(listener, service, stopped));
        Self { redis, port, stop, task }
    }

    /// Stops the server, after which its port is closed.
    async fn end(self) {
        self.stop.send(true).expect("a server");
        self.task.await.expect("an end");
    }
}

async fn check(port: u16, path: &str, target: &str) -> Response {
    let fields = [
        ("X-Forwarded-Uri", target),
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Host", "127.0.0.1"),
    ];
    get(port, path, &fields).await
}

#[tokio::test]
async fn check_responds_by_the_decision() {
    let mut served = Served::start().await;
    let port = served.port;
    for left in ["2", "1", "0"] {
        // Another spelling of the path meets the same limit.
        let response = check(port, "/check/web?on_error=allow", "/x/%2e%2e/%61?b=c").await;
        assert_eq!(response.status, 200);
        assert!(response.field("ratelimit").contains(&format!("\"each\";r={left};")));
        assert!(response.field("ratelimit-policy").starts_with("\"each\";q=3"));
    }
    for (path, status) in [("/check/web", 429), ("/check403/web", 403)] {
        let response = check(port, path, "/a").await;
        assert_eq!(response.status, status);
        let problem: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
        assert_eq!(problem["status"], status, "{path}");
        assert!((1..=3_600).contains(&response.field("retry-after").parse::<u64>().unwrap()));
        assert!(response.body.contains(r#""violated-policies":["each"]"#), "{}", response.body);
    }
    // No retry helps here, yet the status is that of a denial.
    served.redis.run(&["RL.POLICY", "SET", "large", "FIXED", "1", "1h"]).await;
    for (path, status) in [("/check/web", 429), ("/check403/web", 403)] {
        let response = get(port, path, &[&FIELDS[..], &[("X-Large", "a")]].concat()).await;
        let problem: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
        assert_eq!((response.status, &problem["status"]), (status, &status.into()), "{response:?}");
        assert!(problem["detail"].as_str().expect("a text").starts_with("This request costs more"));
    }
    served.redis.end();
    let unavailable = check(port, "/check/web", "/strict").await;
    let problem: serde_json::Value = serde_json::from_str(&unavailable.body).expect("JSON");
    assert_eq!((unavailable.status, &problem["status"]), (503, &503.into()));
    assert_eq!(check(port, "/check/web", "/loose").await.status, 200);
    let metrics = get(port, "/metrics", &[]).await.body;
    for line in [
        r#"requests_total{domain="web",rule="each",outcome="denied"} 2"#,
        r#"degraded_total{domain="web",rule="strict"} 1"#,
        r#"latency_seconds_count{protocol="http"} 9"#,
    ] {
        assert!(
            metrics.contains(&format!("redis_throttle_gateway_{line}\n")),
            "{line}:\n{metrics}"
        );
    }
    served.end().await;
}

#[tokio::test]
async fn banned_caller_is_forbidden() {
    let served = Served::start().await;
    served.redis.run(&["RL.POLICY", "SET", "callers", "BLOCK", "FIXED", "9", "1h"]).await;
    for path in ["/check/web", "/check403/web"] {
        let response = get(served.port, path, &[&FIELDS[..], &[("X-User", "eve")]].concat()).await;
        let problem: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
        assert_eq!((response.status, &problem["title"]), (403, &"Forbidden".into()), "{path}");
        assert_eq!(response.field("retry-after"), "");
    }
    let metrics = get(served.port, "/metrics", &[]).await.body;
    let line = r#"requests_total{domain="web",rule="caller",outcome="banned"} 2"#;
    assert!(metrics.contains(line), "{metrics}");
    served.end().await;
}

#[tokio::test]
async fn other_requests_are_refused() {
    let served = Served::start().await;
    let port = served.port;
    assert_eq!(check(port, "/check/other", "/").await.status, 404);
    assert_eq!(check(port, "/check/", "/").await.status, 404);
    assert_eq!(get(port, "/", &[]).await.status, 404);
    let unknown = get(port, "/check/w%65b", &[("X-Forwarded-For", "?")]).await;
    let problem: serde_json::Value = serde_json::from_str(&unknown.body).expect("JSON");
    let detail = "Invalid x-forwarded-for: expected the client's address.";
    assert_eq!((unknown.status, &problem["detail"]), (400, &detail.into()));
    assert_eq!(get(port, "/healthcheck", &[]).await.status, 200);
    assert_ne!(get(port, "/check/web", &vec![("X-A", "b"); 1_000]).await.status, 431);
    let long = "a".repeat(70_000);
    assert_eq!(get(port, "/check/web", &[("X-A", &long)]).await.status, 431);
    let metrics = get(port, "/metrics", &[]).await.body;
    let line = r#"refused_total{protocol="http",reason="unknown_domain"} 2"#;
    assert!(metrics.contains(line), "{metrics}");
    assert!(!metrics.contains("other"), "{metrics}");
    served.end().await;
}

#[tokio::test]
async fn refused_head_gets_its_response_before_the_connection_ends() {
    let served = Served::start().await;
    // The gateway refuses them before it has read everything.
    for field in ["X-A: b\r\n".repeat(5_000), format!("X-A: {}\r\n", "b".repeat(500_000))] {
        let mut stream = TcpStream::connect(("127.0.0.1", served.port)).await.expect("a stream");
        let head = format!("GET /check/web HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        stream.write_all(head.as_bytes()).await.expect("room for the head");
        let mut read = String::new();
        stream.read_to_string(&mut read).await.expect("an end without a reset");
        assert!(read.starts_with("HTTP/1.1 431 "), "{read}");
    }
    served.end().await;
}

#[tokio::test]
async fn connection_ends_after_a_request_with_a_body() {
    let served = Served::start().await;
    let mut stream = TcpStream::connect(("127.0.0.1", served.port)).await.expect("a stream");
    let head = "GET /healthcheck HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("room for the head");
    let mut first = [0; 9];
    stream.read_exact(&mut first).await.expect("a response before the body");
    stream.write_all(&[b'a'; 300_000]).await.expect("a body that is taken");
    let mut read = String::new();
    stream.read_to_string(&mut read).await.expect("an end without a reset");
    assert!(read.contains("connection: close\r\n"), "{read}");
    served.end().await;
}
