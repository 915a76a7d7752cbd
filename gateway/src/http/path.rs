//! Brings a path to one form, so that another spelling of it does not meet another limit.

/// Returns the path of a request's target: without the host of an absolute URI and the query, with
/// dot segments removed, runs of slashes as one, and percent-encoded unreserved characters decoded.
/// Other percent-encodings stay, in upper case.
pub(super) fn normalised(target: &str) -> String {
    let target = without_host(target);
    let end = target.find(['?', '#']).unwrap_or(target.len());
    let path = decoded(&target[..end]);
    let Some(rest) = path.strip_prefix('/') else { return path };
    let mut kept: Vec<&str> = Vec::new();
    for segment in rest.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let is_folder = !kept.is_empty() && matches!(rest.rsplit('/').next(), Some("" | "." | ".."));
    format!("/{}{}", kept.join("/"), if is_folder { "/" } else { "" })
}

/// Returns the target without the scheme and host of an absolute URI (RFC 9112, section 3.2.2).
fn without_host(target: &str) -> &str {
    let in_scheme = |one: u8| one.is_ascii_alphanumeric() || b"+-.".contains(&one);
    match target.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(in_scheme) => {
            let end = rest.find(['?', '#']).unwrap_or(rest.len());
            rest[..end].find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    }
}

/// Decodes the percent-encoded unreserved characters of a path (RFC 3986, section 6.2.2.2).
fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut into = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..2).filter(|two| two.bytes().all(|one| one.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (digits, byte) {
            (_, Some(byte)) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                into.push(char::from(byte));
            }
            (Some(digits), _) => {
                into.push('%');
                into.push_str(&digits.to_ascii_uppercase());
            }
            (None, _) => {
                into.push('%');
                into.push_str(part);
                continue;
            }
        }
        into.push_str(part.get(2..).unwrap_or_default());
    }
    into
}
