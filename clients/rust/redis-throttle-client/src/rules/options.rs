//! The options of a limiter, with the same names and defaults in every language.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::rules::event::{DecisionEvent, OnDecision};
use crate::rules::{durations::Span, rule::checked_prefetch};
use crate::{Error, OnError};

/// The defaults of the times that depend on each other.
const TIMEOUT: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_millis(100);
/// The ranges of times and counts.
const SPAN_MIN: Duration = Duration::from_millis(1);
const SPAN_MAX: Duration = Duration::from_secs(3600);
const COUNT_MAX: u64 = 1_000_000;

/// The part of a key that is put in braces. In a cluster, keys with the same part share a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashTag {
    /// The subject, so that its keys under all rules share a slot.
    Subject,
}

/// The code that decides on the server: the module, or the library as functions or as a script.
/// [`Options::backend`] selects one; [`Limiter::ready`](crate::Limiter::ready) returns the one in
/// use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// The first available one, in the order module, functions, script. `ready` never returns it.
    #[default]
    Auto,
    /// The module.
    Module,
    /// The function library, for Valkey and for Redis 7.0 and later. The client loads its own copy
    /// if the server has none or an older one.
    Functions,
    /// The same library as a script, for servers without functions and users who may not call them.
    Script,
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "module" => Ok(Self::Module),
            "functions" => Ok(Self::Functions),
            "script" => Ok(Self::Script),
            _ => Err(Error::invalid("backend", "expected auto, module, functions or script")),
        }
    }
}

/// The options of a limiter. Each method states its default.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redis_throttle_client::Error> {
/// # let server = redis_throttle_client::testing::FakeServer::new();
/// use std::time::Duration;
/// use redis_throttle_client::{Limiter, Options, Rule};
///
/// let options = Options::default().prefix("app").timeout(Duration::from_millis(50));
/// let limiter = Limiter::with_options(server.clone(), options)?;
/// let api = Rule::gcra("api", 10, 10, "1m")?;
/// assert!(limiter.check(api.of("42")).await?.allowed);
/// assert_eq!(server.calls()[0][1], "app:api:42");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Options {
    pub(crate) timeout: Option<Duration>,
    pub(crate) silence: Option<Duration>,
    pub(crate) on_error: OnError,
    pub(crate) max_in_flight: usize,
    pub(crate) max_waiting: usize,
    pub(crate) known_denials: usize,
    pub(crate) log_errors: bool,
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
    /// The largest part by which the pause before a dial is shorter, at random. Only tests change
    /// it.
    pub(crate) jitter: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: None,
            silence: None,
            on_error: OnError::Allow,
            max_in_flight: 256,
            max_waiting: 16_384,
            known_denials: 10_000,
            log_errors: true,
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
    /// Sets the most time that a call takes in all: 1 ms to 1 h. Default: 1 s. The call is never
    /// repeated.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the time after which a server that sends nothing is unavailable: 1 ms to the
    /// [`timeout`](Options::timeout). Default: 100 ms, or the timeout if only that is set. It must
    /// exceed a round trip and the longest stall of the server.
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = Some(silence);
        self
    }

    /// Sets the behavior if the server does not decide, for rules that do not set their own.
    /// Default: [`OnError::Allow`]. With [`OnError::Local`], rules that cannot be enforced locally
    /// must set their own.
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }

    /// Sets the maximum number of commands that are sent to a node and have no reply yet: 1 to
    /// 10^6. Default: 256. Further calls stand in line.
    pub fn max_in_flight(mut self, commands: usize) -> Self {
        self.max_in_flight = commands;
        self
    }

    /// Sets the maximum number of calls in line for a node: 0 to 10^6. Default: 16,384. Further
    /// calls are not sent, and are decided without the server.
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.max_waiting = calls;
        self
    }

    /// Sets the number of keys whose last denial is remembered: 0 to 10^6. Default: 10,000. It
    /// decides calls that the server does not, and calls under pressure.
    pub fn known_denials(mut self, keys: usize) -> Self {
        self.known_denials = keys;
        self
    }

    /// Sets whether decisions without the server are logged, with the crate `log` at the level of a
    /// warning. Default: true. Each reason is logged at most once per second, without any key.
    pub fn log_errors(mut self, logs: bool) -> Self {
        self.log_errors = logs;
        self
    }

    /// Sets the number of failures in a row after which calls to a node pause: 1 to 10^6.
    /// Default: 5.
    pub fn breaker_failures(mut self, failures: u32) -> Self {
        self.breaker_failures = failures;
        self
    }

    /// Sets the length of the pause after `breaker_failures` failures in a row: 1 ms to 1 h.
    /// Default: 1 s. After the pause, one call probes the node.
    pub fn breaker_pause(mut self, pause: Duration) -> Self {
        self.breaker_pause = pause;
        self
    }

    /// Sets the maximum number of denials to cache, each by its whole command: 0 to 10^6.
    /// Default: 0, no cache.
    pub fn denial_cache(mut self, denials: usize) -> Self {
        self.denial_cache = denials;
        self
    }

    /// Sets the longest life of a cached denial, and of a known denial under pressure: 1 ms to 1 h.
    /// Default: 1 s. It expires sooner if its `retry_after` ends. Until then it still applies after
    /// another process deletes or refunds the key, or changes the limit.
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

    /// Returns the timeout of a call and the silence of a node.
    pub(crate) fn deadlines(&self) -> (Duration, Duration) {
        let timeout = self.timeout.unwrap_or(TIMEOUT);
        (timeout, self.silence.or(self.timeout).unwrap_or(SILENCE))
    }

    pub(crate) fn checked(self) -> Result<Self, Error> {
        let (timeout, silence) = self.deadlines();
        let spans = [
            ("timeout", timeout),
            ("silence", silence),
            ("breaker_pause", self.breaker_pause),
            ("denial_cache_max", self.denial_cache_max),
        ];
        let is_valid =
            |span: &Duration| (SPAN_MIN..=SPAN_MAX).contains(span) && span.whole_us().is_some();
        // An unset silence follows the timeout, which is named first.
        if let Some((name, span)) = spans.iter().find(|(_, span)| !is_valid(span)) {
            let expected = format!("expected whole microseconds from 1 ms to 1 h, not {span:?}");
            return Err(Error::invalid(name, expected));
        }
        if silence > timeout {
            let both = format!("silence is {silence:?}, timeout is {timeout:?}");
            return Err(Error::invalid("silence", format!("expected at most timeout: {both}")));
        }
        let counts = [
            ("max_in_flight", 1, self.max_in_flight as u64),
            ("max_waiting", 0, self.max_waiting as u64),
            ("known_denials", 0, self.known_denials as u64),
            ("breaker_failures", 1, u64::from(self.breaker_failures)),
            ("denial_cache", 0, self.denial_cache as u64),
        ];
        checked_prefetch(self.prefetch)?;
        match counts.iter().find(|(_, least, count)| !(*least..=COUNT_MAX).contains(count)) {
            Some((name, least, count)) => {
                Err(Error::invalid(name, format!("expected {least} to {COUNT_MAX}, not {count}")))
            }
            None => Ok(self),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("timeout", &self.deadlines().0)
            .field("silence", &self.deadlines().1)
            .field("on_error", &self.on_error)
            .field("max_in_flight", &self.max_in_flight)
            .field("max_waiting", &self.max_waiting)
            .field("known_denials", &self.known_denials)
            .field("log_errors", &self.log_errors)
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
