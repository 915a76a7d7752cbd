//! The limiter sends each call once, with a deadline. If there is no answer, the rule's `on_error`
//! decides.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use crate::backend::Backends;
use crate::breaker::Gate;
use crate::call::Keyed;
use crate::connection::{Command, Connection};
use crate::counters::Counts;
use crate::deny_cache::DenyCache;
use crate::key::Keys;
use crate::local::{LocalLimiter, local_decision};
use crate::on_error::strictest;
use crate::prefetch::Grants;
use crate::protocol::{self, Verb};
use crate::{
    Backend, Call, Counters, Decision, Error, Kind, OnError, Options, Rule, Source, clock,
};

const LOCAL_KEYS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("above zero");

/// Decides calls over the given connection. Each call is sent once and ends within `timeout_ms`. A
/// limiter is cheap to clone; its clones share all state.
#[derive(Clone)]
pub struct Limiter(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    backends: Arc<Backends>,
    options: Options,
    keys: Keys,
    gate: Arc<Gate>,
    gates: Mutex<HashMap<Arc<str>, Arc<Gate>>>,
    pub denials: DenyCache,
    pub grants: Grants,
    local: Mutex<LocalLimiter>,
    pub counts: Counts,
    made: Instant,
}

fn gate(options: &Options) -> Gate {
    let pause = Duration::from_millis(options.breaker_pause_ms);
    Gate::new(options.max_in_flight, options.breaker_failures, pause)
}

impl fmt::Debug for Limiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Limiter").field(&self.0.options).finish()
    }
}

impl Limiter {
    /// Creates a limiter with the default options.
    #[must_use]
    pub fn new(connection: impl Connection) -> Self {
        Self::with_options(connection, Options::default()).expect("the defaults are valid")
    }

    /// Creates a limiter with the given options.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of an option that is out of range.
    pub fn with_options(connection: impl Connection, options: Options) -> Result<Self, Error> {
        let options = options.checked()?;
        Ok(Self(Arc::new(Inner {
            backends: Arc::new(Backends::new(connection, options.backend)),
            keys: Keys::new(&options.prefix, options.hash_tag, options.hmac_secret.as_deref())?,
            gate: Arc::new(gate(&options)),
            gates: Mutex::default(),
            denials: DenyCache::new(options.denial_cache),
            grants: Grants::new(),
            local: Mutex::new(LocalLimiter::new(LOCAL_KEYS_MAX)),
            counts: Counts::default(),
            made: clock::now(),
            options,
        })))
    }

    /// Decides the call and takes its cost if it is allowed.
    ///
    /// # Errors
    /// An error in the program or the server's setup. An unavailable server is not an error: the
    /// rule's `on_error` decides the call.
    pub async fn check(&self, call: Call<'_>) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed_call(&call)?;
        let prefetched = call.cost == 1 && self.prefetch_of(call.rule) > 1;
        let decision = if prefetched {
            self.prefetched(&keyed, began).await?
        } else {
            let command = protocol::check(&keyed, false)?;
            let read = |reply: &Value| protocol::decision(call.rule, reply, 1);
            self.decide(&command, std::slice::from_ref(&keyed), began, read).await?
        };
        Ok(self.told(decision, &call, began))
    }

    /// Returns the decision that [`check`](Limiter::check) would make, without taking anything.
    /// Cost 0 returns the status.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check).
    pub async fn peek(&self, call: Call<'_>) -> Result<Decision, Error> {
        let keyed = self.keyed_call(&call)?;
        let command = protocol::named(Verb::Peek, &keyed)?;
        let read = |reply: &Value| protocol::decision(call.rule, reply, 1);
        match self.ask(&command, clock::now(), read).await {
            Err(Error::Unavailable { .. }) => Ok(self.fallback(&[keyed], true)),
            answer => answer,
        }
    }

    /// Gives units back, up to the full allowance. Do not repeat the call: each repetition gives
    /// units back again.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, otherwise the same as [`check`](Limiter::check).
    pub async fn refund(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.settle(Verb::Refund, call).await
    }

    /// Takes the cost even if it is more than the units left, for work that cost more than
    /// estimated. Do not repeat the call.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn charge(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.settle(Verb::Charge, call).await
    }

    async fn settle(&self, verb: Verb, call: Call<'_>) -> Result<Decision, Error> {
        let keyed = self.keyed_call(&call)?;
        let command = protocol::named(verb, &keyed)?;
        let read = |reply: &Value| protocol::settled(call.rule, reply);
        self.0.denials.forget(&keyed.key, clock::now());
        let settled = self.ask(&command, clock::now(), read).await;
        // Also remove a denial that was requested earlier and arrived in the meantime.
        self.0.denials.forget(&keyed.key, clock::now());
        settled
    }

    /// Resets the subject's limit under this rule: deletes its state on the server and in this
    /// process.
    ///
    /// # Errors
    /// The same as [`refund`](Limiter::refund).
    pub async fn forget(&self, call: Call<'_>) -> Result<(), Error> {
        let Keyed { key, .. } = self.keyed_call(&call)?;
        self.forget_here(&key);
        let forgotten = self.ask(&protocol::forget(&key), clock::now(), |_| Ok(())).await;
        // Remove again: calls that were already pending may have stored results in the meantime.
        self.forget_here(&key);
        forgotten
    }

    fn forget_here(&self, key: &str) {
        self.0.denials.forget(key, clock::now());
        self.0.grants.forget(key);
        self.0.local.lock().unwrap_or_else(PoisonError::into_inner).forget(key);
    }

    /// Decides several rules at once. The call takes from all of them or from none. `rows` holds
    /// each rule's decision.
    ///
    /// In a cluster, all keys need one hash tag, `tag`. A lease among the rules needs an
    /// [`id`](Call::id), and the caller must release it. [`admit`](Limiter::admit) does both by
    /// itself.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check). Also [`Error::InvalidArgument`] for no calls, more
    /// than 16, or a repeated key.
    pub async fn check_all(
        &self,
        calls: &[Call<'_>],
        tag: Option<&str>,
    ) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed(calls, tag)?;
        let command = protocol::check_all(&keyed, false)?;
        let read = |reply: &Value| protocol::decision_all(&keyed, reply);
        let decision = self.decide(&command, &keyed, began, read).await?;
        let deciding = &calls[decision.deciding];
        Ok(self.told(decision, deciding, began))
    }

    /// Returns the call with its key. Fails if the rule's `on_error` cannot decide its calls.
    fn keyed_call<'a>(&self, call: &Call<'a>) -> Result<Keyed<'a>, Error> {
        call.rule.can_follow(self.on_error_of(call.rule))?;
        call.keyed(&self.0.keys)
    }

    fn on_error_of(&self, rule: &Rule) -> OnError {
        rule.terms().on_error.unwrap_or(self.0.options.on_error)
    }

    /// Returns the number of permits that one call fetches under this rule.
    pub(crate) fn prefetch_of(&self, rule: &Rule) -> u64 {
        let set = rule.terms().prefetch.unwrap_or(self.0.options.prefetch);
        if rule.takes_partial() { set } else { 1 }
    }

    pub(crate) fn keyed<'a>(
        &self,
        calls: &[Call<'a>],
        tag: Option<&'a str>,
    ) -> Result<Vec<Keyed<'a>>, Error> {
        let tagged = |call: &Call<'a>| Call { tag: tag.or(call.tag), ..*call };
        calls.iter().map(|call| self.keyed_call(&tagged(call))).collect()
    }

    /// Decides several rules one after the other, for keys in different slots.
    ///
    /// If a later rule denies, the units taken so far are refunded. Until then other callers cannot
    /// use them, and they stay taken if a refund gets no answer. So the limits err on the strict
    /// side, by at most the cost of each denied call.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check), after the units taken so far are refunded.
    pub async fn check_each(&self, calls: &[Call<'_>]) -> Result<Decision, Error> {
        for call in self.keyed(calls, None)? {
            protocol::check(&call, false)?;
        }
        let mut rows: Vec<Decision> = Vec::with_capacity(calls.len());
        for call in calls {
            match self.check(*call).await {
                Ok(decision) => rows.push(decision),
                Err(error) => {
                    self.undo(calls, &rows).await;
                    return Err(error);
                }
            }
            if rows.last().is_some_and(|row| !row.allowed) {
                self.undo(calls, &rows).await;
                return Ok(Decision::of_rows(rows.len() - 1, rows));
            }
        }
        let scarcest = (0..rows.len()).min_by_key(|at| rows[*at].remaining);
        let at = scarcest.ok_or_else(|| Error::invalid("calls", "expected at least 1 call"))?;
        Ok(Decision::of_rows(at, rows))
    }

    async fn undo(&self, calls: &[Call<'_>], rows: &[Decision]) {
        for (call, row) in calls.iter().zip(rows) {
            if row.allowed && !row.degraded {
                // Without an answer the units stay taken. The limit is then too strict, never too
                // lenient.
                let _ = self.refund(*call).await;
            }
        }
    }

    /// Checks the call, then sleeps for the decision's wait time. After a denial, checks again. If
    /// a sleep would end later than `max_wait` from the start, returns a denial instead.
    ///
    /// # Errors
    /// The same as [`check`](Limiter::check).
    pub async fn wait(&self, call: Call<'_>, max_wait: Duration) -> Result<Decision, Error> {
        let ends = clock::now() + max_wait;
        loop {
            let decision = self.check(call).await?;
            let waits = decision.retry_after().filter(|wait| !wait.is_zero());
            let Some(wait) = waits.filter(|_| decision.source != Source::Error) else {
                return Ok(decision);
            };
            let acts = clock::now() + wait;
            if acts > ends {
                return self.too_late(call, decision).await;
            }
            tokio::time::sleep_until(acts).await;
            if decision.allowed {
                return Ok(decision);
            }
        }
    }

    /// Turns a decision whose wait is too long into a denial. If the call was allowed, its place in
    /// the leaky bucket is refunded.
    async fn too_late(&self, call: Call<'_>, decision: Decision) -> Result<Decision, Error> {
        if decision.allowed && !decision.degraded {
            match self.refund(call).await {
                Err(error) if error.is_mistake() => return Err(error),
                _ => {}
            }
        }
        Ok(Decision { allowed: false, granted: 0, ..decision })
    }

    /// Returns the counts of decisions and mistakes since the limiter was created.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counts.so_far()
    }

    /// Sends one status call and returns the back end that answered.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, or [`Error::Rejected`] if the server refuses the
    /// call or lacks the selected back end.
    pub async fn ready(&self) -> Result<Backend, Error> {
        let key = self.0.keys.key("ready", "ready", None)?;
        self.ask(&protocol::probe(&key), clock::now(), |_| Ok(())).await?;
        Ok(self.0.backends.found())
    }

    /// Refunds the prefetched permits that were not used. Without an answer they stay taken.
    pub async fn close(&self) {
        for (key, rule, cost) in self.0.grants.drain().await {
            let call = Keyed { rule: &rule, key, cost, id: None };
            let Ok(command) = protocol::named(Verb::Refund, &call) else { continue };
            let read = |reply: &Value| protocol::settled(&rule, reply);
            let _ = self.ask(&command, clock::now(), read).await;
        }
    }

    /// Returns the deadline of a call that began at this instant.
    pub(crate) fn deadline(&self, began: Instant) -> Instant {
        began + Duration::from_millis(self.0.options.timeout_ms)
    }

    /// Sends a command once, if its circuit breaker permits, and reads the reply.
    pub(crate) async fn ask<T>(
        &self,
        command: &Command<'_>,
        began: Instant,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let gate = self.gate(command.key());
        let pass = gate.enter(began)?;
        let sent = self.0.backends.send(command);
        let reply = match tokio::time::timeout_at(self.deadline(began), sent).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::away("no reply within timeout_ms")),
        };
        pass.end(!matches!(reply, Err(Error::Unavailable { .. })));
        reply.and_then(|reply| read(&reply)).inspect_err(|error| {
            if error.is_mistake() {
                self.0.counts.mistake();
            }
        })
    }

    /// Returns the circuit breaker of a key's node.
    fn gate(&self, key: &str) -> Arc<Gate> {
        let Some(node) = self.0.backends.connection.node(key) else { return self.0.gate.clone() };
        let mut gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(node).or_insert_with(|| Arc::new(gate(&self.0.options))).clone()
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
        let decision = match self.ask(command, began, read).await {
            Err(Error::Unavailable { .. }) => return Ok(self.fallback(calls, false)),
            decision => decision?,
        };
        if calls.iter().all(|call| call.rule.kind() != Kind::Lease) {
            self.0.denials.put(command, &decision, began);
        }
        Ok(decision)
    }

    /// Counts the decision and passes it to the hook. A panic in the hook does not change the
    /// decision.
    pub(crate) fn told(&self, decision: Decision, call: &Call<'_>, began: Instant) -> Decision {
        self.0.counts.decision(&decision);
        if let Some(hook) = &self.0.options.on_decision {
            let subject_hash = self.0.keys.subject_hash(call.subject);
            let latency = clock::now() - began;
            let tell = || hook(&decision, call.rule, &subject_hash, latency);
            let _ = catch_unwind(AssertUnwindSafe(tell));
        }
        decision
    }

    /// Decides without an answer from the server. The strictest `on_error` of the rules applies.
    pub(crate) fn fallback(&self, calls: &[Keyed<'_>], peek: bool) -> Decision {
        let of = |call: &Keyed<'_>| self.on_error_of(call.rule);
        let chosen = strictest(calls.iter().map(of));
        let bound: Vec<usize> = (0..calls.len()).filter(|at| of(&calls[*at]) == chosen).collect();
        let Some(&first) = bound.first() else {
            return Decision::without_answer("".into(), false, 0);
        };
        let nobody = |allowed, retry_ms| {
            let terms = calls[first].rule.terms();
            let nobody = Decision::without_answer(terms.name.clone(), allowed, retry_ms);
            Decision { deciding: first, limit: terms.limit.unwrap_or(0), ..nobody }
        };
        match chosen {
            OnError::Allow => return nobody(true, 0),
            OnError::Deny => {
                let retry_ms = self.0.options.breaker_pause_ms;
                return nobody(false, i64::try_from(retry_ms).unwrap_or(i64::MAX));
            }
            OnError::Local => {}
        }
        let now_us = u64::try_from((clock::now() - self.0.made).as_micros()).unwrap_or(u64::MAX);
        let mut local = self.0.local.lock().unwrap_or_else(PoisonError::into_inner);
        // Add 1 to the instant, because 0 marks a window that is not open.
        let mut row = |at: usize, peek| {
            let call = &calls[at];
            local_decision(&mut local, call.rule, &call.key, call.cost, now_us + 1, peek)
        };
        let peeked = calls.len() > 1 && bound.iter().any(|at| !row(*at, true).allowed);
        let rows: Vec<_> = bound.iter().map(|at| row(*at, peek || peeked)).collect();
        let rank = |row: &Decision| (!row.allowed, row.never(), row.retry_after_ms);
        let last = (0..rows.len())
            .max_by_key(|at| (rank(&rows[*at]), u64::MAX - rows[*at].remaining))
            .unwrap_or(0);
        let mut decision = Decision { deciding: bound[last], ..Decision::of_rows(last, rows) };
        if calls.len() == 1 {
            decision.rows.clear();
        }
        decision
    }
}
