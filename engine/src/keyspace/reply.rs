//! The replies of commands.

use crate::decision::{Decision, Verdict};
use crate::rule_set::{Force, Row, deciding};
use crate::time::Span;

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The simple string `OK`.
    Okay,
    /// An integer.
    Integer(i64),
    /// An array.
    Array(Vec<Self>),
}

/// Returns a number as an integer of a reply.
pub fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn ms(span: Span) -> i64 {
    integer(span.as_ms_ceil())
}

/// Returns an array of integers.
pub fn array(integers: &[i64]) -> Reply {
    Reply::Array(integers.iter().copied().map(Reply::Integer).collect())
}

/// Returns five integers, or seven for a policy.
pub fn row_reply(decision: &Decision, force: Option<Force>) -> Reply {
    let five = decision.integers();
    let would = [five[0], five[3]];
    if force.is_some() { array(&[&five[..], &would].concat()) } else { array(&five) }
}

/// Returns six integers, then a row for each rule.
pub fn rows_reply(rows: &[Row]) -> Reply {
    let at = deciding(rows);
    let mut head = rows.get(at).map(|row| row.decision.integers()).unwrap_or_default();
    let allowed = head[0] != 0;
    if allowed {
        let waits = rows.iter().filter_map(|row| row.decision.verdict.wait());
        head[3] = waits.max().map_or(0, ms);
    }
    let mut reply: Vec<_> = head.into_iter().map(Reply::Integer).collect();
    reply.push(Reply::Integer(integer(at as u64 + 1)));
    reply.extend(rows.iter().map(|row| {
        let mut decision = row.decision;
        // In a denied call, a rule that would allow it reports no wait.
        if !allowed && decision.verdict.is_allowed() {
            decision.verdict = Verdict::ALLOWED;
        }
        row_reply(&decision, row.force)
    }));
    Reply::Array(reply)
}
