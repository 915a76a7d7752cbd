//! Keys of several header fields.

use http::header::{HeaderMap, HeaderName};
use redis_throttle_client::Error;

use crate::RequestParts;
use crate::parts::latin1;

/// Returns a key function that joins the values of header fields, such as those of a tenant and of
/// its API key. No two lists of values have the same key: `|` joins them, and in a value `%`
/// becomes `%25` and `|` becomes `%7C`.
///
/// A request has no key if a field is missing, empty or occurs more than once. Bytes beyond ASCII
/// are read as Latin-1.
///
/// ```
/// use redis_throttle_client::{Error, Limiter, Rule};
/// use tower_redis_throttle::{RateLimitLayer, key_of};
///
/// pub fn limits(limiter: Limiter) -> Result<RateLimitLayer, Error> {
///     RateLimitLayer::builder(limiter)
///         .rule(Rule::gcra("api", 10, 10, "1m")?)
///         .key(key_of(&["X-Tenant", "X-Api-Key"])?)
///         .build()
/// }
/// ```
///
/// # Errors
/// [`Error::InvalidArgument`] without a name, and for text that cannot name a header field.
pub fn key_of(
    names: &[&str],
) -> Result<impl Fn(&RequestParts<'_>) -> Option<String> + Clone + Send + Sync + use<>, Error> {
    let read: Result<Vec<_>, _> = names.iter().map(|name| HeaderName::try_from(*name)).collect();
    let names = read.ok().filter(|names| !names.is_empty()).ok_or_else(|| {
        let expected = "expected one or more names of HTTP headers".to_owned();
        Error::InvalidArgument { argument: "key_of", expected }
    })?;
    Ok(move |request: &RequestParts<'_>| key(&names, &request.head.headers))
}

fn key(names: &[HeaderName], headers: &HeaderMap) -> Option<String> {
    let mut key = String::new();
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            key.push('|');
        }
        let mut values = headers.get_all(name).iter();
        let value = values.next().filter(|value| !value.is_empty() && values.next().is_none())?;
        for char in latin1(value).chars() {
            match char {
                '%' => key.push_str("%25"),
                '|' => key.push_str("%7C"),
                char => key.push(char),
            }
        }
    }
    Some(key)
}
