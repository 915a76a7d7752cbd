//! Reads the values of a request from the header fields that its proxy sends.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;

use super::path;
use crate::config::{Http, Source};

const METHOD: &str = "x-forwarded-method";
const HOST: &str = "x-forwarded-host";
const TARGET: &str = "x-forwarded-uri";
const ADDRESSES: &str = "x-forwarded-for";

/// The most bytes of a value.
const VALUE_BYTES_MAX: usize = 8_192;

/// The keys and values of a descriptor.
pub(super) type Entries<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// A request that cannot be read: the sentence for its response. It holds no value of the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable(pub String);

/// Returns the descriptors of a request. One with a header field that the request lacks is left
/// out.
///
/// # Errors
/// [`Unreadable`] if a field of the proxy is missing, if a field is repeated, too long or not
/// UTF-8, or if the client's address is unknown: otherwise such a request would meet no limit.
pub(super) fn descriptors<'a>(
    http: &'a Http,
    headers: &'a HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Vec<Entries<'a>>, Unreadable> {
    let mut all = Vec::with_capacity(http.descriptors.len());
    for sources in &http.descriptors {
        let mut entries = Vec::with_capacity(sources.len());
        for (key, source) in sources {
            if let Some(value) = value(source, http, headers, peer)? {
                entries.push((key.as_str(), value));
            }
        }
        if entries.len() == sources.len() {
            all.push(entries);
        }
    }
    Ok(all)
}

fn value<'a>(
    source: &Source,
    http: &Http,
    headers: &'a HeaderMap,
    peer: Option<IpAddr>,
) -> Result<Option<Cow<'a, str>>, Unreadable> {
    Ok(Some(match source {
        Source::Method => required(headers, METHOD)?.into(),
        Source::Host => without_port(required(headers, HOST)?).into(),
        Source::Path => path::normalised(required(headers, TARGET)?).into(),
        Source::ClientAddress => client_address(http, headers, peer)?.into(),
        Source::Header(name) => return Ok(single(headers, name.as_str())?.map(Cow::from)),
    }))
}

fn required<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Unreadable> {
    single(headers, name)?.ok_or_else(|| invalid(name, "expected one from the proxy"))
}

fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Unreadable> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(invalid(name, "expected one field, not several"));
    }
    if first.len() > VALUE_BYTES_MAX {
        return Err(invalid(name, &format!("expected at most {VALUE_BYTES_MAX} bytes")));
    }
    let text = std::str::from_utf8(first.as_bytes());
    text.map(Some).map_err(|_| invalid(name, "expected UTF-8"))
}

fn invalid(name: &str, expected: &str) -> Unreadable {
    Unreadable(format!("Invalid {name}: {expected}."))
}

/// Returns a host in lower case, without the port and the final dot.
fn without_port(host: &str) -> String {
    let after_address = host.rfind(']').map_or(0, |at| at + 1);
    let port = host[after_address..].find(':').map_or(host.len(), |at| after_address + at);
    host[..port].trim_end_matches('.').to_ascii_lowercase()
}

fn client_address(
    http: &Http,
    headers: &HeaderMap,
    peer: Option<IpAddr>,
) -> Result<String, Unreadable> {
    let unknown = || invalid(ADDRESSES, "expected the client's address");
    let texts = headers.get_all(ADDRESSES).iter().map(|value| value.to_str());
    let texts: Vec<&str> = texts.collect::<Result<_, _>>().map_err(|_| unknown())?;
    http.client_address.find(peer, texts.into_iter()).ok_or_else(unknown)
}
