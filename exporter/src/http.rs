//! A minimal HTTP server for a scraper: one GET per connection, one answer, then it closes.
//!
//! Every connection has a short time for its request head and a deadline for its answer. There is a
//! limit on the number of clients that are sending a request, and another on the number of clients
//! that are reading a page. So no client blocks the exporter by sending nothing or by reading
//! slowly. A client above a limit gets status 503.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::thread;
use std::time::{Duration, Instant};

/// The time for a client to send its request.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// The time for a client to read the whole answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
const HEAD_MOST_BYTES: usize = 8192;
/// The maximum number of clients that are sending a request.
const ASKING_MOST: usize = 64;
/// The maximum number of clients that are reading a page. Each page takes memory.
const READING_MOST: usize = 16;
/// The maximum number of refused connections that stay open, so that their clients can read the
/// reason.
const REFUSED_MOST: usize = 64;

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers requests and never returns. `metrics` makes the page of `GET /metrics`.
pub fn serve(
    listener: &TcpListener,
    metrics: impl Fn() -> Arc<String> + Send + Sync + 'static,
) -> ! {
    let metrics = Arc::new(metrics);
    let (asking, reading) = (Arc::default(), Arc::default());
    let mut refused = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // The process has probably run out of file descriptors. Closing the refused connections
            // frees some.
            refused.clear();
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let Some(place) = Place::take(&asking, ASKING_MOST) else {
            refuse(stream, &mut refused);
            continue;
        };
        let (metrics, reading) = (Arc::clone(&metrics), Arc::clone(&reading));
        // A connection that cannot be served, or that the client has closed, is ignored.
        let _ = thread::Builder::new().spawn(move || answer(stream, place, &reading, || metrics()));
    }
}

/// One of a limited number of places for connections. Dropping it frees the place.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // The connection is counted first. If there is no place for it, dropping `place` subtracts
        // it from the count.
        let place = Self(Arc::clone(taken));
        (taken.fetch_add(1, AcqRel) < most).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

/// Answers 503 to a client without waiting for the client to read it. Closing the connection before
/// all received bytes are read would reset it and lose the answer. So the connection stays open
/// until [`REFUSED_MOST`] more connections are refused.
fn refuse(mut stream: TcpStream, refused: &mut VecDeque<TcpStream>) {
    let text = head(FULL, PLAIN, FULL_TEXT.len()) + FULL_TEXT;
    let said = stream
        .set_nonblocking(true)
        .and_then(|()| stream.write_all(text.as_bytes()))
        .and_then(|()| stream.shutdown(Shutdown::Write));
    if said.is_ok() {
        refused.push_back(stream);
    }
    if refused.len() > REFUSED_MOST {
        let oldest = refused.pop_front();
        let _ = oldest.map(|mut stream| stream.read(&mut [0; HEAD_MOST_BYTES]));
    }
}

const FULL: &str = "503 Service Unavailable";
const FULL_TEXT: &str = "too many connections at a time\n";

fn head(status: &str, kind: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    )
}

fn answer(
    mut stream: TcpStream,
    place: Place,
    reading: &Arc<AtomicUsize>,
    metrics: impl FnOnce() -> Arc<String>,
) -> io::Result<()> {
    let asked = read_head(&mut stream)?;
    let mut words = asked.lines().next().unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let has_end = ends(asked.as_bytes());
    let asks = matches!(method, "GET" | "HEAD");
    if is_http
        && has_end
        && asks
        && path(target) == "/metrics"
        && let Some(_place) = Place::take(reading, READING_MOST)
    {
        // Free the place among the sending clients first: a client that reads slowly must not keep
        // other clients from sending requests.
        drop(place);
        let page = metrics();
        let body = if method == "HEAD" { "" } else { page.as_str() };
        return write(&mut stream, &head("200 OK", METRICS, page.len()), body);
    }
    let (status, body) = match path(target) {
        _ if !has_end => ("431 Request Header Fields Too Large", "the request head is too long\n"),
        _ if !is_http => ("400 Bad Request", "expected HTTP/1.1\n"),
        _ if !asks => ("405 Method Not Allowed", "expected GET or HEAD\n"),
        "/metrics" => (FULL, FULL_TEXT),
        "/healthz" => ("200 OK", "ok\n"),
        "/" => ("200 OK", "redis-throttle-exporter: /metrics\n"),
        _ => ("404 Not Found", "not found: see /metrics\n"),
    };
    let length = body.len();
    write(&mut stream, &head(status, PLAIN, length), if method == "HEAD" { "" } else { body })?;
    if !asks || !has_end {
        // Closing before the client's remaining bytes are read would reset the connection and lose
        // the answer.
        stream.shutdown(Shutdown::Write)?;
        let started = Instant::now();
        while read_some(&mut stream, &mut [0; HEAD_MOST_BYTES], started)? > 0 {}
    }
    Ok(())
}

/// Returns the path of a request target, without its query. A proxy sends a whole URL as the
/// target.
fn path(target: &str) -> &str {
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    path.split('?').next().unwrap_or("")
}

/// Writes a whole answer. Fails at the deadline of the answer, even if the client still accepts a
/// few bytes at a time.
fn write(stream: &mut TcpStream, head: &str, body: &str) -> io::Result<()> {
    let started = Instant::now();
    for mut rest in [head.as_bytes(), body.as_bytes()] {
        while !rest.is_empty() {
            stream.set_write_timeout(Some(left(ANSWER_PATIENCE, started)?))?;
            match stream.write(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => rest = &rest[written..],
            }
        }
    }
    Ok(())
}

/// Returns the part of `patience` that is left, or an error if none is left. The result is never
/// zero, because a socket takes zero as "no timeout".
fn left(patience: Duration, started: Instant) -> io::Result<Duration> {
    let left = patience.saturating_sub(started.elapsed());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads the next available bytes. Fails if the client's time for its request head has passed.
fn read_some(stream: &mut TcpStream, piece: &mut [u8], started: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(HEAD_PATIENCE, started)?))?;
    stream.read(piece)
}

/// Returns true if the bytes contain the empty line that ends a request head.
fn ends(head: &[u8]) -> bool {
    head.windows(2).any(|end| end == b"\n\n") || head.windows(3).any(|end| end == b"\n\r\n")
}

/// Reads up to the end of a request head, or until it exceeds the maximum length.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let started = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !ends(&head) && head.len() <= HEAD_MOST_BYTES {
        match read_some(stream, &mut piece, started)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&piece[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_accepts_a_path_and_a_whole_url_as_the_target() {
        let targets = ["/metrics", "/metrics?x=/y", "http://h:1/metrics", "http://h/metrics?x"];
        for target in targets {
            assert_eq!(path(target), "/metrics", "{target}");
        }
        assert_eq!(path("http://h:1"), "/");
    }

    #[test]
    fn empty_line_ends_a_head_with_either_line_ending() {
        for head in ["GET / HTTP/1.0\r\n\r\n", "GET / HTTP/1.0\n\n", "a\n\r\nb"] {
            assert!(ends(head.as_bytes()), "{head:?}");
        }
        assert!(!ends(b"GET / HTTP/1.0\r\nX: y\r\n"));
    }

    #[test]
    fn place_is_refused_above_the_limit_until_another_is_dropped() {
        let taken = Arc::default();
        let (first, second) = (Place::take(&taken, 2), Place::take(&taken, 2));
        assert!(first.is_some() && second.is_some() && Place::take(&taken, 2).is_none());
        drop(second);
        assert!(Place::take(&taken, 2).is_some());
    }

    #[test]
    fn time_left_for_an_answer_ends_although_single_writes_succeed() {
        let long_ago = Instant::now().checked_sub(ANSWER_PATIENCE).expect("a past");
        assert!(left(ANSWER_PATIENCE, long_ago).is_err());
        assert!(left(ANSWER_PATIENCE, Instant::now()).expect("time") <= ANSWER_PATIENCE);
    }
}
