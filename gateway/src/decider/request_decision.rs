//! The decision on a request.

use std::sync::Arc;

use http::StatusCode;
use redis_throttle_client::{Decision, Error, HeaderStyle, Problem, Reason, Source};

use crate::config::{Limit, OnError, Unit};
use crate::matching::Demand;

use super::calls::Check;
use super::descriptors::{DescriptorHits, Hits};

/// More limits than one call takes. The request gets no decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRows;

/// The outcome of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No limit applies, or the limit was not checked.
    Free,
    /// The limit allows everything.
    Unlimited,
    /// The limit allows nothing.
    Blocked(Unit),
    /// The server decided, or the limiter by what it knows of the key.
    Decided(Box<Decision>),
    /// The server sent no reply, or refused the call: the limit's `on_error` decided.
    Unavailable,
}

/// The row of a descriptor.
#[derive(Debug, Clone)]
pub struct Row {
    /// The limit, if one was matched.
    pub limit: Option<Arc<Limit>>,
    /// The outcome.
    pub outcome: Outcome,
    /// True if the descriptor allows the request, after `on_error` and shadow mode.
    pub allowed: bool,
    /// True if the units were only charged or refunded.
    is_change: bool,
}

impl Row {
    /// Returns true if the server sent no reply.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        match &self.outcome {
            Outcome::Unavailable => true,
            Outcome::Decided(decision) => decision.degraded,
            Outcome::Free | Outcome::Unlimited | Outcome::Blocked(_) => false,
        }
    }
}

/// The decision on a request.
#[derive(Debug, Clone)]
pub struct RequestDecision {
    /// A row for each descriptor, in order.
    pub rows: Vec<Row>,
    /// The decision on all checks, if the server or the limiter made one.
    decision: Option<Decision>,
    /// The reasons for which the server, or the client, refused calls. They may name keys.
    pub refusals: Vec<String>,
    /// True if the reply to a call was late or never arrived. Calls that are too many for this
    /// gateway do not count.
    pub(super) lacks_reply: bool,
}

impl RequestDecision {
    pub(super) fn new(descriptors: &[DescriptorHits<'_>]) -> Self {
        let rows = descriptors.iter().map(|DescriptorHits { found, hits }| {
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
            // As in envoyproxy/ratelimit, no hits are not too many for a limit of no requests.
            let takes_nothing = matches!(hits, Hits::Given(0) | Hits::Back(0));
            let is_blocked = matches!(outcome, Outcome::Blocked(_));
            let allowed = is_shadow || is_change || takes_nothing || !is_blocked;
            Row { limit, outcome, allowed, is_change }
        });
        let (decision, refusals) = (None, Vec::new());
        Self { rows: rows.collect(), decision, refusals, lacks_reply: false }
    }

    /// Sets the rows of a call's result.
    pub(super) fn put(&mut self, rows: &[usize], result: Result<Decision, Error>) {
        let decision = self.decided(result);
        self.set(rows, decision.as_ref());
    }

    /// Sets the rows of checks that one call decided.
    pub(super) fn decide<'a>(
        &mut self,
        checks: impl Iterator<Item = &'a Check<'a>>,
        result: Result<Decision, Error>,
    ) {
        let decision = self.decided(result);
        for (at, check) in checks.enumerate() {
            match &decision {
                Some(decision) if !decision.rows.is_empty() => {
                    // After a denial, rules on other nodes were not checked.
                    if let Some(row) = decision.rows.get(at) {
                        self.set(&check.rows, Some(row));
                    }
                }
                whole => self.set(&check.rows, whole.as_ref()),
            }
        }
        self.decision = self.decision.take().or(decision);
    }

    /// Returns the decision of a call's result; `None` if the server did not decide.
    fn decided(&mut self, result: Result<Decision, Error>) -> Option<Decision> {
        let reason = match &result {
            Ok(decision) => decision.reason.filter(|_| decision.degraded),
            Err(Error::Unavailable { reason, .. }) => Some(*reason),
            Err(_) => None,
        };
        self.lacks_reply |= reason.is_some_and(|reason| reason != Reason::Overloaded);
        match result {
            Ok(decision) => Some(decision),
            Err(Error::Unavailable { .. }) => None,
            Err(refusal) => {
                self.refusals.push(refusal.to_string());
                None
            }
        }
    }

    fn set(&mut self, rows: &[usize], decision: Option<&Decision>) {
        for at in rows {
            let Some(row) = self.rows.get_mut(*at) else { continue };
            let Some(limit) = &row.limit else { continue };
            let decision = decision.filter(|decision| decision.source != Source::Error);
            let (outcome, allowed) = match decision {
                // The work is done: a charge denies the next request, not this one.
                Some(decided) => {
                    (Outcome::Decided(Box::new(decided.clone())), decided.allowed || row.is_change)
                }
                None => (Outcome::Unavailable, limit.on_error == OnError::Allow),
            };
            (row.outcome, row.allowed) = (outcome, allowed || limit.shadow);
        }
    }

    /// Returns true if no descriptor denies the request.
    #[must_use]
    pub fn allowed(&self) -> bool {
        self.rows.iter().all(|row| row.allowed)
    }

    /// Returns true if only limits deny that leave the decision to the proxy.
    #[must_use]
    pub fn is_left_to_the_proxy(&self) -> bool {
        let leaves = |row: &&Row| {
            let on_error = row.limit.as_ref().map(|limit| limit.on_error);
            row.outcome == Outcome::Unavailable && on_error == Some(OnError::Unavailable)
        };
        let mut denying = self.rows.iter().filter(|row| !row.allowed).peekable();
        denying.peek().is_some() && denying.all(|row| leaves(&row))
    }

    /// Returns the header fields for the client.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let is_unavailable = |row: &Row| !row.allowed && row.outcome == Outcome::Unavailable;
        match self.denial().or(self.decision.as_ref()) {
            Some(decision) => decision.headers(&[HeaderStyle::Draft11]),
            // The server refused the call.
            None if self.rows.iter().any(is_unavailable) => vec![("Retry-After", "1".to_owned())],
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

    /// Returns the body of a denial; `None` if the request is allowed. `status` is the status that
    /// the caller sees, of the one that the denial itself has: 429, 403, 413 or 503.
    #[must_use]
    pub fn problem(&self, status: impl FnOnce(StatusCode) -> StatusCode) -> Option<Problem> {
        let mut problem = self.own_problem()?;
        let own = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
        let displayed = status(own);
        if displayed != own {
            problem.status = displayed.as_u16();
            problem.title = displayed.canonical_reason().unwrap_or_default();
        }
        Some(problem)
    }

    fn own_problem(&self) -> Option<Problem> {
        let denying = self.rows.iter().find(|row| !row.allowed)?;
        if let Some(denial) = self.denial() {
            return Some(denial.problem());
        }
        let mut problem = Problem::rejected();
        if denying.outcome == Outcome::Unavailable {
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
