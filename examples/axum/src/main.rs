//! A service with limits: per client address and per API key, for pages, logins and a chat.
//!
//! ```sh
//! REDIS_URL=redis://127.0.0.1:7777 PORT=8080 cargo run
//! ```

use std::collections::HashMap;
use std::convert::Infallible;
use std::env;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{AppendHeaders, IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use futures_util::{Stream, StreamExt, stream};
use redis_throttle_client::redis::Client;
use redis_throttle_client::{
    Backend, Count, Decision, Error, HashTag, HeaderStyle, Limiter, OnError, Options, Problem,
    QuotaUnit, Rule,
};
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tower_redis_throttle::{Builder, RateLimitLayer, RequestParts};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const ALICE: &[u8] = b"Basic YWxpY2U6c2VjcmV0"; // alice:secret

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:7777".to_owned());
    // The limiter opens its connection at the first call, and again after a loss, so the service
    // starts even without the server.
    let client = Client::open(url)?;
    // The back end on the server: auto, module, functions or script.
    let backend: Backend = env::var("BACKEND").map_or(Ok(Backend::Auto), |name| name.parse())?;
    let timeout = Duration::from_millis(number("TIMEOUT_MS", 1000)?);
    let silence = Duration::from_millis(number("SILENCE_MS", 100)?);
    let options = Options::default().prefix("example").timeout(timeout).silence(silence);
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
    // For the API keys of a better plan.
    let gold = Rule::gcra("gold", 30, 30, "60s")?;
    // Five wrong passwords in 15 minutes. If Redis is down, no password is checked.
    let login = Rule::sliding_log("login", 5, "15m")?.count(Count::FAILURES)?;
    let login = login.on_error(OnError::Deny)?;
    // For a service of two processes: if Redis is down, each enforces half of the limit.
    let search = Rule::gcra("search", 4, 4, "60s")?.on_error(OnError::Local)?.local_share(0.5)?;
    let day = Rule::fixed("day", 3, "1d")?;
    // One export at a time. The permit is released when the response ends or the client
    // disconnects.
    let exports = Rule::lease("exports", 1, "30s")?;
    // Chats: two at once, 1,000 tokens per minute, 10,000 per month. Tokens cost money: if Redis is
    // down, no chat is served.
    let chats = Chats {
        limiter: limiter.clone(),
        chats: Rule::lease("chats", 2, "30s")?,
        tokens: Rule::token_bucket("tokens", 1000, 1000, "60s")?,
        budget: Rule::quota("budget", 10_000, QuotaUnit::Month)?.on_error(OnError::Deny)?,
    };

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
    // Limits by the API key in a header, with the rule of its plan, which a real service looks up.
    // A request without the header gets a 400.
    let api_key = |request: &RequestParts<'_>| request.header("x-api-key").map(str::to_owned);
    let (free, paid) = (api.clone(), gold);
    let plan = move |request: &RequestParts<'_>| {
        let is_paid = request.header("x-api-key").is_some_and(|key| key.starts_with("gold-"));
        Some(if is_paid { paid.clone() } else { free.clone() })
    };
    Ok(Router::new()
        .route("/", route(get(show_decision), limited(&[&api]))?)
        .route("/login", route(post(log_in), limited(&[&login]))?)
        .route("/search", route(get(show_decision), limited(&[&search]))?)
        .route("/report", route(get(show_decision), limited(&[&api, &day]))?)
        .route("/export", route(get(move || export(rows)), limited(&[&exports]))?)
        .route("/me", route(get(show_decision), limited(&[]).rule_fn(plan).key(api_key))?)
        .route("/chat", post(chat).with_state(chats)))
}

/// Reports the units left and the source of the decision.
async fn show_decision(Extension(decision): Extension<Decision>) -> Json<Value> {
    Json(json!({ "remaining": decision.remaining, "source": decision.source.as_str() }))
}

/// Checks a password. The layer refunds the attempt if the password is right.
async fn log_in(headers: HeaderMap, decision: Extension<Decision>) -> Response {
    let given = headers.get(AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    if bool::from(given.ct_eq(ALICE)) {
        show_decision(decision).await.into_response()
    } else {
        let fields = [(WWW_AUTHENTICATE, r#"Basic realm="example""#)];
        (StatusCode::UNAUTHORIZED, fields).into_response()
    }
}

/// The rules of a chat, and the limiter that checks them.
#[derive(Clone)]
struct Chats {
    limiter: Limiter,
    chats: Rule,
    tokens: Rule,
    budget: Rule,
}

/// Takes the estimated tokens of a reply, and settles those that it took.
async fn chat(
    State(Chats { limiter, chats, tokens, budget }): State<Chats>,
    headers: HeaderMap,
    Query(query): Query<HashMap<String, String>>,
) -> Result<Response, Refused> {
    let key = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    let [estimate, words] =
        ["estimate", "words"].map(|name| query.get(name).and_then(|text| units(text)));
    let (Some(key), Some(estimate), Some(words)) =
        (key.filter(|key| !key.is_empty()), estimate, words)
    else {
        let expected = "expected X-Api-Key, estimate and words";
        return Ok((StatusCode::BAD_REQUEST, expected).into_response());
    };
    let items = [chats.of(key), tokens.of(key).cost(estimate), budget.of(key).reserve(estimate)];
    let admitted = limiter.admit(&items, None).await?;
    let reply: Vec<_> = model(words).collect().await;
    admitted.settle(&tokens, reply.len() as u64)?;
    admitted.settle(&budget, reply.len() as u64)?;
    admitted.finish().await;
    let decision = admitted.decision();
    let body = json!({ "remaining": decision.remaining, "words": reply.len() });
    Ok((AppendHeaders(decision.headers(&[HeaderStyle::Draft11])), Json(body)).into_response())
}

/// An error of the limiter in a handler.
struct Refused(Error);

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    /// Responds to a denial as the layer does.
    fn into_response(self) -> Response {
        let (problem, fields) = match self.0 {
            Error::Denied(decision) => {
                (decision.problem(), decision.headers(&[HeaderStyle::Draft11]))
            }
            error => {
                eprintln!("{error}");
                (Problem::rejected(), Vec::new())
            }
        };
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let own = [(CONTENT_TYPE, "application/problem+json"), (CACHE_CONTROL, "no-store")];
        (status, own, AppendHeaders(fields), problem.to_json()).into_response()
    }
}

/// Returns a number of at most four digits.
fn units(text: &str) -> Option<u64> {
    let is_short = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_short)
}

/// Stands for a language model.
fn model(words: u64) -> impl Stream<Item = &'static str> {
    stream::iter(0..words).map(|_| "word")
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
