//! The last steps of a call, the same for all commands, in this order:
//!
//! 1. everything that can fail: the arguments, the decision, building the reply;
//! 2. the commit: value, expiry and effect are written, and the key is closed ([`store`]);
//! 3. the announcement to clients that watch the key ([`Stored::announce`]);
//! 4. the count for `INFO`, and the reply in one go ([`answer`]).
//!
//! A call with several keys (`rule_set`) commits every change before it announces the first one,
//! because a client that is told of one change may read the other keys at once.

use crate::api::call::Call;
use crate::api::key::WriteKey;
use crate::api::reply::Context;
use crate::commands::table::CommandId;
use crate::fault::{self, Point};
use crate::info;
use crate::keyspace::{Commit, CommitError, Committed};

/// The change of one key, committed but not announced; `None` if the call changes nothing.
#[must_use]
pub struct Stored<'call>(Option<Committed<'call>>);

/// Commits `write`, if there is one, for command `id`, and closes the key.
/// The reply must already be complete, so that nothing can fail after the commit.
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
    let Some(write) = write else { return Ok(Stored(None)) };
    fault::point(Point::Store);
    Ok(Stored(Some(write.commit(id, key)?)))
}

impl<'call> Stored<'call> {
    /// Announces the change. This borrows the whole call, so that none of its keys can be open.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotReplicated`] if the server did not accept the effect.
    #[inline(always)]
    pub fn announce(self, call: &mut Call<'call>) -> Result<(), CommitError> {
        match self.0 {
            None => Ok(()),
            Some(committed) => committed.announce(call),
        }
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

/// Counts the decision for command `id`, and sends `reply`.
#[inline(always)]
pub fn answer(id: CommandId, call: &Call<'_>, is_allowed: bool, reply: &impl Reply) {
    info::count_decision(id, is_allowed);
    reply.send(call.context());
}
