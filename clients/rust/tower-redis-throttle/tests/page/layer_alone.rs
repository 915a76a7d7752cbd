use redis_throttle_client::{Error, Limiter, Rule};
use tower_redis_throttle::RateLimitLayer;

pub fn limits(limiter: Limiter) -> Result<RateLimitLayer, Error> {
    RateLimitLayer::builder(limiter)
        .rule(Rule::gcra("api", 10, 10, "1m")?)
        .rule(Rule::fixed("day", 1000, "1d")?)
        .trusted_proxies(["10.0.0.0/8"])
        .build()
}
