//! Load and store: the state behind a key, and the change that a decision makes to it.

use super::api::{ChangedKey, KeyKind, ReadKey, Refused, WriteKey};
use super::fault::{self, Point};
use super::{clock, replication};
use crate::grammar::{RULES_MAX, Request};
use crate::limiter::{Instant, Mode, NewState, Next, OtherAlgorithm, Outcome, Span, State};
use crate::state::{self, Change, NotAState};
use arrayvec::ArrayVec;

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
pub fn load<'key>(key: &'key ReadKey<'_>) -> Result<Option<State<'key>>, NotAState> {
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
    key: &'key ReadKey<'_>,
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

/// A key that holds its new state and is closed, and whether its effect was taken.
struct Stored<'call> {
    key: ChangedKey<'call>,
    replicated: Result<(), Refused>,
}

impl Stored<'_> {
    /// Tells those who wait for it of the change.
    fn announce(&self) -> Result<(), CommitError> {
        self.key.signal_modified();
        self.key.notify_string_event(c"set");
        self.replicated.map_err(|Refused| CommitError::NotReplicated)
    }
}

/// Stores and replicates `write`, then closes the key and announces the change.
///
/// # Errors
///
/// [`CommitError`] when the server does not take the change, or its effect.
pub fn commit(key: WriteKey<'_>, write: &Write) -> Result<(), CommitError> {
    change(key, write)?.announce()
}

/// Does that for all keys of a call, those without a write being closed alone. Nobody is told
/// before all are closed: who listens to events may change any key.
///
/// # Errors
///
/// As for [`commit`], the first of them; what was stored before is announced all the same.
pub fn commit_all<'call>(
    changes: impl Iterator<Item = (WriteKey<'call>, Option<Write>)>,
) -> Result<(), CommitError> {
    let mut stored = ArrayVec::<_, RULES_MAX>::new();
    let mut result = Ok(());
    for (key, write) in changes {
        match write.map(|write| change(key, &write)) {
            Some(Ok(changed)) => stored.push(changed),
            Some(Err(error)) => result = result.and(Err(error)),
            None => {}
        }
    }
    stored.iter().map(Stored::announce).fold(result, Result::and)
}

/// Stores and replicates `write`, and closes the key.
///
/// Every path leaves the key with an expiry, also one that somebody took away or that a replica
/// never got. One that still serves stays, and the effect says so: to look it up costs less than to
/// set it and to spell it.
#[inline(always)]
fn change<'call>(mut key: WriteKey<'call>, write: &Write) -> Result<Stored<'call>, CommitError> {
    let needed_ms = clock::expire_at_ms(write.lapses_at);
    let relaxed_ms = clock::expire_at_ms(write.lapses_at.after(write.ttl_slack));
    let serves = |ms| (needed_ms..=relaxed_ms).contains(&ms);
    let new_expiry_ms = (!key.expire_at_ms().is_some_and(serves)).then_some(relaxed_ms);
    store(&mut key, &write.change, new_expiry_ms).map_err(|Refused| CommitError::NotStored)?;
    let replicated = replication::send(&key, &write.change, new_expiry_ms);
    Ok(Stored { key: key.close(), replicated })
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
    }
    new_expiry_ms.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))
}
