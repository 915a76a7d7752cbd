//! Addresses of clients as logs write them, and the client behind trusted proxies.
//!
//! The rule of the proxies is that of the clients, with the same cases: `clients/SPEC.md`.

use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses of clients behind NAT64, which hold an IPv4 address.
const NAT64: u128 = 0x0064_ff9b << 96;

/// The number of groups of an IPv6 address.
const GROUPS: usize = 8;

/// Reads an address, which may have brackets, a port or a zone, be IPv4 mapped to IPv6, or be an
/// IPv6 address in full with a port and without brackets. An IPv6 address with `::` and without
/// brackets has no port, because nothing separates the two.
pub fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => match text.bytes().filter(|byte| *byte == b':').count() {
            1 | GROUPS => text.rsplit_once(':').map(|(host, _)| text.split_at(host.len()))?,
            _ => (text, ""),
        },
    };
    if !port.is_empty() {
        let digits = port.strip_prefix(':').filter(|digits| digits.len() <= 5)?;
        digits.parse::<u16>().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    }
    let (host, zone) = host.split_once('%').map_or((host, None), |(host, zone)| (host, Some(zone)));
    let address: IpAddr = host.parse().ok()?;
    let is_zoned =
        zone.is_none_or(|zone| address.is_ipv6() && !zone.is_empty() && !zone.contains('%'));
    is_zoned.then(|| address.to_canonical())
}

/// Returns the IPv4 address in an address of NAT64; any other address as it is.
pub fn behind_nat64(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.to_bits() >> 32 << 32 == NAT64 => {
            IpAddr::V4(Ipv4Addr::from_bits(v6.to_bits() as u32))
        }
        address => address,
    }
}

/// The proxies whose reports about their clients are trusted.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    networks: Vec<IpNet>,
}

impl Proxies {
    /// Reads a list of addresses and networks, separated by commas.
    ///
    /// # Errors
    ///
    /// A text that names the first wrong one.
    pub fn parse(list: &str) -> Result<Self, String> {
        let networks = list.split(',').map(|text| {
            let text = text.trim();
            network(text).ok_or_else(|| {
                format!("invalid --trusted-proxies `{text}`: expected an address or a network")
            })
        });
        Ok(Self { networks: networks.collect::<Result<_, _>>()? })
    }

    /// Returns the address of the client, and whether a proxy named it: the peer's, or if that is a
    /// proxy, the rightmost of `forwarded` that is not one, or else the first. Without a peer the
    /// rightmost is that of the proxy which wrote the line. `None` if an address that counts is
    /// invalid.
    pub fn client(&self, peer: Option<&[u8]>, forwarded: &[u8]) -> Option<(IpAddr, bool)> {
        let mut hops = entries(forwarded).rev();
        let (mut client, mut is_forwarded) = match peer {
            Some(peer) => (address(peer)?, false),
            None => (address(hops.next()?)?, true),
        };
        let is_absent = matches!(forwarded.trim_ascii(), b"" | b"-");
        while self.trusts(client) && !is_absent {
            let Some(hop) = hops.next() else { break };
            (client, is_forwarded) = (address(hop)?, true);
        }
        Some((behind_nat64(client), is_forwarded))
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
    }
}

/// Returns the entries of a list with commas, or of a JSON array of texts, without the blanks
/// around them, also those that CloudFront writes as `%20`.
pub fn entries(list: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let inner = list.strip_prefix(b"[\"").and_then(|list| list.strip_suffix(b"\"]"));
    let is_array = inner.is_some();
    inner.unwrap_or(list).split(|byte| *byte == b',').map(move |entry| {
        let mut entry = entry.trim_ascii();
        while let Some(rest) = entry.strip_prefix(b"%20") {
            entry = rest;
        }
        while let Some(rest) = entry.strip_suffix(b"%20") {
            entry = rest;
        }
        let start = if is_array { entry.strip_prefix(b"\"") } else { None };
        let entry = start.unwrap_or(entry);
        let end = if is_array { entry.strip_suffix(b"\"") } else { None };
        end.unwrap_or(entry).trim_ascii()
    })
}

/// Reads a network or an address. Networks of mapped addresses are IPv4.
fn network(text: &str) -> Option<IpNet> {
    // A length is written in one way: `08` may be meant as an octal number.
    let bits = text.split_once('/').map_or("", |(_, bits)| bits);
    if bits.len() > 1 && bits.starts_with('0') {
        return None;
    }
    let Ok(network) = text.parse::<IpNet>() else {
        let is_bare = !text.contains(['[', '/']);
        return address(text.as_bytes()).filter(|_| is_bare).map(IpNet::from);
    };
    let IpNet::V6(v6) = network else { return Some(network.trunc()) };
    match v6.addr().to_ipv4_mapped() {
        Some(v4) => IpNet::new(IpAddr::V4(v4), v6.prefix_len().checked_sub(96)?).ok(),
        None => Some(network),
    }
    .map(|network| network.trunc())
}

/// Returns the network of an address, with this many bits.
pub fn cut(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn addresses_are_read_as_load_balancers_and_proxies_write_them() {
        for (text, expected) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7:443", Some("192.0.2.7")),
            ("::ffff:192.0.2.7", Some("192.0.2.7")),
            ("[::ffff:192.0.2.7]:443", Some("192.0.2.7")),
            ("2001:DB8:0::1", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:443", Some("2001:db8::1")),
            ("2001:db8:0:0:0:0:0:1:443", Some("2001:db8::1")),
            ("2001:db8:1:2:3:4:5::", Some("2001:db8:1:2:3:4:5:0")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("[fe80::1%eth0]:443", Some("fe80::1")),
            ("192.0.2.7%eth0", None),
            ("fe80::1%", None),
            ("192.0.2.7:", None),
            ("192.0.2.7:99999", None),
            ("192.0.2.7:+1", None),
            ("192.0.2.7 ex.org", None),
            ("ex.org:443", None),
            ("unix:", None),
            ("-", None),
            ("", None),
        ] {
            let found = address(text.as_bytes()).map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_client_behind_proxies_is_that_of_the_clients_cases() {
        let cases = include_str!("../../../clients/cases.json");
        let cases: Value = serde_json::from_str(cases).expect("JSON");
        let texts = |list: &Value| -> Vec<String> {
            let list = list.as_array().expect("a list").iter();
            list.map(|text| text.as_str().expect("a text").to_owned()).collect()
        };
        let mut run = 0;
        for case in cases["addresses"].as_array().expect("cases") {
            let (input, expected) = (&case["input"], &case["expect"]);
            let trusted = texts(&input["trusted"]);
            // A log has no list of fields and no peer on a socket.
            let Some(peer) = input["peer"].as_str().filter(|_| !trusted.contains(&"unix".into()))
            else {
                continue;
            };
            run += 1;
            let forwarded = texts(&input["forwarded"]).join(",");
            let proxies = if trusted.is_empty() {
                Ok(Proxies::default())
            } else {
                Proxies::parse(&trusted.join(","))
            };
            let Ok(proxies) = proxies else {
                assert_eq!(expected["error"], "invalid", "{case}");
                continue;
            };
            let found = proxies.client(Some(peer.as_bytes()), forwarded.as_bytes());
            let found = found.map(|(address, _)| match address {
                IpAddr::V4(v4) => v4.to_string(),
                v6 => format!("{}/64", cut(v6, 64)),
            });
            assert_eq!(found.as_deref(), expected.as_str(), "{case}");
        }
        assert!(run >= 40, "{run}");
    }
}
