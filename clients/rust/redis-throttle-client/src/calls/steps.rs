//! The life of a call: its node, its turn, its command, its reply.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use crate::calls::{denials::KnownDenials, forgotten::Since};
use crate::net::pass::{Late, Pass};
use crate::net::{backends::Route, breaker::Tally, budget::Budget, line::Lane, node::Slots};
use crate::rules::{clock, item::Keyed};
use crate::wire::words::{self, Verb};
use crate::wire::{command::Command, replies};
use crate::{Backend, Decision, Error, EventKind, Limiter, Reason, Source};

/// The number of nodes to which a command is sent: at first, and after one redirection.
const HOPS_MAX: usize = 2;

/// A command that the server decides, with the calls in it.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub command: &'a Command<'a>,
    pub calls: &'a [Keyed<'a>],
    /// Whether the command is one for several rules.
    pub is_all: bool,
    /// Whether the command admits work: then it has no known denials.
    pub admits: bool,
    pub began: Instant,
    pub budget: &'a Budget,
}

impl Request<'_> {
    /// Returns true if known denials decide the calls, and the server's denials of them are
    /// remembered.
    fn knows(&self) -> bool {
        !self.admits && !self.calls.iter().any(Keyed::is_held)
    }
}

/// The outcome of a command.
enum Outcome {
    Reply(Value),
    /// The command was not sent, because a known denial decides it.
    Known(Decision),
}

impl Limiter {
    /// Sends a command once, if its circuit breaker permits, and reads the reply.
    pub(crate) async fn send<T>(
        &self,
        command: &Command<'_>,
        began: Instant,
        budget: &Budget,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.send_in(Lane::Call, command, began, budget, read).await
    }

    pub(crate) async fn send_in<T>(
        &self,
        lane: Lane,
        command: &Command<'_>,
        began: Instant,
        budget: &Budget,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let request = Request { command, calls: &[], is_all: false, admits: false, began, budget };
        let outcome = self.exchange(&request, None, lane).await;
        let result = outcome.and_then(|outcome| match outcome {
            Outcome::Reply(reply) => read(&reply),
            Outcome::Known(_) => unreachable!("a command without calls has no denials"),
        });
        self.count_rejection(result)
    }

    /// Sends a renewal or an end, in a slot of its own. Waits for the slot until what is held
    /// expires, and then for one timeout.
    pub(crate) async fn send_in_slot<T>(
        &self,
        slots: Slots,
        command: &Command<'_>,
        expires: Instant,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let budget = self.budget();
        let began = clock::now();
        let node = match self.0.nodes.find(command.key(), began, &budget).await {
            Ok(node) => node,
            Err(error) => return self.count_rejection(Err(error)),
        };
        let Some(_slot) = node.slot(slots, expires.max(began + budget.left())).await else {
            return Err(Error::unavailable(Reason::Overloaded));
        };
        self.send_in(Lane::Hold, command, clock::now(), &budget, read).await
    }

    /// Sends a command once and reads the decision, which its denials then know. Too many
    /// reservations on a key are a denial. Calls under pressure are decided by a known denial.
    pub(crate) async fn request_decision(&self, request: &Request<'_>) -> Result<Decision, Error> {
        let since = self.0.forgotten.since(request.began);
        let decided = match self.exchange(request, Some(since), Lane::Call).await {
            Ok(Outcome::Known(denial)) => return Ok(denial),
            Ok(Outcome::Reply(reply)) => replies::of_calls(request.calls, request.is_all, &reply),
            Err(error) if request.is_all && error.is_too_many_reservations() => {
                replies::too_many(request.calls).ok_or(error)
            }
            Err(error) => Err(error),
        };
        if let (Ok(decision), Some(known)) = (&decided, self.known_of(request)) {
            known.record(request.calls, decision, since);
        }
        self.count_rejection(decided)
    }

    /// Decides calls by a cached denial if the command `caches` them, or else by the server, or
    /// without the server by known denials and `on_error`. `peeks`: nothing is taken.
    pub(crate) async fn decide(
        &self,
        request: &Request<'_>,
        caches: bool,
        peeks: bool,
    ) -> Result<Decision, Error> {
        if let Some(denial) = self.0.denials.get(request.command, request.began).filter(|_| caches)
        {
            return Ok(denial);
        }
        let since = self.0.forgotten.since(request.began);
        match self.request_decision(request).await {
            Ok(decision) => {
                if caches && decision.source == Source::Server {
                    self.0.denials.put(request.command, &decision, since);
                }
                Ok(decision)
            }
            Err(Error::Unavailable { reason, .. }) => {
                let known = self.known_of(request).map(|known| &**known);
                let why = (reason, request.budget.keeps_limit(reason));
                Ok(self.without_server((request.calls, request.is_all), known, why, peeks))
            }
            Err(error) => Err(error),
        }
    }

    /// Sends a charge or a refund.
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
        let changed = self.send(&command, began, budget, read).await;
        // Also remove a denial that was requested earlier and arrived in the meantime.
        self.forget_denials(&call.key, is_refund);
        let kind = if is_refund { EventKind::Refund } else { EventKind::Charge };
        self.record(kind, changed, &call.rule.of(subject), began)
    }

    fn count_rejection<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.inspect_err(|error| {
            if error.is_rejection() {
                self.0.counts.rejection();
            }
        })
    }

    /// Returns the known denials, if they apply.
    fn known_of(&self, request: &Request<'_>) -> Option<&Arc<KnownDenials>> {
        Some(&self.0.known).filter(|_| request.knows())
    }

    fn under_pressure(&self, request: &Request<'_>) -> Option<Outcome> {
        let denial =
            self.known_of(request)?.under_pressure(request.calls, request.is_all, clock::now());
        denial.map(Outcome::Known)
    }

    async fn exchange(
        &self,
        request: &Request<'_>,
        since: Option<Since>,
        lane: Lane,
    ) -> Result<Outcome, Error> {
        let Request { command, calls, is_all, began, budget, .. } = *request;
        let mut node = self.0.nodes.find(command.key(), began, budget).await?;
        let late = since.zip(self.known_of(request));
        let late = late.map(|(since, known)| move || known.on_late(calls, is_all, since));
        let late = late.as_ref().map(|late| late as &Late<'_>);
        let (mut asking, mut now) = (false, self.0.nodes.begin(began));
        for hop in 1.. {
            let sends = self.0.backends.found() != Backend::Auto;
            let pass = match node.enter(lane, budget.from(now), sends) {
                Ok(pass) => pass,
                Err(error) => {
                    self.0.nodes.failed(&error);
                    let is_full = error.reason() == Some(Reason::Overloaded);
                    let known = self.under_pressure(request).filter(|_| is_full);
                    return known.ok_or(error);
                }
            };
            if pass.waits() {
                let turn = self.stand_in_line(request, &pass).await;
                if let Some(known) = turn.inspect_err(|error| self.0.nodes.failed(error))? {
                    return Ok(known);
                }
            }
            let route = Route { pass: &pass, asking, late };
            let fault = match self.0.backends.send(route, command).await {
                Ok(reply) => {
                    budget.spend(pass.end(Tally::Replied));
                    return Ok(Outcome::Reply(reply));
                }
                Err(fault) => fault,
            };
            budget.spend(pass.end(fault.tally));
            if hop < HOPS_MAX
                && let Some((there, is_ask)) = self.0.nodes.redirected(&node, &fault.error)
            {
                (node, asking, now) = (there, is_ask, clock::now());
                continue;
            }
            self.0.nodes.failed(&fault.error);
            return Err(self.0.nodes.or_misled(fault.error));
        }
        unreachable!("the last hop returns")
    }

    /// Waits for the turn of a call. Before and after a wait for a place, a denial that is known
    /// decides it.
    async fn stand_in_line(
        &self,
        request: &Request<'_>,
        pass: &Pass,
    ) -> Result<Option<Outcome>, Error> {
        if pass.is_crowded()
            && let Some(known) = self.under_pressure(request)
        {
            return Ok(Some(known));
        }
        let turn = pass.turn().await;
        if turn.is_err() {
            request.budget.spend(pass.took());
        }
        Ok(if turn? { self.under_pressure(request) } else { None })
    }
}
