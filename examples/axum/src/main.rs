//! A service with limits: per client address and per API key, with each `on_error`, with several
//! rules in one call, and with a lease.
//!
//! ```sh
//! REDIS_URL=redis://127.0.0.1:7777 PORT=8080 cargo run
//! ```

use std::convert::Infallible;
use std::env;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use futures_util::stream;
use redis_throttle_client::redis::Client;
use redis_throttle_client::{Backend, Decision, HashTag, Limiter, OnError, Options, Rule};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_redis_throttle::{Builder, RateLimitLayer};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:7777".to_owned());
    // The limiter opens its connection at the first call, and again after a loss, so the service
    // starts even without the server.
    let client = Client::open(url)?;
    // The back end on the server: auto, module, functions or script.
    let backend: Backend = env::var("BACKEND").map_or(Ok(Backend::Auto), |name| name.parse())?;
    let timeout = Duration::from_millis(number("TIMEOUT_MS", 100)?);
    let options = Options::default().prefix("example").timeout(timeout);
    // In a cluster, the keys of all rules of one client are in one slot.
    let options = options.backend(backend).hash_tag(HashTag::Subject);
    let limiter = Limiter::with_options(client, options)?;
    if let Err(error) = limiter.ready().await {
        eprintln!("no limits yet: {error}");
    }

    let host = env::var("HOST").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let listener = TcpListener::bind(format!("{host}:{}", number("PORT", 8080)?)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app(&limiter)?.into_make_service_with_connect_info::<SocketAddr>();
    let mut ends = signal(SignalKind::terminate())?;
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = ends.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    limiter.close().await;
    Ok(())
}

/// Returns the routes, each with its rules.
fn app(limiter: &Limiter) -> Result<Router, Failure> {
    // Ten at once, then one every six seconds. If Redis is down, the page is served.
    let api = Rule::gcra("api", 10, 10, "60s")?;
    // Five attempts in 15 minutes. If Redis is down, no password is checked.
    let login = Rule::sliding_log("login", 5, "15m")?.on_error(OnError::Deny)?;
    // For a service of two processes: if Redis is down, each enforces half of the limit.
    let search = Rule::gcra("search", 4, 4, "60s")?.on_error(OnError::Local)?.local_share(0.5)?;
    let day = Rule::fixed("day", 3, "1d")?;
    // One export at a time. The permit is released when the response ends or the client
    // disconnects.
    let exports = Rule::lease("exports", 1, "30s")?;

    let proxies = env::var("TRUSTED_PROXIES").unwrap_or_default();
    let proxies: Vec<String> =
        proxies.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let rows = number("EXPORT_ROWS", 50)?;
    let limited = |rules: &[&Rule]| {
        let mut builder = RateLimitLayer::builder(limiter.clone());
        for rule in rules {
            builder = builder.rule((*rule).clone());
        }
        builder.trusted_proxies(proxies.clone()).degraded_header("X-Limiter-Degraded")
    };
    let route = |handler: MethodRouter, limits: Builder| -> Result<MethodRouter, Failure> {
        Ok(handler.route_layer(limits.build()?))
    };
    // Limits by the API key in a header. A request without the header is answered 400.
    let by_key = limited(&[&api]).key(|request| request.header("x-api-key").map(str::to_owned));
    Ok(Router::new()
        .route("/", route(get(told), limited(&[&api]))?)
        .route("/login", route(post(told), limited(&[&login]))?)
        .route("/search", route(get(told), limited(&[&search]))?)
        .route("/report", route(get(told), limited(&[&api, &day]))?)
        .route("/export", route(get(move || export(rows)), limited(&[&exports]))?)
        .route("/me", route(get(told), by_key)?))
}

/// Reports the units left and the source of the decision.
async fn told(Extension(decision): Extension<Decision>) -> Json<Value> {
    Json(json!({ "remaining": decision.remaining, "source": decision.source.as_str() }))
}

/// Streams rows slowly.
async fn export(rows: u64) -> impl IntoResponse {
    let rows = stream::unfold(rows, |left| async move {
        let left = left.checked_sub(1)?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        Some((Ok::<_, Infallible>("row\n".repeat(100)), left))
    });
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(rows))
}

fn number(name: &str, default: u64) -> Result<u64, Failure> {
    let given = env::var(name).map(|text| text.parse().map_err(|_| format!("{name}={text}")));
    Ok(given.unwrap_or(Ok(default))?)
}
