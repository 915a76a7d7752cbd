//! The limiter sends each call once, with a deadline. If there is no answer, the rule's `on_error`
//! decides.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, Value};
use tokio::time::Instant;

use crate::calls::closing::Closing;
use crate::calls::denial_cache::DenialCache;
use crate::calls::denials::KnownDenials;
use crate::calls::error_log::Unanswered;
use crate::calls::events::Hooks;
use crate::calls::forgotten::Forgotten;
use crate::calls::local::LocalLimiter;
use crate::calls::prefetch::Grants;
use crate::calls::steps::Ask;
use crate::net::backends::Backends;
use crate::net::budget::Budget;
use crate::net::connection::Command;
use crate::net::line::{Lane, READY_MIN};
use crate::net::server::Nodes;
use crate::rules::clock;
use crate::rules::counters::Counts;
use crate::rules::item::Keyed;
use crate::rules::keys::Keys;
use crate::wire::replies;
use crate::wire::words::{self, Verb};
use crate::{
    Backend, Counters, Decision, Error, EventKind, Item, Options, Reason, Rule, Server, Span,
};

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
    pub unanswered: Unanswered,
    pub hooks: Hooks,
    pub closing: Closing,
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
            unanswered: Unanswered::new(options.log_errors),
            hooks: Hooks::new(options.on_decision.clone()),
            closing: Closing::default(),
            made: clock::now(),
            options,
        };
        Ok(Self(Arc::new(inner), None))
    }

    /// Decides the call and takes its cost if it is allowed.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], [`Error::CommandRejected`], or [`Error::Closed`] after
    /// [`close`](Limiter::close). An unavailable server is not an error: known denials and the
    /// rule's `on_error` decide the call.
    pub async fn check(&self, item: Item<'_>) -> Result<Decision, Error> {
        self.check_within(item, &self.budget()).await
    }

    /// Decides a call whose caller has waited before.
    pub(crate) async fn check_within(
        &self,
        item: Item<'_>,
        budget: &Budget,
    ) -> Result<Decision, Error> {
        let began = clock::now();
        let call = self.keyed_item(&item)?;
        let decided = if self.is_prefetched(&call) {
            self.prefetched(&call, began, budget).await
        } else {
            let command = words::check(&call)?;
            let calls = std::slice::from_ref(&call);
            let ask = Ask { command: &command, calls, is_all: false, admits: false, began, budget };
            self.decide(&ask, true, false).await
        };
        self.told(EventKind::Check, decided, &item, began)
    }

    /// Returns the decision that [`check`](Limiter::check) would make, without taking anything.
    /// Cost 0 returns the status.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check).
    pub async fn peek(&self, item: Item<'_>) -> Result<Decision, Error> {
        let began = clock::now();
        let call = self.keyed_item(&item)?;
        let command = words::named(Verb::Peek, &call)?;
        let (calls, budget) = (std::slice::from_ref(&call), &self.budget());
        let ask = Ask { command: &command, calls, is_all: false, admits: false, began, budget };
        let decided = self.decide(&ask, false, true).await;
        self.told(EventKind::Peek, decided, &item, began)
    }

    /// Gives units back, up to the full allowance. Do not repeat the call: each repetition gives
    /// units back again.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, otherwise the same as [`check`](Limiter::check).
    pub async fn refund(&self, item: Item<'_>) -> Result<Decision, Error> {
        let call = self.keyed_item(&item)?;
        self.change(Verb::Refund, &call, item.subject, &self.budget()).await
    }

    /// Takes the cost even if it is more than the units left, for work that cost more than
    /// estimated. Do not repeat the call.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn charge(&self, item: Item<'_>) -> Result<Decision, Error> {
        let call = self.keyed_item(&item)?;
        self.change(Verb::Charge, &call, item.subject, &self.budget()).await
    }

    pub(crate) async fn change(
        &self,
        verb: Verb,
        call: &Keyed<'_>,
        subject: &str,
        budget: &Budget,
    ) -> Result<Decision, Error> {
        let began = clock::now();
        let command = words::named(verb, call)?;
        let read = |reply: &Value| replies::settled(call, reply);
        let is_refund = matches!(verb, Verb::Refund);
        self.forget_denials(&call.key, is_refund);
        let changed = self.ask(&command, began, budget, read).await;
        // Also remove a denial that was requested earlier and arrived in the meantime.
        self.forget_denials(&call.key, is_refund);
        let kind = if is_refund { EventKind::Refund } else { EventKind::Charge };
        self.told(kind, changed, &call.rule.of(subject), began)
    }

    /// Resets the subject's limit under this rule: deletes its state on the server and in this
    /// process.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn forget(&self, item: Item<'_>) -> Result<(), Error> {
        let began = clock::now();
        let Keyed { key, .. } = self.keyed_item(&item)?;
        self.replace(&words::forget(&key), &item, began).await
    }

    /// Denies the subject under this rule for a time: 1 ms to 366 days. Needs the module.
    /// [`forget`](Limiter::forget) ends the ban.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn block(&self, item: Item<'_>, duration: impl Span) -> Result<(), Error> {
        let began = clock::now();
        let Keyed { key, .. } = self.keyed_item(&item)?;
        self.replace(&words::block(&key, &duration)?, &item, began).await
    }

    /// Sends a command that replaces the state of its key, and removes what this process keeps of
    /// that state.
    async fn replace(
        &self,
        command: &Command<'_>,
        item: &Item<'_>,
        began: Instant,
    ) -> Result<(), Error> {
        self.forget_here(command.key());
        let replaced = self.ask(command, began, &self.budget(), |_| Ok(())).await;
        // Remove again: calls that were already pending may have stored results in the meantime.
        self.forget_here(command.key());
        if let Err(error) = &replaced {
            self.tell_rejection(error, item.rule, item.subject, began);
        }
        replaced
    }

    /// Removes the cached denials of a key, and if `is_known` also the known one.
    pub(crate) fn forget_denials(&self, key: &str, is_known: bool) {
        self.0.forgotten.forget(key);
        if is_known {
            self.0.known.forget(key);
        }
    }

    fn forget_here(&self, key: &str) {
        self.forget_denials(key, true);
        self.0.grants.forget(key);
        self.0.local.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
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
    /// Middleware calls this when it is made.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], as a call under this rule returns it.
    #[doc(hidden)]
    pub fn can_decide(&self, rule: &Rule) -> Result<(), Error> {
        rule.can_follow(self.on_error_of(rule))
    }

    /// Returns the words of the command that [`check`](Limiter::check) would send with the module.
    /// Sends nothing. The gateway shows them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`], as the call returns it.
    #[doc(hidden)]
    pub fn words_of(&self, item: Item<'_>) -> Result<Vec<String>, Error> {
        let call = self.keyed_item(&item)?;
        let command = words::check(&call)?;
        Ok(command.words().iter().map(|word| word.to_string()).collect())
    }

    fn is_prefetched(&self, call: &Keyed<'_>) -> bool {
        let takes_one = call.cost == 1 && !call.partial && !call.is_held();
        takes_one
            && call.leave.is_none()
            && self.prefetch_of(call.rule) > 1
            && !self.0.grants.is_closed()
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

    /// Returns the number of nodes whose circuit breaker is open: calls to them end at once.
    #[must_use]
    pub fn open_breakers(&self) -> usize {
        self.0.nodes.open_breakers()
    }

    /// Sends one status call and returns the back end that answered. Waits for 5 s, or for the
    /// timeout if that is longer. A refused dial ends it at once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, whose text says how far the call came, or
    /// [`Error::CommandRejected`] if the server refuses the call or lacks the selected back end.
    pub async fn ready(&self) -> Result<Backend, Error> {
        let key = self.0.keys.key("ready", "ready", None)?;
        let budget = Budget::new(READY_MIN.max(self.0.options.deadlines().0));
        let command = words::probe(&key);
        loop {
            let answer = self.ask_in(Lane::Ready, &command, clock::now(), &budget, |_| Ok(()));
            match answer.await {
                Ok(()) => return Ok(self.0.backends.found()),
                // Other calls found that the server is silent.
                Err(Error::Unavailable { reason: Reason::Timeout, .. })
                    if !budget.left().is_zero() => {}
                Err(error) => return Err(or_unready(error)),
            }
        }
    }
}

/// Adds to the error of a status call how far the call came.
fn or_unready(error: Error) -> Error {
    let (reason, source) = match error {
        Error::Unavailable { reason, source } => (reason, source),
        other => return other,
    };
    let reached = match reason {
        Reason::Timeout => "connected, logged in, no reply to RL.PEEK",
        Reason::Connection => "not connected and logged in",
        _ => return Error::Unavailable { reason, source },
    };
    let cause = source.map_or_else(|| reason.to_string(), |source| source.to_string());
    let source = Some(RedisError::from((ErrorKind::Io, reached, cause)));
    Error::Unavailable { reason, source }
}
