//! Several rules for one call: the choice of the one that gives the reply.
//!
//! A call is allowed if every rule allows it. The reply is then that of the rule that runs out
//! first. Otherwise it is that of the rule with the longest wait, so that after this time all rules
//! allow the call.
//!
//! A rule in shadow mode does not affect the verdict. It gives the reply only if no rule is
//! enforced.

use crate::bounds::Cost;
use crate::decision::{Decision, Verdict};

/// The result of one of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The rule's own decision.
    pub decision: Decision,
    /// The units the call takes under this rule.
    pub cost: Cost,
    /// The units that must remain after the call.
    pub left_units: u64,
    /// The enforcement of a policy's rule; `None` for any other rule, which is always enforced.
    pub force: Option<Force>,
}

/// The enforcement of the decision of a policy's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// The decision is the reply.
    Enforced,
    /// The call is allowed. The decision only shows what enforcement would do.
    Shadow,
}

impl Row {
    /// Returns true if the rule is enforced.
    pub fn is_enforced(&self) -> bool {
        self.force != Some(Force::Shadow)
    }

    /// Returns true if the rule denies the call.
    pub fn denies(&self) -> bool {
        !self.decision.verdict.is_allowed() && self.is_enforced()
    }
}

/// Returns the index of the deciding rule among `rows`: the first of equal ones, or 0 if there are
/// no rules.
///
/// For a denied call, the rule with the longest wait decides, in whole ms as in the reply. A rule
/// that never allows the call counts as the longest wait. For an allowed call, the rule that allows
/// the fewest more calls of its cost decides, then the one with the fewest units left. A cost of 0
/// allows any number of calls. Rules in shadow mode come after all others.
pub fn deciding(rows: &[Row]) -> usize {
    let denied = rows.iter().any(Row::denies);
    let precedence = |row: &Row| match row.decision.verdict {
        verdict if verdict.is_allowed() && denied || !row.is_enforced() => (0, 0),
        Verdict::Allowed { .. } | Verdict::Granted { .. } => {
            (u64::MAX - calls_left(row), u64::MAX - row.decision.remaining)
        }
        Verdict::Denied { retry_after } | Verdict::Banned { retry_after: Some(retry_after) } => {
            ((retry_after.as_ms_ceil() + 1).min(u64::MAX - 1), 0)
        }
        Verdict::Impossible | Verdict::Banned { retry_after: None } => (u64::MAX, 0),
    };
    let ranked = rows.iter().map(precedence).enumerate();
    ranked.reduce(|first, next| if next.1 > first.1 { next } else { first }).map_or(0, |(at, _)| at)
}

/// Returns the number of further calls of the same cost and `LEAVE` that the rule allows, rounded
/// down; unlimited for a cost of 0.
fn calls_left(row: &Row) -> u64 {
    let usable = row.decision.remaining.saturating_sub(row.left_units);
    usable.checked_div(row.cost.units()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Force, Row, deciding};
    use crate::bounds::{Cost, Limit};
    use crate::decision::{Decision, Verdict};
    use crate::time::Span;

    fn row(verdict: Verdict, remaining: u64, cost: u64) -> Row {
        let limit = Limit::new(Limit::MAX).expect("in range");
        let decision = Decision { verdict, limit, remaining, reset_after: Span::ZERO };
        Row { decision, cost: Cost::new(cost).expect("in range"), left_units: 0, force: None }
    }

    fn shadow(row: Row) -> Row {
        Row { force: Some(Force::Shadow), ..row }
    }

    fn allowed(remaining: u64, cost: u64) -> Row {
        row(Verdict::ALLOWED, remaining, cost)
    }

    fn denied(retry_after_us: u64) -> Row {
        row(Verdict::Denied { retry_after: Span::from_us(retry_after_us) }, 7, 1)
    }

    #[test]
    fn the_rule_that_runs_out_first_or_waits_longest_decides() {
        let never = row(Verdict::Impossible, 7, 8);
        let table: [(&[Row], usize); 19] = [
            (&[allowed(5, 1)], 0),
            // Four units are one call of cost 4; five are five calls of cost 1.
            (&[allowed(5, 1), allowed(4, 4)], 1),
            // Each allows one more call: fewer units left decide, then the first rule.
            (&[allowed(6, 4), allowed(5, 4)], 1),
            (&[allowed(5, 4), allowed(5, 4)], 0),
            // Nothing left is no call; a cost of 0 is unlimited, even with nothing left.
            (&[allowed(0, 0), allowed(9, 1)], 1),
            (&[allowed(3, 0), allowed(2, 0)], 1),
            // Five of seven units stay: two calls of cost 1 are fewer than three.
            (&[allowed(3, 1), Row { left_units: 5, ..allowed(7, 1) }], 1),
            (&[allowed(0, 1), Row { left_units: 5, ..allowed(4, 1) }], 0),
            // Denied: a rule that allows the call does not decide.
            (&[allowed(0, 1), denied(1)], 1),
            (&[denied(2_000), denied(3_000), allowed(0, 9)], 1),
            // Equal in whole ms, as in the reply: the first.
            (&[denied(2_001), denied(3_000)], 0),
            (&[denied(0), denied(0)], 0),
            // Never is the longest wait.
            (&[denied(u64::MAX), never, never], 1),
            // A rule in shadow mode does not decide, whatever its result, not even next to a cost
            // of 0.
            (&[shadow(allowed(0, 1)), allowed(9, 1)], 1),
            (&[shadow(denied(9_000)), allowed(9, 0)], 1),
            (&[shadow(never), denied(1), shadow(never)], 1),
            // If all are in shadow mode, the first decides.
            (&[shadow(allowed(5, 1)), shadow(denied(9))], 0),
            (&[Row { force: Some(Force::Enforced), ..denied(2_000) }, shadow(never)], 0),
            (&[], 0),
        ];
        for (rows, expected) in table {
            assert_eq!(deciding(rows), expected, "{rows:?}");
        }
    }
}
