//! The answers of the HTTP server.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use redis_throttle_client::Problem;

use crate::decider::Answer as Decided;

pub(super) type Answer = Response<Full<Bytes>>;

const PROBLEM: &str = "application/problem+json";

/// Returns the answer to a check. `denied` is the status of every denial except a ban and one
/// without Redis: a proxy takes another one for a failure of the gateway.
pub(super) fn of_decided(decided: &Decided, denied: StatusCode) -> Answer {
    let status = |own| match own {
        StatusCode::FORBIDDEN | StatusCode::SERVICE_UNAVAILABLE => own,
        _ => denied,
    };
    let answer = match decided.problem(status) {
        None => text(StatusCode::OK, ""),
        Some(problem) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(denied);
            typed(status, PROBLEM, problem.to_json())
        }
    };
    with_fields(decided.headers(), answer)
}

fn with_fields(fields: Vec<(&'static str, String)>, mut answer: Answer) -> Answer {
    for (name, value) in fields {
        let name = HeaderName::try_from(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(value)) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

/// Returns a problem (RFC 9457). The sentence holds no value of a request, and nothing in it needs
/// escaping.
pub(super) fn problem(status: StatusCode, detail: &str) -> Answer {
    let mut problem = Problem::rejected();
    problem.status = status.as_u16();
    problem.title = status.canonical_reason().unwrap_or_default();
    detail.clone_into(&mut problem.detail);
    typed(status, PROBLEM, problem.to_json())
}

pub(super) fn text(status: StatusCode, body: &'static str) -> Answer {
    typed(status, "text/plain; charset=utf-8", body)
}

pub(super) fn method_not_allowed() -> Answer {
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, "Expected GET or HEAD.");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}

pub(super) fn typed(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}
