//! Load and store: the state behind a key, and the change that a decision makes to it.

use super::api::{KeyKind, ReadKey, Refused, WriteKey};
use super::{clock, replication};
use crate::limiter::{Instant, NewState, Next, Span, State};
use crate::state::{self, Change, NotAState};

/// A change to a key and when it means nothing any more.
pub struct Write {
    change: Change,
    lapses_at: Instant,
    ttl_slack: Span,
}

impl Write {
    /// What it takes to store `next`.
    pub fn of(next: &Next<NewState<'_>>) -> Self {
        Self {
            change: state::encode(&next.state),
            lapses_at: next.lapses_at,
            ttl_slack: next.ttl_slack,
        }
    }
}

/// The state that a key holds; `None` when there is no key.
///
/// # Errors
///
/// [`NotAState`] when it holds anything else.
pub fn load<'key>(key: &'key ReadKey<'_>) -> Result<Option<State<'key>>, NotAState> {
    match key.kind() {
        KeyKind::Missing => Ok(None),
        KeyKind::String => state::decode(key.bytes()).map(Some),
        KeyKind::Other => Err(NotAState),
    }
}

/// Why a change did not come about as it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The server did not take it.
    NotStored,
    /// The server took it, but does not pass it on.
    NotReplicated,
}

/// Stores and replicates `write`, then closes the key and announces the change.
///
/// Every path leaves the key with an expiry, also one that somebody took away or that a replica
/// never got. One that still serves stays, and the effect says so: to look it up costs less than to
/// set it and to spell it.
///
/// # Errors
///
/// [`CommitError`] when the server does not take the change, or its effect.
pub fn commit(mut key: WriteKey<'_>, write: &Write) -> Result<(), CommitError> {
    let needed_ms = clock::expire_at_ms(write.lapses_at);
    let relaxed_ms = clock::expire_at_ms(write.lapses_at.after(write.ttl_slack));
    let serves = |ms| (needed_ms..=relaxed_ms).contains(&ms);
    let new_expiry_ms = (!key.expire_at_ms().is_some_and(serves)).then_some(relaxed_ms);
    store(&mut key, &write.change, new_expiry_ms).map_err(|Refused| CommitError::NotStored)?;
    let sent = replication::send(&key, &write.change, new_expiry_ms);
    let changed = key.close();
    changed.signal_modified();
    changed.notify_string_event(c"set");
    sent.map_err(|Refused| CommitError::NotReplicated)
}

/// Changes the value of the key, and lets it expire anew if it has to.
fn store(
    key: &mut WriteKey<'_>,
    change: &Change,
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    match change {
        Change::Whole(bytes) => key.replace(bytes.as_slice())?,
        Change::Rewrite(bytes) => key.replace(bytes)?,
        Change::Patch { offset, entry } => key.overwrite(*offset, entry)?,
        Change::Tail { offset, entries } => key.overwrite(*offset, entries)?,
    }
    new_expiry_ms.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))
}
