//! The layer over the fake server: responses, calls, and the release of leases.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Decision, Error, HeaderStyle, Rule};
use serde_json::{Value, json};
use tower::{Service, ServiceExt};
use tower_layer::Layer;
use tower_redis_throttle::{Builder, Peer, RateLimit, RateLimitLayer, ResponseBody};

/// A service that responds with the source of the decision and the degraded header of the request.
#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let source = request.extensions().get().map(|decision: &Decision| decision.source.as_str());
        let degraded = request.headers().get("x-degraded").map(|value| value.to_str().unwrap());
        let body = json!({ "source": source, "degraded": degraded }).to_string();
        ready(Ok(Response::builder().header("RateLimit-Limit", "7").body(body.into()).unwrap()))
    }
}

fn api() -> Rule {
    Rule::gcra("api", 6, 10, "60s").unwrap()
}

fn jobs() -> Rule {
    Rule::lease("jobs", 1, "60s").unwrap()
}

fn built(builder: Builder) -> RateLimit<Inner> {
    builder.build().unwrap().layer(Inner)
}

fn request() -> http::request::Builder {
    Request::builder().extension(Peer("192.0.2.7".parse::<IpAddr>().unwrap()))
}

struct Received {
    status: StatusCode,
    headers: http::HeaderMap,
}

impl Received {
    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn send(service: &RateLimit<Inner>, request: http::request::Builder) -> Received {
    let response = service.clone().oneshot(request.body(()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let length = head.headers.get("content-length").map(|value| value.to_str().unwrap());
    assert!(length.is_none_or(|length| length == bytes.len().to_string()));
    Received { status: head.status, headers: head.headers }
}

async fn statuses(service: &RateLimit<Inner>, count: usize) -> Vec<u16> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(send(service, request()).await.status.as_u16());
    }
    found
}

#[tokio::test(start_paused = true)]
async fn inner_layer_keeps_the_degraded_header_of_an_outer_one() {
    let (down, there) = (FakeServer::new(), FakeServer::new());
    down.go_away();
    let layer = |server: &FakeServer| {
        let builder = RateLimitLayer::builder(server.limiter()).rule(api());
        builder.degraded_header("x-degraded").build().unwrap()
    };
    let service = layer(&down).layer(layer(&there).layer(Inner));
    let response = service.oneshot(request().body(()).unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["degraded"], "1");
}

#[tokio::test(start_paused = true)]
async fn response_to_a_rejected_command_has_the_error_as_an_extension_and_not_in_its_body() {
    let server = FakeServer::new();
    server.reply_with("WRONGTYPE Operation against a key");
    let service = built(RateLimitLayer::builder(server.limiter()).rule(api()));
    let response = service.oneshot(request().body(()).unwrap()).await.unwrap();
    let error = response.extensions().get::<Arc<Error>>().unwrap();
    assert!(matches!(**error, Error::CommandRejected { .. }), "{error}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&body).contains("WRONGTYPE"));
}

#[tokio::test(start_paused = true)]
async fn address_is_that_of_a_socket_or_shared_by_peers_without_one() {
    let server = FakeServer::new();
    let builder = || RateLimitLayer::builder(server.limiter()).rule(api());
    let socket: SocketAddr = "[2001:db8:0:1::5]:4711".parse().unwrap();
    send(&built(builder()), Request::builder().extension(socket)).await;
    send(&built(builder()), Request::builder()).await;
    let keys: Vec<_> = server.calls().iter().map(|call| call[1].clone()).collect();
    assert_eq!(keys, ["rl:api:2001%3Adb8%3A0%3A1%3A%3A/64", "rl:api:peer%3A"]);
    let rubbish = request().header("X-Forwarded-For", &b"\xff"[..]);
    let trusting = built(builder().trusted_proxies(["192.0.2.0/24"]));
    assert_eq!(send(&trusting, rubbish).await.status.as_u16(), 400);
}

#[tokio::test(start_paused = true)]
async fn functions_see_the_request_and_fields_of_the_service_are_kept() {
    let server = FakeServer::new();
    let once = Rule::gcra("once", 1, 1, "60s").unwrap();
    let builder = RateLimitLayer::builder(server.limiter()).rule(once);
    let builder = builder.skip(|request| request.head.uri.path() == "/health");
    let builder = builder.headers([HeaderStyle::Draft6, HeaderStyle::XRateLimit]);
    let service = built(builder.on_denied(|head, decision, response| {
        assert!(head.uri.path() == "/" && !decision.allowed);
        response
    }));
    send(&service, request().uri("/health")).await;
    assert_eq!(server.calls().len(), 0);
    let served = send(&service, request()).await;
    let limits: Vec<_> = served.headers.get_all("ratelimit-limit").iter().collect();
    assert_eq!(limits, ["7"]);
    assert_eq!(served.field("x-ratelimit-limit"), Some("1"));
    assert_eq!(send(&service, request()).await.status.as_u16(), 429);
}

#[tokio::test]
async fn build_rejects_invalid_options() {
    let server = FakeServer::new();
    let builder = || RateLimitLayer::builder(server.limiter());
    for (named, builder) in [
        ("rules", builder()),
        ("rules", builder().rule(api()).rule(api())),
        ("cost", builder().rule(jobs()).cost(|_| 2)),
        ("trusted_proxies", builder().rule(api()).trusted_proxies(["everybody"])),
        ("degraded_header", builder().rule(api()).degraded_header("a b")),
    ] {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument, .. } if argument == named));
    }
}

// -- leases --

async fn released(server: &FakeServer) -> usize {
    tokio::time::sleep(Duration::from_millis(1)).await;
    server.calls().iter().filter(|call| call[0] == "RL.RELEASE").count()
}

#[tokio::test(start_paused = true)]
async fn layer_releases_the_lease_when_the_body_ends() {
    let server = FakeServer::new();
    let service = RateLimitLayer::new(server.limiter(), jobs()).unwrap().layer(Inner);
    let response = service.clone().oneshot(request().body(()).unwrap()).await.unwrap();
    assert_eq!(released(&server).await, 0);
    assert_eq!(statuses(&service, 1).await, [429]);
    let mut body: ResponseBody<Full<Bytes>> = response.into_body();
    while body.frame().await.is_some() {}
    assert_eq!(released(&server).await, 1);
    drop(body);
    assert_eq!(released(&server).await, 1);
    assert_eq!(statuses(&service, 1).await, [200]);
}

#[tokio::test(start_paused = true)]
async fn layer_releases_every_lease_of_a_request() {
    let server = FakeServer::new();
    let builder = RateLimitLayer::builder(server.limiter()).rule(jobs()).rule(api());
    let service = built(builder.rule(Rule::lease("uploads", 1, "60s").unwrap()));
    for released_so_far in [2, 4] {
        assert_eq!(statuses(&service, 1).await, [200]);
        assert_eq!(released(&server).await, released_so_far);
    }
}

#[tokio::test(start_paused = true)]
async fn layer_releases_the_lease_when_the_client_disconnects() {
    let server = FakeServer::new();
    let service = RateLimitLayer::new(server.limiter(), jobs()).unwrap().layer(Inner);
    drop(service.clone().oneshot(request().body(()).unwrap()).await.unwrap());
    assert_eq!(released(&server).await, 1);
    // The client disconnects while the service works.
    let slow = tower::service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let slow = RateLimitLayer::new(server.limiter(), jobs()).unwrap().layer(slow);
    let waiting = slow.oneshot(request().body(()).unwrap());
    assert!(tokio::time::timeout(Duration::from_millis(10), waiting).await.is_err());
    assert_eq!(released(&server).await, 2);
}

#[tokio::test(start_paused = true)]
async fn layer_releases_the_lease_and_returns_the_error_when_the_service_fails() {
    let server = FakeServer::new();
    let failing =
        tower::service_fn(|_: Request<()>| ready(Err::<Response<Full<Bytes>>, _>("broken")));
    let service = RateLimitLayer::new(server.limiter(), jobs()).unwrap().layer(failing);
    assert_eq!(service.oneshot(request().body(()).unwrap()).await.err(), Some("broken"));
    assert_eq!(released(&server).await, 1);
}

/// A service that responds only through the instance that was polled ready.
struct OnlyWhenReady {
    ready: bool,
}

impl Clone for OnlyWhenReady {
    fn clone(&self) -> Self {
        Self { ready: false }
    }
}

impl Service<Request<()>> for OnlyWhenReady {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.ready, "the service that was polled ready is called");
        ready(Ok(Response::default()))
    }
}

#[tokio::test(start_paused = true)]
async fn layer_calls_the_service_that_was_polled_ready() {
    let server = FakeServer::new();
    let layer = RateLimitLayer::new(server.limiter(), api()).unwrap();
    let mut service = layer.layer(OnlyWhenReady { ready: false });
    for _ in 0..3 {
        let response = service.ready().await.unwrap().call(request().body(()).unwrap()).await;
        assert_eq!(response.unwrap().status().as_u16(), 200);
    }
}
