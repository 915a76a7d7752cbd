//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), and `grpc.health.v1`.

mod codec;
mod request;
mod response;

use std::convert::Infallible;
use std::future::pending;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http::HeaderValue;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tower::ServiceExt as _;

use crate::decider::{Decider, DescriptorHits};
use crate::listener::{Connection, Connections, is_true, serve_until};
use crate::matching::matches;
use crate::metrics::{Metrics, Protocol, Refusal};
use crate::refusals::log_refusals;
use crate::reload::Live;
use codec::Codec;
use request::Unread;

/// The largest message that is read: 64 descriptors, each with all that a client of Envoy may send.
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The age at which a connection ends, by default, before [`jittered`] changes it.
const CONNECTION_AGE: Duration = Duration::from_secs(300);
/// The time for the first bytes of a connection: a proxy sends them at once.
const PREFACE: Duration = Duration::from_secs(5);
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// The most calls of a connection at a time. Envoy's own default is the same.
const STREAMS_MAX: u32 = 1_024;
/// The most calls that a peer begins and resets before the gateway has seen them; beyond it the
/// connection is closed. With the library's 20, one client of Envoy that aborts its requests would
/// end the calls of all others, which share the connection, and Envoy would let them pass. What
/// is read before the gateway looks at its calls holds fewer.
const RESETS_MAX: usize = 16_384;
/// The most bytes of the metadata of a call, more than Envoy takes in all fields of its client by
/// default, 60 KiB: a tracer of Envoy passes on fields that the client chooses, and Envoy passes
/// requests whose calls are refused here. The library's 16 KiB would be exceeded.
const METADATA_BYTES_MAX: u32 = 128 * 1024;
/// The time for the message of a call, so that half a message keeps no memory. The decision has a
/// time of its own.
const MESSAGE: Duration = Duration::from_secs(5);
/// The time between two pings to the peer, which has 20 s to respond.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The service whose health envoyproxy/ratelimit reports: probes that were written for it send this
/// name.
const ORIGINAL: &str = "ratelimit";
/// The status that tonic gives to a message that is too large.
const OUT_OF_RANGE: HeaderValue = HeaderValue::from_static("11");
const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");

/// Handles the requests of proxies.
#[derive(Debug, Clone)]
pub struct Service {
    live: Live,
    decider: Decider,
    metrics: Arc<Metrics>,
    connection_age: Duration,
    /// Has a receiver for each call that is being decided.
    calls: watch::Sender<()>,
}

impl Service {
    /// Creates the service.
    #[must_use]
    pub fn new(live: Live, decider: Decider, metrics: Arc<Metrics>) -> Self {
        let calls = watch::Sender::new(());
        Self { live, decider, metrics, connection_age: CONNECTION_AGE, calls }
    }

    /// Sets the age at which a connection is closed, so that further gateways behind one address
    /// get their part of the calls. Each has an age of its own, at most a tenth shorter or longer.
    /// The default is 300 s.
    #[must_use]
    pub fn connection_age(self, connection_age: Duration) -> Self {
        Self { connection_age, ..self }
    }

    /// Decides a request. `patience` is the time for which the proxy waits.
    ///
    /// # Errors
    /// The status for the proxy.
    async fn decide(
        &self,
        request: &RateLimitRequest,
        patience: Option<Duration>,
        traceparent: Option<&str>,
    ) -> Result<RateLimitResponse, Status> {
        let descriptors = match request::descriptors(request) {
            Ok(descriptors) => descriptors,
            Err(unread) => {
                self.metrics.refused(Protocol::Grpc, Refusal::Invalid);
                return match unread {
                    Unread::TooLarge => Ok(response::too_large()),
                    Unread::UnknownUnit => {
                        let text = "invalid limit of a descriptor: expected a unit";
                        Err(Status::invalid_argument(text))
                    }
                };
            }
        };
        let loaded = self.live.current();
        let Some(domain) = loaded.domain(&request.domain) else {
            self.metrics.refused(Protocol::Grpc, Refusal::UnknownDomain);
            return Ok(response::allowed(request.descriptors.len()));
        };
        let found = matches(domain, &descriptors);
        let hits = request.descriptors.iter().map(|one| request::hits(request, one));
        let matched: Vec<_> = found
            .into_iter()
            .zip(hits)
            .map(|(found, hits)| DescriptorHits { found, hits })
            .collect();
        let Ok(decision) = self.decider.decide(domain, &matched, patience).await else {
            self.metrics.refused(Protocol::Grpc, Refusal::TooManyLimits);
            return Ok(response::too_large());
        };
        self.metrics.decided(Protocol::Grpc, domain, &decision);
        log_refusals(Protocol::Grpc, domain, &decision, traceparent);
        if decision.is_left_to_the_proxy() {
            return Err(Status::unavailable("the rate limiter is not available"));
        }
        Ok(response::response(&decision))
    }
}

/// The one method of the service, with a codec of its own.
#[derive(Debug, Clone)]
struct Served(Service);

impl NamedService for Served {
    const NAME: &'static str = SERVICE_NAME;
}

impl tower::Service<http::Request<Body>> for Served {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let served = self.clone();
        Box::pin(async move {
            if !request.uri().path().ends_with("/ShouldRateLimit") {
                return Ok(Status::unimplemented("unknown method").into_http());
            }
            let codec = Codec::new(served.0.metrics.clone());
            let mut grpc = Grpc::new(codec).max_decoding_message_size(MESSAGE_BYTES_MAX);
            Ok(grpc.unary(served, request).await)
        })
    }
}

impl UnaryService<RateLimitRequest> for Served {
    type Response = RateLimitResponse;
    type Future = BoxFuture<Response<RateLimitResponse>, Status>;

    fn call(&mut self, request: Request<RateLimitRequest>) -> Self::Future {
        if let Some(arrived) = request.extensions().get::<Arrived>() {
            arrived.0.store(true, Ordering::Relaxed);
        }
        let service = self.0.clone();
        let call = service.calls.subscribe();
        Box::pin(async move {
            let metadata = request.metadata();
            let text = |name: &str| metadata.get(name).and_then(|text| text.to_str().ok());
            let patience = text("grpc-timeout").and_then(request::patience);
            let began = Instant::now();
            let response = service.decide(request.get_ref(), patience, text("traceparent")).await;
            service.metrics.responded(Protocol::Grpc, began.elapsed());
            drop(call);
            response.map(Response::new)
        })
    }
}

/// Returns the status of a message beyond the bound as that of any other bound. The service sees
/// no such message.
fn bounded(metrics: &Metrics, mut response: http::Response<Body>) -> http::Response<Body> {
    let status = response.headers_mut().get_mut("grpc-status");
    if let Some(status) = status.filter(|status| **status == OUT_OF_RANGE) {
        *status = INVALID_ARGUMENT;
        metrics.refused(Protocol::Grpc, Refusal::Invalid);
    }
    response
}

/// Set when the message of a call has arrived.
#[derive(Debug, Clone, Default)]
struct Arrived(Arc<AtomicBool>);

impl Arrived {
    /// Waits until a call has no more time: [`MESSAGE`] for its message, `patience` in all.
    async fn late(self, patience: Option<Duration>) {
        let message = patience.map_or(MESSAGE, |patience| patience.min(MESSAGE));
        sleep(message).await;
        if self.0.load(Ordering::Relaxed) {
            match patience {
                Some(patience) => sleep(patience - message).await,
                None => pending().await,
            }
        }
    }
}

/// Responds to a request within its `grpc-timeout`. At the deadline the call is dropped, as after a
/// reset by the peer.
async fn respond(
    routes: Routes,
    metrics: Arc<Metrics>,
    mut request: http::Request<Incoming>,
) -> Result<http::Response<Body>, Infallible> {
    let text = request.headers().get("grpc-timeout").and_then(|text| text.to_str().ok());
    let patience = text.and_then(request::patience);
    let arrived = Arrived::default();
    request.extensions_mut().insert(arrived.clone());
    tokio::select! {
        response = routes.oneshot(request) => Ok(bounded(&metrics, response?)),
        () = arrived.late(patience) => {
            Ok(Status::deadline_exceeded("the deadline of the call has passed").into_http())
        }
    }
}

/// Serves until `stopped` is true, then finishes the calls that have begun. Does not wait for the
/// messages of others.
pub async fn serve(
    incoming: impl Into<Connections>,
    service: Service,
    stopped: watch::Receiver<bool>,
) {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<Served>().await;
    health.set_service_status(ORIGINAL, ServingStatus::Serving).await;
    let routes = Routes::new(health_service).add_service(Served(service.clone())).prepare();
    let stop = async {
        is_true(stopped).await;
        health.set_not_serving::<Served>().await;
        for service in ["", ORIGINAL] {
            health.set_service_status(service, ServingStatus::NotServing).await;
        }
    };
    let serve = |stream: Connection, ended| {
        let stream = stream.silent_at_most(PREFACE, PREFACE_BYTES);
        connection(stream, routes.clone(), service.clone(), ended)
    };
    incoming.into().serve_each(stop, serve).await;
}

/// Serves a connection until it ends, is old, or `ended` is true.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    routes: Routes,
    service: Service,
    ended: watch::Receiver<bool>,
) {
    let metrics = service.metrics.clone();
    let handler = move |request| respond(routes.clone(), metrics.clone(), request);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX);
    builder.max_pending_accept_reset_streams(RESETS_MAX);
    builder.max_header_list_size(METADATA_BYTES_MAX);
    // An old connection ends once the peer agrees: find out if it is silent.
    builder.keep_alive_interval(KEEPALIVE);
    let connection = builder.serve_connection(TokioIo::new(stream), service_fn(handler));
    let old = sleep(jittered(service.connection_age));
    serve_until(connection, old, ended, &service.calls).await;
}

/// Returns a random time, at most a tenth shorter or longer, so that connections that were opened
/// together do not end together.
fn jittered(time: Duration) -> Duration {
    // The hash of nothing, with a random key: the standard library has no other random number.
    let random = RandomState::new().build_hasher().finish() % 2_001;
    time.mul_f64(0.9 + random as f64 / 10_000.0)
}

#[cfg(test)]
mod tests;
