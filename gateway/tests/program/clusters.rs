//! Nodes of a cluster.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::server::{Server, until};
use crate::started::Gateway;
use crate::wire::get_from;

const TWO_LIMITS: &str = "domain: two
http:
  descriptors: [{user: 'header:x-user'}, {tenant: 'header:x-tenant'}]
limits:
- {match: {user: '*'}, rule: FIXED 2 1h}
- {match: {tenant: '*'}, rule: FIXED 9 1h}
";
const HINT: &str = "for a node of a cluster, pass --cluster";

#[tokio::test]
async fn one_node_needs_the_argument_that_the_log_names() {
    let server = Server::cluster_of_one().await;
    let status = async |gateway: &Gateway| {
        let fields = [("x-user", "a"), ("x-tenant", "b")];
        get_from(gateway.http(), "/check/two", &fields).await[9..12].to_owned()
    };
    let alone = start(&server.url(), &[]).await;
    for _ in 0..5 {
        assert_eq!(status(&alone).await, "200");
    }
    assert_eq!(alone.event("call_refused", 1).await["hint"], HINT);
    let cluster = start(&server.url(), &["--cluster"]).await;
    let limited = async || status(&cluster).await == "429";
    until("the limit is enforced", limited).await;
    assert!(cluster.events("call_refused").is_empty());
    assert!(server.calls("cluster|slots").await > 0);
}

#[tokio::test]
async fn node_that_names_another_one_needs_the_argument_too() {
    let node = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", node.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = node.accept().await.unwrap();
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut bytes).await {
            let commands = bytes[..length].iter().filter(|byte| **byte == b'*').count();
            let moved = "-MOVED 1 127.0.0.1:1\r\n".repeat(commands);
            stream.write_all(moved.as_bytes()).await.unwrap();
        }
    });
    let gateway = start(&url, &[]).await;
    assert_eq!(gateway.event("server_away", 1).await["hint"], HINT);
}

/// Starts a gateway in another thread, because a test may be its server.
async fn start(url: &str, words: &'static [&str]) -> Gateway {
    let url = url.to_owned();
    let words = [words, &["--timeout-ms", "1000"]].concat();
    let started = tokio::task::spawn_blocking(move || Gateway::start(&url, &words));
    let gateway = started.await.unwrap();
    std::fs::write(gateway.path("limits/two.yaml"), TWO_LIMITS).unwrap();
    gateway.event("configuration_loaded", 2).await;
    gateway
}
