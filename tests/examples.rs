//! Runs the examples as a user starts them, with `make example-fastapi` and the others: the steps
//! of their page first (eleven calls, then a stopped server), then a table of requests that all
//! of them must return the same responses.
//!
//! ```text
//! scripts/clients.sh example
//! cargo test --locked --test examples
//! ```

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

/// The maximum time of a response while the limiter is unreachable: one timeout of 100 ms, and the
/// time that HTTP takes.
const SERVED_WITHIN: Duration = Duration::from_millis(150);
/// The deadline for events that must happen, sufficient for a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// The first response to `GET /export`. Its permit is held until all rows are sent.
const EXPORTING: &str = "200
ratelimit: \"exports\";r=0;t=30
ratelimit-policy: \"exports\";q=1";
const RATE_LIMIT: &str = "ratelimit";
const FIELDS: [&str; 4] =
    ["retry-after", "cache-control", "www-authenticate", "x-limiter-degraded"];
/// The header fields that only a refusal has, because the limiter creates that response.
const FIELDS_OF_A_REFUSAL: [&str; 2] = ["content-type", "content-length"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "it did not come true: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    stream.set_read_timeout(Some(DEADLINE)).expect("a time-out");
    stream
}

/// A running example and its server, as the script started them.
struct Example {
    script: Child,
    printed: BufReader<ChildStdout>,
    port: u16,
    http_port: u16,
    /// The address of the server, as the script printed it.
    server: String,
}

impl Example {
    fn start(name: &str, variables: &[(&str, &str)]) -> Self {
        let module = env::var_os("RL_MODULE")
            .map_or_else(|| root().join("target/release/libredis_throttle.so"), PathBuf::from);
        let (port, http_port) = (free_port(), free_port());
        let mut script = Command::new(root().join("scripts/example.sh"))
            .args([name.as_ref(), module.as_os_str()])
            .args([port.to_string(), http_port.to_string()])
            .args(["--rl.debug-commands", "yes"])
            .envs(variables.iter().copied())
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

    /// Reads the output up to `mark`. The script exits if the service or the server does not start.
    fn read_until(&mut self, mark: &str) -> String {
        let mut said = String::new();
        while !said.contains(mark) {
            let length = self.printed.read_line(&mut said).expect("text");
            assert!(length > 0, "the script has ended: {said}");
        }
        said
    }

    /// Runs a server command that must succeed, and returns the first line of its reply.
    fn run(&self, command: &str) -> String {
        let mut stream = connect(self.port);
        stream.write_all(format!("{command}\r\n").as_bytes()).expect("a command");
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).expect("a reply");
        assert!(!reply.starts_with('-'), "{command}: {reply}");
        reply
    }

    /// Sends a request and returns the connection, from which the response can be read. Each field
    /// in `fields` ends with a line break.
    fn open(&self, request: &str, fields: &str) -> TcpStream {
        let mut stream = connect(self.http_port);
        let length = if request.starts_with("POST") { "Content-Length: 0\r\n" } else { "" };
        let text = format!(
            "{request} HTTP/1.1\r\nHost: example\r\nConnection: close\r\n{length}{fields}\r\n"
        );
        stream.write_all(text.as_bytes()).expect("a request");
        stream
    }

    /// Sends a request and returns the whole response.
    fn send(&self, request: &str, fields: &str) -> String {
        let mut response = String::new();
        self.open(request, fields).read_to_string(&mut response).expect("a response");
        response
    }

    fn stop_server(&self) {
        signal("-TERM", &self.server);
        until("the server has ended", || TcpStream::connect(("127.0.0.1", self.port)).is_err());
    }

    /// Stops the example with SIGTERM, because a script that was started without a terminal
    /// receives no Ctrl-C.
    fn end(&mut self) {
        signal("-TERM", &self.script.id().to_string());
        assert!(self.script.wait().expect("the script").success());
        for port in [self.port, self.http_port] {
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} is still open");
        }
    }
}

impl Drop for Example {
    /// Ends all processes, even after a failed test.
    fn drop(&mut self) {
        if matches!(self.script.try_wait(), Ok(None)) {
            signal("-TERM", &self.script.id().to_string());
            let _ = self.script.wait();
        }
    }
}

fn signal(which: &str, process: &str) {
    let kill = Command::new("sh").args(["-c", "kill \"$@\"", "kill", which, process]).status();
    assert!(kill.expect("a shell").success(), "kill {which} {process}");
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

/// Returns the response to a request and its duration.
fn send_timed(example: &Example, request: &str, fields: &str) -> (String, Duration) {
    let began = Instant::now();
    (example.send(request, fields), began.elapsed())
}

/// Makes eleven calls that the server decides in time. Returns the eleventh response and the median
/// duration of a call. On a busy machine a call may time out, which allows it.
fn eleven(name: &str, example: &Example) -> (String, Duration) {
    let began = Instant::now();
    while began.elapsed() < DEADLINE {
        example.run("FLUSHALL");
        let mut responses: Vec<_> = (0..11).map(|_| send_timed(example, "GET /", "")).collect();
        if responses.iter().any(|(response, _)| response.contains(r#""source":"error""#)) {
            continue;
        }
        let (denied, _) = responses.pop().expect("the eleventh");
        assert!(denied.starts_with("HTTP/1.1 429 "), "{name}: {denied}");
        for (served, _) in &responses {
            assert!(served.starts_with("HTTP/1.1 200 "), "{name}: {served}");
        }
        return (denied, median(responses.into_iter().map(|(_, took)| took).collect()));
    }
    panic!("{name}: the server never decided eleven calls in time");
}

fn is_tried_as_the_page_says(name: &str) {
    let mut example = Example::start(name, &[]);
    // The clock is frozen, because eleven calls may take longer than the time in which a unit
    // returns.
    example.run("RL.DEBUG CLOCK FREEZE");
    let (denied, usual) = eleven(name, &example);
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
    let (response, _) = send_timed(&example, "GET /", "");
    assert!(response.starts_with("HTTP/1.1 429 "), "{name}, denied before: {response}");
    let served = (0..11).map(|_| {
        let (response, took) = send_timed(&example, "GET /me", "X-Api-Key: another\r\n");
        assert!(response.starts_with("HTTP/1.1 200 "), "{name}: {response}");
        took
    });
    // The median must be within the bound, plus the time that other responses take on this machine.
    let without = median(served.collect());
    assert!(without < SERVED_WITHIN + 2 * usual, "{name}: {without:?}, else {usual:?}");
    example.end();
}

/// Formats a response as the table does: the status, the limiter's header fields sorted by name,
/// the body.
fn format_response(response: &str) -> String {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let fields = lines.filter_map(|line| line.split_once(": "));
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (name.to_lowercase(), value))
        .filter(|(name, _)| {
            name.starts_with(RATE_LIMIT)
                || FIELDS.contains(&&**name)
                || status != "200" && FIELDS_OF_A_REFUSAL.contains(&&**name)
        })
        .collect();
    fields.sort_unstable();
    let mut text = format!("{status}\n");
    for (name, value) in fields {
        let _ = writeln!(text, "{name}: {value}");
    }
    format!("{text}\n{body}").trim_end().to_owned()
}

/// Replaces the seconds that depend on the clock of the example's process, which cannot be frozen.
fn without_seconds(mut text: String) -> String {
    for mark in [";t=", "retry-after: ", "Come back in "] {
        let mut parts = text.split(mark);
        let mut without = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            without = without + mark + part.trim_start_matches(|at: char| at.is_ascii_digit());
        }
        text = without;
    }
    text
}

/// A request and its response.
struct Case {
    request: String,
    fields: String,
    response: String,
}

/// Reads the requests and responses of a file, in order.
fn cases(file: &str) -> Vec<Case> {
    let lines: Vec<_> = file.lines().filter(|line| !line.starts_with('#')).collect();
    let text = format!("\n{}", lines.join("\n"));
    let exchanges = text.split("\n\n> ").skip(1);
    let case = |exchange: &str| {
        let (request, rest) = exchange.split_once('\n').expect("a request");
        let count = rest.lines().take_while(|line| line.starts_with("> ")).count();
        let fields = rest.lines().take(count).map(|line| format!("{}\r\n", &line[2..]));
        let lines: Vec<_> = rest.lines().skip(count).collect();
        let response = lines.join("\n").trim_end().to_owned();
        Case { request: request.to_owned(), fields: fields.collect(), response }
    };
    exchanges.map(case).collect()
}

fn assert_responses(name: &str, example: &Example, file: &str) {
    for Case { request, fields, mut response } in cases(file) {
        if name == "spring-boot" {
            // Tomcat always writes a media type without the optional space.
            response = response.replace("; charset=", ";charset=");
        }
        let got = format_response(&example.send(&request, &fields));
        if got.contains("\"search\"") {
            assert_eq!(without_seconds(got), without_seconds(response), "{name}, {request}");
        } else {
            assert_eq!(got, response, "{name}, {request}, {fields}");
        }
    }
}

/// Checks that more right passwords than the limit are accepted. This is not in the table, because
/// each is refunded in the background.
fn right_passwords_do_not_count(name: &str, example: &Example) {
    for _ in 0..6 {
        assert_responses(name, example, include_str!("examples/login.txt"));
        let is_refunded = || example.run("EXISTS example:login:{192.0.2.10}") == ":0\r\n";
        until("the attempt is refunded", is_refunded);
    }
}

/// Checks that each client may run only one export at a time. This is not in the table, because the
/// response is a stream of rows.
fn exports_one_at_a_time(name: &str, example: &Example) {
    let exporting = || {
        let mut stream = BufReader::new(example.open("GET /export", ""));
        let mut read = String::new();
        while !read.contains("row\n") {
            assert!(stream.read_line(&mut read).expect("a line") > 0, "{name}: {read}");
            if read.starts_with("HTTP/1.1 429 ") {
                return None;
            }
        }
        let (head, _) = read.split_once("\r\n\r\n").expect("a head");
        Some((stream, format_response(&format!("{head}\r\n\r\n"))))
    };
    let (stream, head) = exporting().expect("a permit");
    assert_eq!(head, EXPORTING, "{name}");
    assert_responses(name, example, include_str!("examples/exporting.txt"));
    // The client disconnects in the middle of the response.
    drop(stream);
    until("the permit is back", || exporting().is_some());
}

fn assert_common_responses(name: &str) {
    let mut example = Example::start(
        name,
        &[
            ("TRUSTED_PROXIES", "127.0.0.1,unix"),
            // A timeout that no call exceeds. Other tests check the timeout.
            ("TIMEOUT_MS", "60000"),
            ("SILENCE_MS", "60000"),
            ("EXPORT_ROWS", "600"),
        ],
    );
    // The limiter's clock is frozen at the start of a month, so the table can contain the exact
    // responses.
    example.run("RL.DEBUG CLOCK FREEZE 1767225600000000");
    assert_responses(name, &example, include_str!("examples/alive.txt"));
    right_passwords_do_not_count(name, &example);
    exports_one_at_a_time(name, &example);
    example.stop_server();
    assert_responses(name, &example, include_str!("examples/down.txt"));
    example.end();
}

#[test]
fn fastapi_example_behaves_as_its_page_says() {
    is_tried_as_the_page_says("fastapi");
}

#[test]
fn express_example_behaves_as_its_page_says() {
    is_tried_as_the_page_says("express");
}

#[test]
fn axum_example_behaves_as_its_page_says() {
    is_tried_as_the_page_says("axum");
}

#[test]
fn nethttp_example_behaves_as_its_page_says() {
    is_tried_as_the_page_says("nethttp");
}

#[test]
fn spring_boot_example_behaves_as_its_page_says() {
    is_tried_as_the_page_says("spring-boot");
}

#[test]
fn fastapi_example_returns_the_common_responses() {
    assert_common_responses("fastapi");
}

#[test]
fn express_example_returns_the_common_responses() {
    assert_common_responses("express");
}

#[test]
fn axum_example_returns_the_common_responses() {
    assert_common_responses("axum");
}

#[test]
fn nethttp_example_returns_the_common_responses() {
    assert_common_responses("nethttp");
}

#[test]
fn spring_boot_example_returns_the_common_responses() {
    assert_common_responses("spring-boot");
}
