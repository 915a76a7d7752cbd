//! As many half-open connections as a listener has places.

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::server::Server;
use crate::started::Gateway;
use crate::wire::{allows, channel, get_from};

/// The places of a listener.
const PLACES: usize = 4_096;

/// Opens connections, each with the beginning of a request.
async fn half_open(address: &str, beginning: &[u8]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..PLACES {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(beginning).await.unwrap();
        all.push(stream);
    }
    all
}

#[tokio::test]
async fn half_open_connections_keep_out_neither_health_nor_checks() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
    let server = Server::start().await;
    let gateway = Gateway::start(&server.url(), &["--timeout-ms", "60000"]);
    let halves = half_open(gateway.http(), b"GET /check/api HTTP/1.1\r\nHost:").await;
    let well = get_from(gateway.http(), "/healthcheck", &[]).await;
    assert!(well.starts_with("HTTP/1.1 200 "), "{well}");
    let checked = get_from(gateway.http(), "/check/api", &[("X-User", "a")]).await;
    assert!(checked.starts_with("HTTP/1.1 200 "), "{checked}");
    let grpc = channel(TcpStream::connect(gateway.grpc()).await.unwrap()).await.unwrap();
    assert!(allows(grpc).await.unwrap());
    drop(halves);
    let halves = half_open(gateway.grpc(), b"PRI * HTTP/2.0").await;
    let grpc = channel(TcpStream::connect(gateway.grpc()).await.unwrap()).await.unwrap();
    assert!(allows(grpc).await.unwrap());
    drop(halves);
}
