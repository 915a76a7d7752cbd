//! The response to a denial: its status, its header fields and its body.

use std::fmt::Write;

use crate::rules::headers::retry_after_s;
use crate::{Decision, Error, HeaderStyle, Source};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// A problem (RFC 9457): the body of a response that the limiter sends itself. It contains no key,
/// no subject and no limit of other clients.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The kind of problem, as a URI.
    pub kind: &'static str,
    /// The name of the status, such as `Too Many Requests`.
    pub title: &'static str,
    /// The status code.
    pub status: u16,
    /// One sentence for a person.
    pub detail: String,
    /// The names of the rules that deny.
    pub violated_policies: Vec<String>,
}

impl Problem {
    /// Creates the problem for a request without a subject: status 400.
    #[must_use]
    pub fn no_subject() -> Self {
        Self::plain(400, "Bad Request", "The request does not say who it is from.")
    }

    /// Creates the problem for a request whose cost is no number of units: status 400.
    #[must_use]
    pub fn invalid_cost() -> Self {
        Self::plain(400, "Bad Request", "The cost of the request is out of range.")
    }

    /// Creates the problem for a call that returned an error: status 500. It contains no details of
    /// the error.
    #[must_use]
    pub fn rejected() -> Self {
        Self::plain(500, "Internal Server Error", "The rate limiter could not be asked.")
    }

    fn plain(status: u16, title: &'static str, detail: &str) -> Self {
        let violated_policies = Vec::new();
        Self { kind: "about:blank", title, status, detail: detail.to_owned(), violated_policies }
    }

    /// Returns the problem as JSON. Nothing in it needs escaping: rule names consist of letters,
    /// digits and `._:/-`.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self { kind, title, status, detail, violated_policies } = self;
        let mut body =
            format!(r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"{detail}""#);
        if !violated_policies.is_empty() {
            let _ = write!(body, r#","violated-policies":["{}"]"#, violated_policies.join("\",\""));
        }
        body.push('}');
        body
    }
}

impl Decision {
    /// Returns the problem of a denial: status 429; 403 if the caller is banned; 413 if a retry
    /// never helps; 503 if `on_error` denied because the server did not decide.
    #[must_use]
    pub fn problem(&self) -> Problem {
        if self.source == Source::Error {
            let detail = "The rate limiter is not available.";
            return Problem::plain(503, "Service Unavailable", detail);
        }
        if self.banned {
            return Problem::plain(403, "Forbidden", "This caller is blocked.");
        }
        let Some(seconds) = retry_after_s(self.retry_after) else {
            let detail = "This request costs more than its limit allows at once.";
            return Problem::plain(413, "Content Too Large", detail);
        };
        let plural = if seconds == 1 { "" } else { "s" };
        let detail = format!("Come back in {seconds} second{plural}.");
        let denying =
            self.rows_or_self().iter().filter(|row| !row.allowed).map(|row| row.rule.to_string());
        Problem {
            kind: QUOTA_EXCEEDED,
            violated_policies: denying.collect(),
            ..Problem::plain(429, "Too Many Requests", &detail)
        }
    }
}

impl Error {
    /// Returns the status of the response to a denial, as [`Decision::problem`] has it: 429, 403,
    /// 413 or 503. `None` for any other error.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.denial().map(|decision| decision.problem().status)
    }

    /// Returns the header fields of the response to a denial: those of the decision in the form
    /// [`HeaderStyle::Draft11`], and `Cache-Control`, since no cache may use it for another
    /// request. Empty for any other error.
    #[must_use]
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let Some(decision) = self.denial() else { return Vec::new() };
        let mut fields = decision.headers(&[HeaderStyle::Draft11]);
        fields.push(("Cache-Control", "no-store".to_owned()));
        fields
    }

    fn denial(&self) -> Option<&Decision> {
        if let Self::Denied(decision) = self { Some(decision) } else { None }
    }
}
