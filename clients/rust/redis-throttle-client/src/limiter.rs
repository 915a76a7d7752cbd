//! The limiter: asks once, in time, and says what the rule says when there is no answer.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use crate::backend::Backends;
use crate::call::Keyed;
use crate::connection::{Command, Connection};
use crate::counters::Counts;
use crate::deny_cache::DenyCache;
use crate::key::Keys;
use crate::local::{LocalLimiter, local_decision};
use crate::policy::{Gate, strictest};
use crate::prefetch::Grants;
use crate::protocol::{self, Verb};
use crate::{
    Backend, Call, Counters, Decision, Error, Kind, OnError, Options, Rule, Source, clock,
};

const LOCAL_KEYS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("above zero");

/// Asks the server over the connection it was made with. Each call is sent once and ends within
/// `timeout_ms`. Cheap to clone; its clones share everything.
#[derive(Clone)]
pub struct Limiter(Arc<Inner>);

struct Inner {
    backends: Arc<Backends>,
    options: Options,
    keys: Keys,
    gate: Arc<Gate>,
    gates: Mutex<HashMap<Arc<str>, Arc<Gate>>>,
    denials: DenyCache,
    grants: Grants,
    local: Mutex<LocalLimiter>,
    counts: Counts,
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
    /// A limiter with the default options.
    #[must_use]
    pub fn new(connection: impl Connection) -> Self {
        Self::with_options(connection, Options::default()).expect("the defaults are valid")
    }

    /// A limiter with other options.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with the name of an option that is out of its range.
    pub fn with_options(connection: impl Connection, options: Options) -> Result<Self, Error> {
        let options = options.checked()?;
        Ok(Self(Arc::new(Inner {
            backends: Arc::new(Backends::new(Box::new(connection), options.backend)),
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

    /// Decides, and takes what the call costs when it is allowed.
    ///
    /// # Errors
    /// A mistake of the program or its server's set-up; never a server that is away, which the
    /// rule's `on_error` decides about.
    pub async fn check(&self, call: Call<'_>) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed_call(&call)?;
        let prefetched = call.cost == 1 && self.prefetch_of(call.rule) > 1;
        let decision = if prefetched {
            self.prefetched(&keyed, began).await?
        } else {
            self.check_one(&keyed, began + self.timeout()).await?
        };
        Ok(self.told(decision, &call, began))
    }

    async fn check_one(&self, call: &Keyed<'_>, deadline: Instant) -> Result<Decision, Error> {
        let command = protocol::check(call, false)?;
        let read = |reply: &Value| protocol::decision(call.rule, reply, 1);
        self.decide(&command, std::slice::from_ref(call), deadline, read).await
    }

    /// What [`check`](Limiter::check) would answer, taking nothing. Cost 0 asks for the status.
    ///
    /// # Errors
    /// As [`check`](Limiter::check).
    pub async fn peek(&self, call: Call<'_>) -> Result<Decision, Error> {
        let keyed = self.keyed_call(&call)?;
        let command = protocol::named(Verb::Peek, &keyed)?;
        let read = |reply: &Value| protocol::decision(call.rule, reply, 1);
        match self.ask(&command, self.deadline(), read).await {
            Err(Error::Unavailable { .. }) => Ok(self.fallback(&[keyed], true)),
            answer => answer,
        }
    }

    /// Gives back, never past the full allowance. Not to be repeated: it gives twice.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without an answer, and what the server refuses.
    pub async fn refund(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.settle(Verb::Refund, call).await
    }

    /// Takes whether or not it is there: what a call cost beyond its estimate. Not to be repeated.
    ///
    /// # Errors
    /// As [`refund`](Limiter::refund).
    pub async fn charge(&self, call: Call<'_>) -> Result<Decision, Error> {
        self.settle(Verb::Charge, call).await
    }

    async fn settle(&self, verb: Verb, call: Call<'_>) -> Result<Decision, Error> {
        let keyed = self.keyed_call(&call)?;
        let command = protocol::named(verb, &keyed)?;
        self.0.denials.forget(&keyed.key);
        let read = |reply: &Value| protocol::settled(call.rule, reply);
        self.ask(&command, self.deadline(), read).await
    }

    /// The subject starts anew under this rule.
    ///
    /// # Errors
    /// As [`refund`](Limiter::refund).
    pub async fn forget(&self, call: Call<'_>) -> Result<(), Error> {
        let Keyed { key, .. } = self.keyed_call(&call)?;
        self.0.denials.forget(&key);
        self.0.grants.forget(&key);
        self.0.local.lock().unwrap_or_else(PoisonError::into_inner).forget(&key);
        self.ask(&protocol::forget(key), self.deadline(), |_| Ok(())).await
    }

    /// Several rules at once: takes from all or from none. `rows` has each rule's decision.
    ///
    /// In a cluster all keys need one hash tag: `tag`. Leases among the rules need an
    /// [`id`](Call::id) and are given back by whoever took them: [`admit`](Limiter::admit) does.
    ///
    /// # Errors
    /// As [`check`](Limiter::check); also for no call, more than 16, or a key that is twice there.
    pub async fn check_all(
        &self,
        calls: &[Call<'_>],
        tag: Option<&str>,
    ) -> Result<Decision, Error> {
        let began = clock::now();
        let keyed = self.keyed(calls, tag)?;
        let command = protocol::check_all(&keyed, false)?;
        let read = |reply: &Value| protocol::decision_all(&keyed, reply);
        let decision = self.decide(&command, &keyed, self.deadline(), read).await?;
        let deciding = &calls[decision.deciding];
        Ok(self.told(decision, deciding, began))
    }

    /// The key of a rule that can be decided whatever happens.
    fn keyed_call<'a>(&self, call: &Call<'a>) -> Result<Keyed<'a>, Error> {
        call.rule.can_follow(self.on_error_of(call.rule))?;
        call.keyed(&self.0.keys)
    }

    fn on_error_of(&self, rule: &Rule) -> OnError {
        rule.terms().on_error.unwrap_or(self.0.options.on_error)
    }

    /// How many permits one call takes for this rule.
    fn prefetch_of(&self, rule: &Rule) -> u64 {
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

    /// One after the other, for keys of different slots.
    ///
    /// What was taken is refunded when a later rule denies. Between the two it is missing for
    /// others, and stays so when the refund is not answered: it errs to the strict side, by at most
    /// the cost of each call that is denied.
    ///
    /// # Errors
    /// As [`check`](Limiter::check), after what was taken is refunded.
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
        let at = scarcest.ok_or_else(|| Error::invalid("calls", "expected at least 1"))?;
        Ok(Decision::of_rows(at, rows))
    }

    async fn undo(&self, calls: &[Call<'_>], rows: &[Decision]) {
        for (call, row) in calls.iter().zip(rows) {
            if row.allowed && !row.degraded {
                // Not answered, it errs to the strict side.
                let _ = self.refund(*call).await;
            }
        }
    }

    /// Sleeps as long as it is told, then acts; a denial when that is beyond `max_wait`.
    ///
    /// # Errors
    /// As [`check`](Limiter::check).
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

    /// A place in the queue that comes too late is given back.
    async fn too_late(&self, call: Call<'_>, decision: Decision) -> Result<Decision, Error> {
        if decision.allowed && !decision.degraded {
            match self.refund(call).await {
                Err(error) if error.is_mistake() => return Err(error),
                _ => {}
            }
        }
        Ok(Decision { allowed: false, granted: 0, ..decision })
    }

    /// What was decided, and how, since the limiter was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.counts.so_far()
    }

    /// Completes when the server is there, and says which back end answers.
    ///
    /// # Errors
    /// What is wrong: [`Error::Unavailable`], or [`Error::Rejected`] without the back end that is
    /// wanted.
    pub async fn ready(&self) -> Result<Backend, Error> {
        let key = self.0.keys.key("ready", "ready", None)?;
        self.ask(&protocol::probe(&key), self.deadline(), |_| Ok(())).await?;
        Ok(self.0.backends.found())
    }

    /// Gives back what was fetched in advance and not spent. Without an answer it stays taken.
    pub async fn close(&self) {
        for (key, rule, cost) in self.0.grants.drain(clock::now()) {
            let call = Keyed { rule: &rule, key, cost, id: None };
            let Ok(command) = protocol::named(Verb::Refund, &call) else { continue };
            let read = |reply: &Value| protocol::settled(&rule, reply);
            let _ = self.ask(&command, self.deadline(), read).await;
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        clock::now() + self.timeout()
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.0.options.timeout_ms)
    }

    /// Sends a command once, if its node is to be asked at all, and reads the reply.
    pub(crate) async fn ask<T>(
        &self,
        command: &Command<'_>,
        deadline: Instant,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let gate = self.gate(command.key());
        let pass = gate.enter(clock::now())?;
        let reply = match tokio::time::timeout_at(deadline, self.0.backends.send(command)).await {
            Ok(reply) => reply,
            Err(_) => Err(Error::away("no reply in time")),
        };
        pass.end(!matches!(reply, Err(Error::Unavailable { .. })));
        reply.and_then(|reply| read(&reply)).inspect_err(|error| {
            if error.is_mistake() {
                self.0.counts.mistake();
            }
        })
    }

    /// The gate of a key's node.
    fn gate(&self, key: &str) -> Arc<Gate> {
        let Some(node) = self.0.backends.connection.node(key) else { return self.0.gate.clone() };
        let mut gates = self.0.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.entry(node).or_insert_with(|| Arc::new(gate(&self.0.options))).clone()
    }

    pub(crate) async fn decide(
        &self,
        command: &Command<'_>,
        calls: &[Keyed<'_>],
        deadline: Instant,
        read: impl FnOnce(&Value) -> Result<Decision, Error>,
    ) -> Result<Decision, Error> {
        let asked = clock::now();
        if let Some(denial) = self.0.denials.get(command, asked) {
            return Ok(denial);
        }
        let decision = match self.ask(command, deadline, read).await {
            Err(Error::Unavailable { .. }) => return Ok(self.fallback(calls, false)),
            decision => decision?,
        };
        if calls.iter().all(|call| call.rule.kind() != Kind::Lease) {
            self.0.denials.put(command, &decision, asked);
        }
        Ok(decision)
    }

    /// From the permits that were taken in advance, or from those that one call takes now. Who
    /// waits for another's call half of the time-out in vain asks for one permit by itself.
    async fn prefetched(&self, call: &Keyed<'_>, began: Instant) -> Result<Decision, Error> {
        let (grants, deadline) = (&self.0.grants, began + self.timeout());
        if let Some(spent) = grants.spend(&call.key, call.rule, began) {
            return Ok(spent);
        }
        let turn = grants.turn(&call.key);
        let Some(mut last_denial) = turn.until(began + self.timeout() / 2).await else {
            return self.check_one(call, deadline).await;
        };
        let asked = clock::now();
        if let Some(spent) = grants.spend(&call.key, call.rule, asked) {
            return Ok(spent);
        }
        // Asked and denied while this one waited: it would hear the same.
        if let Some((_, denial)) = last_denial.as_ref().filter(|(at, _)| *at >= began) {
            return Ok(denial.clone());
        }
        let wanted = Keyed { cost: self.prefetch_of(call.rule), ..call.clone() };
        let command = protocol::check(&wanted, true)?;
        let read = |reply: &Value| protocol::decision(call.rule, reply, wanted.cost);
        let decision = self.decide(&command, std::slice::from_ref(call), deadline, read).await?;
        *last_denial = (!decision.allowed).then(|| (asked, decision.clone()));
        Ok(grants.put(&call.key, call.rule, decision, asked))
    }

    /// Counts the decision and hands it to the hook. A hook that panics changes no decision.
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

    /// What the rules say when there is no answer: the strictest decides.
    fn fallback(&self, calls: &[Keyed<'_>], peek: bool) -> Decision {
        let of = |call: &Keyed<'_>| self.on_error_of(call.rule);
        let chosen = strictest(calls.iter().map(of));
        let bound: Vec<usize> = (0..calls.len()).filter(|at| of(&calls[*at]) == chosen).collect();
        let Some(&first) = bound.first() else {
            return Decision::without_answer("".into(), false, 0);
        };
        let nobody = |allowed, retry_ms| {
            let name = calls[first].rule.terms().name.clone();
            Decision { deciding: first, ..Decision::without_answer(name, allowed, retry_ms) }
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
        // From 1: an instant of 0 means that a window is not open.
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
