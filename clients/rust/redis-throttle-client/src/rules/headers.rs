//! The header fields of a decision.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use crate::rules::{clock, durations::ceil_ms};
use crate::{Decision, Error, Source};

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
    ceil_ms(span).div_ceil(1000)
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
            now_ms.saturating_add(ceil_ms(until)).div_ceil(1000)
        } else {
            self.t(self)
        };
        fields.extend(names.into_iter().zip([self.limit, self.remaining, reset].map(text)));
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

fn text(number: u64) -> String {
    number.to_string()
}
