//! The responses that count under a rule, and what becomes of the units of others.

use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::Full;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Count, Limiter, OnError, Options, Rule};
use tower::{Service, ServiceExt, service_fn};
use tower_layer::Layer;
use tower_redis_throttle::{Peer, RateLimitLayer};

type Served = Response<Full<bytes::Bytes>>;

fn request(status: u16) -> Request<u16> {
    let peer = Peer("192.0.2.7".parse::<IpAddr>().unwrap());
    Request::builder().extension(peer).body(status).unwrap()
}

/// Responds with the status in the body of the request. Fails for 0, and never responds for 1.
async fn respond(request: Request<u16>) -> Result<Served, &'static str> {
    match *request.body() {
        0 => Err("broken"),
        1 => std::future::pending().await,
        status => Ok(Response::builder().status(status).body(Full::default()).unwrap()),
    }
}

/// Sends requests to which the service responds with these statuses. Returns the statuses that
/// arrive.
async fn statuses(limiter: &Limiter, rules: &[&Rule], wanted: &[u16]) -> Vec<u16> {
    let mut builder = RateLimitLayer::builder(limiter.clone());
    for rule in rules {
        builder = builder.rule((*rule).clone());
    }
    let service = builder.build().unwrap().layer(service_fn(respond));
    let mut found = Vec::new();
    for status in wanted {
        let response = service.clone().oneshot(request(*status)).await.unwrap();
        found.push(response.status().as_u16());
        // The refund is sent in the background.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    found
}

fn names(server: &FakeServer) -> Vec<String> {
    server.calls().iter().map(|call| call[0].clone()).collect()
}

fn login() -> Rule {
    Rule::fixed("login", 2, "15m").unwrap().count(Count::FAILURES).unwrap()
}

#[tokio::test(start_paused = true)]
async fn predicate_sees_the_head_of_the_response() {
    let server = FakeServer::new();
    let missed = Count::when(|head| head.status == StatusCode::NOT_FOUND);
    let guesses = Rule::fixed("guesses", 1, "1h").unwrap().count(missed).unwrap();
    let found = statuses(&server.limiter(), &[&guesses], &[200, 500, 404, 200]).await;
    assert_eq!(found, [200, 500, 404, 429]);
}

#[tokio::test(start_paused = true)]
async fn predicate_that_panics_counts_the_response() {
    let server = FakeServer::new();
    let broken = Count::when(|_| panic!("a predicate that fails"));
    let rule = Rule::fixed("rule", 1, "1h").unwrap().count(broken).unwrap();
    assert_eq!(statuses(&server.limiter(), &[&rule], &[200, 200]).await, [200, 429]);
}

#[tokio::test(start_paused = true)]
async fn request_without_a_response_counts() {
    for status in [0, 1] {
        let server = FakeServer::new();
        let layer = RateLimitLayer::new(server.limiter(), login()).unwrap();
        let mut service = layer.layer(service_fn(respond));
        let response = service.ready().await.unwrap().call(request(status));
        let ended = tokio::time::timeout(Duration::from_millis(10), response).await;
        assert_eq!(ended.is_err(), status == 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(names(&server), ["RL.FIXED"], "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn permits_go_back_to_this_process() {
    let server = FakeServer::new();
    let api = Rule::gcra("api", 6, 10, "60s").unwrap().prefetch(5).unwrap();
    let api = api.count(Count::FAILURES).unwrap();
    let limiter = server.limiter();
    assert_eq!(statuses(&limiter, &[&api], &[200; 20]).await, [200; 20]);
    // The permit of the first request came from the server, and goes back there.
    assert_eq!(names(&server), ["RL.GCRA", "RL.REFUND"]);
    // Six units in all: four permits here, and two on the server.
    let found = statuses(&limiter, &[&api], &[400, 400, 400, 400, 400, 400, 200]).await;
    assert_eq!(found, [400, 400, 400, 400, 400, 400, 429]);
}

#[tokio::test(start_paused = true)]
async fn last_permit_of_a_grant_is_used_again() {
    let server = FakeServer::new();
    let api = Rule::fixed("api", 2, "1h").unwrap().prefetch(2).unwrap();
    let api = api.count(Count::FAILURES).unwrap();
    let found = statuses(&server.limiter(), &[&api], &[400, 200, 200, 200, 400, 200]).await;
    assert_eq!(found, [400, 200, 200, 200, 400, 429]);
    assert_eq!(names(&server), ["RL.FIXED", "RL.FIXED"]);
}

#[tokio::test(start_paused = true)]
async fn local_units_go_back_to_this_process() {
    let of = |rule: Rule| rule.count(Count::FAILURES)?.on_error(OnError::Local);
    for rule in [
        Rule::fixed("r", 2, "1h"),
        Rule::sliding_log("r", 2, "1h"),
        Rule::gcra("r", 2, 2, "1h"),
        Rule::token_bucket("r", 2, 2, "1h"),
    ] {
        let server = FakeServer::new();
        server.go_away();
        let rule = of(rule.unwrap()).unwrap();
        let limiter = server.limiter();
        let found = statuses(&limiter, &[&rule], &[200, 200, 200, 400, 200, 400, 200]).await;
        assert_eq!(found, [200, 200, 200, 400, 200, 400, 429], "{rule:?}");
        let refunds = names(&server).iter().filter(|name| *name == "RL.REFUND").count();
        assert_eq!(refunds, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn refund_ends_the_cached_denials_of_the_key() {
    let server = FakeServer::new();
    let limiter = server.limiter_with(Options::default().denial_cache(9)).unwrap();
    let once = Rule::fixed("once", 1, "1h").unwrap().count(Count::FAILURES).unwrap();
    let slow = service_fn(|_: Request<u16>| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok::<_, Infallible>(Served::default())
    });
    let service = RateLimitLayer::new(limiter.clone(), once.clone()).unwrap().layer(slow);
    let served = tokio::spawn(service.oneshot(request(200)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    // The only unit is taken until the first request has its response. The denial is cached.
    assert_eq!(statuses(&limiter, &[&once], &[200, 200]).await, [429, 429]);
    assert_eq!(names(&server), ["RL.FIXED", "RL.FIXED"]);
    assert_eq!(served.await.unwrap().unwrap().status().as_u16(), 200);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(statuses(&limiter, &[&once], &[200]).await, [200]);
}
