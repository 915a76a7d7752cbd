//! Reads the words of a mapping. What is wrong goes to the report, and reading goes on.

use super::domain::OnError;
use super::report::{At, Report};
use super::yaml::{Node, Pair, Value};

/// The words of one mapping.
pub(crate) struct Fields<'a> {
    pub at: At,
    pairs: &'a [Pair],
}

impl<'a> Fields<'a> {
    /// Returns the words of a node, or notes that it is not a mapping. Words that are not among
    /// `known` are mistakes, unless `refused` returns the reason.
    pub fn of(
        node: &'a Node,
        known: &[&str],
        report: &mut Report<'_>,
        refused: impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let Value::Mapping(pairs) = &node.value else {
            let words = known.join("`, `");
            report.mistake(node.at, format!("expected a mapping with the words `{words}`"));
            return None;
        };
        for pair in pairs.iter().filter(|pair| !known.contains(&&*pair.word)) {
            let text = refused(&pair.word).unwrap_or_else(|| {
                let words = known.join("`, `");
                format!("unknown word {:?}: expected one of `{words}`", pair.word)
            });
            report.mistake(pair.at, text);
        }
        Some(Self { at: node.at, pairs })
    }

    /// Returns the value of a word. A word without a value counts as absent.
    pub fn get(&self, word: &str) -> Option<&'a Node> {
        let pair = self.pairs.iter().find(|pair| pair.word == word)?;
        Some(&pair.node).filter(|node| !matches!(node.value, Value::Null))
    }

    /// Returns the place of a word, or of the mapping without it.
    pub fn place(&self, word: &str) -> At {
        self.pairs.iter().find(|pair| pair.word == word).map_or(self.at, |pair| pair.at)
    }

    /// Returns the text of a word.
    pub fn text(&self, word: &str, report: &mut Report<'_>) -> Option<&'a str> {
        scalar(self.get(word)?, word, report)
    }

    /// Returns a word that is true or false. Absent, it is false.
    pub fn flag(&self, word: &str, report: &mut Report<'_>) -> bool {
        let Some(text) = self.text(word, report) else { return false };
        match &*text.to_ascii_lowercase() {
            "true" | "yes" | "on" | "y" => true,
            "false" | "no" | "off" | "n" => false,
            _ => {
                report.mistake(self.place(word), format!("invalid {word}: expected true or false"));
                false
            }
        }
    }

    /// Returns the word `on_error`.
    pub fn on_error(&self, report: &mut Report<'_>) -> OnError {
        match self.text("on_error", report) {
            None | Some("allow") => OnError::Allow,
            Some("deny") => OnError::Deny,
            Some("unavailable") => OnError::Unavailable,
            Some(_) => {
                let text = "invalid on_error: expected allow, deny or unavailable";
                report.mistake(self.place("on_error"), text);
                OnError::Allow
            }
        }
    }

    /// Returns a word that is a whole number from `least` to `most`.
    pub fn number(
        &self,
        word: &str,
        (least, most): (u64, u64),
        report: &mut Report<'_>,
    ) -> Option<u64> {
        let node = self.get(word)?;
        let text = scalar(node, word, report)?;
        let number = whole(text).filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let expected = format!("expected an integer from {least} to {most}");
            report.mistake(node.at, format!("invalid {word}: {expected}, not {text:?}"));
        }
        number
    }
}

/// Reads an integer as envoyproxy/ratelimit does: `0x1f`, `0b11`, and `0o17` or `017` for 15.
fn whole(text: &str) -> Option<u64> {
    let text = Some(text).filter(|text| !text.starts_with('_'))?.replace('_', "");
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let (base, digits) = match digits.split_at_checked(2) {
        Some(("0x" | "0X", digits)) => (16, digits),
        Some(("0b" | "0B", digits)) => (2, digits),
        Some(("0o" | "0O", digits)) => (8, digits),
        _ if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    // The standard library would read a second sign.
    let number = u64::from_str_radix(digits, base).ok().filter(|_| !digits.starts_with('+'))?;
    Some(number).filter(|number| !is_negative || *number == 0)
}

/// Returns the text of a node, or notes that it has none.
pub(crate) fn scalar<'a>(node: &'a Node, word: &str, report: &mut Report<'_>) -> Option<&'a str> {
    let found = match &node.value {
        Value::Scalar(text) => Some(text.as_str()),
        _ => None,
    };
    if found.is_none() {
        report.mistake(node.at, format!("invalid {word}: expected a text or a number"));
    }
    found
}

/// Returns the entries of a list, or notes that a node is none.
pub(crate) fn list<'a>(node: &'a Node, word: &str, report: &mut Report<'_>) -> &'a [Node] {
    if let Value::Sequence(nodes) = &node.value {
        return nodes;
    }
    report.mistake(node.at, format!("invalid {word}: expected a list"));
    &[]
}

/// Returns a text of 1 to `most` bytes without control characters, or notes a mistake.
pub(crate) fn bounded<'a>(
    text: &'a str,
    (word, most): (&str, usize),
    at: At,
    report: &mut Report<'_>,
) -> Option<&'a str> {
    if (1..=most).contains(&text.len()) && !text.chars().any(char::is_control) {
        return Some(text);
    }
    let expected = format!("expected 1 to {most} bytes without control characters");
    report.mistake(at, format!("invalid {word}: {expected}"));
    None
}
