//! The options of a limiter, with the same names and defaults in every language.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::argument::checked_prefetch;
use crate::telling::{DecisionEvent, OnDecision};
use crate::{Backend, Error, OnError};

/// The part of a key that is put in braces. In a cluster, keys with the same part share a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashTag {
    /// The subject, so that its keys under all rules share a slot.
    Subject,
}

/// The options of a limiter. Each method states its default.
#[derive(Clone)]
#[must_use]
pub struct Options {
    pub(crate) timeout: Duration,
    pub(crate) on_error: OnError,
    pub(crate) max_in_flight: usize,
    pub(crate) breaker_failures: u32,
    pub(crate) breaker_pause: Duration,
    pub(crate) denial_cache: usize,
    pub(crate) denial_cache_max: Duration,
    pub(crate) prefetch: u64,
    pub(crate) backend: Backend,
    pub(crate) prefix: String,
    pub(crate) hash_tag: Option<HashTag>,
    pub(crate) hmac_secret: Option<Vec<u8>>,
    pub(crate) on_decision: Option<Arc<OnDecision>>,
    /// The largest part by which the pause before a dial is longer or shorter, at random. Only
    /// tests change it.
    pub(crate) jitter: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(100),
            on_error: OnError::Allow,
            max_in_flight: 256,
            breaker_failures: 5,
            breaker_pause: Duration::from_secs(1),
            denial_cache: 0,
            denial_cache_max: Duration::from_secs(1),
            prefetch: 1,
            backend: Backend::Auto,
            prefix: "rl".to_owned(),
            hash_tag: None,
            hmac_secret: None,
            on_decision: None,
            jitter: 0.2,
        }
    }
}

impl Options {
    /// Sets the deadline of a whole call. Default: 100 ms. The call is never repeated.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the behavior if the server gives no answer, for rules that do not set their own.
    /// Default: [`OnError::Allow`]. With [`OnError::Local`], rules that cannot be enforced locally
    /// must set their own.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the maximum number of calls that wait for one node at the same time. Default: 256.
    /// Further calls are not sent: they count as unanswered.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = calls;
        self
    }

    /// Sets the number of failures in a row after which calls to a node pause. Default: 5.
    pub fn breaker_failures(mut self, failures: u32) -> Self {
        self.breaker_failures = failures;
        self
    }

    /// Sets the length of the pause after `breaker_failures` failures in a row. Default: 1 s. After
    /// the pause, one call probes the node.
    pub fn breaker_pause(mut self, pause: Duration) -> Self {
        self.breaker_pause = pause;
        self
    }

    /// Sets the maximum number of denials to cache, each by its whole command. Default: 0, no
    /// cache.
    pub fn denial_cache(mut self, denials: usize) -> Self {
        self.denial_cache = denials;
        self
    }

    /// Sets the longest life of a cached denial. Default: 1 s. It expires sooner if its
    /// `retry_after` ends. Until then it still applies after another process deletes or refunds the
    /// key, or changes the limit.
    pub fn denial_cache_max(mut self, life: Duration) -> Self {
        self.denial_cache_max = life;
        self
    }

    /// Sets the number of permits to prefetch per call, at most 10,000. Default: 1. It applies to
    /// calls of cost 1 that leave nothing, under rules that support it and do not set their own
    /// number. A window may admit up to this number of extra calls per process.
    pub fn prefetch(mut self, permits: u64) -> Self {
        self.prefetch = permits;
        self
    }

    /// Sets the back end on the server. Default: [`Backend::Auto`], which prefers the module, then
    /// the library as functions, then the library as a script. Any other value selects exactly one.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Sets the prefix of keys. Default: `rl`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the part of a key that is put in braces. Default: no braces, unless a call has a tag.
    pub fn hash_tag(mut self, hash_tag: HashTag) -> Self {
        self.hash_tag = Some(hash_tag);
        self
    }

    /// Sets a secret of at least 16 bytes. Keys then contain an HMAC instead of the subject.
    /// Default: no secret.
    pub fn hmac_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.hmac_secret = Some(secret.into());
        self
    }

    /// Sets a hook for metrics and logs. It gets one event for each decision, charge, refund, end
    /// of an admission and rejected call. A panic in the hook does not change the decision.
    pub fn on_decision(
        mut self,
        hook: impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_decision = Some(Arc::new(hook));
        self
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        let spans = [
            ("timeout", self.timeout),
            ("breaker_pause", self.breaker_pause),
            ("denial_cache_max", self.denial_cache_max),
        ];
        if let Some((name, _)) = spans.iter().find(|(_, span)| *span < Duration::from_millis(1)) {
            return Err(Error::invalid(name, "expected a duration of at least 1 ms"));
        }
        let least = [
            ("max_in_flight", self.max_in_flight as u64),
            ("breaker_failures", u64::from(self.breaker_failures)),
        ];
        checked_prefetch(self.prefetch)?;
        match least.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(Error::invalid(name, "expected an integer of at least 1")),
            None => Ok(self),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("timeout", &self.timeout)
            .field("on_error", &self.on_error)
            .field("max_in_flight", &self.max_in_flight)
            .field("breaker_failures", &self.breaker_failures)
            .field("breaker_pause", &self.breaker_pause)
            .field("denial_cache", &self.denial_cache)
            .field("denial_cache_max", &self.denial_cache_max)
            .field("prefetch", &self.prefetch)
            .field("backend", &self.backend)
            .field("prefix", &self.prefix)
            .field("hash_tag", &self.hash_tag)
            .finish_non_exhaustive()
    }
}
