//! The check of a request, and the responses that the layer sends itself.

use std::fmt;
use std::sync::{Arc, Once};

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue,
};
use http::request::Parts;
use http::{Response, StatusCode};
use redis_throttle_client::{
    Checked, ClientAddress, Decision, Error, HeaderStyle, Item, Limiter, Problem, Rule,
};

use crate::ResponseBody;
use crate::function::Function;
use crate::parts::{FORWARDED_FOR, RequestParts, client_address};

type OnDenied = Arc<dyn Fn(&Parts, &Decision, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

/// The checked options of a layer.
pub(crate) struct Plan {
    pub limiter: Limiter,
    pub rules: Vec<KeyedRule>,
    pub key: Option<Function<Option<String>>>,
    pub skip: Option<Function<bool>>,
    pub cost: Option<Function<u64>>,
    pub on_denied: Option<OnDenied>,
    pub headers: Vec<HeaderStyle>,
    pub proxies: ClientAddress,
    /// True if the trusted proxies were set, also to an empty list.
    pub knows_proxies: bool,
    pub anonymous: Option<Rule>,
    pub tag: Option<Function<Option<String>>>,
    pub degraded_header: Option<HeaderName>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Plan")
            .field("limiter", &self.limiter)
            .field("rules", &self.rules)
            .field("headers", &self.headers)
            .field("anonymous", &self.anonymous)
            .finish_non_exhaustive()
    }
}

/// A rule with its own key function, if it has one.
pub(crate) struct KeyedRule {
    pub rule: RuleOf,
    pub key: Option<Function<Option<String>>>,
}

/// A rule, or a function of the request that returns it.
pub(crate) enum RuleOf {
    All(Rule),
    Request(Function<Option<Rule>>),
}

impl RuleOf {
    /// Returns the rule that is the same for all requests.
    pub fn fixed(&self) -> Option<&Rule> {
        if let Self::All(rule) = self { Some(rule) } else { None }
    }

    async fn get(&self, parts: &RequestParts<'_>) -> Option<Rule> {
        match self {
            Self::All(rule) => Some(rule.clone()),
            Self::Request(function) => function.call(parts).await,
        }
    }
}

impl fmt::Debug for KeyedRule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule.fixed() {
            Some(rule) => rule.fmt(formatter),
            None => formatter.write_str("a rule of the request"),
        }
    }
}

/// The verdict on a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    Skipped,
    Admitted(Checked),
    Refused(Response<Bytes>),
}

/// The name of the degraded header, as a request extension. Its presence means that an outer layer
/// has already removed the client's value.
#[derive(Debug, Clone)]
struct Cleaned(HeaderName);

impl Plan {
    /// Checks a request and adds the decision to it.
    pub async fn verdict(&self, head: &mut Parts) -> Verdict {
        let address = client_address(&self.proxies, head);
        let parts = RequestParts::new(head, address.as_deref());
        let skips = call_or(self.skip.as_ref(), &parts, false).await;
        let limits = if skips { Some(Vec::new()) } else { self.limits(&parts).await };
        let Some(limits) = limits else {
            return Verdict::Refused(response_to(&Problem::no_subject()));
        };
        if limits.is_empty() {
            self.annotate(head, None);
            return Verdict::Skipped;
        }
        let cost = call_or(self.cost.as_ref(), &parts, 1).await;
        let tag = call_or(self.tag.as_ref(), &parts, None).await;
        let items = limits.iter().map(|(rule, subject)| item(rule, subject, cost));
        let items: Vec<_> = items.collect();
        match self.limiter.check_with_leases(&items, tag.as_deref()).await {
            Ok(checked) if checked.decision.allowed => {
                self.annotate(head, Some(&checked.decision));
                Verdict::Admitted(checked)
            }
            Ok(checked) => Verdict::Refused(self.denial(Some(head), &checked.decision)),
            Err(error) => Verdict::Refused(failed(error)),
        }
    }

    /// Returns the rules of the request, each with its subject. `None` if a subject is missing and
    /// no anonymous rule applies.
    async fn limits(&self, parts: &RequestParts<'_>) -> Option<Vec<(Rule, String)>> {
        let address = || {
            self.note_forwarded(parts);
            parts.client_address().map(str::to_owned)
        };
        let mut shared = None;
        let mut limits = Vec::with_capacity(self.rules.len());
        for KeyedRule { rule, key } in &self.rules {
            let Some(rule) = rule.get(parts).await else { continue };
            let subject = match (key, &self.key, &shared) {
                (Some(key), ..) => key.call(parts).await,
                (None, _, Some(subject)) => Option::clone(subject),
                (None, Some(key), None) => shared.insert(key.call(parts).await).clone(),
                (None, None, None) => address(),
            };
            let Some(subject) = subject.filter(|subject| !subject.is_empty()) else {
                return Some(vec![(self.anonymous.clone()?, address()?)]);
            };
            limits.push((rule, subject));
        }
        Some(limits)
    }

    /// Warns once if the address that is a key may be that of a proxy.
    fn note_forwarded(&self, parts: &RequestParts<'_>) {
        static NOTED: Once = Once::new();
        if !self.knows_proxies && parts.head.headers.contains_key(FORWARDED_FOR) {
            NOTED.call_once(|| {
                log::warn!(
                    "redis-throttle: X-Forwarded-For arrived, but no proxy is trusted: all clients \
                     behind a proxy share one limit. Set trusted_proxies to the networks of the \
                     proxies, or to none."
                );
            });
        }
    }

    /// Adds the decision and the degraded header to the request, for the service.
    fn annotate(&self, head: &mut Parts, decision: Option<&Decision>) {
        let degraded = decision.is_some_and(|decision| decision.degraded);
        if let Some(decision) = decision {
            head.extensions.insert(decision.clone());
        }
        let Some(name) = &self.degraded_header else { return };
        let ours = head.extensions.get::<Cleaned>().is_some_and(|cleaned| cleaned.0 == *name);
        if degraded {
            head.headers.insert(name, HeaderValue::from_static("1"));
        } else if !ours {
            head.headers.remove(name);
        }
        head.extensions.insert(Cleaned(name.clone()));
    }

    /// Returns a copy of the request's head if `on_denied` may need it after the service.
    pub fn kept(&self, head: &Parts) -> Option<Parts> {
        self.on_denied.is_some().then(|| head.clone())
    }

    /// Returns the response to a denial. `head` is that of the request, for `on_denied`.
    pub fn denial(&self, head: Option<&Parts>, decision: &Decision) -> Response<Bytes> {
        let response = denial(decision, &self.headers);
        match (&self.on_denied, head) {
            (Some(on_denied), Some(head)) => on_denied(head, decision, response),
            _ => response,
        }
    }

    /// Responds to a denial that a handler returned as a response, with this layer's fields. Keeps
    /// what layers between the two did to the response.
    pub fn denial_of_handler<B>(
        &self,
        head: Option<&Parts>,
        decision: &Decision,
        mut response: Response<B>,
    ) -> Response<ResponseBody<B>> {
        let headers = response.headers_mut();
        headers.remove("ratelimit");
        headers.remove("ratelimit-policy");
        self.add_fields(headers, decision);
        let (Some(on_denied), Some(head)) = (&self.on_denied, head) else {
            return response.map(ResponseBody::inner);
        };
        // The function gets the bytes of the body, which may be compressed here.
        let (mut parts, _) = response.into_parts();
        let body = Bytes::from(decision.problem().to_json());
        parts.headers.remove(CONTENT_ENCODING);
        parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        on_denied(head, decision, Response::from_parts(parts, body)).map(ResponseBody::complete)
    }

    /// Adds the fields of a decision to a response.
    pub fn add_fields(&self, headers: &mut HeaderMap, decision: &Decision) {
        add_fields(headers, decision, &self.headers);
    }
}

/// Adds the fields of a decision to a response. List fields are appended. Any other field is added
/// only if the response does not have it.
fn add_fields(headers: &mut HeaderMap, decision: &Decision, styles: &[HeaderStyle]) {
    for (name, value) in decision.headers(styles) {
        let Ok(value) = HeaderValue::try_from(value) else { continue };
        let name = HeaderName::try_from(name).expect("the name of a header");
        let is_list = matches!(name.as_str(), "ratelimit" | "ratelimit-policy");
        if is_list || !headers.contains_key(&name) {
            headers.append(name, value);
        }
    }
}

/// Creates the response to a denial.
pub(crate) fn denial(decision: &Decision, styles: &[HeaderStyle]) -> Response<Bytes> {
    let mut response = response_to(&decision.problem());
    add_fields(response.headers_mut(), decision, styles);
    response
}

/// Returns the result of a function of the request, or the default without a function.
async fn call_or<T>(function: Option<&Function<T>>, parts: &RequestParts<'_>, default: T) -> T {
    match function {
        Some(function) => function.call(parts).await,
        None => default,
    }
}

/// Returns the item of a rule, which costs one unit if the rule takes no cost.
fn item<'a>(rule: &'a Rule, subject: &'a str, cost: u64) -> Item<'a> {
    let item = rule.of(subject);
    if rule.takes_cost() { item.cost(cost) } else { item }
}

/// Creates the response whose body is the problem.
fn response_to(problem: &Problem) -> Response<Bytes> {
    let body = Bytes::from(problem.to_json());
    let mut response = Response::new(body);
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let length = HeaderValue::from(response.body().len());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, length);
    response
}

/// Returns the response to a call that failed: 400 if the request has no cost or tag that a call
/// can have, because both come from its client; otherwise 500.
fn failed(error: Error) -> Response<Bytes> {
    match error {
        Error::InvalidArgument { argument: "cost", .. } => response_to(&Problem::invalid_cost()),
        Error::InvalidArgument { argument: "subject" | "tag", .. } => {
            response_to(&Problem::no_subject())
        }
        error => rejected(error),
    }
}

/// Returns the response to a call that the server refused: 500, with the error as an extension for
/// logging.
pub(crate) fn rejected(error: Error) -> Response<Bytes> {
    let mut response = response_to(&Problem::rejected());
    response.extensions_mut().insert(Arc::new(error));
    response
}
