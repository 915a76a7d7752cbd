//! The limiter sends each call once, with a deadline. If there is no answer, the rule's `on_error`
//! decides.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use redis::Value;
use tokio::sync::SetOnce;
use tokio::time::Instant;

use crate::backend::Backends;
use crate::call::Keyed;
use crate::connection::Command;
use crate::counters::Counts;
use crate::denial_cache::DenialCache;
use crate::key::Keys;
use crate::local::LocalLimiter;
use crate::prefetch::Grants;
use crate::protocol::{self, Verb};
use crate::server::Nodes;
use crate::{
    Backend, Call, Counters, Decision, Error, EventKind, Kind, Options, Rule, Server, clock,
};

const LOCAL_KEYS_MAX: usize = 10_000;

/// Decides calls over connections of its own to a server. Each call is sent once and ends within
/// [`timeout`](Options::timeout). A limiter is cheap to clone; its clones share all state.
#[derive(Clone)]
pub struct Limiter(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub backends: Arc<Backends>,
    pub nodes: Nodes,
    pub options: Options,
    pub keys: Keys,
    pub denials: DenialCache,
    pub grants: Grants,
    pub local: Mutex<LocalLimiter>,
    pub counts: Counts,
    /// Set by [`Limiter::close`].
    pub closed: SetOnce<()>,
    pub made: Instant,
}

impl fmt::Debug for Limiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Limiter").field(&self.0.options).finish()
    }
}

impl Limiter {
    /// Creates a limiter with the default options. It opens connections of its own, the first one
    /// at the first call.
    #[must_use]
    pub fn new(server: impl Into<Server>) -> Self {
        Self::with_options(server, Options::default()).expect("the defaults are valid")
    }

    /// Creates a limiter with the given options.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of an option that is out of range.
    pub fn with_options(server: impl Into<Server>, options: Options) -> Result<Self, Error> {
        let options = options.checked()?;
        Ok(Self(Arc::new(Inner {
            backends: Arc::new(Backends::new(options.backend)),
            nodes: Nodes::new(server.into(), &options),
            keys: Keys::new(&options.prefix, options.hash_tag, options.hmac_secret.as_deref())?,
            denials: DenialCache::new(options.denial_cache, options.denial_cache_max),
            grants: Grants::new(),
            local: Mutex::new(LocalLimiter::new(LOCAL_KEYS_MAX)),
            counts: Counts::default(),
            closed: SetOnce::new(),
            made: clock::now(),
            options,
        })))
    }

    /// Decides the call and takes its cost if it is allowed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] or [`Error::CommandRejected`]. An unavailable server is not an
    /// error: the rule's `on_error` decides the call.
    pub async fn check(&self, call: Call<'_>) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed_call(&call)?;
        let prefetched =
            call.cost == 1 && self.prefetch_of(call.rule) > 1 && !self.0.grants.is_closed();
        let decided = if prefetched {
            self.prefetched(&keyed, began).await
        } else {
            let command = protocol::check(&keyed, false)?;
            let read = |reply: &Value| protocol::decision(&keyed, reply);
            self.decide(&command, std::slice::from_ref(&keyed), began, read).await
        };
        self.told(EventKind::Check, decided, &call, began)
    }

    /// Returns the decision that [`check`](Limiter::check) would make, without taking anything.
    /// Cost 0 returns the status.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check).
    pub async fn peek(&self, call: Call<'_>) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed_call(&call)?;
        let command = protocol::named(Verb::Peek, &keyed)?;
        let read = |reply: &Value| protocol::decision(&keyed, reply);
        let decided = match self.ask(&command, began, read).await {
            Err(Error::Unavailable { reason, .. }) => {
                Ok(self.fallback(std::slice::from_ref(&keyed), reason, true))
            }
            answer => answer,
        };
        self.told(EventKind::Peek, decided, &call, began)
    }

    /// Gives units back, up to the full allowance. Do not repeat the call: each repetition gives
    /// units back again.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, otherwise the same as [`check`](Limiter::check).
    pub async fn refund(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.settle(Verb::Refund, EventKind::Refund, call).await
    }

    /// Takes the cost even if it is more than the units left, for work that cost more than
    /// estimated. Do not repeat the call.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn charge(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.settle(Verb::Charge, EventKind::Charge, call).await
    }

    async fn settle(&self, verb: Verb, kind: EventKind, call: Call<'_>) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed_call(&call)?;
        let command = protocol::named(verb, &keyed)?;
        let read = |reply: &Value| protocol::settled(call.rule, reply);
        self.0.denials.forget(&keyed.key);
        let settled = self.ask(&command, began, read).await;
        // Also remove a denial that was requested earlier and arrived in the meantime.
        self.0.denials.forget(&keyed.key);
        self.told(kind, settled, &call, began)
    }

    /// Resets the subject's limit under this rule: deletes its state on the server and in this
    /// process.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn forget(&self, call: Call<'_>) -> Result<(), Error> {
        let began = clock::now();
        let Keyed { key, .. } = self.keyed_call(&call)?;
        self.forget_here(&key);
        let forgotten = self.ask(&protocol::forget(&key), began, |_| Ok(())).await;
        // Remove again: calls that were already pending may have stored results in the meantime.
        self.forget_here(&key);
        if let Err(error) = &forgotten {
            self.tell_rejection(error, &call, began);
        }
        forgotten
    }

    fn forget_here(&self, key: &str) {
        self.0.denials.forget(key);
        self.0.grants.forget(key);
        self.0.local.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
    }

    /// Returns the call with its key. Fails if the rule's `on_error` cannot decide its calls.
    pub(crate) fn keyed_call<'a>(&self, call: &Call<'a>) -> Result<Keyed<'a>, Error> {
        call.rule.can_follow(self.on_error_of(call.rule))?;
        call.keyed(&self.0.keys)
    }

    /// Returns the number of permits that one call fetches under this rule.
    pub(crate) fn prefetch_of(&self, rule: &Rule) -> u64 {
        let set = rule.terms().prefetch.unwrap_or(self.0.options.prefetch);
        if rule.takes_partial() { set } else { 1 }
    }

    /// Returns the counts of decisions and rejections since the limiter was created.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counts.so_far()
    }

    /// Sends one status call and returns the back end that answered.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, or [`Error::CommandRejected`] if the server
    /// refuses the call or lacks the selected back end.
    pub async fn ready(&self) -> Result<Backend, Error> {
        let key = self.0.keys.key("ready", "ready", None)?;
        self.ask(&protocol::probe(&key), clock::now(), |_| Ok(())).await?;
        Ok(self.0.backends.found())
    }

    /// Refunds the prefetched permits that were not used. Without an answer they stay taken.
    /// Releases of leases are no longer repeated.
    pub async fn close(&self) {
        // A second call finds it closed.
        let _ = self.0.closed.set(());
        for (key, rule, cost) in self.0.grants.drain().await {
            let call = Keyed { rule: &rule, key, cost, id: None };
            let Ok(command) = protocol::named(Verb::Refund, &call) else { continue };
            let read = |reply: &Value| protocol::settled(&rule, reply);
            let _ = self.ask(&command, clock::now(), read).await;
        }
    }

    /// Returns the deadline of a call that began at this instant.
    pub(crate) fn deadline(&self, began: Instant) -> Instant {
        began + self.0.options.timeout
    }

    pub(crate) async fn decide(
        &self,
        command: &Command<'_>,
        calls: &[Keyed<'_>],
        began: Instant,
        read: impl FnOnce(&Value) -> Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        if let Some(denial) = self.0.denials.get(command, began) {
            return Ok(denial);
        }
        let since = self.0.denials.since(began);
        let decision = match self.ask(command, began, read).await {
            Err(Error::Unavailable { reason, .. }) => {
                return Ok(self.fallback(calls, reason, false));
            }
            decision => decision?,
        };
        if calls.iter().all(|call| call.rule.kind() != Kind::Lease) {
            self.0.denials.put(command, &decision, since);
        }
        Ok(decision)
    }
}
