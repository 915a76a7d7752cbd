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
use redis_throttle_client::{
    Command, Connection, Decision, Error, HeaderStyle, Limiter, OnError, Reply, Rule,
};
use serde_json::{Value, json};
use tower::{Service, ServiceExt};
use tower_layer::Layer;
use tower_redis_throttle::{Builder, Peer, RateLimit, RateLimitLayer, ResponseBody};

/// A service that answers with the source of the decision and the degraded header of the request.
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

struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    body: Value,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

async fn answer(service: &RateLimit<Inner>, request: http::request::Builder) -> Answer {
    let response = service.clone().oneshot(request.body(()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    let length = head.headers.get("content-length").map(|value| value.to_str().unwrap());
    assert!(length.is_none_or(|length| length == bytes.len().to_string()));
    let body = serde_json::from_slice(&bytes).unwrap();
    Answer { status: head.status, headers: head.headers, body }
}

async fn statuses(service: &RateLimit<Inner>, count: usize) -> Vec<u16> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(answer(service, request()).await.status.as_u16());
    }
    found
}

#[tokio::test(start_paused = true)]
async fn layer_answers_the_seventh_request_with_a_problem() {
    let server = FakeServer::new();
    let service = RateLimitLayer::new(server.limiter(), api()).unwrap().layer(Inner);
    let first = answer(&service, request()).await;
    assert_eq!((first.status.as_u16(), &first.body["source"]), (200, &json!("server")));
    assert_eq!(first.field("ratelimit-policy"), Some(r#""api";q=6;w=36"#));
    assert_eq!(first.field("ratelimit"), Some(r#""api";r=5;t=6"#));
    assert_eq!(statuses(&service, 5).await, [200; 5]);
    let denied = answer(&service, request()).await;
    assert_eq!(denied.status.as_u16(), 429);
    assert_eq!(denied.field("content-type"), Some("application/problem+json"));
    assert_eq!(denied.field("cache-control"), Some("no-store"));
    assert_eq!(denied.field("retry-after"), Some("6"));
    assert_eq!(denied.field("ratelimit"), Some(r#""api";r=0;t=6"#));
    let problem = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Too Many Requests",
        "status": 429,
        "detail": "Come back in 6 seconds.",
        "violated-policies": ["api"],
    });
    assert_eq!(denied.body, problem);
}

#[tokio::test(start_paused = true)]
async fn without_a_server_a_denied_request_gets_503_and_an_allowed_one_is_marked() {
    let server = FakeServer::new();
    server.go_away();
    let closed = api().on_error(OnError::Deny).unwrap();
    let service = RateLimitLayer::new(server.limiter(), closed).unwrap().layer(Inner);
    let refused = answer(&service, request()).await;
    assert_eq!((refused.status.as_u16(), refused.field("retry-after")), (503, Some("1")));
    assert_eq!((refused.field("ratelimit"), &refused.body["status"]), (None, &json!(503)));

    let builder = RateLimitLayer::builder(server.limiter()).rule(api());
    let service = built(builder.degraded_header("X-Degraded"));
    let served = answer(&service, request()).await;
    assert_eq!(served.body, json!({ "source": "error", "degraded": "1" }));
    // A value that the client sent is removed when the server decides.
    server.recover();
    let builder = RateLimitLayer::builder(server.limiter()).rule(api());
    let service = built(builder.degraded_header("X-Degraded"));
    let served = answer(&service, request().header("X-Degraded", "1")).await;
    assert_eq!(served.body, json!({ "source": "server", "degraded": null }));
}

#[tokio::test(start_paused = true)]
async fn inner_layer_keeps_the_degraded_header_of_an_outer_one() {
    let (away, there) = (FakeServer::new(), FakeServer::new());
    away.go_away();
    let layer = |server: &FakeServer| {
        let builder = RateLimitLayer::builder(server.limiter()).rule(api());
        builder.degraded_header("x-degraded").build().unwrap()
    };
    let service = layer(&away).layer(layer(&there).layer(Inner));
    let response = service.oneshot(request().body(()).unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["degraded"], "1");
}

/// A server that bans every caller.
struct Banning;

impl Connection for Banning {
    fn send<'a>(&'a self, _: &'a Command<'a>) -> Reply<'a> {
        let reply = [0, 6, 0, -1, 0].map(redis::Value::Int).to_vec();
        Box::pin(std::future::ready(Ok(redis::Value::Array(reply))))
    }
}

#[tokio::test(start_paused = true)]
async fn layer_answers_a_banned_caller_with_403() {
    let limiter = Limiter::new(|| std::future::ready(Ok(Banning)));
    let service = built(RateLimitLayer::builder(limiter).rule(api()));
    let banned = answer(&service, request()).await;
    assert_eq!((banned.status.as_u16(), banned.field("retry-after")), (403, None));
}

#[tokio::test(start_paused = true)]
async fn layer_answers_a_permanent_denial_with_413_and_a_rejected_command_with_500() {
    let server = FakeServer::new();
    let builder = RateLimitLayer::builder(server.limiter()).rule(api());
    let service =
        built(builder.cost(|request| request.header("x-cost").unwrap().parse::<u64>().unwrap()));
    let never = answer(&service, request().header("X-Cost", "7")).await;
    assert_eq!((never.status.as_u16(), never.field("retry-after")), (413, None));
    assert_eq!(answer(&service, request().header("X-Cost", "6")).await.status.as_u16(), 200);
    server.reply_with("WRONGTYPE Operation against a key");
    let response =
        service.oneshot(request().header("X-Cost", "1").body(()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 500);
    let error = response.extensions().get::<Arc<Error>>().unwrap();
    assert!(matches!(**error, Error::CommandRejected { .. }), "{error}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(!String::from_utf8_lossy(&body).contains("WRONGTYPE"));
}

#[tokio::test(start_paused = true)]
async fn request_without_a_key_gets_400_or_the_anonymous_rule() {
    let server = FakeServer::new();
    let key = |request: &tower_redis_throttle::RequestParts<'_>| {
        request.header("x-api-key").map(str::to_owned)
    };
    let builder = || RateLimitLayer::builder(server.limiter()).rule(api()).key(key);
    let service = built(builder());
    for stranger in [request(), request().header("X-Api-Key", "")] {
        let refused = answer(&service, stranger).await;
        assert_eq!(
            (refused.status.as_u16(), refused.body["title"].as_str()),
            (400, Some("Bad Request"))
        );
    }
    let twice = request().header("X-Api-Key", "a").header("X-Api-Key", "b");
    assert_eq!(answer(&service, twice).await.status.as_u16(), 400);
    assert_eq!(server.calls().len(), 0);
    assert_eq!(answer(&service, request().header("X-Api-Key", "k")).await.status.as_u16(), 200);
    assert_eq!(server.calls()[0][1], "rl:api:k");

    let anonymous = Rule::gcra("anonymous", 1, 1, "60s").unwrap();
    let service = built(builder().anonymous(anonymous));
    assert_eq!(statuses(&service, 2).await, [200, 429]);
    assert_eq!(server.calls()[1][1], "rl:anonymous:192.0.2.7");
    // All peers without an address share one key.
    assert_eq!(answer(&service, Request::builder()).await.status.as_u16(), 200);
    assert_eq!(server.calls()[3][1], "rl:anonymous:peer%3A");
}

#[tokio::test(start_paused = true)]
async fn layer_answers_400_when_one_of_several_keys_is_missing() {
    let server = FakeServer::new();
    let day = Rule::fixed("day", 9, "1d").unwrap();
    let builder = RateLimitLayer::builder(server.limiter()).rule(api()).rule_by(day, |_| None);
    assert_eq!(statuses(&built(builder), 1).await, [400]);
    assert_eq!(server.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn client_address_is_the_peer_or_from_a_trusted_proxy() {
    let server = FakeServer::new();
    let service = built(RateLimitLayer::builder(server.limiter()).rule(api()));
    let forwarded = |request: http::request::Builder| {
        request.header("X-Forwarded-For", "1.1.1.1, 198.51.100.1")
    };
    answer(&service, forwarded(request())).await;
    let trusting = RateLimitLayer::builder(server.limiter()).rule(api());
    let trusting = built(trusting.trusted_proxies(["192.0.2.0/24"]));
    answer(&trusting, forwarded(request())).await;
    let socket: SocketAddr = "[2001:db8:0:1::5]:4711".parse().unwrap();
    answer(&service, Request::builder().extension(socket)).await;
    let keys: Vec<_> = server.calls().iter().map(|call| call[1].clone()).collect();
    let wanted = ["rl:api:192.0.2.7", "rl:api:198.51.100.1", "rl:api:2001%3Adb8%3A0%3A1%3A%3A/64"];
    assert_eq!(keys, wanted);
    let rubbish = request().header("X-Forwarded-For", &b"\xff"[..]);
    assert_eq!(answer(&trusting, rubbish).await.status.as_u16(), 400);
}

#[tokio::test(start_paused = true)]
async fn several_rules_are_checked_in_one_call() {
    let server = FakeServer::new();
    let day = Rule::fixed("day", 2, "1d").unwrap();
    let builder = RateLimitLayer::builder(server.limiter()).rule(api());
    let builder = builder.rule_by(day, |_| Some("acme".to_owned()));
    let service = built(builder.tag(|_| Some("t".to_owned())));
    let served = answer(&service, request()).await;
    let policy = r#""api";q=6;w=36, "day";q=2;w=86400"#;
    assert_eq!(served.field("ratelimit-policy"), Some(policy));
    let wanted =
        ["RL.ALL", "rl:{t}:api:192.0.2.7", "GCRA 6 10 60", "rl:{t}:day:acme", "FIXED 2 86400"];
    assert_eq!(server.calls(), [wanted]);
    answer(&service, request()).await;
    let denied = answer(&service, request()).await;
    assert_eq!(denied.body["violated-policies"], json!(["day"]));
}

#[tokio::test(start_paused = true)]
async fn layer_applies_skip_on_denied_and_header_styles() {
    let server = FakeServer::new();
    let once = Rule::gcra("once", 1, 1, "60s").unwrap();
    let builder = RateLimitLayer::builder(server.limiter()).rule(once);
    let builder = builder.skip(|request| request.head.uri.path() == "/health");
    let builder = builder.headers([HeaderStyle::Draft6, HeaderStyle::XRateLimit]);
    let service = built(builder.on_denied(|head, decision, mut answer| {
        assert!(head.uri.path() == "/" && !decision.allowed);
        *answer.status_mut() = StatusCode::IM_A_TEAPOT;
        answer
    }));
    let skipped = answer(&service, request().uri("/health")).await;
    assert_eq!((skipped.status.as_u16(), &skipped.body["source"]), (200, &Value::Null));
    assert_eq!(server.calls().len(), 0);
    let served = answer(&service, request()).await;
    // A field that the service has set is kept, and not repeated.
    let limits: Vec<_> = served.headers.get_all("ratelimit-limit").iter().collect();
    assert_eq!(limits, ["7"]);
    assert_eq!(served.field("x-ratelimit-limit"), Some("1"));
    assert_eq!(answer(&service, request()).await.status.as_u16(), 418);
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

/// A service that answers only through the instance that was polled ready.
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
