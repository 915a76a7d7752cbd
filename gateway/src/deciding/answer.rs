//! The answer to a request.

use std::sync::Arc;

use redis_throttle_client::{Decision, HeaderStyle, Problem};

use crate::config::{Limit, OnError, Unit};
use crate::matching::Demand;

use super::asked::{Asked, Hits};

/// The reason that a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// More than 16 rows.
    TooManyRows,
    /// The server gave no answer, and the limit leaves the decision to the proxy.
    Unavailable,
    /// The hits do not fit the rule.
    Invalid(String),
    /// The server refused a call, for example because a user may not send it.
    Refused(String),
}

/// The outcome of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No limit applies, or no call was made for it.
    Free,
    /// The limit allows everything.
    Unlimited,
    /// The limit allows nothing.
    Blocked(Unit),
    /// The server decided.
    Decided(Box<Decision>),
    /// The server gave no answer: the limit's `on_error` decided.
    Away,
}

/// The row of a descriptor.
#[derive(Debug, Clone)]
pub struct Row {
    /// The limit, if one was matched.
    pub limit: Option<Arc<Limit>>,
    /// The outcome.
    pub outcome: Outcome,
    /// Whether the descriptor allows the request, after `on_error` and shadow mode.
    pub allowed: bool,
    /// Whether the units were only charged or refunded.
    is_change: bool,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub struct Answer {
    /// A row for each descriptor, in order.
    pub rows: Vec<Row>,
    /// The decision on all checks, if the server or the limiter made one.
    pub(super) decision: Option<Decision>,
}

impl Answer {
    pub(super) fn new(asked: &[Asked<'_>]) -> Self {
        let rows = asked.iter().map(|Asked { found, hits }| {
            let outcome = match found.as_ref().map(|found| &found.demand) {
                Some(Demand::Unlimited) => Outcome::Unlimited,
                Some(Demand::Denied(unit)) => Outcome::Blocked(*unit),
                _ => Outcome::Free,
            };
            let limit = found.as_ref().map(|found| found.limit.clone());
            let is_shadow = limit.as_ref().is_some_and(|limit| limit.shadow);
            let is_change = match hits {
                Hits::Back(hits) => *hits > 0,
                Hits::Given(hits) => *hits > 0 && limit.as_ref().is_some_and(|one| one.reported),
                Hits::Unset => false,
            };
            let is_blocked = matches!(outcome, Outcome::Blocked(_));
            Row { limit, outcome, allowed: is_shadow || is_change || !is_blocked, is_change }
        });
        Self { rows: rows.collect(), decision: None }
    }

    /// Sets the rows of a decision; `None` for no answer.
    pub(super) fn put(&mut self, rows: &[usize], decision: Option<&Decision>) {
        for at in rows {
            let Some(row) = self.rows.get_mut(*at) else { continue };
            let Some(limit) = &row.limit else { continue };
            let (outcome, allowed) = match decision.filter(|decision| !decision.degraded) {
                // The work is done: a charge denies the next request, not this one.
                Some(decided) => {
                    (Outcome::Decided(Box::new(decided.clone())), decided.allowed || row.is_change)
                }
                None => (Outcome::Away, limit.on_error == OnError::Allow),
            };
            (row.outcome, row.allowed) = (outcome, allowed || limit.shadow);
        }
    }

    /// Returns true if no descriptor denies the request.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.rows.iter().all(|row| row.allowed)
    }

    /// Returns the answer, or a failure if only limits deny that leave it to the proxy.
    pub(super) fn finished(self) -> Result<Self, Failure> {
        let leaves = |row: &&Row| {
            let on_error = row.limit.as_ref().map(|limit| limit.on_error);
            row.outcome == Outcome::Away && on_error == Some(OnError::Unavailable)
        };
        let denying: Vec<&Row> = self.rows.iter().filter(|row| !row.allowed).collect();
        if !denying.is_empty() && denying.iter().all(leaves) {
            return Err(Failure::Unavailable);
        }
        Ok(self)
    }

    /// Returns the header fields for the client.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let is_away = |row: &Row| !row.allowed && row.outcome == Outcome::Away;
        match self.denial().or(self.decision.as_ref()) {
            Some(decision) => decision.headers(&[HeaderStyle::Draft11]),
            // The proxy's patience ended before the limiter's, which would have said the same.
            None if self.rows.iter().any(is_away) => vec![("Retry-After", "1".to_owned())],
            None => Vec::new(),
        }
    }

    /// Returns the decision that denies, if one does.
    fn denial(&self) -> Option<&Decision> {
        let of_all = self.decision.as_ref().filter(|decision| !decision.allowed);
        of_all.or_else(|| {
            self.rows.iter().filter(|row| !row.allowed).find_map(|row| match &row.outcome {
                Outcome::Decided(decision) => Some(&**decision),
                _ => None,
            })
        })
    }

    /// Returns the body of a denial; `None` if the request is allowed.
    #[must_use]
    pub fn problem(&self) -> Option<Problem> {
        let denying = self.rows.iter().find(|row| !row.allowed)?;
        if let Some(denial) = self.denial() {
            return Some(denial.problem());
        }
        let mut problem = Problem::rejected();
        if denying.outcome == Outcome::Away {
            problem.status = 503;
            problem.title = "Service Unavailable";
            problem.detail = "The rate limiter is not available.".to_owned();
        } else {
            problem.status = 429;
            problem.title = "Too Many Requests";
            problem.detail = "No requests are allowed here.".to_owned();
            problem.violated_policies.extend(denying.limit.iter().map(|one| one.name.to_string()));
        }
        Some(problem)
    }
}
