//! Metrics, span attributes and the JSON log, as an application reads them.

use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Limiter, Rule};

use crate::api;

#[cfg(feature = "opentelemetry")]
mod attributes;
mod log;
#[cfg(feature = "prometheus")]
mod metrics;
mod warnings;

pub fn exports() -> Rule {
    Rule::fixed("exports", 1, "60s").unwrap()
}

/// Makes calls of each kind: one lease and one check are allowed, two checks and one lease denied,
/// and one check is rejected.
pub async fn calls_of_each_kind(limiter: &Limiter, server: &FakeServer) {
    let (api, exports) = (api(), exports());
    let jobs = Rule::lease("jobs", 1, "60s").unwrap();
    let _ = limiter.check(exports.of("alice")).await.unwrap();
    let _ = limiter.check(exports.of("alice")).await.unwrap();
    let _ = limiter.peek(exports.of("alice")).await.unwrap();
    let _ = limiter.charge(exports.of("alice")).await.unwrap();
    let _ = limiter.refund(api.of("alice")).await.unwrap();
    let _ = limiter.check_all(&[api.of("alice"), exports.of("alice")], None).await.unwrap();
    let held = limiter.lease(jobs.of("alice")).await.unwrap();
    assert!(limiter.lease(jobs.of("alice")).await.is_err());
    held.release().await;
    server.reply_with("WRONGTYPE of alice");
    assert!(limiter.check(api.of("alice")).await.is_err());
    server.recover();
}
