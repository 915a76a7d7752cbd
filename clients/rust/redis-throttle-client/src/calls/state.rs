//! The state of a limiter, which its clones and what its callers hold share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::Instant;

use crate::calls::{
    closing::Closing, denial_cache::DenialCache, denials::KnownDenials, error_log::ErrorLog,
    forgotten::Forgotten, local::LocalLimiter, permits::Grants,
};
use crate::net::{backends::Backends, budget::Budget, server::Nodes};
use crate::rules::{clock, counters::Counts, event::OnDecision, item::Keyed, keys::Keys};
use crate::{Error, Item, OnError, Options, Rule, Server};

const LOCAL_KEYS_MAX: usize = 10_000;

/// Decides calls over connections of its own to a server. Each call is sent once and ends within
/// [`timeout`](Options::timeout), or the first dial. A limiter is cheap to clone; its clones share
/// all state.
#[derive(Clone)]
pub struct Limiter(
    pub(crate) Arc<Inner>,
    /// The time of the caller, if this is a view.
    pub(crate) Option<Duration>,
);

pub(crate) struct Inner {
    pub backends: Arc<Backends>,
    pub nodes: Nodes,
    pub options: Options,
    pub keys: Keys,
    pub forgotten: Arc<Forgotten>,
    pub denials: DenialCache,
    pub known: Arc<KnownDenials>,
    pub grants: Grants,
    pub local: Mutex<LocalLimiter>,
    pub counts: Counts,
    pub error_log: ErrorLog,
    pub hooks: RwLock<Arc<[Arc<OnDecision>]>>,
    pub closing: Arc<Closing>,
    pub created: Instant,
}

impl fmt::Debug for Limiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Limiter").field(&self.0.options).finish()
    }
}

impl Limiter {
    /// Creates a limiter with the default options. It opens connections of its own, the first one
    /// at the first call.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let server = redis_throttle_client::testing::FakeServer::new();
    /// use redis_throttle_client::{Limiter, Rule};
    ///
    /// let limiter = Limiter::new(server); // or a `redis::Client`
    /// let api = Rule::gcra("api", 10, 10, "1m")?;
    /// assert_eq!(limiter.check(api.of("42")).await?.remaining, 9);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(server: impl Into<Server>) -> Self {
        Self::with_options(server, Options::default()).expect("the defaults are valid")
    }

    /// Creates a limiter with the given options.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let server = redis_throttle_client::testing::FakeServer::new();
    /// use redis_throttle_client::{Limiter, OnError, Options, Rule};
    ///
    /// let options = Options::default().on_error(OnError::Deny);
    /// let limiter = Limiter::with_options(server.clone(), options)?;
    /// server.go_away(); // the server is down
    /// let api = Rule::gcra("api", 10, 10, "1m")?;
    /// assert!(!limiter.check(api.of("42")).await?.allowed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of an option that is out of range.
    pub fn with_options(server: impl Into<Server>, options: Options) -> Result<Self, Error> {
        let options = options.checked()?;
        let forgotten = Forgotten::new(options.denial_cache.max(options.known_denials));
        let forgotten = Arc::new(forgotten);
        let local = Mutex::new(LocalLimiter::new(LOCAL_KEYS_MAX));
        let known = KnownDenials::new(&options, forgotten.clone());
        let inner = Inner {
            backends: Arc::new(Backends::new(options.backend)),
            nodes: Nodes::new(server.into(), &options),
            keys: Keys::new(&options.prefix, options.hash_tag, options.hmac_secret.as_deref())?,
            denials: DenialCache::new(&options, forgotten.clone()),
            known: Arc::new(known),
            forgotten,
            grants: Grants::new(),
            local,
            counts: Counts::default(),
            error_log: ErrorLog::new(options.log_errors),
            hooks: RwLock::new(options.on_decision.iter().cloned().collect()),
            closing: Arc::default(),
            created: clock::now(),
            options,
        };
        Ok(Self(Arc::new(inner), None))
    }

    /// Returns a view of the limiter for a caller that has less time than
    /// [`timeout`](crate::Options::timeout), such as that of a request with a deadline. It is as
    /// cheap as a clone, and shares all state.
    ///
    /// Each call of the view ends after `time` at most, its first dial included. A call that ends
    /// so has the reason [`Timeout`](crate::Reason::Timeout), and its reply is still read. It is no
    /// failure for the circuit breaker, because the server may be well: known denials decide, or
    /// else `on_error`, under which [`Allow`](crate::OnError::Allow) keeps the limit in this
    /// process. A dropped future decides nothing, so prefer the view to a timeout around a call.
    ///
    /// A longer time than that of the limiter changes nothing. With a time of zero no call is sent.
    /// [`ready`](Limiter::ready), and what outlives its call, such as a renewal or a refund in the
    /// background, have the limiter's own time.
    #[must_use]
    pub fn within(&self, time: Duration) -> Self {
        Self(self.0.clone(), Some(self.1.map_or(time, |set| set.min(time))))
    }

    /// Returns the limiter without the time of a view, for what outlives a call.
    pub(crate) fn whole(&self) -> Self {
        Self(self.0.clone(), None)
    }

    pub(crate) fn budget(&self) -> Budget {
        let timeout = self.0.options.deadlines().0;
        match self.1.filter(|time| *time < timeout) {
            Some(time) => Budget::of_caller(time),
            None => Budget::new(timeout),
        }
    }

    pub(crate) fn on_error_of(&self, rule: &Rule) -> OnError {
        rule.terms().on_error.unwrap_or(self.0.options.on_error)
    }

    /// Returns the share of the limit that this process keeps under a rule.
    pub(crate) fn local_share_of(&self, rule: &Rule) -> f64 {
        if self.on_error_of(rule) == OnError::Local { rule.terms().local_share } else { 1.0 }
    }

    /// Returns the microseconds since the limiter was created, plus one: 0 marks a window that is
    /// not open.
    pub(crate) fn local_now_us(&self) -> u64 {
        let passed_us = (clock::now() - self.0.created).as_micros();
        u64::try_from(passed_us).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Returns the item with its key. Fails if the rule's `on_error` cannot decide its calls, and
    /// after [`close`](Limiter::close).
    pub(crate) fn keyed_item<'a>(&self, item: &Item<'a>) -> Result<Keyed<'a>, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        self.can_decide(item.rule)?;
        item.keyed(&self.0.keys)
    }

    /// Returns an error if the rule cannot have its `on_error`, which may be that of the limiter.
    /// Middleware calls this when it is created.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], as a call under this rule returns it.
    #[doc(hidden)]
    pub fn can_decide(&self, rule: &Rule) -> Result<(), Error> {
        rule.can_follow(self.on_error_of(rule))
    }

    /// Removes the cached denials of a key, and if `is_known` also the known one.
    pub(crate) fn forget_denials(&self, key: &str, is_known: bool) {
        self.0.forgotten.forget(key);
        if is_known {
            self.0.known.forget(key);
        }
    }

    pub(crate) fn forget_here(&self, key: &str) {
        self.forget_denials(key, true);
        self.0.grants.forget(key);
        self.0.local.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.closing.closed.initialized()
    }
}
