//! The HTTP server for scrapers: one request per connection.
//!
//! Each connection has a deadline for the head of its request and one for reading the response. The
//! number of clients that send a request is limited, and so is the number of clients that read a
//! page. So no client blocks the exporter by sending nothing or by reading slowly. A client above a
//! limit gets status 503.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::TcpListener as Listener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit as Place, Semaphore, oneshot};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{sleep, timeout};

/// The time for a client to send the head of its request.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// The time for a client to read the whole response.
const RESPONSE_PATIENCE: Duration = Duration::from_secs(10);
const HEAD_MAX_BYTES: usize = 8192;
/// The maximum number of clients that are sending a request.
const SENDING_MAX: usize = 64;
/// The maximum number of clients that are reading a page. Each page takes memory.
const READING_MAX: usize = 16;
/// The maximum number of refused connections that stay open until their clients have read why.
const REFUSED_MAX: usize = 64;
/// The pause after an error of `accept`, for example when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const FULL_TEXT: &str = "too many connections at a time\n";

/// Serves requests until the process ends. `page` builds the page of `GET /metrics`.
///
/// # Errors
///
/// Returns the error of starting the runtime.
#[tokio::main(flavor = "current_thread")]
pub async fn serve(
    listener: Listener,
    page: impl Fn() -> Arc<String> + Send + Sync + 'static,
) -> io::Result<Infallible> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let page = Arc::new(page);
    let [sending, reading, refused] =
        [SENDING_MAX, READING_MAX, REFUSED_MAX].map(|max| Arc::new(Semaphore::new(max)));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if let Ok(place) = Arc::clone(&sending).try_acquire_owned() {
            let site = Site { page: Arc::clone(&page), reading: Arc::clone(&reading) };
            tokio::spawn(connection(stream, place, site));
        } else if let Ok(place) = Arc::clone(&refused).try_acquire_owned() {
            tokio::spawn(refuse(stream, place));
        }
    }
}

/// Returns 503 to a client before it has sent anything.
async fn refuse(mut stream: TcpStream, place: Place) {
    let length = FULL_TEXT.len();
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {PLAIN}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{FULL_TEXT}"
    );
    let _ = stream.try_write(response.as_bytes());
    close(&mut stream).await;
    drop(place);
}

/// Closes a connection after its client has closed it, or after a short time. Closing it while
/// received bytes are unread would reset it, and the client would lose the response.
async fn close(stream: &mut TcpStream) {
    if stream.shutdown().await.is_ok() {
        let _ = timeout(HEAD_PATIENCE, copy(stream, &mut sink())).await;
    }
}

/// Serves one connection until it ends. An error ends only this connection.
async fn connection<P: Page>(stream: TcpStream, place: Place, site: Site<P>) {
    let (begin, begun) = oneshot::channel();
    let first = Mutex::new(Some((place, begin)));
    let service = |request| async {
        // The client has sent its request, so its place is free for another one.
        let begin =
            first.lock().unwrap_or_else(PoisonError::into_inner).take().map(|(_, begin)| begin);
        let (response, reading) = site.respond(request).await?;
        let _ = begin.map(|begin| begin.send(reading));
        Ok::<_, JoinError>(response)
    };
    let mut connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), service_fn(|request| Box::pin(service(request))));
    let late = async {
        let _reading = begun.await;
        sleep(RESPONSE_PATIENCE).await;
    };
    tokio::select! {
        _ = poll_fn(|context| connection.poll_without_shutdown(context)) => {
            close(&mut connection.into_parts().io.into_inner()).await;
        }
        () = late => {}
    }
}

/// Builds the text of a page.
trait Page: Fn() -> Arc<String> + Send + Sync + 'static {}

impl<P: Fn() -> Arc<String> + Send + Sync + 'static> Page for P {}

/// The paths that the exporter serves.
struct Site<P> {
    page: Arc<P>,
    reading: Arc<Semaphore>,
}

impl<P: Page> Site<P> {
    /// Returns the response, and for a page its place among those that are read.
    ///
    /// # Errors
    ///
    /// Returns the panic of a function that builds a page.
    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Response<Full<Bytes>>, Option<Place>), JoinError> {
        let (status, text) = match request.uri().path() {
            _ if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                (StatusCode::METHOD_NOT_ALLOWED, "expected GET or HEAD\n")
            }
            "/metrics" => {
                if let Ok(place) = Arc::clone(&self.reading).try_acquire_owned() {
                    let page = Arc::clone(&self.page);
                    // The place is taken until the page is built, even if the client has left.
                    let (text, place) = spawn_blocking(move || (page(), place)).await?;
                    let text = Bytes::from_owner(Text(text));
                    let response = response(StatusCode::OK, METRICS, text);
                    return Ok((response, Some(place)));
                }
                (StatusCode::SERVICE_UNAVAILABLE, FULL_TEXT)
            }
            "/healthz" => (StatusCode::OK, "ok\n"),
            "/" => (StatusCode::OK, "redis-throttle-exporter: /metrics\n"),
            _ => (StatusCode::NOT_FOUND, "not found: see /metrics\n"),
        };
        Ok((response(status, PLAIN, Bytes::from(text)), None))
    }
}

fn response(status: StatusCode, kind: &'static str, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The text of a page, which all clients that read it share.
struct Text(Arc<String>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}
