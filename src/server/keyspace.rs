//! Load and store: the state behind a key, and the change that a decision makes to it.

use super::ffi::{Call, KeyKind, ReadKey, Refused, WriteKey};
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

/// Stores and replicates `write`, then closes the key and announces the change.
///
/// Every path leaves the key with an expiry. One that still serves stays, and the effect says so:
/// to look it up costs less than to set it and to spell it.
///
/// # Errors
///
/// [`Refused`] when the server does not take the change.
pub fn commit(call: &Call<'_>, mut key: WriteKey<'_>, write: &Write) -> Result<(), Refused> {
    let needed_ms = clock::expire_at_ms(write.lapses_at);
    let relaxed_ms = clock::expire_at_ms(write.lapses_at.after(write.ttl_slack));
    let serves = |ms| (needed_ms..=relaxed_ms).contains(&ms);
    let new_expiry_ms = (!key.expire_at_ms().is_some_and(serves)).then_some(relaxed_ms);
    match &write.change {
        Change::Whole(bytes) => replace(call, &mut key, bytes.as_slice(), new_expiry_ms)?,
        Change::Rewrite(bytes) => replace(call, &mut key, bytes, new_expiry_ms)?,
        Change::Patch { offset, entry } => {
            key.overwrite(*offset, entry)?;
            replication::patched(call, *offset, entry);
            if let Some(ms) = new_expiry_ms {
                key.set_expire_at_ms(ms)?;
                replication::extended(call, ms);
            }
        }
    }
    drop(key);
    call.signal_modified();
    call.notify_set();
    Ok(())
}

/// Makes `bytes` the value of the key, and lets it expire anew if it has to.
fn replace(
    call: &Call<'_>,
    key: &mut WriteKey<'_>,
    bytes: &[u8],
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    key.replace(bytes)?;
    match new_expiry_ms {
        None => replication::replaced(call, bytes),
        Some(ms) => {
            key.set_expire_at_ms(ms)?;
            replication::replaced_until(call, bytes, ms);
        }
    }
    Ok(())
}
