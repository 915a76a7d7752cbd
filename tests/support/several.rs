//! Calls with several rules: their arguments and their replies.

use redis::Value;

use super::{ALGORITHMS, Algorithm, Client, Reply, integers, raw_error};

/// The reply to several rules: five integers, the number of the rule that decides, and a row per
/// rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub five: Reply,
    pub rule: i64,
    pub rows: Vec<Reply>,
}

/// Parses the reply to a call with several rules; `None` if it has another form.
pub fn decision_of(value: &Value) -> Option<Decision> {
    let Value::Array(fields) = value else { return None };
    let (head, rows) = fields.split_at_checked(6)?;
    let Value::Int(rule) = head[5] else { return None };
    let five = integers(&Value::Array(head[..5].to_vec()))?;
    let rows = rows.iter().map(integers).collect::<Option<_>>()?;
    Some(Decision { five, rule, rows })
}

/// Returns a call of `RL.ALL` or `RL.PEEKALL`, with the keys and rules in pairs.
pub fn call<'a>(command: &'a str, pairs: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let words = pairs.iter().flat_map(|(key, rule)| [*key, *rule]);
    [command].into_iter().chain(words).collect()
}

/// Returns the decision of a call with several rules; any other reply fails the test.
pub fn decide(client: &mut Client, command: &str, pairs: &[(&str, &str)]) -> Decision {
    let value = client.call(&call(command, pairs));
    decision_of(&value).unwrap_or_else(|| panic!("{command} {pairs:?}: no decision: {value:?}"))
}

pub fn all(client: &mut Client, pairs: &[(&str, &str)]) -> Decision {
    decide(client, "RL.ALL", pairs)
}

pub fn error(client: &mut Client, words: &[&str]) -> String {
    let value = client.call(words);
    raw_error(&value).unwrap_or_else(|| panic!("{words:?}: no error: {value:?}"))
}

/// Returns a rule of each algorithm, `limit` per 366 days, for a key that is named after the
/// algorithm.
pub fn one_of_each(limit: u64) -> Vec<(&'static str, String)> {
    let rule = |algorithm: &Algorithm| {
        format!("{} {}", algorithm.name, algorithm.arguments(limit, "366d"))
    };
    ALGORITHMS.iter().map(|algorithm| (algorithm.name, rule(algorithm))).collect()
}

pub fn borrowed<'a>(pairs: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    pairs.iter().map(|(key, rule)| (*key, rule.as_str())).collect()
}
