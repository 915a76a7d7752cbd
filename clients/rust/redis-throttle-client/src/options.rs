//! The options of a limiter, with the same names and defaults in every language.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::rule::checked_prefetch;
use crate::{Backend, Decision, Error, OnError, Rule};

/// What stands in braces in a key, so that a cluster puts keys into one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HashTag {
    /// Nothing, unless a call has a tag.
    #[default]
    None,
    /// The subject: all its rules are in one slot.
    Subject,
}

pub(crate) type OnDecision = Arc<dyn Fn(&Decision, &Rule, &str, Duration) + Send + Sync>;

/// The options of a limiter. `Options::default()` has what the table of the README says.
#[derive(Clone)]
#[must_use]
pub struct Options {
    pub(crate) timeout_ms: u64,
    pub(crate) on_error: OnError,
    pub(crate) max_in_flight: usize,
    pub(crate) breaker_failures: u32,
    pub(crate) breaker_pause_ms: u64,
    pub(crate) denial_cache: usize,
    pub(crate) prefetch: u64,
    pub(crate) backend: Backend,
    pub(crate) prefix: String,
    pub(crate) hash_tag: HashTag,
    pub(crate) hmac_secret: Option<Vec<u8>>,
    pub(crate) on_decision: Option<OnDecision>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout_ms: 100,
            on_error: OnError::Allow,
            max_in_flight: 256,
            breaker_failures: 5,
            breaker_pause_ms: 1000,
            denial_cache: 0,
            prefetch: 1,
            backend: Backend::Auto,
            prefix: "rl".to_owned(),
            hash_tag: HashTag::None,
            hmac_secret: None,
            on_decision: None,
        }
    }
}

impl Options {
    /// How long a whole call may take, in ms: 100. The call is never repeated.
    pub fn timeout_ms(mut self, ms: u64) -> Self {
        self.timeout_ms = ms;
        self
    }

    /// What happens without an answer under rules that do not say: [`OnError::Allow`]. With
    /// [`OnError::Local`] those that nothing local stands for have to say.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// How many calls may wait for one node at once: 256. One more is as an error.
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = calls;
        self
    }

    /// After how many failures in a row a node is not asked for a while: 5.
    pub fn breaker_failures(mut self, failures: u32) -> Self {
        self.breaker_failures = failures;
        self
    }

    /// How long it is not asked, in ms: 1000. Then one call is the probe.
    pub fn breaker_pause_ms(mut self, ms: u64) -> Self {
        self.breaker_pause_ms = ms;
        self
    }

    /// How many denials are remembered until their `retry_after_ms`, by rule, subject and cost: 0,
    /// none. Exact while nobody deletes, refunds or changes the limit; that shows afterwards.
    pub fn denial_cache(mut self, denials: usize) -> Self {
        self.denial_cache = denials;
        self
    }

    /// How many permits one call takes in advance, to be spent here, at most 10,000: 1. For calls
    /// of cost 1, under rules that can and do not say. A window may see up to so many more for each
    /// process.
    pub fn prefetch(mut self, permits: u64) -> Self {
        self.prefetch = permits;
        self
    }

    /// What decides on the server: the module, or where it has none the library, as functions or
    /// else as a script. With anything but [`Backend::Auto`], that alone.
    pub fn backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// What keys begin with: `rl`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// What stands in braces in a key: nothing.
    pub fn hash_tag(mut self, hash_tag: HashTag) -> Self {
        self.hash_tag = hash_tag;
        self
    }

    /// With a secret of at least 16 bytes, keys hold no subject but its HMAC: none.
    pub fn hmac_secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.hmac_secret = Some(secret.into());
        self
    }

    /// Called after each decision with it, the rule, a hash of the subject and the latency: for
    /// metrics and logs. One that panics changes no decision.
    pub fn on_decision(
        mut self,
        hook: impl Fn(&Decision, &Rule, &str, Duration) + Send + Sync + 'static,
    ) -> Self {
        self.on_decision = Some(Arc::new(hook));
        self
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        let least = [
            ("timeout_ms", self.timeout_ms),
            ("max_in_flight", self.max_in_flight as u64),
            ("breaker_failures", u64::from(self.breaker_failures)),
            ("breaker_pause_ms", self.breaker_pause_ms),
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
            .field("timeout_ms", &self.timeout_ms)
            .field("on_error", &self.on_error)
            .field("max_in_flight", &self.max_in_flight)
            .field("breaker_failures", &self.breaker_failures)
            .field("breaker_pause_ms", &self.breaker_pause_ms)
            .field("denial_cache", &self.denial_cache)
            .field("prefetch", &self.prefetch)
            .field("backend", &self.backend)
            .field("prefix", &self.prefix)
            .field("hash_tag", &self.hash_tag)
            .finish_non_exhaustive()
    }
}
