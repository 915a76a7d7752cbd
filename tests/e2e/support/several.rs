//! Calls with several rules: their arguments and their replies.

use redis::Value;

use super::{Reply, integers};

/// The reply to several rules: five integers, the number of the rule that decides, and a row per
/// rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub five: Reply,
    pub rule: i64,
    pub rows: Vec<Reply>,
}

pub fn answer(value: &Value) -> Option<Answer> {
    let Value::Array(fields) = value else { return None };
    let (head, rows) = fields.split_at_checked(6)?;
    let Value::Int(rule) = head[5] else { return None };
    let five = integers(&Value::Array(head[..5].to_vec()))?;
    let rows = rows.iter().map(integers).collect::<Option<_>>()?;
    Some(Answer { five, rule, rows })
}

/// Returns a call of `RL.ALL` or `RL.PEEKALL`, with the keys and rules in pairs.
pub fn call<'a>(command: &'a str, pairs: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let words = pairs.iter().flat_map(|(key, rule)| [*key, *rule]);
    [command].into_iter().chain(words).collect()
}
