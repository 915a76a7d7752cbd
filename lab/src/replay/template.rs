//! Templates: texts with fields in them, from which a line's key, cost or policy is built.
//!
//! ```text
//! $remote_addr          the field
//! $remote_addr/64       an IPv6 address cut to its /64 network; IPv4 stays whole
//! $remote_addr/24/56    an IPv4 address cut to its /24, an IPv6 address to its /56
//! $host:${remote_addr}  two fields and a text between them
//! ${forwarded_for[-1]}  the last of a list with commas, or of a JSON array
//! client.ip             the field of that name: a template without `$`
//! ```
//!
//! The value of a field that is named as an address is written in one way, without a port: see
//! [`is_address`].

use super::address::{address, behind_nat64, cut, entries};
use super::fields::{Field, Names, Values};
use std::io::Write as _;
use std::net::IpAddr;

/// A template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Vec<u8>),
    Field(Place),
}

/// A field in a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    field: Field,
    /// The entry of a list, counted from 0, or from -1 at its end.
    entry: Option<i32>,
    cut: Option<Cut>,
    is_address: bool,
    /// Whether the field identifies the caller: the address or the name of a client.
    is_caller: bool,
}

/// The reason why a line gives no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoText {
    /// The line does not have a field.
    Missing,
    /// The value whose network is wanted is not an address.
    NoAddress,
}

/// The networks that stand for addresses: the number of bits that are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cut {
    v4_bits: Option<u8>,
    v6_bits: Option<u8>,
}

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
            parts.push(Part::Field(Place::new(text, None, None, names)));
        }
        let mut rest = if parts.is_empty() { text } else { "" };
        while !rest.is_empty() {
            let (plain, from_field) = rest.split_at(rest.find('$').unwrap_or(rest.len()));
            if !plain.is_empty() {
                parts.push(Part::Text(plain.as_bytes().to_vec()));
            }
            rest = from_field;
            if let Some(after) = from_field.strip_prefix('$') {
                let (name, entry, after) =
                    split_name(after).ok_or_else(|| invalid("the name of a field after $"))?;
                let (cut, after) = split_cut(after).ok_or_else(|| {
                    invalid("a network such as /24 for IPv4 or /64 for IPv6 after a field")
                })?;
                parts.push(Part::Field(Place::new(name, entry, cut, names)));
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

    /// Returns true if the template names no caller: all fields are empty or `-`, as logs write
    /// what is not there, or a field with the user or the address is. Another field may be empty:
    /// `-` is then a part of the key.
    pub fn is_empty(&self, line: &[u8], values: &Values) -> bool {
        let mut is_all_empty = true;
        for part in &self.parts {
            let Part::Field(place) = part else { continue };
            let is_empty = values.get(line, place.field).is_some_and(|value| {
                place.entry(value).is_none_or(|entry| matches!(entry, b"" | b"-"))
            });
            if is_empty && place.is_caller {
                return true;
            }
            is_all_empty &= is_empty;
        }
        is_all_empty
    }

    /// Returns true if the template has several fields.
    pub fn is_joined(&self) -> bool {
        self.parts.iter().filter(|part| matches!(part, Part::Field(_))).count() > 1
    }

    /// Returns the text that the template gives for a line. `copies` is memory for a text that is
    /// not a part of the line.
    ///
    /// # Errors
    ///
    /// [`NoText`] if a field is missing, or is no address although its network is wanted.
    pub fn fill<'a>(
        &self,
        line: &'a [u8],
        values: &'a Values,
        copies: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], NoText> {
        copies.clear();
        if let [Part::Field(place)] = self.parts.as_slice() {
            let value = place.value(line, values)?;
            if place.is_plain(value) {
                return Ok(value);
            }
            place.write(value, copies)?;
            return Ok(copies);
        }
        for part in &self.parts {
            match part {
                Part::Text(text) => copies.extend_from_slice(text),
                Part::Field(place) => {
                    let value = place.value(line, values)?;
                    if place.is_plain(value) {
                        copies.extend_from_slice(value);
                    } else {
                        place.write(value, copies)?;
                    }
                }
            }
        }
        Ok(copies)
    }
}

impl Place {
    fn new(name: &str, entry: Option<i32>, cut: Option<Cut>, names: &mut Names) -> Self {
        let is_address = is_address(name);
        let is_caller = is_address || is_user(name);
        Self { field: names.field(name), entry, cut, is_address, is_caller }
    }

    fn value<'a>(&self, line: &'a [u8], values: &'a Values) -> Result<&'a [u8], NoText> {
        let value = values.get(line, self.field).ok_or(NoText::Missing)?;
        Ok(self.entry(value).unwrap_or_default())
    }

    /// Returns the wanted entry of a list; `None` if the list is shorter.
    fn entry<'a>(&self, value: &'a [u8]) -> Option<&'a [u8]> {
        let Some(entry) = self.entry else { return Some(value) };
        let at = usize::try_from(entry.unsigned_abs()).ok()?;
        let mut entries = entries(value);
        if entry < 0 { entries.nth_back(at - 1) } else { entries.nth(at) }
    }

    /// Returns true if the value is written as it is: an IPv4 address without a port, if it is one.
    fn is_plain(&self, value: &[u8]) -> bool {
        let is_special = |byte: &u8| matches!(byte, b':' | b'%' | b'[');
        self.cut.is_none() && !(self.is_address && value.iter().any(is_special))
    }

    /// Writes the address, or its network.
    fn write(&self, value: &[u8], copies: &mut Vec<u8>) -> Result<(), NoText> {
        let address = address(value).map(behind_nat64);
        // Writing to a vector does not fail.
        let _ = match (address, self.cut) {
            (None, Some(_)) => return Err(NoText::NoAddress),
            (None, None) => copies.write_all(value),
            (Some(address), wanted) => {
                let Cut { v4_bits, v6_bits } = wanted.unwrap_or_default();
                let bits = if matches!(address, IpAddr::V4(_)) { v4_bits } else { v6_bits };
                match bits {
                    Some(bits) => write!(copies, "{}/{bits}", cut(address, bits)),
                    None => write!(copies, "{address}"),
                }
            }
        };
        Ok(())
    }
}

/// Returns true if a field is named as an address of a client, as `remote_addr`, `c-ip`,
/// `request.remote_ip`, `ClientHost` and `http_x_forwarded_for` are.
pub fn is_address(name: &str) -> bool {
    let name = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase().replace('-', "_");
    let ends = ["addr", "address", "ip", "forwarded_for", "clienthost", "client"];
    ends.iter().any(|end| name.ends_with(end))
}

/// Returns true if a field is named as a user, as `remote_user`, `cs-username`, `user_id` and
/// `user.id` are.
fn is_user(name: &str) -> bool {
    let letters = name.bytes().filter(u8::is_ascii_alphanumeric);
    let name: Vec<u8> = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    [&b"user"[..], b"username", b"userid"].iter().any(|end| name.ends_with(end))
}

/// Splits the name of a field, and the entry of a list, from what follows. A name in braces may
/// have any characters; only there an entry is named, as in `{name[-1]}`.
fn split_name(text: &str) -> Option<(&str, Option<i32>, &str)> {
    if let Some(braced) = text.strip_prefix('{') {
        let (name, rest) = braced.split_once('}')?;
        let listed = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
        let entry = listed.and_then(|(name, entry)| Some((name, entry.parse::<i16>().ok()?)));
        let (name, entry) = entry.map_or((name, None), |(name, at)| (name, Some(at.into())));
        return (!name.is_empty()).then_some((name, entry, rest));
    }
    let bytes = text.as_bytes();
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    // A point belongs to the name if another part of the name follows it.
    let is_end = |at: &usize| match bytes.get(*at) {
        Some(b'.') => !bytes.get(at + 1).is_some_and(is_part),
        byte => !byte.is_some_and(is_part),
    };
    let len = (0..bytes.len()).find(is_end).unwrap_or(bytes.len());
    (len > 0).then(|| text.split_at(len)).map(|(name, rest)| (name, None, rest))
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
        Ok(text.ok().map(|text| String::from_utf8_lossy(text).into_owned()))
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
            ("$ip", "[::ffff:192.0.2.77]:443", "192.0.2.77"),
            ("$ip", "64:ff9b::192.0.2.77", "192.0.2.77"),
            ("$ip", "192.0.2.77:443", "192.0.2.77"),
            ("$ip", "unix:", "unix:"),
            ("$host:$ip", "192.0.2.77:443", "example.org:192.0.2.77"),
            ("${ip[-1]}", "192.0.2.1, 192.0.2.77", "192.0.2.77"),
            ("${ip[0]}", "192.0.2.1, 192.0.2.77", "192.0.2.1"),
            ("${ip[-2]}/24", "192.0.2.1:80,192.0.2.77", "192.0.2.0/24"),
            ("${ip[-1]}", "[\"192.0.2.1\",\"2001:DB8::1\"]", "2001:db8::1"),
            ("${ip[-1]}", "192.0.2.1, [2001:db8::1]:443", "2001:db8::1"),
            ("$ip/64", "64:ff9b::192.0.2.77", "192.0.2.77"),
            ("$ip/24/64", "64:ff9b::c000:24d", "192.0.2.0/24"),
            ("$ip/64", "64:ff9b::1:c000:24d", "64:ff9b::/64"),
            ("$ip/64", "fe80::1%eth0", "fe80::/64"),
            ("$ip/24:$host", "192.0.2.77", "192.0.2.0/24:example.org"),
            ("tenant:${host}", "x", "tenant:example.org"),
            ("$host.", "x", "example.org."),
        ] {
            assert_eq!(filled(template, ip).unwrap().as_deref(), Some(key), "{template} {ip}");
        }
    }

    #[test]
    fn a_value_that_is_no_address_has_no_network() {
        for value in ["unix:", "ex.org:443 192.0.2.77", "-", "frank"] {
            for template in ["$ip/64", "$ip/24", "$ip/24/64", "$host $ip/64"] {
                assert_eq!(filled(template, value).unwrap(), None, "{template} {value}");
            }
        }
    }

    #[test]
    fn a_template_is_empty_if_all_its_fields_are_or_one_that_names_the_caller() {
        for (template, ip, is_empty) in [
            ("$ip", "-", true),
            ("$ip", "", true),
            ("$ip", "--", false),
            ("${ip[-2]}", "192.0.2.1", true),
            ("${ip[-1]}", "192.0.2.1,", true),
            ("$ip:$host", "-", true),
            ("$ip/24/64 $host", "-", true),
            ("$host:${ip[-2]}", "192.0.2.1", true),
            ("$host:$ip", "unix:", false),
            ("$nothing:$host", "x", false),
            ("$nothing:$ip", "192.0.2.1", false),
            ("$nothing", "x", true),
            ("$remote_user:$host", "x", true),
            ("${user.id} $host", "x", false),
            ("$other_user $ip", "-", true),
        ] {
            let mut names = Names::default();
            let (address, host) = (names.field("ip"), names.field("host"));
            let nothing = [names.field("nothing"), names.field("remote_user")];
            let parsed = Template::parse(template, &mut names).unwrap();
            let mut values = Values::default();
            values.clear(names.len());
            values.set_copy(address, ip.as_bytes());
            values.set_copy(host, b"example.org");
            nothing.into_iter().for_each(|field| values.set_copy(field, b"-"));
            assert_eq!(parsed.is_empty(b"", &values), is_empty, "{template} {ip}");
        }
    }

    #[test]
    fn fields_are_addresses_by_their_names() {
        for name in [
            "remote_addr",
            "c-ip",
            "request.remote_ip",
            "httpRequest.remoteIp",
            "ClientHost",
            "http_x_forwarded_for",
            "X-Forwarded-For",
            "client",
        ] {
            assert!(is_address(name), "{name}");
        }
        for name in ["host", "remote_user", "request_uri"] {
            assert!(!is_address(name), "{name}");
        }
        for name in ["remote_user", "cs-username", "user_id", "ClientUsername", "user.id", "userId"]
        {
            assert!(is_user(name), "{name}");
        }
        for name in ["http_user_agent", "cs(User-Agent)", "remote_addr", "host", "id"] {
            assert!(!is_user(name), "{name}");
        }
    }

    #[test]
    fn a_missing_field_gives_no_text() {
        assert_eq!(filled("$ip $other", "x").unwrap(), None);
    }

    #[test]
    fn invalid_templates_are_refused_with_a_text() {
        for template in
            ["", "$", "a$", "${ip", "${}", "${[0]}", "$ip/129", "$ip/64/64", "$ip/24/64/9"]
        {
            let error = filled(template, "x").unwrap_err();
            assert!(error.starts_with("invalid template"), "{template}: {error}");
        }
        assert!(filled(&"$ip ".repeat(9), "x").unwrap_err().contains("at most 16"));
    }
}
