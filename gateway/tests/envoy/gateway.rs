//! Starts a gateway in this process, and calls it as Envoy does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client as client;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use prometheus_client::registry::Registry;
use redis_throttle_client::{Limiter, Options, Server};
use redis_throttle_gateway::decider::{Decider, Tags};
use redis_throttle_gateway::grpc::{Service, serve};
use redis_throttle_gateway::metrics::Metrics;
use redis_throttle_gateway::reload::Live;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code as Status, Request};

pub type Client = client::RateLimitServiceClient<Channel>;

/// The differences between gateways. The default waits for the server as long as needed.
pub struct Setup {
    pub timeout: Duration,
    /// `None` for one server.
    pub tags: Tags,
    pub connection_age: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        let (timeout, connection_age) = (Duration::from_secs(10), Duration::from_secs(300));
        Self { timeout, tags: Tags::None, connection_age }
    }
}

/// A gateway with one domain, `api`.
pub struct Gateway {
    pub client: Client,
    pub metrics: Arc<Metrics>,
    pub address: SocketAddr,
    pub serving: JoinHandle<()>,
    stop: watch::Sender<bool>,
    _folder: TempDir,
}

impl Gateway {
    /// Starts a gateway for one server.
    pub async fn start(url: &str, limits: &str) -> Self {
        Self::with(redis::Client::open(url).unwrap(), limits, Setup::default()).await
    }

    pub async fn with(server: impl Into<Server>, limits: &str, setup: Setup) -> Self {
        let Setup { timeout, tags, connection_age } = setup;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("api.yaml"), format!("domain: api\n{limits}")).unwrap();
        let live = Live::load(folder.path().to_owned()).unwrap();
        let limiter = Limiter::with_options(server, Options::default().timeout(timeout)).unwrap();
        let metrics = Arc::new(Metrics::new(Registry::default()));
        let decider = Decider::new(limiter, timeout, tags, tags != Tags::None);
        let service = Service::new(live, decider, metrics.clone()).connection_age(connection_age);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(listener, service, stopped));
        let client = Client::connect(format!("http://{address}")).await.unwrap();
        Self { client, metrics, address, serving, stop, _folder: folder }
    }

    /// Signals the gateway to end.
    pub fn end(&self) {
        self.stop.send_replace(true);
    }

    /// Checks descriptors without hits of the request.
    pub async fn check(&self, descriptors: &[RateLimitDescriptor]) -> RateLimitResponse {
        self.try_check(descriptors, 0).await.unwrap()
    }

    pub async fn try_check(
        &self,
        descriptors: &[RateLimitDescriptor],
        hits: u32,
    ) -> Result<RateLimitResponse, Status> {
        self.send(request("api", descriptors, hits)).await
    }

    pub async fn send(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let response = self.client.clone().should_rate_limit(Request::new(request)).await;
        response.map(tonic::Response::into_inner).map_err(|status| status.code())
    }
}

pub fn request(domain: &str, descriptors: &[RateLimitDescriptor], hits: u32) -> RateLimitRequest {
    let descriptors = descriptors.to_vec();
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: hits }
}

/// Returns a descriptor with one entry.
pub fn of(key: &str, value: &str) -> RateLimitDescriptor {
    let entry = Entry { key: key.to_owned(), value: value.to_owned() };
    RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
}

/// Returns a descriptor with hits.
pub fn hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor }
}

/// Returns a descriptor whose hits are given back.
pub fn back(descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { is_negative_hits: true, ..descriptor }
}

/// Returns a descriptor with a limit of its own.
pub fn with_limit(
    one: RateLimitDescriptor,
    requests_per_unit: u32,
    unit: i32,
) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..one }
}

pub fn is_ok(response: &RateLimitResponse) -> bool {
    response.overall_code == i32::from(Code::Ok)
}

/// Returns, for each status, true if it is OK, and the units left.
pub fn left(response: &RateLimitResponse) -> Vec<(bool, u32)> {
    let ok = i32::from(Code::Ok);
    response.statuses.iter().map(|status| (status.code == ok, status.limit_remaining)).collect()
}

/// Returns a header field.
pub fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let mut all = response.response_headers_to_add.iter();
    all.find(|header| header.key.eq_ignore_ascii_case(name)).map(|header| header.value.as_str())
}
