//! Texts with values of the request in them: `plan:{plan}`.

use redis_throttle_client::Rule;

use super::domain::{Piece, Template};

/// The longest name of a policy or a variant, in bytes.
const NAME_MAX: usize = 64;

/// Parses the name of a variant. `keys` are those of `match`.
///
/// # Errors
/// The text of the first mistake.
pub(crate) fn template(text: &str, keys: &[&str]) -> Result<Template, String> {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let Some((key, after)) = after.split_once('}') else {
            return Err(format!("{text:?} has a brace that is not closed"));
        };
        let Some(at) = keys.iter().position(|known| *known == key) else {
            return Err(format!("{key:?} is not a key of `match`: add `{key}: \"*\"` to it"));
        };
        pieces.extend([Piece::Text(before.to_owned()), Piece::Value(at)]);
        rest = after;
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    let template = Template(pieces);
    let sample = template.filled(|_| "x");
    let checked = Rule::policy("sample").and_then(|rule| rule.variants([sample.as_str()]));
    checked.map(|_| template).map_err(|error| error.to_string())
}

impl Template {
    /// Returns the text with the values, which are given by their places in `match`.
    pub(crate) fn filled<'a>(&self, value: impl Fn(usize) -> &'a str) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value(at) => value(*at).to_owned(),
        };
        self.0.iter().map(piece).collect()
    }
}

/// Returns true if a text can be the name of a variant. The values in it come from callers.
pub(crate) fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/-".contains(&byte);
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::{is_name, template};
    use redis_throttle_client::Rule;

    #[test]
    fn values_of_the_request_replace_the_braces() {
        let variant = template("{tenant}:plan:{plan}", &["plan", "tenant"]).unwrap();
        assert_eq!(variant.filled(|at| ["gold", "acme"][at]), "acme:plan:gold");
    }

    #[test]
    fn impossible_names_are_refused() {
        let cases = [
            ("plan:{plan", "not closed"),
            ("plan:{tenant}", "\"tenant\" is not a key of `match`"),
            ("plan {plan}", "invalid variants"),
            ("", "invalid variants"),
        ];
        for (text, expected) in cases {
            let error = template(text, &["plan"]).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn names_are_those_that_the_client_accepts() {
        let long = "x".repeat(65);
        for text in ["plan:gold", "a b", "", "ü", "a@b", &long, &long[1..]] {
            let accepted = Rule::policy("p").unwrap().variants([text]).is_ok();
            assert_eq!(is_name(text), accepted, "{text}");
        }
    }
}
