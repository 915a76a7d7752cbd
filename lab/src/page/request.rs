//! One request and its response.

use super::access::{Access, Refusal};
use super::files::File;
use super::result_body::result_body;
use super::scenario::{InvalidField, scenario};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use http::header::{HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use serde_json::json;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The largest body of a request.
pub const BODY_MAX_BYTES: usize = 64 * 1024;
/// The time for a client to send a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// The number of simulations at a time. Each uses a thread for each of its choices.
const SIMULATIONS_MAX: usize = 2;

const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

/// The headers of every response. The page may load its own files and nothing else, and no other
/// page may embed it.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The body of a response, in pieces that are already complete.
#[derive(Default)]
pub struct Pieces(VecDeque<Bytes>);

/// Responds to requests.
pub struct Site {
    access: Access,
    simulations: Arc<Semaphore>,
}

impl Site {
    /// Creates a site with these hosts.
    pub fn new(access: Access) -> Self {
        Self { access, simulations: Arc::new(Semaphore::new(SIMULATIONS_MAX)) }
    }

    /// Responds to a request.
    pub async fn respond<B>(&self, request: Request<B>) -> Response<Pieces>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        match self.access.check(request.uri(), request.headers()) {
            Ok(()) => {}
            Err(Refusal::Host) => {
                let text = "invalid host: expected the address of this server";
                return refused(StatusCode::MISDIRECTED_REQUEST, text);
            }
            Err(Refusal::Origin) => {
                let text = "invalid origin: expected a request of this server's own page";
                return refused(StatusCode::FORBIDDEN, text);
            }
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match (request.uri().path(), File::at(request.uri().path())) {
            ("/simulate", _) if request.method() == Method::POST => self.simulate(request).await,
            ("/simulate", _) => not_allowed("POST"),
            (_, Some(file)) if is_read => {
                response(StatusCode::OK, file.kind, [Bytes::from_static(file.bytes)].into())
            }
            (_, Some(_)) => not_allowed("GET, HEAD"),
            (_, None) => refused(StatusCode::NOT_FOUND, "not found: see /"),
        }
    }

    async fn simulate<B>(&self, request: Request<B>) -> Response<Pieces>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        if !is_json(request.headers()) {
            let text = "invalid content-type: expected application/json";
            return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
        }
        let body = request.into_body();
        if body.size_hint().lower() > BODY_MAX_BYTES as u64 {
            return too_large();
        }
        let body = Limited::new(body, BODY_MAX_BYTES);
        let body = match timeout(BODY_PATIENCE, body.collect()).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return too_large(),
            Ok(Err(_)) => return refused(StatusCode::BAD_REQUEST, "the body has no end"),
            Err(_) => return refused(StatusCode::REQUEST_TIMEOUT, "the body came too slowly"),
        };
        let scenario = match scenario(&body) {
            Ok(scenario) => scenario,
            Err(InvalidField(text)) => return refused(StatusCode::BAD_REQUEST, &text),
        };
        let Ok(permit) = Arc::clone(&self.simulations).acquire_owned().await else {
            return refused(StatusCode::SERVICE_UNAVAILABLE, "the server ends");
        };
        // The permit moves along: a simulation whose client is gone still counts until it ends.
        let run = move || (result_body(&scenario), permit).0;
        match tokio::task::spawn_blocking(run).await {
            Ok(Ok(pieces)) => response(StatusCode::OK, BINARY, pieces),
            Ok(Err(_)) => {
                let text = "invalid rate: expected at most 100000 calls in the duration";
                refused(StatusCode::BAD_REQUEST, text)
            }
            Err(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the simulation failed"),
        }
    }
}

/// Returns true if the content type is JSON. A page of another site cannot send this type without a
/// preflight request.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(JSON))
}

fn too_large() -> Response<Pieces> {
    refused(StatusCode::PAYLOAD_TOO_LARGE, "invalid body: expected at most 65536 bytes")
}

fn not_allowed(methods: &'static str) -> Response<Pieces> {
    let mut response =
        refused(StatusCode::METHOD_NOT_ALLOWED, &format!("invalid method: expected {methods}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

fn refused(status: StatusCode, text: &str) -> Response<Pieces> {
    let body = json!({"error": text}).to_string();
    response(status, JSON, [Bytes::from(body)].into())
}

fn response(status: StatusCode, kind: &'static str, pieces: VecDeque<Bytes>) -> Response<Pieces> {
    let mut response = Response::new(Pieces(pieces));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}
