//! The names of rules, and the parts of subjects.

/// The longest name of a rule, in bytes.
const NAME_MAX: usize = 64;
/// The digits of the hash that distinguishes shortened names.
const DIGITS: usize = 12;

/// Returns the name of a rule from the parts of its match, such as `path./search`. A name that
/// does not show every character of the parts ends with a hash of them.
pub(crate) fn rule_name(parts: &[String]) -> String {
    let is_kept = |char: char| char.is_ascii_alphanumeric() || "_/-".contains(char);
    let exact = parts.iter().all(|part| part.chars().all(is_kept));
    let cleaned = |part: &String| -> String {
        part.chars().map(|char| if is_kept(char) { char } else { '-' }).collect()
    };
    let mut name = parts.iter().map(cleaned).collect::<Vec<_>>().join(".");
    if exact && name.len() <= NAME_MAX {
        return name;
    }
    // Every character is one byte now.
    name.truncate(NAME_MAX - DIGITS - 1);
    let digits = format!("{:016x}", fnv(parts));
    format!("{name}-{}", &digits[..DIGITS])
}

/// Returns a hash that stays the same between versions: 64-bit FNV-1a of the parts, each ended by
/// a zero byte.
fn fnv(parts: &[String]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Joins the parts of a subject, so that no two lists of parts have the same text.
pub(crate) fn joined<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for (at, part) in parts.into_iter().enumerate() {
        if at > 0 {
            text.push('|');
        }
        append(part, &mut text);
    }
    text
}

/// Appends a further part to a subject.
pub(crate) fn extend(subject: &mut String, part: &str) {
    subject.push('|');
    append(part, subject);
}

/// Appends the key and value of a descriptor's entry as one part. The sign between them, `%/` and
/// for the entries after the first `%1/`, `%2/` and so on, is in no other part.
pub(crate) fn extend_by_entry(subject: &mut String, at: usize, (key, value): (&str, &str)) {
    extend(subject, key);
    match at {
        0 => subject.push_str("%/"),
        _ => subject.extend(["%", &at.to_string(), "/"]),
    }
    append(value, subject);
}

fn append(part: &str, into: &mut String) {
    for char in part.chars() {
        match char {
            '%' => into.push_str("%25"),
            '|' => into.push_str("%7C"),
            _ => into.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{joined, rule_name};
    use proptest::prelude::*;

    fn name(parts: &[&str]) -> String {
        rule_name(&parts.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn name_shows_the_parts_if_it_can() {
        assert_eq!(name(&["database_users"]), "database_users");
        assert_eq!(
            name(&["message_type_marketing", "to_number"]),
            "message_type_marketing.to_number"
        );
    }

    #[test]
    fn name_that_hides_characters_ends_with_a_hash_and_has_at_most_64_bytes() {
        let long = "x".repeat(200);
        let hidden = [name(&["a.b"]), name(&["a", "b*"]), name(&["a b"]), name(&[&long])];
        for (at, name) in hidden.iter().enumerate() {
            assert!(name.len() <= 64, "{name}");
            assert!(redis_throttle_client::Rule::policy(name).is_ok(), "{name}");
            assert!(!hidden[..at].contains(name), "{name}");
        }
        assert_ne!(name(&["a.b"]), name(&["a", "b"]));
        assert_ne!(name(&["a*"]), name(&["a-"]));
    }

    proptest! {
        #[test]
        fn different_parts_have_different_subjects(
            one in prop::collection::vec("[a|%7C25]{0,4}", 1..4),
            other in prop::collection::vec("[a|%7C25]{0,4}", 1..4),
        ) {
            let text = |parts: &[String]| joined(parts.iter().map(String::as_str));
            prop_assert_eq!(one == other, text(&one) == text(&other));
        }
    }
}
