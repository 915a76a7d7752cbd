//! The HTTP server: forward-auth, metrics and health.
//!
//! ```text
//! /check/DOMAIN       200, or 429 if denied, or 403 if banned
//! /check403/DOMAIN    200, or 403 if denied: for nginx
//! /metrics            the metrics, as OpenMetrics
//! /healthcheck        200, or 503 while the gateway stops
//! ```
//!
//! A proxy sends X-Forwarded-Method, X-Forwarded-Host, X-Forwarded-Uri and X-Forwarded-For, and
//! must replace those of its client. X-Original-* are not read: a client could forge the ones that
//! its proxy does not set. The query and the body of a check are not read either.

mod heads;
mod path;
mod request;
mod response;

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::CONNECTION;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;

use crate::decider::{Decider, DescriptorHits, Hits, RequestDecision};
use crate::listener::{Connection, Connections, is_true, serve_until};
use crate::matching::{Descriptor, matches};
use crate::metrics::{CONTENT_TYPE, Metrics, Protocol, Refusal};
use crate::refusals::log_refusals;
use crate::reload::Live;
use heads::Heads;
use request::{Entries, Unreadable};
use response::HttpResponse;

/// The most header fields of a request: more than any program sends. nginx and Caddy pass on
/// thousands, of which each takes a hundred bytes of memory. No proxy passes a refused request.
const FIELDS_MAX: usize = 1_024;
/// The most bytes of the request line and the header fields: more than nginx and HAProxy pass.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Longer than proxies keep an idle connection, so that none sends a request into a closed one.
const IDLE: Duration = Duration::from_secs(150);

/// Handles the requests of proxies.
#[derive(Debug, Clone)]
pub struct Service {
    live: Live,
    decider: Decider,
    metrics: Arc<Metrics>,
}

impl Service {
    /// Creates the service.
    #[must_use]
    pub fn new(live: Live, decider: Decider, metrics: Arc<Metrics>) -> Self {
        Self { live, decider, metrics }
    }

    /// Responds to a request.
    async fn respond(
        &self,
        request: &Request<()>,
        peer: Option<IpAddr>,
        serves: bool,
    ) -> HttpResponse {
        let path = request.uri().path();
        let check = |domain| Check { domain, headers: request.headers(), peer };
        if let Some(domain) = path.strip_prefix("/check/") {
            return self.respond_to_check(&check(domain), StatusCode::TOO_MANY_REQUESTS).await;
        }
        if let Some(domain) = path.strip_prefix("/check403/") {
            return self.respond_to_check(&check(domain), StatusCode::FORBIDDEN).await;
        }
        match path {
            _ if ![Method::GET, Method::HEAD].contains(request.method()) => {
                response::method_not_allowed()
            }
            "/healthcheck" if serves => response::text(StatusCode::OK, "serving\n"),
            "/healthcheck" => response::text(StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
            "/metrics" => response::typed(StatusCode::OK, CONTENT_TYPE, self.metrics.text()),
            _ => response::problem(StatusCode::NOT_FOUND, "No such path."),
        }
    }

    /// Responds to a check. `denied` is the status of a denial.
    async fn respond_to_check(&self, check: &Check<'_>, denied: StatusCode) -> HttpResponse {
        let began = Instant::now();
        let decision = self.decide(check).await;
        self.metrics.responded(Protocol::Http, began.elapsed());
        match decision {
            Ok(decision) => response::of_decision(&decision, denied),
            Err(Refused { reason, status, detail }) => {
                self.metrics.refused(Protocol::Http, reason);
                response::problem(status, &detail)
            }
        }
    }

    async fn decide(&self, check: &Check<'_>) -> Result<RequestDecision, Refused> {
        let loaded = self.live.current();
        let name = percent_encoding::percent_decode_str(check.domain).decode_utf8_lossy();
        let found = loaded.domain(&name).and_then(|found| Some((found, found.http.as_ref()?)));
        let (domain, http) = found.ok_or(Refused {
            reason: Refusal::UnknownDomain,
            status: StatusCode::NOT_FOUND,
            detail: "No domain of this name has a section http.".into(),
        })?;
        let entries = request::descriptors(http, check.headers, check.peer)?;
        let descriptors: Vec<Descriptor<'_>> = entries.iter().map(descriptor).collect();
        let unset = |found| DescriptorHits { found, hits: Hits::Unset };
        let matched: Vec<_> = matches(domain, &descriptors).into_iter().map(unset).collect();
        let Ok(decision) = self.decider.decide(domain, &matched, None).await else {
            return Err(Refused {
                reason: Refusal::TooManyLimits,
                status: StatusCode::INTERNAL_SERVER_ERROR,
                detail: "More than 16 limits match.".into(),
            });
        };
        self.metrics.decided(Protocol::Http, domain, &decision);
        let traceparent = check.headers.get("traceparent").and_then(|text| text.to_str().ok());
        log_refusals(Protocol::Http, domain, &decision, traceparent);
        Ok(decision)
    }
}

/// A check, which may have any method, because a proxy may send that of its client.
struct Check<'a> {
    /// The domain, percent-encoded.
    domain: &'a str,
    headers: &'a HeaderMap,
    peer: Option<IpAddr>,
}

/// A check without a decision. Its sentence holds no value of the request.
struct Refused {
    reason: Refusal,
    status: StatusCode,
    detail: Cow<'static, str>,
}

impl From<Unreadable> for Refused {
    fn from(Unreadable(detail): Unreadable) -> Self {
        let (reason, status) = (Refusal::Invalid, StatusCode::BAD_REQUEST);
        Self { reason, status, detail: detail.into() }
    }
}

fn descriptor<'a>(entries: &'a Entries<'_>) -> Descriptor<'a> {
    let entries = entries.iter().map(|(key, value)| (*key, &**value)).collect();
    Descriptor { entries, limit: None }
}

/// Serves until `stopped` is true, then responds to the requests under way.
pub async fn serve(
    incoming: impl Into<Connections>,
    service: Service,
    stopped: watch::Receiver<bool>,
) {
    let serve =
        |stream: Connection, ended| connection(stream, service.clone(), stopped.clone(), ended);
    incoming.into().serve_each(is_true(stopped.clone()), serve).await;
}

/// Serves a connection until it ends; once `ended` is true, until it has responded. Health
/// fails once `stopped` is true. A connection that waits for a head may lose its place.
async fn connection(
    stream: Connection,
    service: Service,
    stopped: watch::Receiver<bool>,
    ended: watch::Receiver<bool>,
) {
    let calls = watch::Sender::new(());
    let (peer, place) = (stream.peer(), stream.place());
    let (stream, counts) = Heads::new(stream, Some(place.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        counts.read();
        place.arrived();
        let has_body = !request.body().is_end_stream();
        let (service, request, call) = (service.clone(), request.map(drop), calls.subscribe());
        let (counts, serves) = (counts.clone(), !*stopped.borrow());
        async move {
            let mut response = service.respond(&request, peer, serves).await;
            if has_body {
                // The body is not read, so no other request can follow.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            counts.responded();
            drop(call);
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder.max_headers(FIELDS_MAX).max_header_size(HEAD_BYTES_MAX).max_buf_size(HEAD_BYTES_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    serve_until(connection, pending(), ended, &calls).await;
}

#[cfg(test)]
mod tests;
