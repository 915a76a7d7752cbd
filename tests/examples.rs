//! The examples as a reader starts them, `make example-fastapi` and the others, tried as their page
//! says: eleven calls, then a server that is stopped.
//!
//! ```text
//! scripts/clients.sh example
//! cargo test --locked --no-default-features --test examples
//! ```

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

/// An answer while the limiter is away takes one timeout of 100 ms at most, and what HTTP takes.
const SERVED_WITHIN: Duration = Duration::from_millis(150);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// An example and the server beside it, as the script has started them.
struct Example {
    script: Child,
    printed: BufReader<ChildStdout>,
    port: u16,
    http_port: u16,
    /// Of the server, as the script prints it.
    server: String,
}

impl Example {
    fn start(name: &str) -> Self {
        let module = env::var_os("RL_MODULE")
            .map_or_else(|| root().join("target/release/libredis_throttle.so"), PathBuf::from);
        let (port, http_port) = (free_port(), free_port());
        let mut script = Command::new(root().join("scripts/example.sh"))
            .args([name.as_ref(), module.as_os_str()])
            .args([port.to_string(), http_port.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the script");
        let printed = BufReader::new(script.stdout.take().expect("what it prints"));
        let mut example = Self { script, printed, port, http_port, server: String::new() };
        let said = example.read_until("Ctrl-C");
        let (_, after) = said.split_once("\n    kill ").expect("how to stop the server");
        example.server = after.lines().next().expect("its process").to_owned();
        let line = format!("curl -i http://127.0.0.1:{http_port}/");
        assert!(said.contains(&line), "{said}");
        example
    }

    fn read_until(&mut self, mark: &str) -> String {
        let mut said = String::new();
        while !said.contains(mark) {
            let length = self.printed.read_line(&mut said).expect("text");
            assert!(length > 0, "the script has ended: {said}");
        }
        said
    }

    /// The whole response to `GET /`.
    fn get(&self) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.http_port)).expect("the service");
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n")
            .expect("a request");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("a response");
        response
    }

    fn stop_server(&self) {
        signal("-TERM", &self.server);
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// As Ctrl-C does, which a script that was started without a terminal does not hear.
    fn end(mut self) {
        signal("-TERM", &self.script.id().to_string());
        assert!(self.script.wait().expect("the script").success());
        for port in [self.port, self.http_port] {
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} is still open");
        }
    }
}

fn signal(which: &str, process: &str) {
    let status = Command::new("kill").args([which, process]).status().expect("kill");
    assert!(status.success(), "kill {which} {process}");
}

fn is_tried_as_the_page_says(name: &str) {
    let example = Example::start(name);
    for call in 1..=10 {
        let response = example.get();
        assert!(response.starts_with("HTTP/1.1 200 "), "{name}, call {call}: {response}");
    }
    let denied = example.get();
    assert!(denied.starts_with("HTTP/1.1 429 "), "{name}: {denied}");
    let (fields, body) = denied.split_once("\r\n\r\n").expect("a body");
    let fields = fields.to_lowercase();
    for field in [
        "ratelimit-policy: \"api\";q=10;w=60",
        "ratelimit: \"api\";r=0;t=6",
        "retry-after: 6",
        "cache-control: no-store",
        "content-type: application/problem+json",
    ] {
        assert!(fields.contains(field), "{name}: {field} is not in {fields}");
    }
    assert!(body.contains(r#""violated-policies":["api"]"#), "{name}: {body}");

    example.stop_server();
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let response = example.get();
        assert!(response.starts_with("HTTP/1.1 200 "), "{name}: {response}");
        took.push(began.elapsed());
    }
    // The median, for the machine may have something else to do once.
    took.sort_unstable();
    assert!(took[2] < SERVED_WITHIN, "{name}: {took:?}");
    example.end();
}

#[test]
fn the_service_in_fastapi_is_tried_as_the_page_says() {
    is_tried_as_the_page_says("fastapi");
}

#[test]
fn the_service_in_express_is_tried_as_the_page_says() {
    is_tried_as_the_page_says("express");
}

#[test]
fn the_service_in_axum_is_tried_as_the_page_says() {
    is_tried_as_the_page_says("axum");
}
