//! The layer in a server of axum, while a client resets its connections as fast as it can.

#[path = "../../redis-throttle-client/tests/live/proxy.rs"]
mod proxy;
#[path = "../../redis-throttle-client/tests/live/server.rs"]
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use proxy::Proxy;
use redis_throttle_client::{Backend, Limiter, Options, Rule};
use server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_redis_throttle::RateLimitLayer;

const LIMIT: u64 = 30;

/// Serves, and counts the requests of each user that pass.
async fn serve(limiter: &Limiter, passed: &[Arc<AtomicUsize>; 2]) -> SocketAddr {
    let user = |headers: &HeaderMap| headers.get("user")?.to_str().ok().map(str::to_owned);
    let rule = Rule::fixed("requests", LIMIT, "1h").unwrap();
    let layer = RateLimitLayer::builder(limiter.clone())
        .rule(rule)
        .key(move |request| user(&request.head.headers))
        .build()
        .unwrap();
    let passed = passed.clone();
    let handler = async move |headers: HeaderMap| {
        let at = usize::from(headers["user"] == "bad");
        passed[at].fetch_add(1, Ordering::Relaxed);
        "served"
    };
    let app = Router::new().route("/", get(handler)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn request(user: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: localhost\r\nUser: {user}\r\n\r\n")
}

/// Sends requests and resets the connection of each after at most some milliseconds.
async fn storm(address: SocketAddr) {
    for sent in 0..1000 {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(request("bad").as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(sent % 4)).await;
        socket.set_zero_linger().unwrap();
    }
}

/// Returns the status of each request of a client that behaves.
async fn behave(address: SocketAddr, count: u64) -> Vec<String> {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let mut found = Vec::new();
    for _ in 0..count {
        socket.write_all(request("good").as_bytes()).await.unwrap();
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !text.contains("served") && !text.ends_with('}') {
            let length = socket.read(&mut bytes).await.unwrap();
            assert!(length > 0, "the connection was closed");
            text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
        }
        found.push(text[9..12].to_owned());
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_resets_its_connections_lifts_no_limit() {
    let server = Server::of(Backend::Module, &[]).await;
    let proxy = Proxy::with_delay(Duration::from_millis(20)).await;
    proxy.lead_to(server.port);
    let client = redis::Client::open(proxy.url()).unwrap();
    // A busy machine may not run the server for as long as the default silence.
    let options = Options::default().silence(Duration::from_millis(900));
    let limiter = Limiter::with_options(client, options).unwrap();
    limiter.ready().await.unwrap();
    let passed = [Arc::default(), Arc::default()];
    let address = serve(&limiter, &passed).await;
    let storming = tokio::spawn(storm(address));
    let found = behave(address, LIMIT + 20).await;
    storming.await.unwrap();
    let allowed = found.iter().filter(|status| *status == "200").count() as u64;
    let denied = found.iter().filter(|status| *status == "429").count() as u64;
    assert_eq!((allowed, denied), (LIMIT, 20));
    assert_eq!(limiter.counters().degraded, 0);
    let [good, bad] = passed.map(|passed| passed.load(Ordering::Relaxed) as u64);
    assert!(good == LIMIT && bad <= LIMIT, "{good} and {bad} passed");
}
