//! The programs of docs/clients and of other pages: each is a file here, compiled and run.
//! The pages name a server on port 7777; the tests start their own.

#[path = "../../../redis-throttle-client/tests/live/server.rs"]
mod server;

mod admissions;
mod cluster;
mod layer_alone;
mod leases;
mod on_error;
mod programs;
mod quick_start;
mod service;
mod with_a_server;
mod with_the_fake;
mod without_the_module;

use std::cell::RefCell;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::{Request, Response};
use redis_throttle_client::redis::Value;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Backend, Limiter, OnError, Options, Rule};
use server::{Server, until};
use tokio::task::{LocalSet, spawn_local};
use tower::ServiceExt;
use tower_redis_throttle::Peer;

thread_local! {
    static URL: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Returns the URL of this test's server.
fn url() -> String {
    URL.with_borrow(String::clone)
}

async fn server() -> Server {
    let server = Server::of(Backend::Module, &[]).await;
    URL.set(server.url());
    server
}

#[tokio::test]
async fn quick_start_sends_one_call() {
    let server = server().await;
    // The programs have the default timeout, in which a busy machine may not send a first call.
    until("a call is sent", async || {
        quick_start::greet().await.unwrap();
        server.calls("rl.gcra").await > 0
    })
    .await;
    assert_eq!(server.calls("rl.gcra").await, 1);
    let kept: u64 = server.query(&["EXISTS", "rl:api:user%3A42"]).await.unwrap();
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn cluster_limiter_is_created_without_its_nodes() {
    cluster::over_a_cluster().unwrap();
}

#[tokio::test]
async fn functions_decide_without_the_module() {
    let server = Server::of(Backend::Functions, &[]).await;
    let mut found = None;
    until("the server replies in time", async || {
        found = without_the_module::who_decides(server.client()).await.ok();
        found.is_some()
    })
    .await;
    assert_eq!(found, Some(Backend::Functions));
}

#[tokio::test(start_paused = true)]
async fn rules_follow_their_on_error_without_the_server() {
    let server = FakeServer::new();
    server.go_away();
    let (limiter, [login, search]) = (server.limiter(), on_error::rules().unwrap());
    assert!(!limiter.check(login.of("alice")).await.unwrap().allowed);
    let found = limiter.check(search.of("alice")).await.unwrap();
    assert_eq!((found.allowed, found.limit), (true, 10));
    let local = Rule::lease("jobs", 1, "30s").unwrap().on_error(OnError::Local);
    assert!(local.is_err());
}

#[tokio::test]
async fn service_responds_to_the_eleventh_request_with_429() {
    let service = service::service(FakeServer::new().limiter()).unwrap();
    let peer: SocketAddr = (IpAddr::from([192, 0, 2, 7]), 4711).into();
    // The service sees a connection from that peer.
    let connected = service.oneshot(Connected(peer)).await.unwrap();
    for wanted in [200; 10].into_iter().chain([429]) {
        let request = Request::builder().uri("/").body(axum::body::Body::empty()).unwrap();
        let response = connected.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), wanted);
    }
}

#[tokio::test]
async fn layer_without_axum_responds_to_the_eleventh_request_with_429() {
    let limits = layer_alone::limits(FakeServer::new().limiter()).unwrap();
    let served = |_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new())));
    let service = tower::ServiceBuilder::new().layer(limits).service_fn(served);
    for wanted in [200; 10].into_iter().chain([429]) {
        let peer = Peer(IpAddr::from([192, 0, 2, 7]));
        let request = Request::builder().extension(peer).body(()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), wanted);
    }
}

/// The connection info of a test's listener.
struct Connected(SocketAddr);

impl axum::extract::connect_info::Connected<Connected> for SocketAddr {
    fn connect_info(connected: Connected) -> Self {
        connected.0
    }
}

#[tokio::test]
async fn admission_charges_what_the_model_took() {
    let server = server().await;
    let patient = Options::default().timeout(Duration::from_secs(60));
    let limiter = Limiter::with_options(server.client(), patient).unwrap();
    let gateway = admissions::Gateway::new(limiter).unwrap();
    assert_eq!(gateway.ask("acme", "a question").await.unwrap(), "answer to a question");
    let stored = ["RL.INSPECT", "rl:month:acme"];
    let month: HashMap<String, Value> = server.query(&stored).await.unwrap();
    let open = [month.get("used"), month.get("reservations_open")];
    assert_eq!(open, [Some(&Value::Int(1240)), Some(&Value::Int(0))]);
}

#[tokio::test]
async fn lease_is_held_during_work() {
    let server = FakeServer::new();
    assert_eq!(leases::work(&server.limiter(), 3).await.unwrap(), 3);
    let names: Vec<_> = server.calls().into_iter().map(|call| call[0].clone()).collect();
    assert_eq!(names, ["RL.LEASE", "RL.RELEASE"]);
}

#[tokio::test]
async fn page_advances_a_frozen_clock() {
    let server = server().await;
    until("the calls are decided in time", async || {
        server.run(&["FLUSHALL"]).await;
        let program = async { spawn_local(with_a_server::the_fourth_waits()).await };
        matches!(LocalSet::new().run_until(program).await, Ok(Ok(())))
    })
    .await;
}
