//! Several rules for one call: which of them the answer comes from.
//!
//! The call passes when every rule lets it pass. Then the answer is that of the rule that is the
//! first to run out; otherwise that of the rule that keeps it waiting longest, so that coming back
//! after that time finds them all open.
//!
//! A rule in the shadow has no say in either: the call passes it in any case.

use crate::bounds::Cost;
use crate::decision::{Decision, Verdict};

/// What one of the rules answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its own decision.
    pub decision: Decision,
    /// What the call takes under it.
    pub cost: Cost,
    /// Whether it bites, when it is a policy's; `None` for any other, which does.
    pub force: Option<Force>,
}

/// Whether what the rule of a policy decides is what is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// It is.
    Enforced,
    /// The answer is yes. The rule only tells what it would have been.
    Shadow,
}

impl Row {
    /// Whether the rule has a say.
    pub fn bites(&self) -> bool {
        self.force != Some(Force::Shadow)
    }

    /// Whether the rule stands in the way of the call.
    pub fn denies(&self) -> bool {
        !self.decision.verdict.is_allowed() && self.bites()
    }
}

/// The index of the deciding rule among `rows`; of equal ones the first, and 0 when there are none.
///
/// Denied, the longest wait in whole ms as they are answered decides, and never is the longest.
/// Allowed, it is the rule under which the fewest such calls are left, then the one with less left;
/// a cost of 0 never runs out. Rules in the shadow come after all others.
pub fn deciding(rows: &[Row]) -> usize {
    let denied = rows.iter().any(Row::denies);
    let precedence = |row: &Row| match row.decision.verdict {
        verdict if verdict.is_allowed() && denied || !row.bites() => (0, 0),
        Verdict::Allowed { .. } | Verdict::Granted { .. } => {
            (u64::MAX - calls_left(row), u64::MAX - row.decision.remaining)
        }
        Verdict::Denied { retry_after } => ((retry_after.as_ms_ceil() + 1).min(u64::MAX - 1), 0),
        Verdict::Impossible => (u64::MAX, 0),
    };
    let ranked = rows.iter().map(precedence).enumerate();
    ranked.reduce(|first, next| if next.1 > first.1 { next } else { first }).map_or(0, |(at, _)| at)
}

/// How often such a call would still be allowed, rounded down; a cost of 0 for ever.
fn calls_left(row: &Row) -> u64 {
    row.decision.remaining.checked_div(row.cost.units()).unwrap_or(u64::MAX)
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
        Row { decision, cost: Cost::new(cost).expect("in range"), force: None }
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
        let table: [(&[Row], usize); 17] = [
            (&[allowed(5, 1)], 0),
            // Four of cost 4 are one call; five of cost 1 are five.
            (&[allowed(5, 1), allowed(4, 4)], 1),
            // One call each: then less left, then the first.
            (&[allowed(6, 4), allowed(5, 4)], 1),
            (&[allowed(5, 4), allowed(5, 4)], 0),
            // Nothing left is no call, whatever the cost; cost 0 is endless, also beside nothing.
            (&[allowed(0, 0), allowed(9, 1)], 1),
            (&[allowed(3, 0), allowed(2, 0)], 1),
            // Denied: whoever lets it pass has no say.
            (&[allowed(0, 1), denied(1)], 1),
            (&[denied(2_000), denied(3_000), allowed(0, 9)], 1),
            // Equal in whole ms, as they are answered: the first.
            (&[denied(2_001), denied(3_000)], 0),
            (&[denied(0), denied(0)], 0),
            // Never is the longest of all.
            (&[denied(u64::MAX), never, never], 1),
            // In the shadow it has no say, whatever it says, also beside a cost of 0.
            (&[shadow(allowed(0, 1)), allowed(9, 1)], 1),
            (&[shadow(denied(9_000)), allowed(9, 0)], 1),
            (&[shadow(never), denied(1), shadow(never)], 1),
            // With nobody who has one it is the first.
            (&[shadow(allowed(5, 1)), shadow(denied(9))], 0),
            (&[Row { force: Some(Force::Enforced), ..denied(2_000) }, shadow(never)], 0),
            (&[], 0),
        ];
        for (rows, expected) in table {
            assert_eq!(deciding(rows), expected, "{rows:?}");
        }
    }
}
