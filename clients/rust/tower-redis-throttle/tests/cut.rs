//! Requests whose body their client cuts: they count, whatever the response.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use redis_throttle_client::testing::FakeServer;
use redis_throttle_client::{Count, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;
use tower_redis_throttle::{Peer, RateLimitLayer, WatchedBody, watch_body};

const LIMIT: u64 = 2;

/// Returns a layer that counts the responses with status 200, and the number of heads it has seen.
fn layer(server: &FakeServer) -> (RateLimitLayer, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let sees = seen.clone();
    let served = Count::when(move |head| {
        sees.fetch_add(1, Ordering::Relaxed);
        head.status == StatusCode::OK
    });
    let rule = Rule::fixed("served", LIMIT, "1h").unwrap().count(served).unwrap();
    let layer = RateLimitLayer::builder(server.limiter())
        .rule(rule)
        .key(|_| Some("42".to_owned()))
        .build()
        .unwrap();
    (layer, seen)
}

/// Reports the end of a handler.
struct Ends(UnboundedSender<&'static str>);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.send("ends");
    }
}

/// Serves a handler that reports its start and its end, and responds to a bad body with 400.
async fn serve(layer: RateLimitLayer) -> (SocketAddr, UnboundedReceiver<&'static str>) {
    let (reports, received) = unbounded_channel();
    let handler = move |body: Body| {
        let ends = Ends(reports.clone());
        async move {
            let _ = ends.0.send("begins");
            match to_bytes(body, usize::MAX).await {
                Ok(body) if body == "good" => StatusCode::OK,
                _ => StatusCode::BAD_REQUEST,
            }
        }
    };
    let app = Router::new().route("/", post(handler)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, received)
}

/// Connects and sends a request with a body of a given length, of which this is sent.
async fn send(address: SocketAddr, length: usize, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

/// Returns the status of the response to a complete body.
async fn status(address: SocketAddr, body: &str) -> u16 {
    let mut text = String::new();
    let mut socket = send(address, body.len(), body).await;
    socket.read_to_string(&mut text).await.unwrap();
    text[9..12].parse().unwrap()
}

#[tokio::test]
async fn request_whose_body_is_cut_counts_in_axum() {
    for resets in [true, false] {
        let (layer, seen) = layer(&FakeServer::new());
        let (address, mut received) = serve(layer).await;
        // A complete body that is bad does not count.
        assert_eq!(status(address, "bad").await, 400);
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        assert_eq!((received.recv().await, received.recv().await), (Some("begins"), Some("ends")));
        for _ in 0..LIMIT {
            let mut socket = send(address, 9, "[1").await;
            assert_eq!(received.recv().await, Some("begins"));
            if resets {
                socket.set_zero_linger().unwrap();
                drop(socket);
            } else {
                socket.shutdown().await.unwrap();
                let _ = socket.read_to_end(&mut Vec::new()).await;
            }
            // In this runtime nothing runs between the end of the handler and the count.
            assert_eq!(received.recv().await, Some("ends"));
        }
        assert_eq!(seen.load(Ordering::Relaxed), 1, "resets: {resets}");
        assert_eq!(status(address, "good").await, 429, "resets: {resets}");
    }
}

/// A body whose connection is reset.
struct Reset;

impl http_body::Body for Reset {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
    }
}

async fn respond<B: http_body::Body>(
    request: Request<B>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let status = if request.into_body().collect().await.is_ok() { 200 } else { 400 };
    Ok(Response::builder().status(status).body(Full::default()).unwrap())
}

#[tokio::test]
async fn watched_body_that_fails_counts_in_every_layer() {
    let (outer, inner) = (layer(&FakeServer::new()), layer(&FakeServer::new()));
    let service = service_fn(respond::<WatchedBody<Reset>>);
    let service = outer.0.layer(inner.0.layer(service));
    let peer = Peer(IpAddr::from([192, 0, 2, 7]));
    for status in [400, 400, 429] {
        let request = Request::builder().extension(peer).body(Reset).unwrap();
        let response = service.clone().oneshot(watch_body(request)).await.unwrap();
        assert_eq!(response.status().as_u16(), status);
    }
    assert_eq!(outer.1.load(Ordering::Relaxed) + inner.1.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn watched_body_that_ends_is_judged_by_its_response() {
    let (layer, seen) = layer(&FakeServer::new());
    let service = layer.layer(service_fn(respond::<WatchedBody<Full<Bytes>>>));
    let request = watch_body(Request::new(Full::from("body")));
    assert_eq!(http_body::Body::size_hint(request.body()).exact(), Some(4));
    assert!(!http_body::Body::is_end_stream(request.body()));
    assert_eq!(service.oneshot(request).await.unwrap().status(), StatusCode::OK);
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}
