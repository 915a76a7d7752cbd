//! Patterns in which `*` stands for any text, also for none. Every other character stands for
//! itself.

/// A pattern, split at its stars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    parts: Box<[Box<str>]>,
}

impl Glob {
    pub fn new(pattern: &str) -> Self {
        Self { parts: pattern.split('*').map(Box::from).collect() }
    }

    /// Returns true if the pattern has a star.
    pub fn is_wild(&self) -> bool {
        self.parts.len() > 1
    }

    /// Returns true if the pattern fits the whole text.
    pub fn fits(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &*self.parts else {
            return self.parts.first().is_some_and(|only| **only == *text);
        };
        let Some(rest) = text.strip_prefix(&**first) else { return false };
        let Some(mut rest) = rest.strip_suffix(&**last) else { return false };
        for part in middle {
            let Some((_, after)) = rest.split_once(&**part) else { return false };
            rest = after;
        }
        true
    }

    /// Returns a text that only those patterns fit that fit every text of this one. No pattern
    /// holds the private character in place of the stars, so only stars can fit it.
    pub fn widest(&self) -> String {
        self.filled("\u{10fffd}")
    }

    /// Returns the pattern with a text in place of each star.
    pub fn filled(&self, text: &str) -> String {
        self.parts.join(text)
    }
}

#[cfg(test)]
mod tests {
    use super::Glob;
    use proptest::prelude::*;

    /// Matches by trying every length of each star.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], _) => text.is_empty(),
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| naive(rest, &text[at..])),
            ([first, rest @ ..], [head, tail @ ..]) => first == head && naive(rest, tail),
            (_, []) => false,
        }
    }

    #[test]
    fn pattern_fits_by_prefix_suffix_and_the_parts_between() {
        let cases = [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", "anything/at all", true),
            ("/api/*", "/api/", true),
            ("/api/*", "/ap", false),
            ("/api/*/action", "/api/123/action", true),
            // The star is empty, but both slashes are needed.
            ("/api/*/action", "/api/action", false),
            ("a*a", "a", false),
            ("*b*b*", "abxb", true),
            ("", "", true),
            ("", "x", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(Glob::new(pattern).fits(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn pattern_covers_another_whose_texts_it_all_fits() {
        let cases = [
            ("*", "*", true),
            ("*", "a*b", true),
            ("a*", "ab*", true),
            ("ab*", "a*", false),
            ("a*c", "abc", true),
            ("a*c", "a*b*c", true),
            ("a*b*c", "a*c", false),
            ("a", "a*", false),
        ];
        for (one, other, expected) in cases {
            assert_eq!(Glob::new(one).fits(&Glob::new(other).widest()), expected, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_naive_matcher(pattern in "[ab*]{0,6}", text in "[ab]{0,7}") {
            let expected = naive(pattern.as_bytes(), text.as_bytes());
            prop_assert_eq!(Glob::new(&pattern).fits(&text), expected);
        }

        #[test]
        fn covering_pattern_fits_what_the_covered_one_fits(
            one in "[a*]{0,5}", other in "[a*]{0,5}", text in "a{0,6}",
        ) {
            let (one, other) = (Glob::new(&one), Glob::new(&other));
            prop_assert!(!(one.fits(&other.widest()) && other.fits(&text)) || one.fits(&text));
        }

        #[test]
        fn pattern_covers_those_with_more_in_place_of_its_stars(
            one in "[ab*]{0,5}", more in "[ab*]{0,3}", text in "[ab]{0,3}",
        ) {
            let one = Glob::new(&one);
            let other = Glob::new(&one.filled(&more));
            prop_assert!(one.fits(&other.widest()));
            prop_assert!(one.fits(&other.filled(&text)));
        }
    }
}
