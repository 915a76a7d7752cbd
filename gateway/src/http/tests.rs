use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::config::Configuration;

const FILE: &str = "domain: web
http:
  trusted_proxies: [127.0.0.1]
  descriptors:
    - {method: method, host: host, path: path}
    - {client: client_address}
    - {user: 'header:x-user'}
limits:
  - {match: {client: '*'}, rule: FIXED 1 1s}
";

const PROXY: [(&str, &str); 4] = [
    ("x-forwarded-method", "GET"),
    ("x-forwarded-host", "Shop.example.:8443"),
    ("x-forwarded-uri", "/a?b=/c"),
    ("x-forwarded-for", "203.0.113.9, 2001:db8::1"),
];

fn configuration() -> Configuration {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.yaml");
    std::fs::write(&file, FILE).unwrap();
    Configuration::load(&file).unwrap()
}

fn headers(fields: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = fields.iter().map(|(name, value)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    });
    pairs.collect()
}

/// Returns the values of the descriptors, or the sentence of a refusal.
fn read(headers: &HeaderMap) -> Result<Vec<Vec<String>>, String> {
    let loaded = configuration();
    let http = loaded.domain("web").unwrap().http.as_ref().unwrap();
    let all =
        request::descriptors(http, headers, Some([127, 0, 0, 1].into())).map_err(|no| no.0)?;
    let values =
        |one: &request::Entries<'_>| one.iter().map(|(_, value)| value.to_string()).collect();
    Ok(all.iter().map(values).collect())
}

#[test]
fn descriptors_have_the_values_that_the_proxy_sends() {
    let mut fields = headers(&PROXY);
    let web = vec!["GET".to_owned(), "shop.example".to_owned(), "/a".to_owned()];
    let client = vec!["2001:db8::/64".to_owned()];
    assert_eq!(read(&fields), Ok(vec![web.clone(), client.clone()]));
    fields.insert("x-user", HeaderValue::from_static("u"));
    assert_eq!(read(&fields), Ok(vec![web, client, vec!["u".to_owned()]]));
}

#[test]
fn request_without_a_value_of_its_proxy_is_refused() {
    for missing in ["x-forwarded-method", "x-forwarded-host", "x-forwarded-uri"] {
        let mut fields = headers(&PROXY);
        fields.remove(missing);
        assert_eq!(read(&fields), Err(format!("Invalid {missing}: expected one from the proxy.")));
    }
}

#[test]
fn request_with_a_value_that_cannot_be_read_is_refused() {
    let table = [
        (HeaderValue::from_bytes(b"\xff").unwrap(), "expected UTF-8"),
        (HeaderValue::try_from("u".repeat(8_193)).unwrap(), "expected at most 8192 bytes"),
    ];
    for (value, expected) in table {
        let mut fields = headers(&PROXY);
        fields.insert("x-user", value);
        assert_eq!(read(&fields), Err(format!("Invalid x-user: {expected}.")));
    }
    for name in ["x-forwarded-uri", "x-user"] {
        let mut fields = headers(&PROXY);
        fields.insert(name, HeaderValue::from_static("/a"));
        fields.append(name, HeaderValue::from_static("/b"));
        let expected = "expected one field, not several";
        assert_eq!(read(&fields), Err(format!("Invalid {name}: {expected}.")));
    }
    let mut fields = headers(&PROXY);
    fields.insert("x-forwarded-for", HeaderValue::from_static("unknown"));
    let expected = "Invalid x-forwarded-for: expected the client's address.";
    assert_eq!(read(&fields), Err(expected.to_owned()));
}

#[test]
fn path_has_one_form() {
    let table = [
        ("/", "/"),
        ("", ""),
        ("*", "*"),
        ("/a/b/?q=/x", "/a/b/"),
        ("/a?b?c#d", "/a"),
        ("//a///b", "/a/b"),
        ("/a/./b/../c", "/a/c"),
        ("/a/..", "/"),
        ("/../../a", "/a"),
        ("/a/b/..", "/a/"),
        ("/%61%2Fb%2e%2E/c", "/a%2Fb../c"),
        ("/x/%2e%2e/a", "/a"),
        ("/%e4%zz%", "/%E4%zz%"),
        ("/%é", "/%é"),
        ("/a%c3", "/a%C3"),
        ("http://h/a/../b?c", "/b"),
        ("HTTPS://h:8443", "/"),
        ("http://h?q=/x", "/"),
        ("/a?b=http://h/c", "/a"),
        ("/http://h/c", "/http:/h/c"),
    ];
    for (target, path) in table {
        assert_eq!(path::normalised(target), path, "{target}");
    }
}
