//! The page's server on a real socket: its responses, and its refusals.

use redis_throttle_lab::page::serving::{Patience, Server};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

/// Starts a server on a free port. It ends with the process.
fn start(patience: Patience) -> SocketAddr {
    let server = Server::bind("127.0.0.1:0", patience).expect("a free port");
    let address = server.address();
    thread::spawn(move || server.run());
    address
}

/// A head and a body, as the server sent them.
struct Response {
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn status(&self) -> u16 {
        let status = self.head.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {}", self.head))
    }

    fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.filter(|(found, _)| *found == name).map(|(_, value)| value).next()
    }

    fn error(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).expect("JSON");
        body["error"].as_str().expect("an error").to_owned()
    }
}

/// Sends bytes and reads until the server closes the connection.
fn exchange(address: SocketAddr, bytes: &[u8]) -> Response {
    let mut stream = connect(address);
    stream.write_all(bytes).expect("the server reads");
    let mut response = Vec::new();
    // A server that refuses a body closes before it has read all of it.
    if let Err(error) = stream.read_to_end(&mut response) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    let end = response.windows(4).position(|end| end == b"\r\n\r\n").expect("the end of a head");
    let body = response.split_off(end + 4);
    Response { head: String::from_utf8(response).expect("a head in UTF-8"), body }
}

/// Connects; a server that hangs fails the test.
fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a deadline");
    stream
}

/// Sends a request with the right host, which closes the connection.
fn request(address: SocketAddr, line: &str, headers: &str, body: &str) -> Response {
    let head = format!("{line} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{headers}");
    exchange(address, format!("{head}\r\n{body}").as_bytes())
}

fn simulate(address: SocketAddr, body: &Value) -> Response {
    let body = body.to_string();
    let headers = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    request(address, "POST /simulate", &headers, &body)
}

/// Ten calls of one key in 10 s.
fn scenario() -> Value {
    json!({
        "traffic": {
            "shape": "steady", "duration_ms": 10_000, "rate": 1.0, "seed": 1, "keys": 1, "cost": 1,
            "retries": "none"
        },
        "watch": 0,
        "choices": [
            {"rules": ["FIXED 4 1h"]},
            {"rules": ["GCRA 0 1 1s"]},
            {"rules": ["FIXED 4 1h COST 7", "GCRA 9 1 1s"]},
        ]
    })
}

#[test]
fn index_is_sent_with_headers_that_confine_it() {
    let address = start(Patience::default());
    let page = request(address, "GET /", "", "");
    assert_eq!(page.status(), 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").expect("a policy");
    assert_eq!(
        policy,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert!(page.body.starts_with(b"<!doctype html>"));
}

#[test]
fn head_has_the_length_and_no_body() {
    let address = start(Patience::default());
    let (get, head) = (request(address, "GET /", "", ""), request(address, "HEAD /", "", ""));
    assert_eq!(head.status(), 200);
    assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()));
    assert!(head.body.is_empty());
}

#[test]
fn unknown_paths_and_methods_are_refused() {
    let address = start(Patience::default());
    for path in ["/x", "/index", "/../Cargo.toml", "/%2e%2e/Cargo.toml", "//", "/simulate/"] {
        let response = request(address, &format!("GET {path}"), "", "");
        assert_eq!(
            (response.status(), response.error()),
            (404, "not found: see /".into()),
            "{path}"
        );
    }
    for (line, allowed) in [
        ("POST /", "GET, HEAD"),
        ("DELETE /", "GET, HEAD"),
        ("GET /simulate", "POST"),
        ("OPTIONS /simulate", "POST"),
    ] {
        let response = request(address, line, "content-length: 0\r\n", "");
        assert_eq!((response.status(), response.header("allow")), (405, Some(allowed)), "{line}");
    }
}

#[test]
fn other_hosts_and_origins_are_refused() {
    let address = start(Patience::default());
    let port = address.port();
    let get = |host: &str, headers: &str| {
        let head = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}\r\n");
        exchange(address, head.as_bytes()).status()
    };
    for (host, status) in [
        (format!("127.0.0.1:{port}"), 200),
        (format!("localhost:{port}"), 200),
        (format!("rebound.example:{port}"), 421),
        ("127.0.0.1".to_owned(), 421),
        (format!("10.0.0.1:{port}"), 421),
    ] {
        assert_eq!(get(&host, ""), status, "{host}");
    }
    let own = format!("127.0.0.1:{port}");
    assert_eq!(get(&own, &format!("origin: http://{own}\r\n")), 200);
    for origin in ["http://evil.example", "null", "https://127.0.0.1"] {
        assert_eq!(get(&own, &format!("origin: {origin}\r\n")), 403, "{origin}");
    }
    let without_host = exchange(address, b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(without_host.status(), 421);
}

#[test]
fn simulation_is_returned_in_columns() {
    let address = start(Patience::default());
    let response = simulate(address, &scenario());
    assert_eq!(response.status(), 200);
    assert_eq!(response.header("content-type"), Some("application/octet-stream"));
    let (len, rest) = response.body.split_first_chunk::<4>().expect("a length");
    let len = usize::try_from(u32::from_le_bytes(*len)).expect("a length");
    assert_eq!(len % 8, 0);
    let (header, columns) = rest.split_at(len);
    let header: Value = serde_json::from_slice(header).expect("JSON, then spaces");
    assert_eq!(header["start_us"], 1_767_225_600_000_000_u64);
    assert_eq!((&header["duration_ms"], &header["offered"]), (&json!(10_000), &json!(10)));
    let choices = header["choices"].as_array().expect("choices");
    let column = |place: &Value, count: usize| numbers(columns, place, count);

    let fixed = &choices[0];
    assert_eq!((&fixed["calls"], &fixed["truncated"]), (&json!(10), &json!(false)));
    let named = |name: &str| column(&fixed["columns"][name], 10);
    assert_eq!(named("at_us"), (0..10).map(|call| f64::from(call) * 1e6).collect::<Vec<_>>());
    assert_eq!(named("key"), [0.0; 10]);
    assert_eq!(named("attempt"), [1.0; 10]);
    assert_eq!(named("allowed"), [1., 1., 1., 1., 0., 0., 0., 0., 0., 0.]);
    assert_eq!(named("limit"), [4.0; 10]);
    assert_eq!(named("remaining"), [3., 2., 1., 0., 0., 0., 0., 0., 0., 0.]);
    let wait = |call: i32| f64::from(if call < 4 { 0 } else { 3_600_000 - call * 1_000 });
    assert_eq!(named("retry_after_ms"), (0..10).map(wait).collect::<Vec<_>>());
    let reset = |call: i32| f64::from(3_600_000 - call * 1_000);
    assert_eq!(named("reset_after_ms"), (0..10).map(reset).collect::<Vec<_>>());
    assert_eq!(named("rule"), [0.0; 10]);
    assert_eq!(fixed["level"]["rules"][0]["count"], 601);
    let level = column(&fixed["level"]["rules"][0], 601);
    assert_eq!((level[0], level[59], level[60], level[600]), (3.0, 3.0, 2.0, 0.0));
    let summary = json!({
        "allowed": 4, "denied": 6, "granted_units": 4, "first_attempts_denied": 6,
        "longest_wait_ms": 3_596_000, "queued": 0, "longest_queue_ms": null,
        "windows": [{"window_ms": 3_600_000, "most_units": 4, "promised_units": 7}]
    });
    assert_eq!(fixed["summary"], summary);
    assert_eq!(fixed["rule_texts"], json!(["FIXED 4 1h"]));
    assert_eq!(fixed["policy_lines"], json!(["api-1 SHADOW FIXED 4 1h"]));
    assert_eq!(fixed["command"], "RL.FIXED user:1 4 1h");

    let text = choices[1]["error"]["text"].as_str().expect("an error");
    assert!(text.starts_with("ERR invalid burst: "), "{text}");
    assert_eq!(choices[1]["error"]["rule"], 0);

    // The columns of the third choice follow those of the first. Its cost is above a limit: never.
    let waits = column(&choices[2]["columns"]["retry_after_ms"], 10);
    assert_eq!(
        (waits, &choices[2]["columns"]["retry_after_ms"]["type"]),
        (vec![-1.0; 10], &json!("i32"))
    );
    assert_eq!(column(&choices[2]["level"]["rules"][1], 601), [9.0; 601]);
}

/// Decodes a column of the response.
fn numbers(columns: &[u8], place: &Value, count: usize) -> Vec<f64> {
    let offset = usize::try_from(place["offset"].as_u64().expect("an offset")).expect("small");
    assert_eq!(offset % 8, 0);
    let kind = place["type"].as_str().expect("a type");
    let width = match kind {
        "u8" => 1,
        "u16" => 2,
        "u32" | "i32" => 4,
        "f64" => 8,
        other => panic!("type {other}"),
    };
    let number = |bytes: &[u8]| match kind {
        "u8" => bytes[0].into(),
        "u16" => u16::from_le_bytes(bytes.try_into().expect("2 bytes")).into(),
        "u32" => u32::from_le_bytes(bytes.try_into().expect("4 bytes")).into(),
        "i32" => i32::from_le_bytes(bytes.try_into().expect("4 bytes")).into(),
        _ => f64::from_le_bytes(bytes.try_into().expect("8 bytes")),
    };
    columns[offset..offset + count * width].chunks(width).map(number).collect()
}

#[test]
fn reports_the_invalid_field_of_a_scenario() {
    let address = start(Patience::default());
    let table = [
        ("/traffic/keys", json!(21), "invalid keys: expected 1 to 20"),
        ("/watch", json!(1), "invalid watch: expected 0 to 0"),
        (
            "/traffic/rate",
            json!(10_001),
            "invalid rate: expected at most 100000 calls in the duration",
        ),
    ];
    for (place, value, expected) in table {
        let mut body = scenario();
        *body.pointer_mut(place).expect(place) = value;
        let response = simulate(address, &body);
        assert_eq!((response.status(), response.error().as_str()), (400, expected), "{place}");
    }
    let typed = |kind: &str| {
        let headers = format!("content-type: {kind}\r\ncontent-length: 2\r\n");
        request(address, "POST /simulate", &headers, "{}").status()
    };
    assert_eq!(typed("application/json; charset=utf-8"), 400);
    assert_eq!(typed("text/plain"), 415);
}

#[test]
fn huge_bodies_are_refused() {
    let address = start(Patience::default());
    let json = "content-type: application/json\r\n";
    let announced = format!("{json}content-length: 65537\r\n");
    let response = request(address, "POST /simulate", &announced, "");
    assert_eq!(response.status(), 413);
    assert_eq!(response.error(), "invalid body: expected at most 65536 bytes");
    // A body in chunks does not announce its length.
    let chunk = format!("10001\r\n{}\r\n", " ".repeat(65_537));
    let chunked = format!("{json}transfer-encoding: chunked\r\n");
    assert_eq!(request(address, "POST /simulate", &chunked, &chunk).status(), 413);
    let most = " ".repeat(65_536);
    let most =
        request(address, "POST /simulate", &format!("{json}content-length: 65536\r\n"), &most);
    assert_eq!(most.status(), 400);
}

#[test]
fn silent_clients_are_dropped_and_their_places_freed() {
    let patience =
        Patience { head: Duration::from_millis(50), connections_max: 1, ..Patience::default() };
    let address = start(patience);
    for beginning in ["", "GET / HTTP/1.1\r\nhost: a", "GET / HTTP/1.1\r\n"] {
        let mut silent = connect(address);
        silent.write_all(beginning.as_bytes()).expect("the server reads");
        // There is one place: this request gets a response only after the silent client is dropped.
        assert_eq!(request(address, "GET /", "", "").status(), 200, "{beginning:?}");
        let mut rest = Vec::new();
        let end = silent.read_to_end(&mut rest);
        assert!(end.is_ok() || end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    }
}

#[test]
fn connection_ends_after_its_time_even_if_it_is_in_use() {
    let patience = Patience {
        connection: Duration::from_millis(50),
        last_response: Duration::from_millis(50),
        ..Patience::default()
    };
    let address = start(patience);
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\n\r\n");
    let responses_of_one = || {
        let (mut stream, mut responses) = (connect(address), 0);
        // The server closes in the end, although each request is complete.
        while stream.write_all(request.as_bytes()).is_ok() {
            match stream.read(&mut [0; 65_536]) {
                Ok(0) | Err(_) => break,
                Ok(_) => responses += 1,
            }
        }
        responses
    };
    // On a busy machine a connection may end before its first response.
    assert!((0..100).any(|_| responses_of_one() > 0));
}

#[test]
fn clients_that_leave_do_not_disturb_others() {
    let address = start(Patience { connections_max: 4, ..Patience::default() });
    for _ in 0..40 {
        let mut stream = connect(address);
        let head = format!("POST /simulate HTTP/1.1\r\nhost: {address}\r\ncontent-length: 9\r\n");
        stream.write_all(head.as_bytes()).expect("the server reads");
    }
    assert_eq!(request(address, "GET /", "", "").status(), 200);
}
