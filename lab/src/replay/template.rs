//! Templates: texts with fields in them, from which a line's key, cost or policy is made.
//!
//! ```text
//! $remote_addr          the field
//! $remote_addr/64       an IPv6 address cut to its /64 network, one of NAT64 or a mapped one
//!                       replaced by its IPv4 address; anything else stays whole
//! $remote_addr/24/56    an IPv4 address cut to its /24, an IPv6 address to its /56
//! $host:${remote_addr}  two fields and a text between them
//! client.ip             the field of that name: a template without `$`
//! ```

use super::fields::{Field, Names, Values};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Field { field: Field, cut: Option<Cut> },
}

/// The networks that stand for addresses: the number of bits that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cut {
    v4_bits: Option<u8>,
    v6_bits: Option<u8>,
}

/// `64:ff9b::/96`, the prefix by which NAT64 translates IPv4 addresses (RFC 6052).
const NAT64: u128 = 0x0064_ff9b << 96;
/// The largest number of parts in a template.
const PARTS_MAX: usize = 16;

impl Template {
    /// Reads a template, and adds the names of its fields to `names`.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub fn parse(text: &str, names: &mut Names) -> Result<Self, String> {
        let invalid = |expected: &str| format!("invalid template `{text}`: expected {expected}");
        if text.is_empty() {
            return Err(invalid("a field, such as $remote_addr"));
        }
        let mut parts = Vec::new();
        if !text.contains('$') {
            parts.push(Part::Field { field: names.field(text), cut: None });
        }
        let mut rest = if parts.is_empty() { text } else { "" };
        while !rest.is_empty() {
            let (plain, from_field) = rest.split_at(rest.find('$').unwrap_or(rest.len()));
            if !plain.is_empty() {
                parts.push(Part::Text(plain.as_bytes().to_vec()));
            }
            rest = from_field;
            if let Some(after) = from_field.strip_prefix('$') {
                let (name, after) =
                    split_name(after).ok_or_else(|| invalid("the name of a field after $"))?;
                let (cut, after) = split_cut(after).ok_or_else(|| {
                    invalid("a network such as /24 for IPv4 or /64 for IPv6 after a field")
                })?;
                parts.push(Part::Field { field: names.field(name), cut });
                rest = after;
            }
        }
        if parts.len() > PARTS_MAX {
            return Err(invalid("at most 16 fields and texts"));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// Returns the template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text that the template gives for a line; `None` if a field is missing. `copies`
    /// is memory for a text that is not a part of the line.
    pub fn fill<'a>(
        &self,
        line: &'a [u8],
        values: &'a Values,
        copies: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if let [Part::Field { field, cut }] = self.parts.as_slice() {
            let value = values.get(line, *field)?;
            let Some(cut) = cut.filter(|cut| cut.concerns(value)) else { return Some(value) };
            copies.clear();
            cut.write(value, copies);
            return Some(copies);
        }
        copies.clear();
        for part in &self.parts {
            match part {
                Part::Text(text) => copies.extend_from_slice(text),
                Part::Field { field, cut } => {
                    let value = values.get(line, *field)?;
                    match cut {
                        Some(cut) => cut.write(value, copies),
                        None => copies.extend_from_slice(value),
                    }
                }
            }
        }
        Some(copies)
    }
}

impl Cut {
    /// Returns true if the value may be cut: an IPv6 address has a colon.
    fn concerns(self, value: &[u8]) -> bool {
        self.v4_bits.is_some() || memchr::memchr(b':', value).is_some()
    }

    /// Writes the network of an address, or any other value as it is.
    fn write(self, value: &[u8], copies: &mut Vec<u8>) {
        let address = std::str::from_utf8(value).ok().and_then(address);
        // Writing to a vector does not fail.
        let _ = match (address, self) {
            (Some(IpAddr::V4(address)), Self { v4_bits: Some(bits), .. }) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                write!(copies, "{}/{bits}", Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            (Some(IpAddr::V4(address)), _) => write!(copies, "{address}"),
            (Some(IpAddr::V6(address)), Self { v6_bits: Some(bits), .. }) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                write!(copies, "{}/{bits}", Ipv6Addr::from_bits(address.to_bits() & mask))
            }
            _ => copies.write_all(value),
        };
    }
}

/// Parses an address as the clients do: without a zone, which only IPv6 has, and as IPv4 if it is
/// mapped or of NAT64.
fn address(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        None => text.parse().ok()?,
        Some((_, zone)) if zone.is_empty() || zone.contains(['%', '/']) => return None,
        Some((address, _)) => IpAddr::V6(address.parse().ok()?),
    };
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let translated = u32::try_from(address.to_bits() ^ NAT64).ok();
            Some(translated.map_or(IpAddr::V6(address), |bits| Ipv4Addr::from_bits(bits).into()))
        }
        address @ IpAddr::V4(_) => Some(address),
    }
}

/// Splits the name of a field from what follows. A name in braces may have any characters.
fn split_name(text: &str) -> Option<(&str, &str)> {
    if let Some(braced) = text.strip_prefix('{') {
        return braced.split_once('}').filter(|(name, _)| !name.is_empty());
    }
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // A point belongs to the name if another part of the name follows it.
    let is_end = |at: &usize| match bytes.get(*at) {
        Some(b'.') => !bytes.get(at + 1).is_some_and(is_part),
        byte => !byte.is_some_and(is_part),
    };
    let len = (0..bytes.len()).find(is_end).unwrap_or(bytes.len());
    (len > 0).then(|| text.split_at(len))
}

/// Splits `/24`, `/64` or `/24/64` from what follows; `None` if a number is out of range.
fn split_cut(text: &str) -> Option<(Option<Cut>, &str)> {
    let (mut cut, mut rest) = (Cut::default(), text);
    while let Some(after) = rest.strip_prefix('/') {
        let len = after.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
        if len == 0 {
            break;
        }
        let (digits, after) = after.split_at(len);
        let bits: u8 = digits.parse().ok().filter(|bits| *bits <= 128)?;
        // The first number is that of IPv4, unless it is too large for it.
        if bits <= 32 && cut.v4_bits.is_none() && cut.v6_bits.is_none() {
            cut.v4_bits = Some(bits);
        } else if cut.v6_bits.replace(bits).is_some() {
            return None;
        }
        rest = after;
    }
    Some(((cut != Cut::default()).then_some(cut), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a template from the fields `ip` and `host`.
    fn filled(template: &str, ip: &str) -> Result<Option<String>, String> {
        let mut names = Names::default();
        let (address, host) = (names.field("ip"), names.field("host"));
        let template = Template::parse(template, &mut names)?;
        let mut values = Values::default();
        values.clear(names.len());
        values.set_copy(address, ip.as_bytes());
        values.set_copy(host, b"example.org");
        let mut copies = Vec::new();
        let text = template.fill(b"", &values, &mut copies);
        Ok(text.map(|text| String::from_utf8_lossy(text).into_owned()))
    }

    #[test]
    fn addresses_are_cut_to_the_networks_that_the_template_names() {
        for (template, ip, key) in [
            ("$ip", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"),
            ("ip", "192.0.2.77", "192.0.2.77"),
            ("$ip/64", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("$ip/64", "192.0.2.77", "192.0.2.77"),
            ("$ip/24", "192.0.2.77", "192.0.2.0/24"),
            ("$ip/24", "2001:db8::1", "2001:db8::1"),
            ("$ip/24/32", "2001:db8:1::1", "2001:db8::/32"),
            ("$ip/24/56", "192.0.2.77", "192.0.2.0/24"),
            ("$ip/0/0", "192.0.2.77", "0.0.0.0/0"),
            ("$ip/128", "2001:db8::1", "2001:db8::1/128"),
            ("$ip/24/64", "::ffff:192.0.2.77", "192.0.2.0/24"),
            ("$ip/64", "::ffff:192.0.2.77", "192.0.2.77"),
            ("$ip/64", "64:ff9b::192.0.2.77", "192.0.2.77"),
            ("$ip/24/64", "64:ff9b::c000:24d", "192.0.2.0/24"),
            ("$ip/64", "64:ff9b::1:c000:24d", "64:ff9b::/64"),
            ("$ip/64", "fe80::1%eth0", "fe80::/64"),
            ("$ip/24/64", "192.0.2.77%eth0", "192.0.2.77%eth0"),
            ("$ip/64", "unix:", "unix:"),
            ("$ip/24:$host", "192.0.2.77", "192.0.2.0/24:example.org"),
            ("tenant:${host}", "x", "tenant:example.org"),
            ("$host.", "x", "example.org."),
        ] {
            assert_eq!(filled(template, ip).unwrap().as_deref(), Some(key), "{template} {ip}");
        }
    }

    #[test]
    fn a_missing_field_gives_no_text() {
        assert_eq!(filled("$ip $other", "x").unwrap(), None);
    }

    #[test]
    fn invalid_templates_are_refused_with_a_text() {
        for template in ["", "$", "a$", "${ip", "${}", "$ip/129", "$ip/64/64", "$ip/24/64/9"] {
            let error = filled(template, "x").unwrap_err();
            assert!(error.starts_with("invalid template"), "{template}: {error}");
        }
        assert!(filled(&"$ip ".repeat(9), "x").unwrap_err().contains("at most 16"));
    }
}
