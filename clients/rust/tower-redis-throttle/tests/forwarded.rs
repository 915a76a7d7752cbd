//! The warning of `X-Forwarded-For` without trusted proxies, which a program logs once.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Mutex;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use log::{LevelFilter, Log, Metadata, Record};
use redis_throttle_client::Rule;
use redis_throttle_client::testing::FakeServer;
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;
use tower_redis_throttle::{Builder, Peer, RateLimitLayer};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Lines;

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        LINES.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

/// Sends a request through a proxy and returns the number of lines in the log.
async fn lines(builder: Builder) -> usize {
    let empty =
        |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
    let peer = Peer("192.0.2.7".parse::<IpAddr>().unwrap());
    let request = Request::builder().extension(peer).header("X-Forwarded-For", "198.51.100.1");
    let service = builder.build().unwrap().layer(service_fn(empty));
    let response = service.oneshot(request.body(()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    LINES.lock().unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn forwarded_address_without_trusted_proxies_is_logged_once_if_the_address_is_the_key() {
    log::set_logger(&Lines).unwrap();
    log::set_max_level(LevelFilter::Warn);
    let server = FakeServer::new();
    let api = Rule::gcra("api", 6, 10, "60s").unwrap();
    let builder = || RateLimitLayer::builder(server.limiter()).rule(api.clone());
    assert_eq!(lines(builder().trusted_proxies(["192.0.2.7"])).await, 0);
    assert_eq!(lines(builder().trusted_proxies::<&str>([])).await, 0);
    assert_eq!(lines(builder().key(|_| Some("user".to_owned()))).await, 0);
    assert_eq!(lines(builder()).await, 1);
    assert_eq!(lines(builder().key(|_| None).anonymous(api.clone())).await, 1);
    let line = LINES.lock().unwrap().pop().unwrap();
    assert!(line.starts_with("WARN redis-throttle: X-Forwarded-For arrived"), "{line}");
}
