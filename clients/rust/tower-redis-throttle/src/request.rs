//! What the functions of the layer are given.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::header::{HeaderMap, HeaderName};
use http::request::Parts;
use redis_throttle_client::{ClientAddress, Rule};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of whoever opened the connection, as an extension of the request. A server that is
/// not axum sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// A request without its body, and where it comes from.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// Method, target, header fields and extensions.
    pub head: &'a Parts,
    client_address: Option<&'a str>,
}

impl<'a> RequestParts<'a> {
    pub(crate) fn new(head: &'a Parts, client_address: Option<&'a str>) -> Self {
        Self { head, client_address }
    }

    /// The address of the client, IPv6 cut to its /64; nothing when nobody can tell.
    #[must_use]
    pub fn client_address(&self) -> Option<&'a str> {
        self.client_address
    }

    /// The value of a header field that stands there once, in text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let mut values = self.head.headers.get_all(name).iter();
        let value = values.next().filter(|_| values.next().is_none());
        value.and_then(|value| value.to_str().ok())
    }
}

/// Who opened the connection, if anybody said so.
fn peer(head: &Parts) -> Option<IpAddr> {
    if let Some(Peer(address)) = head.extensions.get() {
        return Some(*address);
    }
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) =
        head.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>()
    {
        return Some(address.ip());
    }
    head.extensions.get::<SocketAddr>().map(SocketAddr::ip)
}

/// The client's address. Bytes beyond ASCII are read as Latin-1, as elsewhere: an address has none.
pub(crate) fn client_address(proxies: &ClientAddress, head: &Parts) -> Option<String> {
    let forwarded = forwarded(&head.headers);
    proxies.find(peer(head), forwarded.iter().map(String::as_str))
}

fn forwarded(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(FORWARDED_FOR).iter();
    values.map(|value| value.as_bytes().iter().copied().map(char::from).collect()).collect()
}

/// Whom a request is counted for; nothing when it does not say.
pub(crate) type KeyFunction = Arc<dyn Fn(&RequestParts<'_>) -> Option<String> + Send + Sync>;

/// A rule, and a key function where it has its own.
#[derive(Clone)]
pub(crate) struct KeyedRule {
    pub rule: Rule,
    pub key: Option<KeyFunction>,
}

impl fmt::Debug for KeyedRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rule.fmt(formatter)
    }
}
