//! The life of a call: its node, its slot, its command, its reply.

use std::sync::Arc;

use redis::Value;
use tokio::time::Instant;

use crate::backend::Route;
use crate::breaker::{Lane, Tally};
use crate::connection::Command;
use crate::item::Keyed;
use crate::node::Node;
use crate::{Decision, Error, Limiter, Reason, clock, reply};

/// The number of nodes to which a command is sent: at first, and after one redirection.
const HOPS_MAX: usize = 2;

impl Limiter {
    /// Sends a command once, if its circuit breaker permits, and reads the reply.
    pub(crate) async fn ask<T>(
        &self,
        command: &Command<'_>,
        began: Instant,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let reply = self.reply(command, began).await;
        self.read(reply, read)
    }

    /// Sends a command of several rules as [`ask`](Limiter::ask) does. Too many reservations on a
    /// key are a denial.
    pub(crate) async fn ask_all(
        &self,
        command: &Command<'_>,
        calls: &[Keyed<'_>],
        began: Instant,
    ) -> Result<Decision, Error> {
        let reply = self.reply(command, began).await;
        if let Err(error) = &reply
            && error.is_too_many_reservations()
            && let Some(denial) = reply::too_many(calls)
        {
            return Ok(denial);
        }
        self.read(reply, |reply| reply::decision_all(calls, reply))
    }

    async fn reply(&self, command: &Command<'_>, began: Instant) -> Result<Value, Error> {
        let deadline = self.deadline(began);
        let node = self.0.nodes.find(command.key(), began, deadline).await?;
        self.exchange(command, node, Lane::Call, began).await
    }

    /// Sends a renewal or an end, in a slot of its own. Waits for the slot until what is held
    /// expires, and then for one timeout.
    pub(crate) async fn ask_in_slot<T>(
        &self,
        command: &Command<'_>,
        expires: Instant,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let began = clock::now();
        let reply = async {
            let deadline = self.deadline(began);
            let node = self.0.nodes.find(command.key(), began, deadline).await?;
            let gate_of = node.clone();
            let slot = gate_of.gate.lease_slot(expires.max(deadline)).await;
            let _slot = slot.ok_or_else(|| Error::unavailable(Reason::Overloaded))?;
            self.exchange(command, node, Lane::Lease, clock::now()).await
        };
        self.read(reply.await, read)
    }

    fn read<T>(
        &self,
        reply: Result<Value, Error>,
        read: impl FnOnce(&Value) -> Result<T, Error>,
    ) -> Result<T, Error> {
        reply.and_then(|reply| read(&reply)).inspect_err(|error| {
            if error.is_rejection() {
                self.0.counts.rejection();
            }
        })
    }

    async fn exchange(
        &self,
        command: &Command<'_>,
        mut node: Arc<Node>,
        lane: Lane,
        began: Instant,
    ) -> Result<Value, Error> {
        let (deadline, mut asking) = (self.deadline(began), false);
        for hop in 1.. {
            let pass = node.gate.enter(lane, began, || node.is_up())?;
            if pass.is_alone() {
                node.drop_closed(began);
            }
            let route = Route { node: &node, asking, deadline };
            let fault = match self.0.backends.send(route, command).await {
                Ok(reply) => {
                    pass.end(Tally::Answered);
                    return Ok(reply);
                }
                Err(fault) => fault,
            };
            if hop < HOPS_MAX
                && let Some((there, asks)) = self.0.nodes.redirected(&node, &fault.error)
            {
                pass.end(Tally::Answered);
                (node, asking) = (there, asks);
                continue;
            }
            let overloaded = fault.tally == Tally::Waited && pass.saw_answers();
            pass.end(if overloaded { Tally::Nothing } else { fault.tally });
            let error =
                if overloaded { Error::unavailable(Reason::Overloaded) } else { fault.error };
            self.0.nodes.failed(&error);
            return Err(error);
        }
        unreachable!("the last hop returns")
    }
}
