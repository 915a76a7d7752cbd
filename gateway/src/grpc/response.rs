//! Writes a decision as Envoy's response.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::HeaderValue;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{
    Code, DescriptorStatus, RateLimit,
};
use envoy_types::pb::google::protobuf;
use http::StatusCode;
use redis_throttle_client::Decision;

use crate::config::Unit;
use crate::decider::{Outcome, RequestDecision, Row};

/// Returns the response to a request that no limit concerns.
pub(super) fn allowed(descriptors: usize) -> RateLimitResponse {
    let status = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    let statuses = vec![status; descriptors];
    RateLimitResponse { overall_code: Code::Ok.into(), statuses, ..RateLimitResponse::default() }
}

/// Returns the response to a request beyond a bound. A status other than OK would let it pass.
pub(super) fn too_large() -> RateLimitResponse {
    RateLimitResponse { overall_code: code(false), ..RateLimitResponse::default() }
}

/// Returns the response for a decision.
pub(super) fn response(decision: &RequestDecision) -> RateLimitResponse {
    let mut headers: Vec<_> =
        decision.headers().into_iter().map(|(name, value)| header(name, value)).collect();
    // Envoy responds to its caller with 429, whatever the reason of the denial.
    let problem = decision.problem(|_| StatusCode::TOO_MANY_REQUESTS);
    if problem.is_some() {
        headers.push(header("Content-Type", "application/problem+json".to_owned()));
    }
    RateLimitResponse {
        overall_code: code(decision.allowed()),
        statuses: decision.rows.iter().map(status).collect(),
        response_headers_to_add: headers,
        raw_body: problem.map(|problem| problem.to_json().into_bytes()).unwrap_or_default(),
        ..RateLimitResponse::default()
    }
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value, ..HeaderValue::default() }
}

fn code(allowed: bool) -> i32 {
    if allowed { Code::Ok.into() } else { Code::OverLimit.into() }
}

fn status(row: &Row) -> DescriptorStatus {
    let bare = DescriptorStatus { code: code(row.allowed), ..DescriptorStatus::default() };
    match &row.outcome {
        Outcome::Free | Outcome::Unavailable => bare,
        Outcome::Unlimited => DescriptorStatus { limit_remaining: u32::MAX, ..bare },
        Outcome::Blocked(unit) => {
            DescriptorStatus { current_limit: Some(limit(row, 0, Some(*unit))), ..bare }
        }
        Outcome::Decided(decision) => DescriptorStatus {
            current_limit: Some(limit(row, decision.limit, unit_of(decision))),
            limit_remaining: clamped(decision.remaining),
            duration_until_reset: until(decision),
            ..bare
        },
    }
}

fn limit(row: &Row, requests: u64, unit: Option<Unit>) -> RateLimit {
    let limit = row.limit.as_ref();
    let name = limit.map(|limit| limit.given_name.as_ref().unwrap_or(&limit.name).to_string());
    RateLimit {
        name: name.unwrap_or_default(),
        requests_per_unit: clamped(requests),
        unit: unit.map_or(rate_limit::Unit::Unknown, written).into(),
    }
}

fn unit_of(decision: &Decision) -> Option<Unit> {
    decision.window.and_then(Unit::of_length)
}

fn written(unit: Unit) -> rate_limit::Unit {
    match unit {
        Unit::Second => rate_limit::Unit::Second,
        Unit::Minute => rate_limit::Unit::Minute,
        Unit::Hour => rate_limit::Unit::Hour,
        Unit::Day => rate_limit::Unit::Day,
        Unit::Week => rate_limit::Unit::Week,
        Unit::Month => rate_limit::Unit::Month,
        Unit::Year => rate_limit::Unit::Year,
    }
}

fn clamped(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Returns the time until a retry of a denied call, else until the full allowance. `None` if a
/// retry never helps.
fn until(decision: &Decision) -> Option<protobuf::Duration> {
    let until = if decision.allowed { decision.reset_after } else { decision.retry_after };
    if until == Duration::MAX {
        return None;
    }
    let nanos = i32::try_from(until.subsec_nanos()).unwrap_or(0);
    Some(protobuf::Duration { seconds: i64::try_from(until.as_secs()).ok()?, nanos })
}
