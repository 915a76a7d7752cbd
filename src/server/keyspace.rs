//! Load and store: the state behind a key, and the change that a decision makes to it.

use super::api::{Call, ChangedKey, KeyKind, ReadKey, Refused, WriteKey};
use super::fault::{self, Point};
use super::{clock, replication};
use crate::grammar::Request;
use crate::limiter::{Instant, Mode, NewState, Next, OtherAlgorithm, Outcome, Span, State};
use crate::state::{self, Change, NotAState};

/// A change to a key and when it means nothing any more.
pub struct Write {
    change: Change,
    lapses_at: Instant,
    ttl_slack: Span,
}

impl Write {
    /// What it takes to store `next`.
    #[inline(always)]
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
pub fn load<'key>(key: &'key ReadKey<'_, '_>) -> Result<Option<State<'key>>, NotAState> {
    match key.kind() {
        KeyKind::Missing => Ok(None),
        KeyKind::String => state::decode(key.bytes()).map(Some),
        KeyKind::Other => Err(NotAState),
    }
}

/// The key holds something that is no state of the rule's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

/// What the rule of a request makes of the state behind a key.
///
/// # Errors
///
/// [`WrongType`] when the key holds anything else.
pub fn decide<'key>(
    key: &'key ReadKey<'_, '_>,
    request: &Request,
    mode: Mode,
    now: Instant,
) -> Result<Outcome<NewState<'key>>, WrongType> {
    let stored = load(key).map_err(|NotAState| WrongType)?;
    fault::point(Point::Decide);
    let Request { rule, cost } = request;
    rule.decide_as(mode, stored, now, *cost).map_err(|OtherAlgorithm| WrongType)
}

/// Why a change did not come about as it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The server did not take it.
    NotStored,
    /// The server took it, but does not pass it on.
    NotReplicated,
}

/// Stores and replicates `write`, and closes the key.
///
/// Every path leaves the key with an expiry, also one that somebody took away or that a replica
/// never got. One that still serves stays, and the effect says so: to look it up costs less than to
/// set it and to spell it.
///
/// # Errors
///
/// [`CommitError::NotStored`] when the server does not take the change.
// A copy for one rule and one for several, here and in what it calls: shared, each call of one rule
// would take fifty instructions more.
#[inline(always)]
pub fn commit<'call>(
    mut key: WriteKey<'_, 'call>,
    write: &Write,
) -> Result<Committed<'call>, CommitError> {
    let needed_ms = clock::expire_at_ms(write.lapses_at);
    let relaxed_ms = clock::expire_at_ms(write.lapses_at.after(write.ttl_slack));
    let serves = |ms| (needed_ms..=relaxed_ms).contains(&ms);
    let new_expiry_ms = (!key.expire_at_ms().is_some_and(serves)).then_some(relaxed_ms);
    store(&mut key, &write.change, new_expiry_ms).map_err(|Refused| CommitError::NotStored)?;
    let replicated = replication::send(&key, &write.change, new_expiry_ms);
    Ok(Committed { key: key.close(), replicated })
}

/// A key that holds its new state and is closed: what is left is to tell of it.
#[must_use]
pub struct Committed<'call> {
    key: ChangedKey<'call>,
    replicated: Result<(), Refused>,
}

impl<'call> Committed<'call> {
    /// Announces the change.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotReplicated`] when the server did not take the effect.
    pub fn announce(self, call: &mut Call<'call>) -> Result<(), CommitError> {
        call.announce(self.key, c"set");
        self.replicated.map_err(|Refused| CommitError::NotReplicated)
    }
}

/// Changes the value of the key, and lets it expire anew if it has to.
#[inline(always)]
fn store(
    key: &mut WriteKey<'_, '_>,
    change: &Change,
    new_expiry_ms: Option<u64>,
) -> Result<(), Refused> {
    match change {
        Change::Whole(bytes) => key.replace(bytes.as_slice())?,
        Change::Rewrite(bytes) => key.replace(bytes)?,
        Change::Patch { offset, entry } => key.overwrite(*offset, entry)?,
    }
    new_expiry_ms.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))
}
