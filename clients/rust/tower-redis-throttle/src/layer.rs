//! The layer and its options.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderName;
use http::{Response, request};
use redis_throttle_client::{ClientAddress, Decision, Error, HeaderStyle, Limiter, Rule};
use tower_layer::Layer;

use crate::function::{Answer, Function};
use crate::request::{KeyedRule, Plan, RuleOf};
use crate::{RateLimit, RequestParts};

/// A layer that checks each request with a limiter. All rules are checked in one call.
#[derive(Debug, Clone)]
pub struct RateLimitLayer(Arc<Plan>);

impl RateLimitLayer {
    /// Creates a layer with one rule per client address.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// # let handler = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) };
    /// # use http::{Request, Response};
    /// # use std::convert::Infallible;
    /// use redis_throttle_client::Rule;
    /// use tower::{ServiceBuilder, ServiceExt};
    /// use tower_redis_throttle::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::new(limiter, Rule::gcra("api", 1, 10, "1m")?)?;
    /// let service = ServiceBuilder::new().layer(layer).service_fn(handler);
    /// for status in [200, 429] {
    ///     assert_eq!(service.clone().oneshot(Request::new(())).await?.status(), status);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the rule cannot have the limiter's `on_error`.
    pub fn new(limiter: Limiter, rule: Rule) -> Result<Self, Error> {
        Self::builder(limiter).rule(rule).build()
    }

    /// Starts building a layer. It needs at least one rule.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// # let handler = |_: Request<()>| async { Ok::<_, Infallible>(Response::new(())) };
    /// # use http::{Request, Response};
    /// # use std::convert::Infallible;
    /// use redis_throttle_client::Rule;
    /// use tower::{ServiceBuilder, ServiceExt};
    /// use tower_redis_throttle::RateLimitLayer;
    ///
    /// let layer = RateLimitLayer::builder(limiter)
    ///     .rule(Rule::gcra("api", 10, 10, "1m")?)
    ///     .key(|request| request.header("x-user").map(str::to_owned))
    ///     .build()?;
    /// let service = ServiceBuilder::new().layer(layer).service_fn(handler);
    /// let request = Request::builder().header("x-user", "42").body(())?;
    /// assert_eq!(service.oneshot(request).await?.headers()["ratelimit"], r#""api";r=9;t=6"#);
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(limiter: Limiter) -> Builder {
        Builder {
            plan: Plan {
                limiter,
                rules: Vec::new(),
                key: None,
                skip: None,
                cost: None,
                on_denied: None,
                headers: vec![HeaderStyle::Draft11],
                proxies: ClientAddress::default(),
                knows_proxies: false,
                anonymous: None,
                tag: None,
                degraded_header: None,
            },
            trusted_proxies: None,
            degraded_header: None,
        }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, self.0.clone())
    }
}

/// The options of a [`RateLimitLayer`].
#[must_use]
pub struct Builder {
    plan: Plan,
    trusted_proxies: Option<Vec<String>>,
    degraded_header: Option<String>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Builder").field(&self.plan).finish()
    }
}

impl Builder {
    /// Adds a rule that uses the layer's key function. A layer checks 1 to 16 rules in one call.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.plan.rules.push(KeyedRule { rule: RuleOf::All(rule), key: None });
        self
    }

    /// Adds a rule with its own key function.
    pub fn rule_by<R: Answer<Option<String>, M>, M>(
        mut self,
        rule: Rule,
        key: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        let key = Some(Function::new(key));
        self.plan.rules.push(KeyedRule { rule: RuleOf::All(rule), key });
        self
    }

    /// Adds a rule that a function of the request returns, such as that of the user's plan. With
    /// `None` the request has one rule less; a request without rules is not limited.
    pub fn rule_fn<R: Answer<Option<Rule>, M>, M>(
        mut self,
        rule: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        let rule = RuleOf::Request(Function::new(rule));
        self.plan.rules.push(KeyedRule { rule, key: None });
        self
    }

    /// Adds a rule that a function of the request returns, as [`rule_fn`](Builder::rule_fn) does,
    /// with its own key function.
    pub fn rule_fn_by<R: Answer<Option<Rule>, M>, M, S: Answer<Option<String>, N>, N>(
        mut self,
        rule: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
        key: impl Fn(&RequestParts<'_>) -> S + Send + Sync + 'static,
    ) -> Self {
        let (rule, key) = (RuleOf::Request(Function::new(rule)), Some(Function::new(key)));
        self.plan.rules.push(KeyedRule { rule, key });
        self
    }

    /// Sets the key function, which returns the user, IP or tenant of a request. Default: the
    /// client's address. If the key is `None` or empty, the response is 400, or the request is
    /// limited by the rule set by [`anonymous`](Builder::anonymous).
    pub fn key<R: Answer<Option<String>, M>, M>(
        mut self,
        key: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        self.plan.key = Some(Function::new(key));
        self
    }

    /// Sets a function that selects the requests to pass without a check. Default: none.
    pub fn skip<R: Answer<bool, M>, M>(
        mut self,
        skip: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        self.plan.skip = Some(Function::new(skip));
        self
    }

    /// Sets a request's cost under rules that take a cost: 0 to 10^12 units. Default: 1. A request
    /// with a larger cost gets the response 400.
    pub fn cost<R: Answer<u64, M>, M>(
        mut self,
        cost: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        self.plan.cost = Some(Function::new(cost));
        self
    }

    /// Sets a function that changes the response to a denial. Default: no change.
    pub fn on_denied(
        mut self,
        on_denied: impl Fn(&request::Parts, &Decision, Response<Bytes>) -> Response<Bytes>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.plan.on_denied = Some(Arc::new(on_denied));
        self
    }

    /// Sets the forms of the RateLimit fields. Default: [`HeaderStyle::Draft11`].
    pub fn headers(mut self, styles: impl Into<Vec<HeaderStyle>>) -> Self {
        self.plan.headers = styles.into();
        self
    }

    /// Sets the trusted proxies, whose `X-Forwarded-For` is used: addresses, networks, or `unix`.
    /// Default: none; the first such field that arrives is then logged, because all clients behind
    /// a proxy share one limit. With an empty list it is not logged. Peers without an address share
    /// one limit, which is logged once.
    pub fn trusted_proxies<T: Into<String>>(
        mut self,
        proxies: impl IntoIterator<Item = T>,
    ) -> Self {
        self.trusted_proxies = Some(proxies.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the rule for requests without a key, counted by the client's address. Default: none;
    /// such requests get the response 400.
    pub fn anonymous(mut self, rule: Rule) -> Self {
        self.plan.anonymous = Some(rule);
        self
    }

    /// Sets the function that returns the hash tag of a request's keys, which a cluster needs for
    /// several rules. Default: none.
    pub fn tag<R: Answer<Option<String>, M>, M>(
        mut self,
        tag: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        self.plan.tag = Some(Function::new(tag));
        self
    }

    /// Sets the name of a request header that the layer sets to `1` for the service when the
    /// limiter was unavailable. A value from the client is removed. Default: none.
    pub fn degraded_header(mut self, name: impl Into<String>) -> Self {
        self.degraded_header = Some(name.into());
        self
    }

    /// Creates the layer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of the invalid option: no rule or more than 16, a
    /// repeated rule name, a rule that cannot have its `on_error`, a cost that no rule takes, an
    /// invalid proxy or header name.
    pub fn build(self) -> Result<RateLimitLayer, Error> {
        let Self { mut plan, trusted_proxies, degraded_header } = self;
        let invalid = |argument, expected: &str| {
            Err(Error::InvalidArgument { argument, expected: expected.to_owned() })
        };
        if !(1..=16).contains(&plan.rules.len()) {
            return invalid("rules", "expected 1 to 16 rules");
        }
        let rules: Vec<_> = plan.rules.iter().filter_map(|keyed| keyed.rule.fixed()).collect();
        for rule in rules.iter().copied().chain(&plan.anonymous) {
            plan.limiter.can_decide(rule)?;
        }
        let mut names: Vec<_> = rules.iter().map(|rule| rule.name()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid("rules", "expected each rule name once");
        }
        let are_known = rules.len() == plan.rules.len();
        if plan.cost.is_some() && are_known && !rules.iter().any(|rule| rule.takes_cost()) {
            return invalid("cost", "expected a rule that takes a cost");
        }
        if let Some(proxies) = trusted_proxies {
            plan.proxies = ClientAddress::new(proxies.iter().map(String::as_str))?;
            plan.knows_proxies = true;
        }
        if let Some(name) = degraded_header {
            match HeaderName::try_from(name) {
                Ok(name) => plan.degraded_header = Some(name),
                Err(_) => return invalid("degraded_header", "expected the name of an HTTP header"),
            }
        }
        Ok(RateLimitLayer(Arc::new(plan)))
    }
}
