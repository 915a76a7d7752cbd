//! Functions of the request: rules, keys and costs, at once or in a future.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use http_body_util::Full;
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Error, OnError, Options, Rule};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;
use tower_redis_throttle::{Builder, Peer, RateLimitLayer, RequestParts, key_of};

async fn empty(_: Request<()>) -> Result<Response<Full<bytes::Bytes>>, Infallible> {
    Ok(Response::default())
}

/// Sends a request with some header fields and returns the status.
async fn status(builder: Builder, fields: &[(&str, &str)]) -> u16 {
    let peer = Peer("192.0.2.7".parse::<IpAddr>().unwrap());
    let mut request = Request::builder().extension(peer);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let service = builder.build().unwrap().layer(service_fn(empty));
    service.oneshot(request.body(()).unwrap()).await.unwrap().status().as_u16()
}

fn api() -> Rule {
    Rule::gcra("api", 6, 10, "60s").unwrap()
}

fn key(request: &RequestParts<'_>) -> Option<String> {
    request.header("x-api-key").map(str::to_owned)
}

/// Returns the rule of the request's plan, as an application reads it from a table.
fn of_plan(plan: Option<&str>) -> Option<Rule> {
    match plan? {
        "gold" => Some(Rule::fixed("gold", 1000, "1d").unwrap()),
        _ => Some(Rule::fixed("free", 1, "1d").unwrap()),
    }
}

/// Builds a layer with a rule of the request, chosen at once or in a future.
fn choosing(server: &FakeServer, is_async: bool) -> Builder {
    let builder = RateLimitLayer::builder(server.limiter()).rule(api());
    if !is_async {
        return builder.rule_fn(|request| of_plan(request.header("x-plan")));
    }
    builder.rule_fn(|request| {
        let plan = request.header("x-plan").map(str::to_owned);
        async move {
            tokio::task::yield_now().await;
            of_plan(plan.as_deref())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn rule_of_the_request_is_chosen_or_left_out() {
    for is_async in [false, true] {
        let server = FakeServer::new();
        assert_eq!(status(choosing(&server, is_async), &[]).await, 200);
        assert_eq!(server.calls()[0], ["RL.GCRA", "rl:api:192.0.2.7", "6", "10", "60"]);
        assert_eq!(status(choosing(&server, is_async), &[("x-plan", "gold")]).await, 200);
        let (api, gold) = ("rl:api:192.0.2.7", "rl:gold:192.0.2.7");
        let wanted = ["RL.ALL", api, "GCRA 6 10 60", gold, "FIXED 1000 86400"];
        assert_eq!(server.calls()[1], wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn request_whose_rules_are_all_left_out_is_not_limited() {
    let server = FakeServer::new();
    let builder = RateLimitLayer::builder(server.limiter()).rule_fn(|_| None).key(|_| None);
    assert_eq!(status(builder, &[]).await, 200);
    assert_eq!(server.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn rule_of_the_request_has_a_key_of_its_own() {
    let server = FakeServer::new();
    let builder = || {
        let of = |request: &RequestParts<'_>| of_plan(request.header("x-plan"));
        RateLimitLayer::builder(server.limiter()).rule(api()).rule_fn_by(of, key)
    };
    let plan = ("x-plan", "gold");
    assert_eq!(status(builder(), &[plan, ("x-api-key", "k")]).await, 200);
    assert_eq!(server.calls()[0][3], "rl:gold:k");
    // Without its header the request has no subject under this rule, unless the rule is left out.
    assert_eq!(status(builder(), &[plan]).await, 400);
    assert_eq!(status(builder(), &[]).await, 200);
}

#[tokio::test(start_paused = true)]
async fn request_whose_cost_or_tag_no_call_can_have_gets_400() {
    let server = FakeServer::new();
    let builder = || RateLimitLayer::builder(server.limiter()).rule(api());
    let costly =
        builder().cost(|request| request.header("x-cost").unwrap().parse::<u64>().unwrap());
    assert_eq!(status(costly, &[("x-cost", "18446744073709551615")]).await, 400);
    let tagged = builder().tag(|request| request.header("x-tag").map(str::to_owned));
    assert_eq!(status(tagged, &[("x-tag", "")]).await, 400);
    assert_eq!(server.calls().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn functions_may_be_async_and_the_key_function_runs_once() {
    let server = FakeServer::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let builder = RateLimitLayer::builder(server.limiter())
        .rule(api())
        .rule(Rule::fixed("day", 100, "1d").unwrap())
        .key(move |request| {
            counted.fetch_add(1, Ordering::Relaxed);
            let name = key(request);
            async move {
                tokio::task::yield_now().await;
                name.map(|name| format!("user-of-{name}"))
            }
        })
        .cost(|_| async { 3 })
        .skip(|request| std::future::ready(request.header("x-skip").is_some()))
        .tag(|_| async { Some("t".to_owned()) });
    let fields = [("x-api-key", "k")];
    assert_eq!(status(builder, &fields).await, 200);
    let wanted = [
        "RL.ALL",
        "rl:{t}:api:user-of-k",
        "GCRA 6 10 60 COST 3",
        "rl:{t}:day:user-of-k",
        "FIXED 100 86400 COST 3",
    ];
    assert_eq!(server.calls(), [wanted]);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    let skipping = RateLimitLayer::builder(server.limiter()).rule(api());
    let skipping = skipping.skip(|request| std::future::ready(request.header("x-skip").is_some()));
    assert_eq!(status(skipping, &[("x-skip", "1")]).await, 200);
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn key_of_a_repeated_field_is_none_and_an_invalid_name_is_an_error() {
    let server = FakeServer::new();
    let key = key_of(&["x-tenant", "x-api-key"]).unwrap();
    let builder = RateLimitLayer::builder(server.limiter()).rule_by(api(), key);
    let twice = [("x-tenant", "a"), ("x-api-key", "k"), ("x-tenant", "b")];
    assert_eq!(status(builder, &twice).await, 400);
    for names in [&["x tenant"][..], &["x-tenant", ""], &[]] {
        let error = key_of(names).err().unwrap();
        assert!(matches!(error, Error::InvalidArgument { argument: "key_of", .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn build_rejects_a_rule_that_cannot_have_the_limiters_on_error() {
    let server = FakeServer::new();
    let options = Options::default().on_error(OnError::Local);
    let limiter = server.limiter_with(options).unwrap();
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let builder = || RateLimitLayer::builder(limiter.clone());
    for built in [
        RateLimitLayer::new(limiter.clone(), jobs.clone()),
        builder().rule(api()).rule(jobs.clone()).build(),
        builder().rule(api()).anonymous(jobs.clone()).build(),
    ] {
        let error = built.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "on_error", .. }), "{error}");
    }
    assert!(builder().rule(jobs.on_error(OnError::Deny).unwrap()).build().is_ok());
}
