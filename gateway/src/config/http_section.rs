//! The section `http`: how a request of HTTP becomes descriptors.

use redis_throttle_client::ClientAddress;

use super::bounds::{ENTRIES_MAX, KEY_BYTES_MAX};
use super::domain::{Http, Source};
use super::fields::{Fields, bounded, list, scalar};
use super::report::Report;
use super::yaml::{Node, Value};

const WORDS: [&str; 2] = ["trusted_proxies", "descriptors"];
/// The most descriptors of a request.
const DESCRIPTORS_MAX: usize = 16;

/// Reads the section.
pub(crate) fn http(node: &Node, report: &mut Report<'_>) -> Option<Http> {
    let fields = Fields::of(node, &WORDS, report, |_| None)?;
    let client_address = trusted(&fields, report)?;
    let nodes = fields.get("descriptors").map_or(&[][..], |node| list(node, "descriptors", report));
    if !(1..=DESCRIPTORS_MAX).contains(&nodes.len()) {
        let expected = format!("expected 1 to {DESCRIPTORS_MAX}, such as - {{path: path}}");
        report.mistake(fields.place("descriptors"), format!("invalid descriptors: {expected}"));
    }
    let descriptors = nodes.iter().filter_map(|node| descriptor(node, report)).collect();
    Some(Http { client_address, descriptors })
}

fn trusted(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<ClientAddress> {
    let nodes = fields.get("trusted_proxies");
    let nodes = nodes.map_or(&[][..], |node| list(node, "trusted_proxies", report));
    let mut texts = Vec::new();
    for node in nodes {
        let Some(text) = scalar(node, "trusted_proxies", report) else { continue };
        if report.noted(node.at, ClientAddress::new([text])).is_some() {
            texts.push(text);
        }
    }
    ClientAddress::new(texts).ok()
}

fn descriptor(node: &Node, report: &mut Report<'_>) -> Option<Vec<(String, Source)>> {
    let pairs = match &node.value {
        Value::Mapping(pairs) if (1..=ENTRIES_MAX).contains(&pairs.len()) => pairs,
        _ => {
            let expected = format!("expected 1 to {ENTRIES_MAX} keys, such as {{path: path}}");
            report.mistake(node.at, format!("invalid descriptor: {expected}"));
            return None;
        }
    };
    let mut entries = Vec::new();
    for pair in pairs {
        bounded(&pair.word, ("key", KEY_BYTES_MAX), pair.at, report);
        let Some(text) = scalar(&pair.node, &pair.word, report) else { continue };
        match source(text) {
            Some(source) => entries.push((pair.word.clone(), source)),
            None => {
                let expected = "method, host, path, client_address or header:NAME";
                report.mistake(pair.node.at, format!("invalid source: expected {expected}"));
            }
        }
    }
    Some(entries)
}

fn source(text: &str) -> Option<Source> {
    match text {
        "method" => Some(Source::Method),
        "host" => Some(Source::Host),
        "path" => Some(Source::Path),
        "client_address" => Some(Source::ClientAddress),
        _ => text.strip_prefix("header:")?.parse().ok().map(Source::Header),
    }
}
