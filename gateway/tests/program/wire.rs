//! Requests over any stream.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client as client;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

/// Sends a request of HTTP/1.1 and returns the response, or its beginning if it ends early.
pub async fn get(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    target: &str,
    fields: &[(&str, &str)],
) -> String {
    let mut text = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n");
    fields.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    let _ = stream.write_all(format!("{text}\r\n").as_bytes()).await;
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read).await;
    String::from_utf8_lossy(&read).into_owned()
}

/// Sends a request of HTTP/1.1 to an address.
pub async fn get_from(address: &str, target: &str, fields: &[(&str, &str)]) -> String {
    get(TcpStream::connect(address).await.unwrap(), target, fields).await
}

/// Returns a gRPC channel over a stream, which is its only connection.
pub async fn channel(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(TokioIo::new(stream));
    let once = service_fn(move |_| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("one connection only"));
        async { stream }
    });
    Endpoint::from_static("http://gateway").connect_with_connector(once).await
}

/// A trace as proxies send it.
pub const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Calls Envoy's service for the user `a`, with [`TRACE`]. Returns true if the request is allowed.
pub async fn allows(channel: Channel) -> Result<bool, Status> {
    let entry = Entry { key: "user".to_owned(), value: "a".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let descriptors = vec![descriptor];
    let message = RateLimitRequest { domain: "api".to_owned(), descriptors, hits_addend: 0 };
    let mut request = Request::new(message);
    request.metadata_mut().insert("traceparent", TRACE.parse().unwrap());
    let response = client::RateLimitServiceClient::new(channel).should_rate_limit(request).await?;
    Ok(response.into_inner().overall_code == 1)
}

/// Begins a call of Envoy's service, and never sends its message.
pub async fn call_without_message(channel: Channel) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("a connection");
    let path =
        PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let codec = ProstCodec::<RateLimitRequest, RateLimitResponse>::default();
    let never = Request::new(tokio_stream::pending());
    client.client_streaming(never, path, codec).await.map(drop)
}
