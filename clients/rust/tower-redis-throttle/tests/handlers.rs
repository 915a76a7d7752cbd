//! Denials of calls that a handler makes itself: the layer responds to them as to its own.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::IntoResponse;
use axum::{Router, routing::get};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{
    Command, Connection, Count, Error, HeaderStyle, Limiter, OnError, Reply, Rule,
};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;
use tower_redis_throttle::{LimitError, Peer, RateLimitLayer};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn request() -> Request<Body> {
    let peer = Peer("192.0.2.7".parse::<IpAddr>().unwrap());
    Request::builder().uri("/jobs").extension(peer).body(Body::empty()).unwrap()
}

fn api() -> Rule {
    Rule::gcra("api", 6, 10, "60s").unwrap()
}

fn jobs() -> Rule {
    Rule::lease("jobs", 1, "60s").unwrap()
}

/// Returns the error of a second lease.
async fn denied(limiter: &Limiter) -> Error {
    let _job = limiter.lease(jobs().of("acme")).await.unwrap();
    limiter.lease(jobs().of("acme")).await.unwrap_err()
}

struct Received {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Received {
    async fn of<B: http_body::Body>(response: Response<B>) -> Self {
        let (head, body) = response.into_parts();
        let bytes = body.collect().await.ok().unwrap().to_bytes();
        assert_eq!(head.headers["content-length"], bytes.len().to_string());
        let body = serde_json::from_slice(&bytes).unwrap();
        Self { status: head.status.as_u16(), headers: head.headers, body }
    }

    fn fields(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    fn assert_is_the_denial_of_a_lease(&self) {
        assert_eq!((self.status, &self.body["violated-policies"]), (429, &json!(["jobs"])));
        assert_eq!(self.fields("content-type"), ["application/problem+json"]);
        assert_eq!(self.fields("cache-control"), ["no-store"]);
        assert_eq!(self.fields("retry-after"), ["60"]);
    }
}

#[tokio::test(start_paused = true)]
async fn handler_of_axum_returns_a_denial_with_and_without_a_layer() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let handler = {
        let limiter = limiter.clone();
        async move || -> Result<(), LimitError> { Err(denied(&limiter).await.into()) }
    };
    let alone = Router::new().route("/jobs", get(handler));
    let response = Received::of(alone.clone().oneshot(request()).await.unwrap()).await;
    response.assert_is_the_denial_of_a_lease();
    assert_eq!(response.fields("ratelimit"), [r#""jobs";r=0;t=60"#]);

    let layer = RateLimitLayer::new(limiter, api()).unwrap();
    let response = Received::of(alone.layer(layer).oneshot(request()).await.unwrap()).await;
    response.assert_is_the_denial_of_a_lease();
    assert_eq!(response.fields("ratelimit"), [r#""jobs";r=0;t=60"#, r#""api";r=5;t=6"#]);
}

#[tokio::test(start_paused = true)]
async fn layer_responds_to_a_denial_with_its_own_styles_and_on_denied() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let error: LimitError = denied(&limiter).await.into();
    // A layer between the two adds a field, and compresses the body.
    let handler = move |_: Request<Body>| {
        let mut response = error.clone().into_response();
        response.headers_mut().insert("x-request-id", "7".parse().unwrap());
        response.headers_mut().insert("content-encoding", "br".parse().unwrap());
        *response.body_mut() = Body::from("compressed");
        async { Ok::<_, BoxError>(response) }
    };
    let builder = || {
        let builder = RateLimitLayer::builder(server.limiter()).rule(api());
        builder.headers([HeaderStyle::XRateLimit])
    };
    let service = builder().build().unwrap().layer(service_fn(handler.clone()));
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "br");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "compressed");

    let inner = builder().on_denied(|head, decision, mut response| {
        assert_eq!((head.uri.path(), &*decision.rule), ("/jobs", "jobs"));
        response.headers_mut().insert("x-denied", "by jobs".parse().unwrap());
        response
    });
    // The outer layer leaves the response to the inner one.
    let outer = builder().on_denied(|_, _, _| panic!("the inner layer has responded"));
    let service = inner.build().unwrap().layer(service_fn(handler));
    let service = outer.build().unwrap().layer(service);
    let response = Received::of(service.oneshot(request()).await.unwrap()).await;
    response.assert_is_the_denial_of_a_lease();
    assert_eq!(response.fields("x-denied"), ["by jobs"]);
    assert_eq!(response.fields("x-request-id"), ["7"]);
    assert_eq!(response.fields("content-encoding"), [""; 0]);
    assert_eq!(response.fields("ratelimit"), [""; 0]);
    assert_eq!(response.fields("x-ratelimit-limit"), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn layer_responds_to_a_denial_that_is_the_error_of_a_service() {
    async fn response_to<E>(
        server: &FakeServer,
        error: impl Fn() -> E + Clone + Send + 'static,
    ) -> Received
    where
        E: std::fmt::Debug + Send + 'static,
    {
        let handler = move |_: Request<Body>| std::future::ready(Err::<Response<Body>, _>(error()));
        // A 429 does not count, so the unit is given back.
        let login = api().count(Count::when(|head| head.status != 429)).unwrap();
        let builder = RateLimitLayer::builder(server.limiter()).rule(login);
        let layer = builder.on_denied(|_, _, mut response| {
            response.headers_mut().insert("x-denied", "yes".parse().unwrap());
            response
        });
        let service = layer.build().unwrap().layer(service_fn(handler));
        Received::of(service.oneshot(request()).await.unwrap()).await
    }
    let server = FakeServer::new();
    let error = denied(&server.limiter()).await;
    let plain = move || error.clone();
    let of_handler = {
        let plain = plain.clone();
        move || LimitError::from(plain())
    };
    let (one, other) = (plain.clone(), of_handler.clone());
    for response in [
        response_to(&server, plain).await,
        response_to(&server, of_handler).await,
        response_to(&server, move || BoxError::from(one())).await,
        response_to(&server, move || BoxError::from(other())).await,
    ] {
        response.assert_is_the_denial_of_a_lease();
        assert_eq!(response.fields("x-denied"), ["yes"]);
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    let refunds = server.calls().iter().filter(|call| call[0] == "RL.REFUND").count();
    assert_eq!(refunds, 4);
}

#[tokio::test(start_paused = true)]
async fn other_errors_are_a_500_of_the_handler_or_the_error_of_the_service() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    server.reply_with("WRONGTYPE Operation against a key");
    let error = limiter.lease(jobs().of("acme")).await.unwrap_err();
    server.recover();
    let failing = error.clone();
    let handler =
        move |_: Request<Body>| std::future::ready(Err::<Response<Body>, _>(failing.clone()));
    let service = RateLimitLayer::new(limiter, api()).unwrap().layer(service_fn(handler));
    let failed = service.oneshot(request()).await.unwrap_err();
    assert!(matches!(failed, Error::CommandRejected { .. }), "{failed}");
    let response = LimitError::from(error).response();
    let kept = response.extensions().get::<Arc<Error>>().unwrap();
    assert!(matches!(**kept, Error::CommandRejected { .. }));
    let response = Received::of(response.map(Body::from)).await;
    assert_eq!(
        (response.status, response.body["title"].as_str()),
        (500, Some("Internal Server Error"))
    );
}

/// A server that bans every caller.
struct Banning;

impl Connection for Banning {
    fn send<'a>(&'a self, _: &'a Command<'a>) -> Reply<'a> {
        let reply = [0, 1, 0, -1, 0].map(redis::Value::Int).to_vec();
        Box::pin(std::future::ready(Ok(redis::Value::Array(reply))))
    }
}

#[tokio::test(start_paused = true)]
async fn error_has_the_status_and_fields_of_its_denial() {
    let server = FakeServer::new();
    let limiter = server.limiter();
    let day = Rule::fixed("day", 5, "1d").unwrap();
    let busy = denied(&limiter).await;
    let never = limiter.reserve(day.of("acme").reserve(6)).await.unwrap_err();
    let banning = Limiter::new(|| std::future::ready(Ok(Banning)));
    let banned = banning.lease(jobs().of("acme")).await.unwrap_err();
    server.go_away();
    let closed = jobs().on_error(OnError::Deny).unwrap();
    let unavailable = limiter.lease(closed.of("acme")).await.unwrap_err();
    for (error, status, retry_after) in
        [(busy, 429, "60"), (never, 413, ""), (banned, 403, ""), (unavailable, 503, "1")]
    {
        assert_eq!(error.status(), Some(status), "{error}");
        let fields = error.headers();
        let field = |name: &str| fields.iter().find(|(found, _)| *found == name);
        assert_eq!(field("Retry-After").map_or("", |(_, value)| value), retry_after, "{status}");
        assert_eq!(field("RateLimit").is_some(), status != 503);
        assert_eq!(field("Cache-Control"), Some(&("Cache-Control", "no-store".to_owned())));
        assert_eq!(LimitError::from(error).response().status().as_u16(), status);
    }
    assert_eq!((Error::Closed.status(), Error::Closed.headers()), (None, Vec::new()));
}
