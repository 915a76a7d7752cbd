//! `scripts/example.sh envoy`, and the lines that it prints.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use tokio::net::TcpStream;

use crate::chain::envoy_program;
use crate::program::signal;
use crate::server::{Server, free_port, module, until};
use crate::wire::get;

/// The ports of Envoy, its statistics, the application, the gateway and its metrics.
const PORTS: u16 = 5;

/// A running script.
struct Script {
    process: Child,
    printed: String,
}

impl Script {
    fn start(server: u16, envoy: u16) -> Self {
        let mut command =
            Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/example.sh"));
        command.env("GATEWAY", env!("CARGO_BIN_EXE_redis-throttle-gateway"));
        command.arg("envoy").arg(module()).args([server.to_string(), envoy.to_string()]);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the script");
        let mut printed = String::new();
        let mut lines = BufReader::new(process.stdout.take().expect("its output"));
        while !printed.contains("Ctrl-C") {
            let length = lines.read_line(&mut printed).expect("text");
            assert!(length > 0, "the script has ended: {printed}");
        }
        Self { process, printed }
    }

    /// Returns the process of the server, from the line of the script that stops it.
    fn server(&self) -> u64 {
        let (_, after) = self.printed.split_once("\n    kill ").expect("a line with kill");
        after.lines().next().and_then(|id| id.parse().ok()).expect("a process")
    }

    /// Ends the script, which ends its processes. Returns true if it succeeded.
    fn end(&mut self) -> bool {
        if self.process.try_wait().expect("the script").is_none() {
            signal("TERM", self.process.id().into());
        }
        self.process.wait().expect("the script").success()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the first of some free ports below those that the system gives to others.
fn free_ports() -> u16 {
    let first = 10_000 + u16::try_from(std::process::id() % 2_000).expect("a number") * 10;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut all = (first..first + 1_000).step_by(10);
    all.find(|first| (*first..first + PORTS).all(is_free)).expect("free ports")
}

async fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

#[tokio::test]
async fn printed_lines_do_what_they_say() {
    if envoy_program().is_none() {
        return;
    }
    let (server, port) = (free_port(), free_ports());
    let mut script = Script::start(server, port);
    assert!(script.printed.contains(&format!("curl -i -H 'x-user: ann' http://127.0.0.1:{port}/")));
    let search = async || get(port, "/search", &[("x-user", "ann")]).await;
    let mut denied = 0;
    for _ in 0..30 {
        denied += u32::from(search().await.status == 429);
    }
    // One more passes every three seconds, and each that a busy machine gives more than 200 ms.
    assert!((1..=10).contains(&denied), "{denied}");
    signal("TERM", script.server());
    until("searches pass", async || search().await.status == 200).await;
    let payment = async || get(port, "/payments", &[("x-user", "ann")]).await;
    until("payments are denied", async || payment().await.status == 503).await;
    let mut back = Server::start().await;
    back.end();
    back.port = server;
    back.begin().await;
    until("payments pass", async || payment().await.status == 200).await;
    until("searches are denied", async || search().await.status == 429).await;
    let metrics = get(port + PORTS - 1, "/metrics", &[]).await.body;
    assert!(metrics.contains("redis_throttle_gateway_requests_total{domain=\"api\""), "{metrics}");
    assert!(script.end());
    for port in port..port + PORTS {
        assert!(!is_open(port).await, "port {port} is still open");
    }
}
