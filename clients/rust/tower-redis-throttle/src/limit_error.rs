//! The error of a handler that calls the limiter itself.

use std::any::Any;
use std::fmt;

use bytes::Bytes;
use http::Response;
use redis_throttle_client::{Decision, Error, HeaderStyle};

use crate::request::{denial, rejected};

/// An [`Error`] of the limiter as the error of a handler: `?` converts it.
///
/// A denied lease, reservation or admission becomes the same response as a denial of the layer:
/// 429, 403, 413 or 503, with the problem and the header fields. Below a
/// [`RateLimitLayer`](crate::RateLimitLayer) its [`headers`](crate::Builder::headers) and
/// [`on_denied`](crate::Builder::on_denied) apply. Any other error becomes a 500, with
/// the `Arc<Error>` as an extension of the response.
///
/// With the feature `axum` it is a response of axum. A tower service may also fail with it, with an
/// [`Error`] or with a boxed one: the layer responds to the denial, and returns any other error.
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::Extension;
/// use redis_throttle_client::{Limiter, Rule};
/// use tower_redis_throttle::LimitError;
///
/// async fn export(Extension(limiter): Extension<Limiter>) -> Result<String, LimitError> {
///     let exports = Rule::lease("exports", 2, "1m")?;
///     let export = limiter.lease(exports.of("acme")).await?;
///     // the work
///     export.release().await;
///     Ok("done".to_owned())
/// }
/// # let _: axum::Router = axum::Router::new().route("/", axum::routing::get(export));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LimitError(Error);

/// A denial that the layer responds to, as an extension of a response.
#[derive(Debug, Clone)]
struct Denial(Decision);

impl LimitError {
    /// Returns the error of the limiter.
    #[must_use]
    pub fn get_ref(&self) -> &Error {
        &self.0
    }

    /// Returns the response to the error, for frameworks other than axum. A denial has the fields
    /// of [`HeaderStyle::Draft11`], unless the response passes a layer.
    #[must_use]
    pub fn response(self) -> Response<Bytes> {
        match self.0 {
            Error::Denied(decision) => {
                let mut response = denial(&decision, &[HeaderStyle::Draft11]);
                response.extensions_mut().insert(Denial(*decision));
                response
            }
            error => rejected(error),
        }
    }
}

impl From<Error> for LimitError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl fmt::Display for LimitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for LimitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for LimitError {
    fn into_response(self) -> axum::response::Response {
        self.response().map(axum::body::Body::from)
    }
}

/// Takes the denial out of a handler's response, so that one layer responds to it.
pub(crate) fn take_denial<B>(response: &mut Response<B>) -> Option<Decision> {
    response.extensions_mut().remove().map(|Denial(decision)| decision)
}

/// Returns the denial that is the error of a service.
pub(crate) fn denial_in(error: &dyn Any) -> Option<&Decision> {
    let boxed = error.downcast_ref::<Box<dyn std::error::Error + Send + Sync>>();
    let found = match boxed {
        Some(error) => {
            error.downcast_ref().or_else(|| error.downcast_ref().map(LimitError::get_ref))
        }
        None => error.downcast_ref().or_else(|| error.downcast_ref().map(LimitError::get_ref)),
    };
    if let Some(Error::Denied(decision)) = found { Some(decision) } else { None }
}
