//! Conditions on lines: `--where 'status!=429'`.

use super::fields::{Field, Names, Values};

/// A condition on a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    field: Field,
    operator: Operator,
    value: Vec<u8>,
    /// The value as a number, for the comparisons of size.
    number: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    NotAbove,
    NotBelow,
    Less,
    More,
    StartsWith,
}

/// The operators. Where one begins with another, the longer one comes first.
const OPERATORS: [(&str, Operator); 8] = [
    ("!=", Operator::NotEqual),
    ("<=", Operator::NotAbove),
    (">=", Operator::NotBelow),
    ("==", Operator::Equal),
    ("=", Operator::Equal),
    ("<", Operator::Less),
    (">", Operator::More),
    ("~", Operator::StartsWith),
];

impl Condition {
    /// Reads a condition: a field with or without `$`, an operator and a value. Adds the name of
    /// the field to `names`.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong.
    pub fn parse(text: &str, names: &mut Names) -> Result<Self, String> {
        let invalid = |expected: &str| format!("invalid condition `{text}`: expected {expected}");
        let (field, operator, value) = text
            .find(['!', '<', '>', '=', '~'])
            .and_then(|at| {
                let (field, rest) = text.split_at_checked(at)?;
                if ["=~", "=<", "=>"].iter().any(|sign| rest.starts_with(sign)) {
                    return None;
                }
                let (sign, operator) = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign))?;
                Some((field.trim(), *operator, rest.get(sign.len()..)?.trim()))
            })
            .ok_or_else(|| invalid("a field, one of = != < > <= >= ~ and a value"))?;
        let field = field.strip_prefix('$').unwrap_or(field);
        if field.is_empty() {
            return Err(invalid("a field before the operator, such as status!=429"));
        }
        let is_of_size =
            !matches!(operator, Operator::Equal | Operator::NotEqual | Operator::StartsWith);
        let number = number(value.as_bytes());
        if is_of_size && number.is_none() {
            return Err(invalid("a number after < > <= >="));
        }
        let value = value.as_bytes().to_vec();
        let number = number.unwrap_or(f64::NAN);
        Ok(Self { field: names.field(field), operator, value, number })
    }

    /// Returns true if the line meets the condition. A missing field counts as an empty value, and
    /// a value that is not a number is neither less nor more than any number.
    pub fn holds(&self, line: &[u8], values: &Values) -> bool {
        let value = values.get(line, self.field).unwrap_or_default();
        let number = || number(value).unwrap_or(f64::NAN);
        match self.operator {
            Operator::Equal => value == self.value,
            Operator::NotEqual => value != self.value,
            Operator::StartsWith => value.starts_with(&self.value),
            Operator::NotAbove => number() <= self.number,
            Operator::NotBelow => number() >= self.number,
            Operator::Less => number() < self.number,
            Operator::More => number() > self.number,
        }
    }
}

/// Reads a finite number: `nan` and `inf` have no place in an order of sizes.
fn number(value: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    number.is_finite().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(condition: &str, value: Option<&str>) -> bool {
        let mut names = Names::default();
        let condition = Condition::parse(condition, &mut names).unwrap();
        let field = names.field("status");
        let mut values = Values::default();
        values.clear(names.len());
        if let Some(value) = value {
            values.set_copy(field, value.as_bytes());
        }
        condition.holds(b"", &values)
    }

    #[test]
    fn conditions_compare_texts_numbers_and_beginnings() {
        for (condition, value, expected) in [
            ("status=429", Some("429"), true),
            ("$status != 429", Some("429"), false),
            ("status!=429", None, true),
            ("status<500", Some("429"), true),
            ("status<=429", Some("429"), true),
            ("status>428.5", Some("429"), true),
            ("status>=430", Some("429"), false),
            ("status<500", Some("-"), false),
            ("status==429", Some("429"), true),
            ("status == 200", Some("429"), false),
            ("status>1", Some("inf"), false),
            ("status~4", Some("429"), true),
            ("status~", None, true),
            ("status=a=b", Some("a=b"), true),
        ] {
            assert_eq!(holds(condition, value), expected, "{condition} {value:?}");
        }
    }

    #[test]
    fn invalid_conditions_are_refused_with_a_text() {
        for condition in [
            "",
            "status",
            "=429",
            "status<x",
            "$!=3",
            "status!429",
            "status=~4",
            "status=<4",
            "status=>4",
            "status<inf",
            "status>nan",
        ] {
            let error = Condition::parse(condition, &mut Names::default()).unwrap_err();
            assert!(error.starts_with("invalid condition"), "{condition}: {error}");
        }
    }
}
