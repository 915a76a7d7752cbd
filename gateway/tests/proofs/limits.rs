//! Limits while Redis is reachable. Its clock is frozen.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::chain::{Chain, Changes, PATIENT};
use crate::program::signal;
use crate::server::until;
use crate::wire::{Response, get};

async fn started() -> Option<Chain> {
    let chain = Chain::start(PATIENT, 1).await?;
    chain.redis.freeze().await;
    Some(chain)
}

/// Returns the units that are left behind a key.
async fn left(chain: &Chain, key: &str, rule: &str) -> u64 {
    let words: Vec<_> = ["RL.PEEK", key].into_iter().chain(rule.split(' ')).collect();
    let row: Vec<i64> = chain.redis.query(&[&words[..], &["COST", "0"]].concat()).await.unwrap();
    row[2].try_into().unwrap()
}

fn assert_denied(response: &Response, limit: &str, seconds: u64) {
    assert_eq!(response.status, 429, "{response:?}");
    assert_eq!(response.field("x-envoy-ratelimited"), "true");
    assert_eq!(response.field("retry-after"), seconds.to_string());
    assert!(response.field("ratelimit").contains(&format!("\"{limit}\";r=0;t={seconds}")));
    assert_eq!(response.field("content-type"), "application/problem+json");
    let body: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(body["status"], 429);
    assert_eq!(body["violated-policies"], serde_json::json!([limit]));
}

#[tokio::test]
async fn burst_passes_and_the_promise_of_retry_after_holds() {
    let Some(chain) = started().await else { return };
    let search = async |path| chain.envoy.get(path, "ann").await;
    for left in (0..20).rev() {
        let response = search("/search").await;
        assert_eq!((response.status, &*response.body), (200, "Hello from the application\n"));
        let resets = 3 * (20 - left);
        let limit = format!("\"route_search.user\";r={left};t={resets}, \"remote_address\";r=");
        assert!(response.field("ratelimit").starts_with(&limit), "{response:?}");
        let policies = "\"route_search.user\";q=20;w=60, \"remote_address\";q=100;w=2";
        assert_eq!(response.field("ratelimit-policy"), policies);
        assert_eq!(response.field("retry-after"), "");
    }
    for path in ["/search", "/search?x=1", "//search/./", "/search/1"] {
        assert_denied(&search(path).await, "route_search.user", 3);
    }
    assert_eq!(chain.envoy.get("/search", "bob").await.status, 200);
    chain.redis.advance(Duration::from_secs(2)).await;
    assert_denied(&search("/search").await, "route_search.user", 1);
    chain.redis.advance(Duration::from_secs(1)).await;
    assert_eq!(search("/search").await.status, 200);
    assert_denied(&search("/search").await, "route_search.user", 3);
    assert_eq!(chain.envoy.undecided().await, 0);
}

#[tokio::test]
async fn no_field_of_a_client_lifts_the_limits() {
    let Some(chain) = started().await else { return };
    for user in ["ann\u{ff}\u{fe}", &"a".repeat(50_000)] {
        for status in [200, 200, 200, 200, 200, 429] {
            assert_eq!(chain.envoy.get("/payments", user).await.status, status);
        }
    }
    assert_eq!(chain.envoy.undecided().await, 0);
}

#[tokio::test]
async fn denied_request_takes_nothing_from_its_other_limits() {
    let Some(chain) = started().await else { return };
    let address = || left(&chain, "rl:remote_address:api|gcra-1s|127.0.0.1", "GCRA 100 50 1");
    let ann = || left(&chain, "rl:route_search.user:api|gcra-60s|ann", "GCRA 20 20 60");
    for _ in 0..20 {
        assert_eq!(chain.envoy.get("/search", "ann").await.status, 200);
    }
    assert_eq!((address().await, ann().await), (80, 0));
    for _ in 0..5 {
        assert_eq!(chain.envoy.get("/search", "ann").await.status, 429);
    }
    assert_eq!(address().await, 80);
    // The other way round: without units of the address, the users keep theirs.
    for _ in 0..80 {
        assert_eq!(get(chain.envoy.port(), "/", &[]).await.status, 200);
    }
    chain.redis.advance(Duration::from_millis(10)).await;
    let before = ann().await;
    assert_eq!(chain.envoy.get("/search", "bob").await.status, 429);
    assert_eq!((address().await, ann().await), (0, before));
    let bob = left(&chain, "rl:route_search.user:api|gcra-60s|bob", "GCRA 20 20 60").await;
    assert_eq!(bob, 20);
    assert_eq!(chain.envoy.undecided().await, 0);
}

#[tokio::test]
async fn reported_cost_above_the_limit_denies_the_next_requests() {
    let Some(chain) = started().await else { return };
    let response = chain.envoy.report("/chat", "ann", "2500").await;
    assert_eq!((response.status, &*response.field("x-tokens")), (200, "2500"));
    assert!(response.field("ratelimit").contains("r=1000;"), "{response:?}");
    // Envoy reports after the response.
    let charges = async || chain.redis.calls("rl.charge").await;
    until("the report has arrived", async || charges().await == 1).await;
    assert_eq!(chain.envoy.get("/chat", "ann").await.status, 429);
    // A response without the field costs 500.
    for charged in [2, 3] {
        assert_eq!(chain.envoy.get("/chat", "bob").await.status, 200);
        until("the report has arrived", async || charges().await == charged).await;
    }
    assert_eq!(chain.envoy.get("/chat", "bob").await.status, 429);
    // The excess of 1,500 is paid in 1.5 hours, and one token later a request passes.
    chain.redis.advance(Duration::from_secs(5400)).await;
    assert_denied(&chain.envoy.get("/chat", "ann").await, "route_chat.user", 4);
    chain.redis.advance(Duration::from_secs(4)).await;
    let response = chain.envoy.get("/chat", "ann").await;
    assert!(response.field("ratelimit").contains("r=1;"), "{response:?}");
    assert_eq!(chain.envoy.undecided().await, 0);
}

#[tokio::test]
async fn failed_response_gives_its_unit_back() {
    let Some(chain) = started().await else { return };
    for refunds in 1..=4 {
        let response = chain.envoy.get("/exports/broken", "ann").await;
        assert_eq!(response.status, 500);
        assert!(response.field("ratelimit").contains("r=2;"), "{response:?}");
        let given_back = async || chain.redis.calls("rl.refund").await == refunds;
        until("the refund has arrived", given_back).await;
    }
    for status in [200, 200, 200, 429] {
        assert_eq!(chain.envoy.get("/exports", "ann").await.status, status);
    }
    assert_eq!(chain.envoy.undecided().await, 0);
}

#[tokio::test]
async fn burst_beyond_the_default_bounds_of_envoy_is_decided() {
    const CONNECTIONS: usize = 25;
    const REQUESTS: usize = 80;
    let changes = Changes {
        envoy: &[("0.25s", "60s")],
        arguments: &["--timeout-ms", "60000"],
        ..Changes::default()
    };
    let Some(chain) = Chain::start(changes, 1).await else { return };
    assert_eq!(chain.envoy.get("/search", "first").await.status, 200);
    // Redis replies when all requests are at the gateway.
    let redis = chain.redis.info("server", "process_id").await;
    signal("STOP", redis);
    let mut responses = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let stream = TcpStream::connect(("127.0.0.1", chain.envoy.port())).await.unwrap();
        let (mut requests, driver) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(driver);
        for request in 0..REQUESTS {
            let request = http::Request::get("http://application/search")
                .header("x-user", format!("{connection}-{request}"))
                .body(())
                .unwrap();
            requests = requests.ready().await.unwrap();
            let (response, _) = requests.send_request(request, true).unwrap();
            let open = requests.clone();
            responses.spawn(async move {
                let _open = open;
                response.await.unwrap()
            });
        }
    }
    let most = u64::try_from(CONNECTIONS * REQUESTS).unwrap();
    let waiting = async || {
        let refused = chain.envoy.undecided().await;
        chain.envoy.count("cluster.gateway.upstream_rq_active").await + refused == most
    };
    until("all requests are at the gateway", waiting).await;
    signal("CONT", redis);
    for response in responses.join_all().await {
        assert!(response.headers().contains_key("ratelimit"), "{response:?}");
    }
    assert_eq!(chain.envoy.undecided().await, 0);
}
