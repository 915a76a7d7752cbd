//! Finds the client's address: the peer's, or the one that a trusted proxy forwards. The leftmost
//! entry of `X-Forwarded-For` is never trusted by itself, because a client can forge it.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::Error;

const IPV6_BITS: u8 = 64;
const PORT_DIGITS_MAX: usize = 5;
/// The only whitespace that may surround an address in `X-Forwarded-For`.
const BLANK: [char; 2] = [' ', '\t'];

/// Finds a client's address behind the trusted proxies.
#[derive(Debug, Clone, Default)]
pub struct ClientAddress {
    networks: Vec<IpNet>,
    unix: bool,
}

impl ClientAddress {
    /// Reads the list of trusted proxies: addresses, networks, or `unix` for peers on a unix
    /// socket, which have no address.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if an entry is neither an address, a network nor `unix`.
    pub fn new<'a>(trusted_proxies: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut made = Self::default();
        for name in trusted_proxies {
            if name == "unix" {
                made.unix = true;
                continue;
            }
            let network = name.parse().or_else(|_| name.parse::<IpAddr>().map(IpNet::from));
            let expected = || format!("expected an address, a network or unix, not {name:?}");
            let invalid = |_| Error::invalid("trusted_proxies", expected());
            made.networks.push(network.map_err(invalid)?.trunc());
        }
        Ok(made)
    }

    /// Returns the client's address as the subject of a call; for IPv6, its /64 network. `None` if
    /// the address is unknown.
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
    let without_zone = address.split_once('%').map_or(address, |(address, _)| address);
    without_zone.parse().ok().map(|address: IpAddr| address.to_canonical())
}

fn subject(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = u128::from(address) >> IPV6_BITS << IPV6_BITS;
            format!("{}/{IPV6_BITS}", Ipv6Addr::from(network))
        }
    }
}
