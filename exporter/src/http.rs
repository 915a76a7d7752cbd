//! As much of HTTP as a scraper speaks: one GET on a connection, one answer, and it is closed.
//!
//! Every connection has a deadline and a longest head, and there are only so many at once, so that
//! nobody holds the exporter up by saying nothing.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take to ask, and to read.
const PATIENCE: Duration = Duration::from_secs(5);
const HEAD_MOST_BYTES: usize = 8192;
const CONNECTIONS_MOST: usize = 32;

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers for ever: `metrics` makes the page of `GET /metrics`.
pub fn serve(listener: &TcpListener, metrics: impl Fn() -> String + Send + Sync + 'static) -> ! {
    let metrics = Arc::new(metrics);
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, most likely: they come back when others close theirs.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let place = Place::take(&open);
        let metrics = Arc::clone(&metrics);
        if place.is_there() {
            // A client that cannot be served, or has left, is no matter of ours.
            let _ = thread::Builder::new().spawn(move || {
                let _place = place;
                answer(stream, || metrics())
            });
        }
    }
}

/// One of the connections that are open at once, given back when dropped.
struct Place {
    open: Arc<AtomicUsize>,
    before: usize,
}

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Self {
        Self { open: Arc::clone(open), before: open.fetch_add(1, AcqRel) }
    }

    fn is_there(&self) -> bool {
        self.before < CONNECTIONS_MOST
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, AcqRel);
    }
}

fn answer(mut stream: TcpStream, metrics: impl FnOnce() -> String) -> io::Result<()> {
    let head = read_head(&mut stream)?;
    let mut words = head.lines().next().unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    let (status, kind, body) = match (method, path) {
        _ if !is_http => ("400 Bad Request", PLAIN, "this speaks HTTP/1.1\n".to_owned()),
        ("GET" | "HEAD", "/metrics") => ("200 OK", METRICS, metrics()),
        ("GET" | "HEAD", "/healthz") => ("200 OK", PLAIN, "ok\n".to_owned()),
        ("GET" | "HEAD", "/") => {
            ("200 OK", PLAIN, "redis-throttle-exporter: /metrics\n".to_owned())
        }
        ("GET" | "HEAD", _) => ("404 Not Found", PLAIN, "there is /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", PLAIN, "there is GET\n".to_owned()),
    };
    let length = body.len();
    let body = if method == "HEAD" { "" } else { &body };
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Reads up to the empty line that ends a head.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let started = Instant::now();
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(started.elapsed());
        if left.is_zero() || head.len() > HEAD_MOST_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&piece[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
