//! The responses of the HTTP server.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use redis_throttle_client::Problem;

use crate::decider::RequestDecision;

pub(super) type HttpResponse = Response<Full<Bytes>>;

const PROBLEM: &str = "application/problem+json";

/// Returns the response to a check. `denied` is the status of every denial except a ban and one
/// without Redis: a proxy takes another one for a failure of the gateway.
pub(super) fn of_decision(decision: &RequestDecision, denied: StatusCode) -> HttpResponse {
    let status = |own| match own {
        StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE => own,
        _ => denied,
    };
    let response = match decision.problem(status) {
        None => text(StatusCode::OK, ""),
        Some(problem) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(denied);
            typed(status, PROBLEM, problem.to_json())
        }
    };
    with_fields(decision.headers(), response)
}

fn with_fields(fields: Vec<(&'static str, String)>, mut response: HttpResponse) -> HttpResponse {
    for (name, value) in fields {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Returns a problem (RFC 9457). The sentence holds no value of a request, and nothing in it needs
/// escaping.
pub(super) fn problem(status: StatusCode, detail: &str) -> HttpResponse {
    let mut problem = Problem::rejected();
    problem.status = status.as_u16();
    problem.title = status.canonical_reason().unwrap_or_default();
    detail.clone_into(&mut problem.detail);
    typed(status, PROBLEM, problem.to_json())
}

pub(super) fn text(status: StatusCode, body: &'static str) -> HttpResponse {
    typed(status, "text/plain; charset=utf-8", body)
}

pub(super) fn method_not_allowed() -> HttpResponse {
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "Expected GET or HEAD.");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

pub(super) fn typed(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
