//! The last steps of a call, the same for all commands, in this order:
//!
//! 1. everything that can fail: the arguments, the decision, building the reply;
//! 2. the commit: value, expiry and effect are written, and the key is closed ([`commit`]);
//! 3. the announcement to clients that watch the key;
//! 4. the counts for policies, `RL.TOP` and `INFO`;
//! 5. the reply in one go.
//!
//! [`finish`] takes all of them for a call with one key. A call with several keys (`rule_set`)
//! commits every change before it announces the first one, because a client that is told of one
//! change may read the other keys at once.

use crate::api::call::Call;
use crate::api::key::WriteKey;
use crate::api::reply::Context;
use crate::commands::table::CommandId;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{Commit, CommitError, Committed};
use crate::top::Demand;
use crate::{info, top};
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::decision::Decision;
use redis_throttle_engine::time::Instant;

/// A decided call with one key, of which nothing is stored yet.
pub struct Finished<W, R, C> {
    /// The change of the key; `None` if the call changes nothing.
    pub write: Option<W>,
    /// The complete reply, so that nothing can fail after the commit.
    pub reply: R,
    /// Whether the call counts as allowed.
    pub is_allowed: bool,
    /// The call as `RL.TOP` counts it; `None` if `RL.TOP` does not count the command.
    pub demand: Option<Demand>,
    /// Counts the call for its policy. The argument is true if the call created the key.
    pub count: C,
}

/// Counts nothing, for a call without a policy.
pub const fn no_policy(_: bool) {}

/// Finishes a decision that no policy counts, with its five integers.
#[inline(always)]
pub fn of<W>(
    decision: &Decision,
    write: Option<W>,
) -> Finished<W, [i64; 5], impl FnOnce(bool) + use<W>> {
    let (reply, is_allowed) = (decision.integers(), decision.verdict.is_allowed());
    Finished { write, reply, is_allowed, demand: None, count: no_policy }
}

impl<W, R, C> Finished<W, R, C> {
    /// Replaces the count for a policy.
    #[inline(always)]
    pub fn counted_by<D: FnOnce(bool)>(self, count: D) -> Finished<W, R, D> {
        let Self { write, reply, is_allowed, demand, .. } = self;
        Finished { write, reply, is_allowed, demand, count }
    }

    /// Lets `RL.TOP` count the call, at its cost and its instant.
    #[inline(always)]
    pub fn in_top(self, cost: Cost, now: Instant) -> Self {
        Self { demand: Some(Demand { cost, denies: !self.is_allowed, now }), ..self }
    }
}

/// Opens the key of a call, decides it with `decide`, and takes all last steps.
///
/// # Errors
///
/// The error of `decide`, which changed nothing, or [`CommitError`].
#[inline(always)]
pub fn finish<W: Commit, R: Reply, C: FnOnce(bool)>(
    id: CommandId,
    call: &mut Call<'_>,
    decide: impl FnOnce(&mut WriteKey<'_, '_>) -> Result<Finished<W, R, C>, CommandError>,
) -> Result<(), CommandError> {
    let mut key = call.only_key()?.open_for_writing();
    let finished = decide(&mut key)?;
    let committed = commit(id, Some(key), finished.write.as_ref())?;
    finished.conclude(id, call, committed)
}

/// Does the same as [`finish`] for a call that opens its key only if `looks` is true.
///
/// # Errors
///
/// As for [`finish`].
#[inline(always)]
pub fn finish_if_looks<W: Commit, R: Reply, C: FnOnce(bool)>(
    id: CommandId,
    call: &mut Call<'_>,
    looks: bool,
    decide: impl FnOnce(Option<&WriteKey<'_, '_>>) -> Result<Finished<W, R, C>, CommandError>,
) -> Result<(), CommandError> {
    let key = if looks { Some(call.only_key()?.open_for_writing()) } else { None };
    let finished = decide(key.as_ref())?;
    let committed = commit(id, key, finished.write.as_ref())?;
    finished.conclude(id, call, committed)
}

/// Commits `write`, if there is one, and closes the key.
#[inline(always)]
fn commit<'call, W: Commit>(
    id: CommandId,
    key: Option<WriteKey<'_, 'call>>,
    write: Option<&W>,
) -> Result<Option<Committed<'call>>, CommitError> {
    fault::point(Point::Reply);
    let (Some(key), Some(write)) = (key, write) else { return Ok(None) };
    fault::point(Point::Store);
    let committed = write.commit(key)?;
    committed.count_created(id);
    Ok(Some(committed))
}

impl<W, R: Reply, C: FnOnce(bool)> Finished<W, R, C> {
    /// Announces the change, counts the call and replies. This borrows the whole call, so that none
    /// of its keys can be open.
    #[inline(always)]
    fn conclude<'call>(
        self,
        id: CommandId,
        call: &mut Call<'call>,
        committed: Option<Committed<'call>>,
    ) -> Result<(), CommandError> {
        let mut created = false;
        if let Some(committed) = committed {
            created = committed.created;
            committed.announce(call)?;
        }
        (self.count)(created);
        if let Some(demand) = self.demand {
            top::count(call, call.key_name(), demand);
        }
        answer(id, call, self.is_allowed, &self.reply);
        Ok(())
    }
}

/// The complete reply to a decided call, ready to be sent.
pub trait Reply {
    /// Sends the reply.
    fn send(&self, context: Context<'_>);
}

impl<const N: usize> Reply for [i64; N] {
    #[inline(always)]
    fn send(&self, context: Context<'_>) {
        context.reply_integers(self);
    }
}

/// Sends true as 1 and false as 0.
impl Reply for bool {
    fn send(&self, context: Context<'_>) {
        context.reply_integer((*self).into());
    }
}

/// Sends `OK`.
impl Reply for () {
    fn send(&self, context: Context<'_>) {
        context.reply_ok();
    }
}

/// Counts the decision for `INFO`, and sends `reply`.
#[inline(always)]
pub fn answer(id: CommandId, call: &Call<'_>, is_allowed: bool, reply: &impl Reply) {
    info::count_decision(id, is_allowed);
    reply.send(call.context());
}

/// Ends a call that stores nothing.
#[inline(always)]
pub fn answer_unstored(id: CommandId, call: &Call<'_>, is_allowed: bool, reply: &impl Reply) {
    fault::point(Point::Reply);
    answer(id, call, is_allowed, reply);
}
