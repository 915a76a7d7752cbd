//! Envoy's rate limit service (`envoy.service.ratelimit.v3`), and `grpc.health.v1`.

mod answering;
mod asking;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{self, Server};
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;

use crate::deciding::{Asked, Decider, Failure};
use crate::matching::matches;
use crate::watching::Live;

/// The largest message that is read. The bounds of its parts are smaller.
const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// The age at which a connection is closed, so that further gateways behind one address get their
/// part of the calls.
const CONNECTION_AGE: Duration = Duration::from_secs(300);
/// The time for the calls of an old connection to end.
const CONNECTION_GRACE: Duration = Duration::from_secs(10);

/// The numbers of requests without an answer, since the start.
#[derive(Debug, Default)]
pub struct Refusals {
    /// Beyond a bound, or malformed.
    pub invalid: AtomicU64,
    /// More rows than a call takes.
    pub too_many_rows: AtomicU64,
    /// Refused by the server.
    pub refused: AtomicU64,
    /// Left to the proxy, because the server gave no answer.
    pub unavailable: AtomicU64,
}

/// Answers the requests of proxies.
#[derive(Debug, Clone)]
pub struct Service {
    live: Live,
    decider: Decider,
    refusals: Arc<Refusals>,
}

impl Service {
    /// Creates the service.
    #[must_use]
    pub fn new(live: Live, decider: Decider) -> Self {
        Self { live, decider, refusals: Arc::default() }
    }

    /// Returns the numbers of requests without an answer.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Decides a request. `patience` is the time for which the proxy waits.
    ///
    /// # Errors
    /// The status for the proxy.
    async fn decide(
        &self,
        request: &RateLimitRequest,
        patience: Option<Duration>,
    ) -> Result<RateLimitResponse, Status> {
        let descriptors = asking::descriptors(request).map_err(|text| self.invalid(text))?;
        let loaded = self.live.current();
        let Some(domain) = loaded.domain(&request.domain) else {
            return Ok(answering::allowed(request.descriptors.len()));
        };
        let found = matches(domain, &descriptors);
        let hits = request.descriptors.iter().map(|one| asking::hits(request, one));
        let asked: Vec<_> =
            found.into_iter().zip(hits).map(|(found, hits)| Asked { found, hits }).collect();
        let decided = self.decider.decide(domain, &asked, patience).await;
        decided.map(|answer| answering::response(&answer)).map_err(|failure| self.status(failure))
    }

    fn invalid(&self, text: impl Into<String>) -> Status {
        self.refusals.invalid.fetch_add(1, Ordering::Relaxed);
        Status::invalid_argument(text)
    }

    fn status(&self, failure: Failure) -> Status {
        let count = |counted: &AtomicU64| counted.fetch_add(1, Ordering::Relaxed);
        match failure {
            Failure::TooManyRows => {
                count(&self.refusals.too_many_rows);
                self.invalid("too many descriptors match a limit: expected at most 16")
            }
            Failure::Invalid(text) => self.invalid(text),
            Failure::Unavailable => {
                count(&self.refusals.unavailable);
                Status::unavailable("the rate limiter gave no answer")
            }
            // The text may name keys of the server, so only the log has it.
            Failure::Refused(text) => {
                count(&self.refusals.refused);
                eprintln!("the server refused a call: {}", text.escape_debug());
                Status::internal("the rate limiter refused the call")
            }
        }
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
        self.decide(request.get_ref(), patience).await.map(Response::new)
    }
}

/// Serves until `ended`, then finishes the calls that have begun.
///
/// # Errors
/// The reason that the listener failed.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    ended: impl Future<Output = ()>,
) -> Result<(), transport::Error> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<RateLimitServiceServer<Service>>().await;
    let draining = async {
        ended.await;
        health.set_not_serving::<RateLimitServiceServer<Service>>().await;
        health.set_service_status("", ServingStatus::NotServing).await;
    };
    let limits = RateLimitServiceServer::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX);
    Server::builder()
        .max_connection_age(CONNECTION_AGE)
        .max_connection_age_grace(CONNECTION_GRACE)
        .add_service(health_service)
        .add_service(limits)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            draining,
        )
        .await
}
