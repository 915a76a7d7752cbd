//! Sends requests to a service as Envoy does: over a few HTTP/2 connections, with a time-out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client as client;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// The time-out of Envoy in the example.
const TIMEOUT: &str = "250m";
const USERS: usize = 1_000;

/// The load of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A number of requests per second, however long the responses take.
    Rate(u32),
    /// A number of callers, each of which waits for its response.
    Callers(usize),
}

/// The measurements of a job.
pub struct Measured {
    /// The time of each response, since the request was due, in ascending order.
    pub took: Vec<Duration>,
    /// The requests without a response that allows them.
    pub failed: usize,
    pub elapsed: Duration,
}

/// Connections to a service.
#[derive(Clone)]
pub struct Caller {
    clients: Vec<client::RateLimitServiceClient<Channel>>,
    sent: Arc<AtomicUsize>,
}

impl Caller {
    /// Opens connections; waits until the service listens.
    pub async fn open(address: SocketAddr, connections: usize) -> Self {
        let mut clients = Vec::new();
        let began = Instant::now();
        while clients.len() < connections {
            match client::RateLimitServiceClient::connect(format!("http://{address}")).await {
                Ok(client) => clients.push(client),
                Err(error) if began.elapsed() > Duration::from_secs(10) => {
                    panic!("nothing listens on {address}: {error}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        Self { clients, sent: Arc::default() }
    }

    /// Sends a request of the next user, on the next connection.
    pub async fn request(&self) -> Result<RateLimitResponse, Status> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let entry = |key: &str, value: String| Entry { key: key.to_owned(), value };
        let user = entry("user", format!("user-{}", number % USERS));
        let entries = vec![entry("path", "/search/books".to_owned()), user];
        let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
        let message = RateLimitRequest { domain: "api".to_owned(), descriptors, hits_addend: 0 };
        let mut request = Request::new(message);
        request.metadata_mut().insert("grpc-timeout", MetadataValue::from_static(TIMEOUT));
        let mut client = self.clients[number % self.clients.len()].clone();
        client.should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    /// Sends a request. Returns the time since it was due, and whether its response allows it.
    async fn send_timed(&self, due: Instant) -> (Duration, bool) {
        let response = self.request().await;
        let is_allowed =
            response.is_ok_and(|response| response.overall_code == i32::from(Code::Ok));
        (due.elapsed(), is_allowed)
    }

    /// Runs a job. Must not be called on a thread of the runtime.
    pub fn run(&self, runtime: &Handle, load: Load, span: Duration) -> Measured {
        let (done, mut all) = mpsc::unbounded_channel();
        let began = Instant::now();
        match load {
            Load::Rate(rate) => self.at_rate(runtime, rate, span, &done),
            Load::Callers(callers) => self.in_turn(runtime, callers, span, &done),
        }
        drop(done);
        let (mut took, mut failed) = (Vec::new(), 0);
        while let Some((time, is_allowed)) = all.blocking_recv() {
            took.push(time);
            failed += usize::from(!is_allowed);
        }
        let elapsed = began.elapsed();
        took.sort_unstable();
        Measured { took, failed, elapsed }
    }

    /// Starts requests when they are due, also those that are late because this thread did not run.
    fn at_rate(&self, runtime: &Handle, rate: u32, span: Duration, done: &Done) {
        let began = Instant::now();
        let requests = (span.as_secs_f64() * f64::from(rate)) as u32;
        for number in 0..requests {
            let due = began + Duration::from_secs(1) * number / rate;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let (caller, done) = (self.clone(), done.clone());
            runtime.spawn(async move { done.send(caller.send_timed(due).await) });
        }
    }

    fn in_turn(&self, runtime: &Handle, callers: usize, span: Duration, done: &Done) {
        let end = Instant::now() + span;
        for _ in 0..callers {
            let (caller, done) = (self.clone(), done.clone());
            runtime.spawn(async move {
                while Instant::now() < end {
                    let _ = done.send(caller.send_timed(Instant::now()).await);
                }
            });
        }
    }
}

type Done = mpsc::UnboundedSender<(Duration, bool)>;
