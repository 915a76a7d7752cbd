//! The arguments of the functions passed to the layer.

use std::net::{IpAddr, SocketAddr};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use redis_throttle_client::ClientAddress;

pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of the connecting client, as a request extension. Applications without axum set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub IpAddr);

/// A request without its body, and the client's address.
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

    /// Returns the client's address, an IPv6 address as its /64 network. It is `peer:` for all
    /// peers without an address, as on a unix socket that is not trusted, or if the server sets
    /// none. `None` if a trusted proxy names no address.
    #[must_use]
    pub fn client_address(&self) -> Option<&'a str> {
        self.client_address
    }

    /// Returns the value of a header field, if the field occurs exactly once and is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let mut values = self.head.headers.get_all(name).iter();
        let value = values.next().filter(|_| values.next().is_none());
        value.and_then(|value| value.to_str().ok())
    }
}

/// Returns the address of the connecting client, if the server has set it.
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

/// Returns the client's address, or the subject of all peers without one. No address contains bytes
/// beyond ASCII.
pub(crate) fn client_address(proxies: &ClientAddress, head: &Parts) -> Option<String> {
    let forwarded = forwarded(&head.headers);
    proxies.find_or_share(peer(head), forwarded.iter().map(String::as_str))
}

fn forwarded(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(FORWARDED_FOR).iter();
    values.map(latin1).collect()
}

/// Returns a header's value as text, its bytes read as Latin-1, as in the other clients.
pub(crate) fn latin1(value: &HeaderValue) -> String {
    value.as_bytes().iter().copied().map(char::from).collect()
}
