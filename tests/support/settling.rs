//! Calls that charge and refund.

use super::Algorithm;

/// Returns a call of `RL.CHARGE` or `RL.REFUND` with this rule.
pub fn settle(command: &str, algorithm: Algorithm, key: &str, limit: u64, cost: u64) -> String {
    let rule = algorithm.arguments(limit, "60");
    format!("{command} {key} {} {rule} COST {cost}", algorithm.name)
}
