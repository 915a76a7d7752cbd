//! The hosts and origins that may send requests.
//!
//! A page of another site can make a browser send requests to this server. Its origin then differs
//! from the host. It can also give its own name an address of this machine (DNS rebinding): then
//! the host is its name, and the origin is the same. An address in numbers cannot be rebound.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName, Uri};
use std::net::{IpAddr, SocketAddr};

/// The hosts under which this server may be addressed.
#[derive(Clone, Debug)]
pub struct Access {
    /// The host of `--listen`, as given.
    listen: String,
    /// The address that the server listens on.
    address: SocketAddr,
}

/// A request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The host is no name of this server.
    Host,
    /// The request comes from a page of another site.
    Origin,
}

impl Access {
    /// Creates the access for a server. `listen` is `host:port`, as given by the operator.
    pub fn new(listen: &str, address: SocketAddr) -> Self {
        let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
        Self { listen: host.to_ascii_lowercase(), address }
    }

    /// Checks the headers of a request.
    ///
    /// # Errors
    ///
    /// Returns the [`Refusal`].
    pub fn check(&self, target: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = only(headers, &HOST).filter(|host| self.is_own(host)).ok_or(Refusal::Host)?;
        if target.authority().is_some_and(|authority| !self.is_own(authority.as_str())) {
            return Err(Refusal::Host);
        }
        if !headers.contains_key(ORIGIN) {
            return Ok(());
        }
        let origin = only(headers, &ORIGIN).and_then(|origin| origin.strip_prefix("http://"));
        let is_same = origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host));
        if is_same { Ok(()) } else { Err(Refusal::Origin) }
    }

    /// Returns true if a `Host` header names this server.
    fn is_own(&self, host: &str) -> bool {
        let (name, port) = split(host);
        // A browser leaves out the port 80.
        let port = port.map_or(Some(80), |port| port.parse::<u16>().ok());
        if port != Some(self.address.port()) {
            return false;
        }
        let name = name.to_ascii_lowercase();
        let digits = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        match digits.unwrap_or(&name).parse::<IpAddr>() {
            Ok(ip) => {
                let ip = ip.to_canonical();
                ip.is_loopback() || self.address.ip().is_unspecified() || ip == self.address.ip()
            }
            Err(_) => name == "localhost" || name == self.listen,
        }
    }
}

/// Returns the value of a header that is given once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().filter(|_| values.next().is_none());
    value.and_then(|value| value.to_str().ok())
}

/// Splits the port off a host. The colons of an address in brackets are no separators.
fn split(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: &str, address: &str, host: &str, origin: Option<&str>) -> Result<(), Refusal> {
        let access = Access::new(listen, address.parse().expect("an address"));
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().expect("a host"));
        origin.map(|origin| headers.insert(ORIGIN, origin.parse().expect("an origin")));
        access.check(&Uri::from_static("/"), &headers)
    }

    #[test]
    fn host_is_a_loopback_name_or_the_address_of_the_server() {
        let loopback = ("127.0.0.1:7780", "127.0.0.1:7780");
        let lan = ("10.1.2.3:7780", "10.1.2.3:7780");
        let named = ("Lab.Example:7780", "10.1.2.3:7780");
        let every = ("0.0.0.0:7780", "0.0.0.0:7780");
        let table = [
            (loopback, "127.0.0.1:7780", true),
            (loopback, "localhost:7780", true),
            (loopback, "LOCALHOST:7780", true),
            (loopback, "[::1]:7780", true),
            (loopback, "127.0.0.1:7781", false),
            (loopback, "127.0.0.1", false),
            (loopback, "evil.example:7780", false),
            (loopback, "localhost.evil.example:7780", false),
            (loopback, "127.0.0.1.evil.example:7780", false),
            (loopback, "10.1.2.3:7780", false),
            (loopback, "127.0.0.1:x", false),
            (loopback, "", false),
            (lan, "10.1.2.3:7780", true),
            (lan, "127.0.0.1:7780", true),
            (lan, "10.1.2.4:7780", false),
            (named, "lab.example:7780", true),
            (named, "10.1.2.3:7780", true),
            (named, "evil.example:7780", false),
            (every, "10.9.9.9:7780", true),
            (every, "[2001:db8::1]:7780", true),
            (every, "evil.example:7780", false),
            (("127.0.0.1:80", "127.0.0.1:80"), "localhost", true),
        ];
        for ((listen, address), host, expected) in table {
            let is_own = check(listen, address, host, None).is_ok();
            assert_eq!(is_own, expected, "{listen}: {host}");
        }
    }

    #[test]
    fn origin_is_the_host_if_there_is_one() {
        let table = [
            ("http://127.0.0.1:7780", Ok(())),
            ("http://localhost:7780", Err(Refusal::Origin)),
            ("https://127.0.0.1:7780", Err(Refusal::Origin)),
            ("http://127.0.0.1:7781", Err(Refusal::Origin)),
            ("http://evil.example", Err(Refusal::Origin)),
            ("null", Err(Refusal::Origin)),
        ];
        for (origin, expected) in table {
            let checked = check("127.0.0.1:7780", "127.0.0.1:7780", "127.0.0.1:7780", Some(origin));
            assert_eq!(checked, expected, "{origin}");
        }
    }

    #[test]
    fn repeated_or_missing_host_is_refused() {
        let access = Access::new("127.0.0.1:7780", ([127, 0, 0, 1], 7780).into());
        let mut headers = HeaderMap::new();
        let target = Uri::from_static("/");
        assert_eq!(access.check(&target, &headers), Err(Refusal::Host));
        headers.append(HOST, "127.0.0.1:7780".parse().expect("a host"));
        assert_eq!(access.check(&target, &headers), Ok(()));
        let other = Uri::from_static("http://evil.example:7780/");
        assert_eq!(access.check(&other, &headers), Err(Refusal::Host));
        headers.append(HOST, "127.0.0.1:7780".parse().expect("a host"));
        assert_eq!(access.check(&target, &headers), Err(Refusal::Host));
    }
}
