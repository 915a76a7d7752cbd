//! A bare service of the same shape: it returns the same response to every request.

use std::net::SocketAddr;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

struct Bare(RateLimitResponse);

#[tonic::async_trait]
impl RateLimitService for Bare {
    async fn should_rate_limit(
        &self,
        _request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(self.0.clone()))
    }
}

/// Serves until the process ends. `response` is one of the gateway, so that all responses have the
/// same size.
pub async fn serve(address: SocketAddr, response: RateLimitResponse) {
    let listener = TcpListener::bind(address).await.expect("a free port");
    Server::builder()
        .add_service(RateLimitServiceServer::new(Bare(response)))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await
        .expect("a listener");
}
