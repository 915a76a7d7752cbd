//! The check of a request, and the responses that the layer sends itself.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
};
use http::request::Parts;
use http::{Response, StatusCode};
use redis_throttle_client::{
    Checked, ClientAddress, Decision, Error, HeaderStyle, Item, Lease, Limiter, Problem, Rule,
};

use crate::request::{KeyFunction, KeyedRule, RequestParts, client_address};

type Skip = Arc<dyn Fn(&RequestParts<'_>) -> bool + Send + Sync>;
type Cost = Arc<dyn Fn(&RequestParts<'_>) -> u64 + Send + Sync>;
type OnDenied = Arc<dyn Fn(&Parts, &Decision, Response<Bytes>) -> Response<Bytes> + Send + Sync>;

/// The checked options of a layer.
pub(crate) struct Plan {
    pub limiter: Limiter,
    pub rules: Vec<KeyedRule>,
    pub key: Option<KeyFunction>,
    pub skip: Option<Skip>,
    pub cost: Option<Cost>,
    pub on_denied: Option<OnDenied>,
    pub headers: Vec<HeaderStyle>,
    pub proxies: ClientAddress,
    pub anonymous: Option<Rule>,
    pub tag: Option<KeyFunction>,
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

/// The verdict on a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    Skipped,
    Admitted(Decision, Vec<Lease>),
    Answered(Response<Bytes>),
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
        if self.skip.as_ref().is_some_and(|skip| skip(&parts)) {
            self.tell(head, None);
            return Verdict::Skipped;
        }
        let Some(asked) = self.asked(&parts) else {
            return Verdict::Answered(answer(&Problem::no_subject()));
        };
        let items: Vec<Item<'_>> =
            asked.iter().map(|(rule, subject, cost)| rule.of(subject).cost(*cost)).collect();
        let tag = self.tag.as_ref().and_then(|tag| tag(&parts));
        match self.limiter.check_with_leases(&items, tag.as_deref()).await {
            Ok(Checked { decision, leases, .. }) if decision.allowed => {
                self.tell(head, Some(&decision));
                Verdict::Admitted(decision, leases)
            }
            Ok(checked) => Verdict::Answered(self.denial(head, &checked.decision)),
            Err(error) => Verdict::Answered(rejected(error)),
        }
    }

    /// Returns each rule with its subject and cost. `None` if a subject is missing and no anonymous
    /// rule applies.
    fn asked(&self, parts: &RequestParts<'_>) -> Option<Vec<(Rule, String, u64)>> {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(parts));
        let cost_of = |rule: &Rule| if rule.takes_cost() { cost } else { 1 };
        let address = || parts.client_address().map(str::to_owned);
        let subject = |keyed: &KeyedRule| {
            let key = keyed.key.as_ref().or(self.key.as_ref());
            let subject = key.map_or_else(address, |key| key(parts))?;
            let call = (keyed.rule.clone(), subject, cost_of(&keyed.rule));
            (!call.1.is_empty()).then_some(call)
        };
        let of_anonymous = || {
            let rule = self.anonymous.clone()?;
            let cost = cost_of(&rule);
            Some(vec![(rule, address()?, cost)])
        };
        self.rules.iter().map(subject).collect::<Option<Vec<_>>>().or_else(of_anonymous)
    }

    /// Adds the decision and the degraded header to the request, for the service.
    fn tell(&self, head: &mut Parts, decision: Option<&Decision>) {
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

    fn denial(&self, head: &Parts, decision: &Decision) -> Response<Bytes> {
        let mut answer = answer(&Problem::of(decision));
        self.add_fields(answer.headers_mut(), decision);
        match &self.on_denied {
            Some(on_denied) => on_denied(head, decision, answer),
            None => answer,
        }
    }

    /// Adds the limiter's fields to a response. List fields are appended. Any other field is added
    /// only if the response does not have it.
    pub fn add_fields(&self, headers: &mut HeaderMap, decision: &Decision) {
        for (name, value) in decision.headers(&self.headers) {
            let Ok(value) = HeaderValue::try_from(value) else { continue };
            let name = HeaderName::try_from(name).expect("the name of a header");
            let is_list = matches!(name.as_str(), "ratelimit" | "ratelimit-policy");
            if is_list || !headers.contains_key(&name) {
                headers.append(name, value);
            }
        }
    }
}

/// Creates the response whose body is the problem.
fn answer(problem: &Problem) -> Response<Bytes> {
    let body = Bytes::from(problem.to_json());
    let mut answer = Response::new(body);
    *answer.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let length = HeaderValue::from(answer.body().len());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, length);
    answer
}

/// Returns the response to a call that the server refused: 500, with the error as an extension for
/// logging.
fn rejected(error: Error) -> Response<Bytes> {
    let mut answer = answer(&Problem::rejected());
    answer.extensions_mut().insert(Arc::new(error));
    answer
}
