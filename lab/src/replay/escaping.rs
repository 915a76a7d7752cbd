//! Escapes the bytes of a log, so that they are safe to print.

/// Returns bytes as text of at most `len_max` characters. Control characters, and bytes that are
/// not UTF-8, are escaped as in a program.
pub fn printable(bytes: &[u8], len_max: usize) -> String {
    let mut text = String::new();
    let mut len = 0;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(|char| match char {
            // Directions and invisible characters could reorder or hide what follows.
            char if char.is_control() || is_invisible(char) => char.escape_default().to_string(),
            char => char.to_string(),
        });
        let invalid = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}"));
        for piece in valid.chain(invalid) {
            len += 1;
            if len > len_max {
                text.push('…');
                return text;
            }
            text.push_str(&piece);
        }
    }
    text
}

const fn is_invisible(char: char) -> bool {
    matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}')
}

/// Returns text for HTML, also for an attribute in quotation marks.
pub fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_bytes_have_no_control_characters_and_are_cut() {
        assert_eq!(printable(b"a\x1b[2J\xff\n\xc3\xa4", 99), "a\\u{1b}[2J\\xff\\nä");
        assert_eq!(printable("\u{202e}x".as_bytes(), 99), "\\u{202e}x");
        assert_eq!(printable(b"abcdef", 3), "abc…");
        assert_eq!(printable(b"abc", 3), "abc");
    }

    #[test]
    fn html_has_no_markup_of_the_text() {
        assert_eq!(html("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
    }
}
