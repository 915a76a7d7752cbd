//! Load and store: the state of a key, and the change that a decision makes to it.

use crate::api::Refused;
use crate::api::call::Call;
use crate::api::key::{ChangedKey, Event, KeyKind, ReadKey, WriteKey};
use crate::commands::table::CommandId;
use crate::fault::{self, Point};
use crate::{clock, info, replication};
use redis_throttle_engine::algorithms::{NewState, OtherAlgorithm, State};
use redis_throttle_engine::ban::{Ban, LiveBan};
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::decision::{Next, Outcome, StateWrite};
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::msgpack::NotAState;
use redis_throttle_engine::redis_cell;
use redis_throttle_engine::state::{self, Change};
use redis_throttle_engine::time::{Instant, Span};

/// A change to a key.
pub enum KeyWrite {
    /// The key gets a new state.
    Keep(Kept),
    /// The key is deleted.
    Forget,
}

/// A new state of a key, and the time when it expires.
pub struct Kept {
    change: Change,
    expires_at: Instant,
    ttl_slack: Span,
}

impl KeyWrite {
    /// Converts the next state of an outcome to a change of the key; `None` if the outcome changes
    /// nothing.
    #[inline(always)]
    pub fn of(next: &StateWrite<NewState<'_>>) -> Option<Self> {
        match next {
            StateWrite::Nothing => None,
            StateWrite::Keep(next) => Some(Self::keeping(next, state::encode(&next.state))),
            StateWrite::Forget => Some(Self::Forget),
        }
    }

    /// Converts a ban to a change.
    #[cold]
    pub fn of_ban(next: &Next<Ban>) -> Self {
        Self::keeping(next, state::encode_ban(&next.state))
    }

    /// Converts a new state in redis-cell's format to a change.
    pub fn of_redis_cell(next: &Next<redis_cell::State>) -> Self {
        Self::keeping(next, state::decimal::encode_decimal(&next.state))
    }

    #[inline(always)]
    fn keeping<S>(next: &Next<S>, change: Change) -> Self {
        Self::Keep(Kept { change, expires_at: next.expires_at, ttl_slack: next.ttl_slack })
    }
}

/// Returns the state of a key; `None` if the key does not exist.
///
/// # Errors
///
/// [`NotAState`] if the key holds anything but a state.
pub fn load<'key>(key: &'key ReadKey<'_, '_>) -> Result<Option<State<'key>>, NotAState> {
    match key.kind() {
        KeyKind::Missing => Ok(None),
        KeyKind::String => state::decode(key.bytes()).map(Some),
        KeyKind::SortedSet | KeyKind::Other => Err(NotAState),
    }
}

/// Returns the ban of a key; `None` if the key holds anything else. For commands whose state is not
/// what [`load`] returns: they call it only if the key does not hold their own state.
#[cold]
#[inline(never)]
pub fn ban(key: &ReadKey<'_, '_>) -> Option<Ban> {
    load(key).ok()??.ban()
}

/// Decides a request on the state of a key.
///
/// # Errors
///
/// [`OtherAlgorithm`] if the key holds anything but a state of the rule's algorithm.
pub fn decide<'key>(
    key: &'key ReadKey<'_, '_>,
    request: &Request,
    mode: Mode,
    now: Instant,
) -> Result<Outcome<NewState<'key>>, OtherAlgorithm> {
    act_on(key, |stored| decide_on(stored, request, mode, now))
}

/// Decides a request on a state.
///
/// # Errors
///
/// [`OtherAlgorithm`] if the state belongs to another algorithm.
#[inline(always)]
pub fn decide_on<'key>(
    stored: Option<State<'key>>,
    request: &Request,
    mode: Mode,
    now: Instant,
) -> Result<Outcome<NewState<'key>>, OtherAlgorithm> {
    request.rule.decide_call(mode, stored, now, request.options)
}

/// The content of a key for a command that stores decimal digits.
pub enum Digits {
    /// The number, or `None` if the key is unused.
    Stored(Option<redis_cell::State>),
    /// A ban that applies now. Every command that stores digits denies the call.
    Banned(LiveBan),
}

/// Returns the content of a key for a command that stores decimal digits.
///
/// # Errors
///
/// [`OtherAlgorithm`] if the key holds neither digits nor a ban.
#[inline(always)]
pub fn load_digits(key: &ReadKey<'_, '_>, now: Instant) -> Result<Digits, OtherAlgorithm> {
    match key.kind() {
        KeyKind::Missing => Ok(Digits::Stored(None)),
        KeyKind::String => match state::decimal::decode_decimal(key.bytes()) {
            Ok(state) => Ok(Digits::Stored(Some(state))),
            Err(NotAState) => match ban(key).ok_or(OtherAlgorithm)?.at(now) {
                Some(live) => Ok(Digits::Banned(live)),
                None => Ok(Digits::Stored(None)),
            },
        },
        KeyKind::SortedSet | KeyKind::Other => Err(OtherAlgorithm),
    }
}

/// Applies `act` to the state of a key.
///
/// # Errors
///
/// The error of `act`, or that of [`NotAState`] if the key holds anything but a state.
#[inline(always)]
pub fn act_on<'key, T, E: From<NotAState>>(
    key: &'key ReadKey<'_, '_>,
    act: impl FnOnce(Option<State<'key>>) -> Result<T, E>,
) -> Result<T, E> {
    let stored = load(key)?;
    fault::point(Point::Decide);
    act(stored)
}

/// The reason why a change failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The server did not store the change.
    NotStored,
    /// The server stored the change, but does not replicate it.
    NotReplicated,
}

/// A change to one key, of any type of value.
pub trait Commit {
    /// Stores and replicates the change that command `id` makes, and closes the key.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotStored`] if the server does not accept the change.
    fn commit<'call>(
        &self,
        id: CommandId,
        key: WriteKey<'_, 'call>,
    ) -> Result<Committed<'call>, CommitError>;
}

impl Commit for KeyWrite {
    #[inline(always)]
    fn commit<'call>(
        &self,
        id: CommandId,
        key: WriteKey<'_, 'call>,
    ) -> Result<Committed<'call>, CommitError> {
        commit(Some(id), key, self)
    }
}

/// Stores and replicates `write`, and closes the key. `creator` is counted if the key was missing.
///
/// The key always has an expiry afterwards, even if another client removed the old one. An expiry
/// that is neither too early nor too late for the new state is kept, on replicas too: reading it
/// costs less than setting and formatting a new one.
///
/// # Errors
///
/// [`CommitError::NotStored`] if the server does not accept the change.
// The compiler makes two copies of this function and of those that it calls, for one rule and for
// several. With a single copy, each call of one rule would take fifty instructions more.
#[inline(always)]
pub fn commit<'call>(
    creator: Option<CommandId>,
    mut key: WriteKey<'_, 'call>,
    write: &KeyWrite,
) -> Result<Committed<'call>, CommitError> {
    let KeyWrite::Keep(kept) = write else {
        return forget(key);
    };
    let needed_ms = clock::expire_at_ms(kept.expires_at);
    let relaxed_ms = clock::expire_at_ms(kept.expires_at.after(kept.ttl_slack));
    let serves = |ms| (needed_ms..=relaxed_ms).contains(&ms);
    let new_expiry_ms = (!key.expire_at_ms().is_some_and(serves)).then_some(relaxed_ms);
    // A missing key has no expiry, so calls that keep an expiry do not check the kind.
    let creates = new_expiry_ms.is_some() && key.kind() == KeyKind::Missing;
    store(&mut key, &kept.change, new_expiry_ms).map_err(|Refused| CommitError::NotStored)?;
    if creates && let Some(id) = creator {
        info::count_created(id);
    }
    let replicated = replication::send(&key, &kept.change, new_expiry_ms);
    Ok(Committed { key: key.close(), event: Event::Set, replicated })
}

/// Does the same as [`commit`], out of line: for calls with several rules, and for calls about
/// bans. A further copy for these would slow down the other calls.
///
/// # Errors
///
/// [`CommitError::NotStored`] if the server does not accept the change.
#[inline(never)]
pub fn commit_out_of_line<'call>(
    creator: Option<CommandId>,
    key: WriteKey<'_, 'call>,
    write: &KeyWrite,
) -> Result<Committed<'call>, CommitError> {
    commit(creator, key, write)
}

/// A change that is committed out of line: a ban that had to be re-based.
pub struct Rebased(pub KeyWrite);

impl Commit for Rebased {
    fn commit<'call>(
        &self,
        id: CommandId,
        key: WriteKey<'_, 'call>,
    ) -> Result<Committed<'call>, CommitError> {
        commit_out_of_line(Some(id), key, &self.0)
    }
}

/// Deletes a key.
#[cold]
fn forget<'call>(mut key: WriteKey<'_, 'call>) -> Result<Committed<'call>, CommitError> {
    key.delete().map_err(|Refused| CommitError::NotStored)?;
    let replicated = key.replicate_del();
    Ok(Committed { key: key.close(), event: Event::Del, replicated })
}

/// A key that was changed and closed. Its change is not announced yet.
#[must_use]
pub struct Committed<'call> {
    /// The key.
    pub key: ChangedKey<'call>,
    /// The change.
    pub event: Event,
    /// Whether the server accepted the change for replicas and the append-only file.
    pub replicated: Result<(), Refused>,
}

impl<'call> Committed<'call> {
    /// Announces the change.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotReplicated`] if the server did not accept the effect.
    pub fn announce(self, call: &mut Call<'call>) -> Result<(), CommitError> {
        call.announce(self.key, self.event);
        self.replicated.map_err(|Refused| CommitError::NotReplicated)
    }
}

/// Changes the value of the key, and sets its expiry if a new one is given.
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
        Change::Tail { offset, entries } => key.overwrite(*offset, entries)?,
    }
    new_expiry_ms.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))
}
