//! The last steps of a call, the same for all commands, in this order:
//!
//! 1. everything that can fail: the arguments, the decision, building the reply;
//! 2. the commit: value, expiry and effect are written, and the key is closed ([`store`]);
//! 3. the announcement to clients that watch the key;
//! 4. the counts for policies, `RL.TOP` and `INFO`;
//! 5. the reply in one go.
//!
//! [`Stored::finish`] takes the last three for a call with one key. A call with several keys
//! (`rule_set`) commits every change before it announces the first one, because a client that is
//! notified of one change may read the other keys at once.

use crate::api::call::Call;
use crate::api::key::WriteKey;
use crate::api::reply::Context;
use crate::commands::table::CommandId;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{Commit, CommitError, Committed};
use crate::{info, top};

/// The change of one key that command `id` made, committed but not announced; `None` if the call
/// changes nothing.
#[must_use]
pub struct Stored<'call> {
    id: CommandId,
    committed: Option<Committed<'call>>,
}

/// Commits `write`, if there is one, for command `id`, and closes the key. The reply must already
/// be complete, so that nothing can fail after the commit.
///
/// # Errors
///
/// [`CommitError::NotStored`] if the server does not accept the change.
#[inline(always)]
pub fn store<'call, W: Commit>(
    id: CommandId,
    key: WriteKey<'_, 'call>,
    write: Option<W>,
) -> Result<Stored<'call>, CommitError> {
    fault::point(Point::Reply);
    let Some(write) = write else { return Ok(Stored { id, committed: None }) };
    fault::point(Point::Store);
    Ok(Stored { id, committed: Some(write.commit(id, key)?) })
}

/// Stores nothing, for a call that does not open its key.
pub fn store_nothing<'call>(id: CommandId) -> Stored<'call> {
    fault::point(Point::Reply);
    Stored { id, committed: None }
}

impl<'call> Stored<'call> {
    /// Announces the change, counts the call in `counts` and for `INFO`, and replies. This borrows
    /// the whole call, so that none of its keys can be open.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotReplicated`] if the server did not accept the effect.
    #[inline(always)]
    pub fn finish(
        self,
        call: &mut Call<'call>,
        is_allowed: bool,
        reply: &impl Reply,
        counts: impl Counts,
    ) -> Result<(), CommandError> {
        if let Some(committed) = self.committed {
            committed.announce(call)?;
        }
        counts.count(call);
        count_and_reply(self.id, call, is_allowed, reply);
        Ok(())
    }
}

/// The counts of a decided call, except those for `INFO`. A closure would be called out of line.
pub trait Counts {
    /// Counts the call.
    fn count(self, call: &Call<'_>);
}

/// Counts nothing.
impl Counts for () {
    #[inline(always)]
    fn count(self, _: &Call<'_>) {}
}

/// Counts for `RL.TOP`.
impl Counts for top::Decided {
    #[inline(always)]
    fn count(self, call: &Call<'_>) {
        top::count(call, call.key_name(), self.cost, self.denies, self.now);
    }
}

impl<C: Counts> Counts for Option<C> {
    #[inline(always)]
    fn count(self, call: &Call<'_>) {
        if let Some(counts) = self {
            counts.count(call);
        }
    }
}

/// Counts in both.
impl<A: Counts, B: Counts> Counts for (A, B) {
    #[inline(always)]
    fn count(self, call: &Call<'_>) {
        self.0.count(call);
        self.1.count(call);
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

/// Counts the decision of command `id` for `INFO`, and sends `reply`.
#[inline(always)]
pub fn count_and_reply(id: CommandId, call: &Call<'_>, is_allowed: bool, reply: &impl Reply) {
    info::count_decision(id, is_allowed);
    reply.send(call.context());
}

/// Ends a call of command `id` that stores nothing.
#[inline(always)]
pub fn finish_unstored(id: CommandId, call: &Call<'_>, is_allowed: bool, reply: &impl Reply) {
    fault::point(Point::Reply);
    count_and_reply(id, call, is_allowed, reply);
}
