//! HTTP: the header fields of a decision, and the body of a denial.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use crate::rules::clock;
use crate::{Decision, Error, Source};

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// The form of the RateLimit header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeaderStyle {
    /// `RateLimit-Policy` and `RateLimit` of revision 11 of the draft.
    Draft11,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`. The reset is in seconds from now.
    Draft6,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`. The reset is Unix time in seconds.
    XRateLimit,
}

impl FromStr for HeaderStyle {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "draft-11" => Ok(Self::Draft11),
            "draft-6" => Ok(Self::Draft6),
            "x-ratelimit" => Ok(Self::XRateLimit),
            _ => Err(Error::invalid("headers", "expected draft-11, draft-6 or x-ratelimit")),
        }
    }
}

/// Returns `Retry-After` in seconds, rounded up and at least 1, because a client that retries too
/// early is denied again. `None` if a retry never helps.
pub(crate) fn retry_after_s(retry_after: Duration) -> Option<u64> {
    (retry_after < Duration::MAX).then(|| ceil_s(retry_after).max(1))
}

fn ceil_s(span: Duration) -> u64 {
    clock::ceil_ms(span).div_ceil(1000)
}

impl Decision {
    /// Returns the HTTP header fields of this decision in the given forms. A denial includes
    /// `Retry-After`, unless a retry never helps. A decision with source [`Source::Error`] has no
    /// other fields.
    #[must_use]
    pub fn headers(&self, styles: &[HeaderStyle]) -> Vec<(&'static str, String)> {
        self.headers_at(styles, clock::epoch_ms())
    }

    /// Returns the fields of [`headers`](Decision::headers), computed for a Unix time in ms.
    #[must_use]
    pub fn headers_at(&self, styles: &[HeaderStyle], now_ms: u64) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if self.source != Source::Error {
            for style in styles {
                self.push_fields(*style, now_ms, &mut fields);
            }
        }
        if let Some(seconds) = self.denied_for_s() {
            fields.push(("Retry-After", seconds.to_string()));
        }
        fields
    }

    /// Returns the problem of a denial: status 429; 403 if the caller is banned; 413 if a retry
    /// never helps; 503 if `on_error` denied because the server gave no answer.
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

    fn denied_for_s(&self) -> Option<u64> {
        if self.allowed { None } else { retry_after_s(self.retry_after) }
    }

    fn push_fields(
        &self,
        style: HeaderStyle,
        now_ms: u64,
        fields: &mut Vec<(&'static str, String)>,
    ) {
        let names = match style {
            HeaderStyle::Draft11 => {
                let (policies, limits) = self.items();
                fields.push(("RateLimit-Policy", policies));
                fields.push(("RateLimit", limits));
                return;
            }
            HeaderStyle::Draft6 => ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"],
            HeaderStyle::XRateLimit => {
                ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"]
            }
        };
        let reset = if style == HeaderStyle::XRateLimit {
            let retries = !self.allowed && !self.never();
            let until = if retries { self.retry_after } else { self.reset_after };
            now_ms.saturating_add(clock::ceil_ms(until)).div_ceil(1000)
        } else {
            self.t(self)
        };
        fields.extend(names.into_iter().zip([self.limit, self.remaining, reset].map(text)));
    }

    /// Returns the decision of each rule.
    fn rows_or_self(&self) -> &[Self] {
        if self.rows.is_empty() { std::slice::from_ref(self) } else { &self.rows }
    }

    /// Returns the values of `RateLimit-Policy` and `RateLimit`. A rule name needs no escaping.
    fn items(&self) -> (String, String) {
        let rows = self.rows_or_self().iter().filter(|row| row.source != Source::Error);
        let (mut policies, mut limits) = (String::new(), String::new());
        for row in rows {
            let comma = if policies.is_empty() { "" } else { ", " };
            let _ = write!(policies, "{comma}\"{}\";q={}", row.rule, row.limit);
            if let Some(window) = row.window.filter(|window| window.as_secs() > 0) {
                let _ = write!(policies, ";w={}", ceil_s(window));
            }
            let _ = write!(limits, "{comma}\"{}\";r={};t={}", row.rule, row.remaining, self.t(row));
        }
        (policies, limits)
    }

    /// Returns the seconds until the row's retry if the row denies, otherwise until its reset. If
    /// this decision denies, returns at most its `Retry-After`.
    fn t(&self, row: &Self) -> u64 {
        let seconds = row.denied_for_s().unwrap_or_else(|| ceil_s(row.reset_after));
        self.denied_for_s().map_or(seconds, |whole| seconds.min(whole))
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
    /// [`HeaderStyle::Draft11`], and `Cache-Control`, since no cache may answer another request
    /// with it. Empty for any other error.
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

fn text(number: u64) -> String {
    number.to_string()
}

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
