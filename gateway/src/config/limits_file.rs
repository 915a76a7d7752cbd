//! Reads one file, whose words determine its form.

use super::bounds::DOMAIN_BYTES_MAX;
use super::domain::Domain;
use super::fields::{Fields, bounded};
use super::report::{Remark, Report};
use super::{http_section, own, ratelimit, yaml};

/// Reads the text of a file. Returns its domain and the warnings.
///
/// # Errors
/// All mistakes of the file; of its YAML, only the first.
pub(crate) fn read(file: &str, text: &str) -> Result<(Domain, Vec<Remark>), Vec<Remark>> {
    let mut report = Report::new(file);
    let domain = domain(file, text, &mut report);
    report.sort();
    match domain {
        Some(domain) if report.mistakes.is_empty() => Ok((domain, report.warnings)),
        _ => Err(report.mistakes),
    }
}

fn domain(file: &str, text: &str, report: &mut Report<'_>) -> Option<Domain> {
    let root = match yaml::parse(text) {
        Ok(root) => root,
        Err(broken) => {
            report.mistake(broken.at, broken.text);
            return None;
        }
    };
    let has = |word: &str| match &root.value {
        yaml::Value::Mapping(pairs) => pairs.iter().any(|pair| pair.word == word),
        _ => false,
    };
    let (is_own, is_tree) = (has("limits"), has("descriptors"));
    let known: &[&str] = match (is_own, is_tree) {
        (true, false) => &["domain", "limits", "http"],
        (false, true) => &["domain", "descriptors", "http"],
        _ => &["domain", "limits", "descriptors", "http"],
    };
    let fields = Fields::of(&root, known, report, refused)?;
    let name = match fields.get("domain") {
        Some(node) => {
            let name = fields.text("domain", report);
            name.and_then(|name| bounded(name, ("domain", DOMAIN_BYTES_MAX), node.at, report))
        }
        None => {
            report.mistake(fields.at, "a file without `domain:`: add the name of its domain");
            None
        }
    };
    let http = fields.get("http").and_then(|node| http_section::http(node, report));
    let reading = name.unwrap_or("unnamed");
    let (limits, lookup) = match (fields.get("limits"), is_own, is_tree) {
        (Some(node), true, false) => own::limits(reading, node, report),
        (_, false, true) => ratelimit::descriptors(reading, fields.get("descriptors"), report),
        (_, true, true) => {
            let text = "both `limits:` and `descriptors:`: keep one, or split the file";
            report.mistake(fields.place("descriptors"), text);
            return None;
        }
        _ => {
            let text = "a file without limits: add `limits:`, or `descriptors:` with a list";
            report.mistake(fields.place("limits"), text);
            return None;
        }
    };
    for (at, entries) in http.iter().flat_map(|http| &http.descriptors).enumerate() {
        let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        if !lookup.may_match(&keys) {
            let (number, keys) = (at + 1, keys.join("`, `"));
            let text = format!("no limit matches descriptor {number} with the keys `{keys}`");
            report.warning(fields.place("http"), text);
        }
    }
    let at = fields.get("domain").map_or(fields.at, |node| node.at);
    Some(Domain { name: name?.into(), file: file.to_owned(), at, http, limits, lookup })
}

/// Returns the reason to refuse a word of xDS.
fn refused(word: &str) -> Option<String> {
    let of_xds = ["@type", "resources", "type_url", "version_info", "nonce"].contains(&word);
    of_xds.then(|| format!("{word:?} is of xDS, which is not supported: write files"))
}
