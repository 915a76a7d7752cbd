use std::net::SocketAddr;

use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use axum::routing::get;
use axum::{Extension, Router};
use redis_throttle_client::{Decision, Error, Limiter, Rule};
use tower_redis_throttle::RateLimitLayer;

pub fn service(
    limiter: Limiter,
) -> Result<IntoMakeServiceWithConnectInfo<Router, SocketAddr>, Error> {
    let limits = RateLimitLayer::builder(limiter)
        .rule(Rule::gcra("api", 10, 10, "1m")?)
        .rule(Rule::fixed("day", 1000, "1d")?)
        .build()?;
    let app = Router::new().route("/", get(home)).layer(limits);
    Ok(app.into_make_service_with_connect_info())
}

async fn home(Extension(decision): Extension<Decision>) -> String {
    format!("{} left\n", decision.remaining)
}
