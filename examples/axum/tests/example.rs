//! Tests the example as a process, over real HTTP.

#[path = "../../../clients/rust/redis-throttle-client/tests/live/server.rs"]
mod server;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use server::{Server, until};

/// The running example, called as by a trusted proxy.
struct Example {
    process: Child,
    url: String,
    client: Client,
}

impl Example {
    /// Starts the example. `timeout_ms` is the timeout of a call: the default in tests about the
    /// timeout, otherwise a long one.
    fn start(server: &Server, timeout_ms: u64) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_example-axum"));
        command.env("REDIS_URL", server.url()).env("PORT", "0");
        command.env("TRUSTED_PROXIES", "127.0.0.1/32");
        command.env("TIMEOUT_MS", timeout_ms.to_string());
        command.env("SILENCE_MS", timeout_ms.to_string());
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the example");
        let mut line = String::new();
        let output = process.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening on ").expect("where it listens").to_owned();
        // A connection per request, so that a client that hangs up affects no other request.
        let client = Client::builder().pool_max_idle_per_host(0).no_proxy().build().unwrap();
        Self { process, url, client }
    }

    /// Sends a request as the proxy 127.0.0.1 forwards it for a client.
    async fn get(&self, path: &str, forwarded: &str) -> Response {
        self.send(Method::GET, path, forwarded).await
    }

    async fn send(&self, method: Method, path: &str, forwarded: &str) -> Response {
        let request = self.client.request(method, format!("{}{path}", self.url));
        request.header("X-Forwarded-For", forwarded).send().await.expect("a response")
    }

    async fn status(&self, path: &str, forwarded: &str) -> u16 {
        self.get(path, forwarded).await.status().as_u16()
    }

    async fn source(&self, forwarded: &str) -> String {
        let body: Value = self.get("/", forwarded).await.json().await.expect("JSON");
        body["source"].as_str().unwrap_or("none").to_owned()
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn example_serves_ten_requests_and_denies_the_eleventh_with_a_full_429() {
    let server = Server::start().await;
    server.freeze().await;
    let example = Example::start(&server, 60_000);
    for left in (0..10).rev() {
        let served = example.get("/", "192.0.2.7").await;
        assert_eq!(served.status(), 200);
        let limit = format!(r#""api";r={left};t={}"#, 6 * (10 - left));
        assert_eq!(field(&served, "ratelimit"), Some(&*limit));
    }
    let denied = example.get("/", "192.0.2.7").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(field(&denied, "retry-after"), Some("6"));
    assert_eq!(field(&denied, "ratelimit-policy"), Some(r#""api";q=10;w=60"#));
    assert_eq!(field(&denied, "ratelimit"), Some(r#""api";r=0;t=6"#));
    assert_eq!(field(&denied, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&denied, "cache-control"), Some("no-store"));
    let problem = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Come back in 6 seconds.",
        "violated-policies": ["api"],
    });
    assert_eq!(denied.json::<Value>().await.unwrap(), problem);
    // A forged first address does not change the client's key. Another client has another key.
    assert_eq!(example.status("/", "1.1.1.1, 192.0.2.7").await, 429);
    assert_eq!(example.status("/", "192.0.2.8").await, 200);
    // The key of an IPv6 client is its /64 network.
    for host in 1..=10 {
        assert_eq!(example.status("/", &format!("2001:db8::{host:x}")).await, 200);
    }
    assert_eq!(example.status("/", "2001:db8::ffff").await, 429);
    assert_eq!(example.status("/", "2001:db8:0:1::1").await, 200);
    // The client's address is unknown.
    assert_eq!(example.status("/", "unknown").await, 400);
    assert_eq!(example.status("/me", "192.0.2.9").await, 400);
    server.advance(Duration::from_secs(6)).await;
    assert_eq!(example.status("/", "192.0.2.7").await, 200);
}

#[tokio::test]
async fn several_rules_are_checked_in_one_call() {
    let server = Server::start().await;
    server.freeze().await;
    let example = Example::start(&server, 60_000);
    let before = server.decided("rl.all").await;
    for _ in 0..3 {
        let served = example.get("/report", "192.0.2.7").await;
        assert_eq!(served.status(), 200);
        let policy = r#""api";q=10;w=60, "day";q=3;w=86400"#;
        assert_eq!(field(&served, "ratelimit-policy"), Some(policy));
    }
    let denied = example.get("/report", "192.0.2.7").await;
    assert_eq!(denied.status(), 429);
    let problem: Value = denied.json().await.unwrap();
    assert_eq!(problem["violated-policies"], json!(["day"]));
    assert_eq!(server.decided("rl.all").await - before, 4);
}

/// Returns the median duration of five responses; none if one is not decided by `source`.
async fn median_of_five(example: &Example, source: &str) -> Option<Duration> {
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        if example.source("192.0.2.7").await != source {
            return None;
        }
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Some(took[2])
}

#[tokio::test]
async fn example_follows_each_on_error_while_the_server_is_down_and_recovers() {
    let mut server = Server::start().await;
    server.freeze().await;
    let example = Example::start(&server, 100);
    until("the server decides", async || example.source("203.0.113.99").await == "server").await;
    let mut usual = None;
    // On a busy machine a call may time out.
    until("five calls are decided in time", async || {
        server.freeze().await;
        usual = median_of_five(&example, "server").await;
        usual.is_some()
    })
    .await;
    let usual = usual.expect("a median");
    server.end();
    // The median must be below the bound plus twice the time of other responses on this machine.
    let without = median_of_five(&example, "error").await.expect("no call is decided");
    assert!(without < Duration::from_millis(150) + 2 * usual, "{without:?}, else {usual:?}");
    let closed = example.send(Method::POST, "/login", "192.0.2.7").await;
    assert_eq!((closed.status().as_u16(), field(&closed, "retry-after")), (503, Some("1")));
    let mut local = Vec::new();
    for _ in 0..3 {
        local.push(example.status("/search", "192.0.2.7").await);
    }
    assert_eq!(local, [200, 200, 429]);
    assert_eq!(example.status("/export", "192.0.2.7").await, 200);
    server.begin().await;
    until("the server decides", async || example.source("203.0.113.99").await == "server").await;
}

#[tokio::test]
async fn request_to_a_hung_server_takes_one_timeout_and_counts_once() {
    let server = Server::start().await;
    server.freeze().await;
    let example = Example::start(&server, 100);
    until("the server decides", async || example.source("203.0.113.99").await == "server").await;
    let before = server.decided("rl.gcra").await;
    assert!(before > 0);
    let slept = server.hang().await;
    let began = Instant::now();
    assert_eq!(example.source("192.0.2.7").await, "error");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(90) && !slept.is_finished(), "{took:?}");
    slept.await.unwrap().unwrap();
    let after = server.decided("rl.gcra").await;
    assert!(after - before <= 1, "{} calls", after - before);
    until("the server decides", async || example.source("203.0.113.99").await == "server").await;
}

#[tokio::test]
async fn example_releases_the_lease_when_the_client_hangs_up() {
    let server = Server::start().await;
    server.freeze().await;
    let example = Example::start(&server, 60_000);
    let mut first = example.get("/export", "192.0.2.7").await;
    assert_eq!(first.status(), 200);
    assert!(first.chunk().await.unwrap().is_some());
    assert_eq!(example.status("/export", "192.0.2.7").await, 429);
    // Hang up in the middle of the response.
    drop(first);
    let free = async || server.query::<u64>(&["DBSIZE"]).await == Ok(0);
    until("the permit is back", free).await;
    assert_eq!(example.status("/export", "192.0.2.7").await, 200);
}

#[tokio::test]
async fn example_starts_without_its_server() {
    let mut server = Server::start().await;
    server.end();
    let example = Example::start(&server, 100);
    assert_eq!(example.source("192.0.2.7").await, "error");
    server.begin().await;
    until("the server decides", async || example.source("192.0.2.7").await == "server").await;
}
