//! Clients that abort their requests as fast as they can, next to one that behaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::SERVICE_NAME;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::server::{Server, until};
use crate::started::Gateway;
use crate::wire::get_from;

const FILE: &str = "domain: api
http:
  descriptors: [{good: 'header:x-good'}, {bad: 'header:x-bad'}]
limits:
- {match: {good: '*'}, rule: FIXED 1000000 1h, on_error: deny}
- {match: {bad: '*'}, rule: FIXED 1000000 1h}
";
const CALLS: usize = 50;
/// The pause of each client that aborts. Without it they connect faster than a gateway without
/// optimisation accepts, and every call waits behind all connections that the system keeps.
const PAUSE: Duration = Duration::from_millis(5);
/// The time for which the proxy holds each reply of the server.
const HELD: Duration = Duration::from_millis(20);

/// Starts a proxy that holds replies. Returns its URL.
async fn slow_proxy(server: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut calls, mut replies) = client.into_split();
            let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            let (mut read, mut write) = server.into_split();
            let (held, mut next) = mpsc::unbounded_channel();
            tokio::spawn(async move { tokio::io::copy(&mut calls, &mut write).await });
            tokio::spawn(async move {
                let mut bytes = [0; 65_536];
                while let Ok(length @ 1..) = read.read(&mut bytes).await {
                    let _ = held.send((Instant::now() + HELD, bytes[..length].to_vec()));
                }
            });
            tokio::spawn(async move {
                while let Some((due, bytes)) = next.recv().await {
                    sleep_until(due).await;
                    if replies.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// Opens a connection of HTTP/2, on which requests can be reset.
async fn open(address: &str) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut client = h2::client::Builder::new();
    // This crate counts small responses that come after their requests were reset, and would end
    // the connection by itself after about 130 of them.
    client.data_frame_budget(usize::MAX);
    let (requests, connection) = client.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    requests
}

/// Sends a request as Envoy does: the message ends the stream.
async fn send(
    requests: &SendRequest<Bytes>,
    (key, value): (&str, &str),
) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    let entry = Entry { key: key.to_owned(), value: value.to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let descriptors = vec![descriptor];
    let message = RateLimitRequest { domain: "api".to_owned(), descriptors, hits_addend: 0 };
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let request = http::Request::post(format!("http://gateway/{SERVICE_NAME}/ShouldRateLimit"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (response, mut body) = requests.clone().ready().await?.send_request(request, false)?;
    body.send_data([&[0], &length[..], &message].concat().into(), true)?;
    Ok((response, body))
}

/// Sends a request and returns the response.
async fn response_to(
    requests: &SendRequest<Bytes>,
    entry: (&str, &str),
) -> Result<RateLimitResponse, h2::Error> {
    let mut body = send(requests, entry).await?.0.await?.into_body();
    let mut bytes = Vec::new();
    while let Some(part) = body.data().await {
        let part = part?;
        body.flow_control().release_capacity(part.len())?;
        bytes.extend_from_slice(&part);
    }
    Ok(RateLimitResponse::decode(&bytes[5..]).unwrap())
}

/// Sends requests over one connection until it is stopped, and resets each within 2 ms.
async fn reset_streams(requests: SendRequest<Bytes>, stopped: Arc<AtomicBool>) {
    while !stopped.load(Ordering::Relaxed) {
        let mut calls = JoinSet::new();
        for number in 0..4 {
            let requests = requests.clone();
            calls.spawn(async move {
                let (_response, mut body) = send(&requests, ("bad", "b")).await.unwrap();
                sleep(Duration::from_micros(500 * number)).await;
                body.send_reset(Reason::CANCEL);
            });
        }
        calls.join_all().await;
        sleep(PAUSE).await;
    }
}

/// Opens connections until it is stopped, and resets each after its request was sent.
async fn reset_connections(address: String, stopped: Arc<AtomicBool>) {
    while !stopped.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(&address).await else { continue };
        // Closes with a reset.
        let _ = stream.set_zero_linger();
        let request = "GET /check/api HTTP/1.1\r\nHost: a\r\nX-Bad: b\r\n\r\n";
        let _ = stream.write_all(request.as_bytes()).await;
        sleep(Duration::from_micros(500)).await;
        drop(stream);
        sleep(PAUSE).await;
    }
}

/// Starts the clients that abort, in a thread of their own: the others are only as busy as the
/// machine.
fn spawn_storm(
    shared: SendRequest<Bytes>,
    gateway: &Gateway,
    stopped: Arc<AtomicBool>,
) -> JoinHandle<()> {
    let (grpc, http) = (gateway.grpc().to_owned(), gateway.http().to_owned());
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::join!(
                reset_streams(shared, stopped.clone()),
                async { reset_streams(open(&grpc).await, stopped.clone()).await },
                reset_connections(http.clone(), stopped.clone()),
                reset_connections(http, stopped.clone()),
            )
        });
    })
}

#[tokio::test]
async fn aborted_requests_change_no_decision_of_others() {
    let server = Server::start().await;
    let url = slow_proxy(server.port).await;
    // A busy machine must not make the server seem down.
    let words = ["--timeout-ms", "60000"];
    let gateway = tokio::task::spawn_blocking(move || Gateway::start(&url, &words)).await.unwrap();
    std::fs::write(gateway.path("api.yaml"), FILE).unwrap();
    gateway.event("configuration_loaded", 2).await;
    let (own, shared) = (open(gateway.grpc()).await, open(gateway.grpc()).await);
    let stopped = Arc::new(AtomicBool::new(false));
    let storm = spawn_storm(shared.clone(), &gateway, stopped.clone());
    let calls = async || server.calls("rl.fixed").await;
    until("aborted requests reach the server", async || calls().await > 1_000).await;
    for number in 0..CALLS {
        let user = number.to_string();
        let fields = [("x-good", &*user)];
        let (own, shared, checked) = tokio::join!(
            response_to(&own, ("good", &user)),
            response_to(&shared, ("good", &user)),
            get_from(gateway.http(), "/check/api", &fields),
        );
        assert_eq!([own.unwrap().overall_code, shared.unwrap().overall_code], [1, 1]);
        assert!(checked.starts_with("HTTP/1.1 200 "), "{checked}");
    }
    stopped.store(true, Ordering::Relaxed);
    storm.join().unwrap();
    let metrics = get_from(gateway.http(), "/metrics", &[]).await;
    let line =
        format!(r#"requests_total{{domain="api",rule="good",outcome="allowed"}} {}"#, 3 * CALLS);
    assert!(metrics.contains(&line), "{metrics}");
    assert!(!metrics.contains("gateway_degraded_total{"), "{metrics}");
}

/// Returns a frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

#[tokio::test]
async fn calls_that_are_reset_at_once_leave_their_connection_open() {
    let gateway = Gateway::start("redis://127.0.0.1:1", &[]);
    let mut stream = TcpStream::connect(gateway.grpc()).await.unwrap();
    let path = format!("/{SERVICE_NAME}/ShouldRateLimit");
    // POST, http, and the path, in HPACK without a table.
    let fields = [&[0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(4, 0, 0, &[]));
    for call in 0..1_000 {
        sent.extend(frame(1, 4, 2 * call + 1, &fields));
        sent.extend(frame(3, 0, 2 * call + 1, &8_u32.to_be_bytes()));
    }
    sent.extend(frame(6, 0, 0, &[7; 8]));
    stream.write_all(&sent).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        match (head[3], head[4]) {
            (6, 1) => return,
            (7, _) => panic!("the gateway ends the connection: {payload:?}"),
            _ => {}
        }
    }
}
