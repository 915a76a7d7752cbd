//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), and `grpc.health.v1`.

mod answering;
mod asking;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http::HeaderValue;
use tokio_stream::StreamExt as _;
use tonic::transport::{self, Server};
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tower::util::MapResponseLayer;

use crate::deciding::{Asked, Decider, Failure};
use crate::listening::{CLOSED_WITHIN, Connections};
use crate::matching::matches;
use crate::metrics::{Metrics, Protocol, Refusal};
use crate::refusals::log_refusal;
use crate::watching::Live;

/// The largest message that is read. The bounds of its parts are smaller.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;
const CONNECTION_AGE: Duration = Duration::from_secs(300);
/// The time for the first bytes of a connection: a proxy sends them at once.
const PREFACE: Duration = Duration::from_secs(5);
const PREFACE_BYTES: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// The time between two questions whether the peer is there. It has 20 s to answer.
const KEEPALIVE: Duration = Duration::from_secs(60);
/// The status that tonic gives to a message that is too large.
const OUT_OF_RANGE: HeaderValue = HeaderValue::from_static("11");
const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");

/// Answers the requests of proxies.
#[derive(Debug, Clone)]
pub struct Service {
    live: Live,
    decider: Decider,
    metrics: Arc<Metrics>,
    connection_age: Duration,
}

impl Service {
    /// Creates the service.
    #[must_use]
    pub fn new(live: Live, decider: Decider, metrics: Arc<Metrics>) -> Self {
        Self { live, decider, metrics, connection_age: CONNECTION_AGE }
    }

    /// Sets the age at which a connection is closed, so that further gateways behind one address
    /// get their part of the calls. The default is 300 s.
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
        let descriptors = asking::descriptors(request).map_err(|text| self.invalid(text))?;
        let loaded = self.live.current();
        let Some(domain) = loaded.domain(&request.domain) else {
            self.metrics.refused(Protocol::Grpc, Refusal::UnknownDomain);
            return Ok(answering::allowed(request.descriptors.len()));
        };
        let found = matches(domain, &descriptors);
        let hits = request.descriptors.iter().map(|one| asking::hits(request, one));
        let asked: Vec<_> =
            found.into_iter().zip(hits).map(|(found, hits)| Asked { found, hits }).collect();
        let decided = self.decider.decide(domain, &asked, patience).await;
        let answer = decided.map_err(|failure| {
            if let Failure::Refused(text) = &failure {
                log_refusal("grpc", domain, &asked, traceparent, text);
            }
            self.status(failure)
        })?;
        self.metrics.decided(domain, &answer);
        Ok(answering::response(&answer))
    }

    fn invalid(&self, text: impl Into<String>) -> Status {
        self.metrics.refused(Protocol::Grpc, Refusal::Invalid);
        Status::invalid_argument(text)
    }

    fn status(&self, failure: Failure) -> Status {
        let (reason, status) = match failure {
            Failure::Invalid(text) => return self.invalid(text),
            Failure::TooManyRows => {
                let text = "too many descriptors match a limit: expected at most 16";
                (Refusal::TooManyLimits, Status::invalid_argument(text))
            }
            Failure::Unavailable => {
                (Refusal::Unavailable, Status::unavailable("the rate limiter gave no answer"))
            }
            // The text may name keys of the server, so only the log has it.
            Failure::Refused(_) => {
                (Refusal::Rejected, Status::internal("the rate limiter refused the call"))
            }
        };
        self.metrics.refused(Protocol::Grpc, reason);
        status
    }
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let patience = request.metadata().get("grpc-timeout");
        let patience = patience.and_then(|text| asking::patience(text.to_str().ok()?));
        let traceparent = request.metadata().get("traceparent");
        let traceparent = traceparent.and_then(|text| text.to_str().ok());
        let began = Instant::now();
        let answer = self.decide(request.get_ref(), patience, traceparent).await;
        self.metrics.answered(Protocol::Grpc, began.elapsed());
        answer.map(Response::new)
    }
}

/// Returns the status of a message beyond the bound as that of any other bound. The service sees
/// no such message.
fn bounded<B>(metrics: &Metrics, mut response: http::Response<B>) -> http::Response<B> {
    let status = response.headers_mut().get_mut("grpc-status");
    if let Some(status) = status.filter(|status| **status == OUT_OF_RANGE) {
        *status = INVALID_ARGUMENT;
        metrics.refused(Protocol::Grpc, Refusal::Invalid);
    }
    response
}

/// Serves until `ended`, then finishes the calls that have begun.
///
/// # Errors
/// The reason that the listener failed.
pub async fn serve(
    incoming: impl Into<Connections>,
    service: Service,
    ended: impl Future<Output = ()>,
) -> Result<(), transport::Error> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<RateLimitServiceServer<Service>>().await;
    let incoming = incoming.into();
    let close = incoming.close();
    let incoming = incoming.map(|next| next.map(|one| one.silent_at_most(PREFACE, PREFACE_BYTES)));
    let draining = async move {
        ended.await;
        health.set_not_serving::<RateLimitServiceServer<Service>>().await;
        health.set_service_status("", ServingStatus::NotServing).await;
        // A proxy that is told to move on connects again at once, and must be refused by then.
        // `incoming` ends when the listener is closed, unless a handshake takes longer.
        close.notify_one();
        tokio::time::sleep(CLOSED_WITHIN).await;
    };
    let (age, metrics) = (service.connection_age, service.metrics.clone());
    let limits = RateLimitServiceServer::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Server::builder()
        // Without a grace: with one, tonic 0.14 cuts a connection with its calls after both times.
        // A call here ends by its own deadline.
        .max_connection_age(age)
        // An old connection ends once the peer agrees: find out if it is silent.
        .http2_keepalive_interval(Some(KEEPALIVE))
        .layer(MapResponseLayer::new(move |response| bounded(&metrics, response)))
        .add_service(health_service)
        .add_service(limits)
        .serve_with_incoming_shutdown(incoming, draining)
        .await
}
