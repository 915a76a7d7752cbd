//! A minimal HTTP client for the tests, and tests of the exporter's responses to unusual requests.

use crate::exporter::Exporter;
use socket2::{Domain, Socket, Type};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use support::Server;

const DEADLINE: Duration = Duration::from_secs(60);

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

pub fn get(address: &str, path: &str) -> Response {
    send(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
        .unwrap_or_else(|| panic!("{address}{path}: no response"))
}

/// Sends these bytes and returns the response; `None` if the connection is closed without one.
pub fn send(address: &str, request: &str) -> Option<Response> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Response { status, head: head.to_owned(), body: body.to_owned() })
}

fn exporter() -> (Server, Exporter) {
    let server = Server::setup().with_tcp().start();
    let exporter = Exporter::of_servers(&[&format!("redis://127.0.0.1:{}", server.port())]);
    (server, exporter)
}

#[test]
fn exporter_serves_metrics_and_health_and_nothing_else() {
    let (_server, exporter) = exporter();
    let metrics = get(&exporter.address, "/metrics?name=x");
    assert_eq!(metrics.status, 200);
    let kind = "content-type: text/plain; version=0.0.4; charset=utf-8";
    assert!(metrics.head.contains(kind), "{}", metrics.head);
    assert!(metrics.head.contains(&format!("content-length: {}", metrics.body.len())));
    let health = get(&exporter.address, "/healthz");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 200),
        ("GET /healthz HTTP/1.0\n\n", 200),
        ("GET http://exporter:9877/metrics HTTP/1.1\r\n\r\n", 200),
        ("GET /etc/passwd HTTP/1.1\r\n\r\n", 404),
        ("POST /metrics HTTP/1.1\r\n\r\n", 405),
        ("GET /metrics\r\n\r\n", 400),
        ("\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n", 200),
        ("\u{1}\u{2} what is this\r\n\r\n", 400),
    ] {
        assert_eq!(send(&exporter.address, request).map(|response| response.status), Some(status));
    }
    let head = send(&exporter.address, "HEAD /metrics HTTP/1.1\r\n\r\n").expect("a response");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    // Empty lines may precede a request, so the exporter waits for one, but not for long.
    assert!(send(&exporter.address, "\r\n\r\n").is_none());
}

#[test]
fn request_that_is_too_long_gets_an_error() {
    let (_server, exporter) = exporter();
    let endless = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(2_000_000));
    assert_eq!(send(&exporter.address, &endless).expect("a response").status, 431);
    let body = format!("POST /metrics HTTP/1.1\r\n\r\n{}", "x".repeat(3_000_000));
    assert_eq!(send(&exporter.address, &body).expect("a response").status, 405);
    assert_eq!(get(&exporter.address, "/healthz").status, 200);
}

#[test]
fn silent_clients_delay_other_clients_only_briefly() {
    let (_server, exporter) = exporter();
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&exporter.address).unwrap()).collect();
    let started = Instant::now();
    assert_eq!(get(&exporter.address, "/metrics").status, 200);
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    // Opens connections until the exporter has no free one. It then responds with 503 until the
    // silent clients time out.
    let mut more = Vec::new();
    let full = support::eventually("there is no place", || {
        more.extend((0..20).map(|_| TcpStream::connect(&exporter.address).unwrap()));
        let response = send(&exporter.address, "GET /metrics HTTP/1.1\r\n\r\n")?;
        (response.status != 200).then_some(response)
    });
    assert_eq!((full.status, full.body.as_str()), (503, "too many connections at a time\n"));
    support::eventually("there is a place again, though no client has left", || {
        let response = send(&exporter.address, "GET /metrics HTTP/1.1\r\n\r\n")?;
        (response.status == 200).then_some(())
    });
    drop((silent, more));
}

#[test]
fn slow_readers_lose_their_page_and_do_not_block_other_clients() {
    let server = Server::setup().with_tcp().start();
    let mut client = server.client();
    // The page is larger than the socket buffers of a client that does not read.
    for number in 0..10_000 {
        client.ok(&format!("RL.POLICY SET policy-{number} GCRA 6 10 60"));
        client.run(&format!("RL.USE user:42 policy-{number}"));
    }
    let exporter = Exporter::of_servers(&[&format!("redis://127.0.0.1:{}", server.port())]);
    // On a busy machine, a scrape of this page can take longer than the timeout.
    support::eventually("a page", || (exporter.page().len() > 7_000_000).then_some(()));
    // With a larger receive buffer, the operating system would read ahead for the client.
    let send_without_reading = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(1_024).unwrap();
        let address: SocketAddr = exporter.address.parse().expect("an address");
        socket.connect(&address.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        stream
    };
    let mut slow: Vec<_> = (0..16).map(|_| send_without_reading()).collect();
    let status = support::eventually("no place for another page", || {
        let response = send(&exporter.address, "HEAD /metrics HTTP/1.1\r\n\r\n")?;
        if response.status == 200 {
            // The exporter still has a free connection, which another slow reader takes.
            slow.push(send_without_reading());
        }
        (response.status != 200).then_some(response.status)
    });
    assert_eq!(status, 503);
    assert_eq!(get(&exporter.address, "/healthz").status, 200);
    // Each client reads a few bytes from time to time, which does not extend its deadline.
    support::eventually("there is a place again", || {
        for mut stream in &slow {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let _ = stream.read(&mut [0; 100]);
        }
        let response = send(&exporter.address, "HEAD /metrics HTTP/1.1\r\n\r\n")?;
        (response.status == 200).then_some(())
    });
}
