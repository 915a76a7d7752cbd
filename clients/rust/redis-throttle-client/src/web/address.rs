//! Finds the client's address: the peer's, or the one that a trusted proxy forwards. The leftmost
//! entry of `X-Forwarded-For` is never trusted by itself, because a client can forge it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipnet::{IpNet, Ipv4Net};

use crate::Error;

const IPV6_BITS: u8 = 64;
/// The bits of an IPv6 address before those of the IPv4 address that it holds: of a mapped address
/// and of one of NAT64.
const BEFORE_IPV4_BITS: u8 = 96;
/// `64:ff9b::/96`, the prefix by which NAT64 translates IPv4 addresses (RFC 6052).
const NAT64: u128 = 0x0064_ff9b << BEFORE_IPV4_BITS;
const PORT_DIGITS_MAX: usize = 5;
/// The only whitespace that may surround an address in `X-Forwarded-For`.
const BLANK: [char; 2] = [' ', '\t'];

/// Finds a client's address behind the trusted proxies.
#[derive(Debug, Clone, Default)]
pub struct ClientAddress {
    networks: Vec<IpNet>,
    unix: bool,
    /// True after a peer without an address was logged.
    is_logged: Arc<AtomicBool>,
}

impl ClientAddress {
    /// Reads the list of trusted proxies: addresses, networks, or `unix` for peers on a unix
    /// socket, which have no address.
    ///
    /// `::ffff:10.0.0.1` and `::ffff:10.0.0.0/104` are IPv4, as `10.0.0.1` and `10.0.0.0/8`. The
    /// zone of an IPv6 address (`fe80::1%eth0`) is ignored.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if an entry is neither an address, a network nor `unix`, if an
    /// IPv4 address or a network has a zone, or if a network that begins as a mapped address also
    /// holds addresses of IPv6.
    pub fn new<'a>(trusted_proxies: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut addresses = Self::default();
        for name in trusted_proxies {
            if name == "unix" {
                addresses.unix = true;
                continue;
            }
            let found = match name.split_once('/') {
                Some((_, length)) if is_plain(length) => {
                    name.parse().ok().and_then(of_ipv4_if_mapped)
                }
                Some(_) => None,
                None => without_zone(name).map(IpNet::from),
            };
            let expected = || format!("expected an address, a network or unix, not {name:?}");
            let network = found.ok_or_else(|| Error::invalid("trusted_proxies", expected()))?;
            addresses.networks.push(network.trunc());
        }
        Ok(addresses)
    }

    /// Returns the client's address as the subject of a call; for IPv6, its /64 network, but for an
    /// address of NAT64 (`64:ff9b::/96`) the IPv4 address in it, because all its clients share one
    /// /64. `None` if the address is unknown.
    ///
    /// `forwarded` holds the values of `X-Forwarded-For`, in order. They are read only if the peer
    /// is a trusted proxy. Reading begins at the right and ends at the first address that is not a
    /// trusted proxy.
    #[must_use]
    pub fn find<'a>(
        &self,
        peer: Option<IpAddr>,
        forwarded: impl Iterator<Item = &'a str>,
    ) -> Option<String> {
        let mut address = peer.map(|peer| peer.to_canonical());
        match address {
            Some(peer) if !self.trusts(peer) => return Some(subject(peer)),
            None if !self.unix => return None,
            _ => {}
        }
        let hops = forwarded.collect::<Vec<_>>().join(",");
        for hop in hops.rsplit(',').filter(|_| !hops.trim_matches(BLANK).is_empty()) {
            let found = parsed(hop)?;
            address = Some(found);
            if !self.trusts(found) {
                break;
            }
        }
        address.map(subject)
    }

    /// Returns the subject of a request: as [`find`](ClientAddress::find) does, or `peer:` for all
    /// peers that have no address, which is logged once. Middleware uses this function.
    #[doc(hidden)]
    #[must_use]
    pub fn find_or_share<'a>(
        &self,
        peer: Option<IpAddr>,
        forwarded: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<String> {
        let hops = || forwarded.clone().collect::<Vec<_>>().join(",");
        if peer.is_some() || (self.unix && !hops().trim_matches(BLANK).is_empty()) {
            return self.find(peer, forwarded);
        }
        if !self.is_logged.swap(true, Ordering::Relaxed) {
            log::warn!(
                "redis-throttle: a peer has no address, so its requests share one limit. Let the \
                 server set the address, as axum's into_make_service_with_connect_info does, trust \
                 the proxy \"unix\" if it is one on a unix socket, or set a key."
            );
        }
        Some("peer:".to_owned())
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Parses an address, which may have brackets, a port or a zone, or be IPv4 mapped to IPv6.
pub(crate) fn parsed(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches(BLANK);
    let (address, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None if text.matches(':').count() == 1 => text.split_at(text.find(':')?),
        None => (text, ""),
    };
    if !port.is_empty() {
        let digits = port.strip_prefix(':').filter(|port| port.len() <= PORT_DIGITS_MAX)?;
        digits.parse::<u16>().ok().filter(|_| !digits.starts_with('+'))?;
    }
    without_zone(address)
}

/// Parses an address and removes its zone, which only IPv6 has. A mapped address becomes IPv4.
fn without_zone(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        None => text.parse().ok()?,
        Some((_, zone)) if zone.is_empty() || zone.contains(['%', '/']) => return None,
        Some((address, _)) => IpAddr::V6(address.parse().ok()?),
    };
    Some(address.to_canonical())
}

/// Returns true for decimal digits without a leading zero. The parser of networks also accepts a
/// sign, leading zeros and netmasks, which other languages read otherwise.
fn is_plain(length: &str) -> bool {
    length == "0" || (!length.starts_with('0') && length.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Returns the network of IPv4 for one of mapped addresses. `None` if the network begins with a
/// mapped address, but is wider than all of them.
fn of_ipv4_if_mapped(network: IpNet) -> Option<IpNet> {
    match network.addr().to_canonical() {
        IpAddr::V4(address) if network.addr().is_ipv6() => {
            let bits = network.prefix_len().checked_sub(BEFORE_IPV4_BITS)?;
            Ipv4Net::new(address, bits).ok().map(IpNet::from)
        }
        _ => Some(network),
    }
}

fn subject(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            if let Ok(translated) = u32::try_from(bits ^ NAT64) {
                return Ipv4Addr::from(translated).to_string();
            }
            let network = bits >> IPV6_BITS << IPV6_BITS;
            format!("{}/{IPV6_BITS}", Ipv6Addr::from(network))
        }
    }
}
