//! Load and store: the state behind a key, and the change that a decision makes to it.

use crate::api::Refused;
use crate::api::call::Call;
use crate::api::key::{ChangedKey, Event, KeyKind, ReadKey, WriteKey};
use crate::fault::{self, Point};
use crate::{clock, replication};
use redis_throttle_engine::algorithms::{NewState, OtherAlgorithm, State};
use redis_throttle_engine::call::{ChargeError, Mode};
use redis_throttle_engine::decision::{Next, Outcome, StateWrite};
use redis_throttle_engine::grammar::options::CallOptions;
use redis_throttle_engine::grammar::redis_cell::ThrottleRequest;
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::grammar::reservation::ReservationRequest;
use redis_throttle_engine::msgpack::NotAState;
use redis_throttle_engine::redis_cell;
use redis_throttle_engine::reservations::window::ReservationError;
use redis_throttle_engine::state::{self, Change};
use redis_throttle_engine::time::{Instant, Span};

/// What becomes of a key.
pub enum KeyWrite {
    /// It holds a new state.
    Keep(Kept),
    /// It is deleted.
    Forget,
}

/// A new state of a key, and when it means nothing any more.
pub struct Kept {
    change: Change,
    lapses_at: Instant,
    ttl_slack: Span,
}

impl KeyWrite {
    /// What it takes to do what an outcome wants done; `None` when that is nothing.
    #[inline(always)]
    pub fn of(next: &StateWrite<NewState<'_>>) -> Option<Self> {
        match next {
            StateWrite::Nothing => None,
            StateWrite::Keep(next) => Some(Self::keeping(next, state::encode(&next.state))),
            StateWrite::Forget => Some(Self::Forget),
        }
    }

    /// What it takes to keep a state in the form of redis-cell.
    pub fn of_redis_cell(next: &Next<redis_cell::State>) -> Self {
        Self::keeping(next, state::decimal::encode_decimal(&next.state))
    }

    #[inline(always)]
    fn keeping<S>(next: &Next<S>, change: Change) -> Self {
        Self::Keep(Kept { change, lapses_at: next.lapses_at, ttl_slack: next.ttl_slack })
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
        KeyKind::SortedSet | KeyKind::Other => Err(NotAState),
    }
}

/// What the rule of a request makes of the state behind a key.
///
/// # Errors
///
/// [`OtherAlgorithm`] when the key holds anything else.
pub fn decide<'key>(
    key: &'key ReadKey<'_, '_>,
    request: &Request,
    mode: Mode,
    now: Instant,
) -> Result<Outcome<NewState<'key>>, OtherAlgorithm> {
    let stored = load(key)?;
    fault::point(Point::Decide);
    decide_on(stored, request, mode, now)
}

/// What the rule of a request makes of a state.
///
/// # Errors
///
/// [`OtherAlgorithm`] when it is one of another algorithm.
#[inline(always)]
pub fn decide_on<'key>(
    stored: Option<State<'key>>,
    request: &Request,
    mode: Mode,
    now: Instant,
) -> Result<Outcome<NewState<'key>>, OtherAlgorithm> {
    let Request { rule, options: CallOptions { cost, partial } } = *request;
    if partial {
        rule.decide_partly(stored, now, cost)
    } else {
        rule.decide_as(mode, stored, now, cost)
    }
}

/// What a call of redis-cell's command makes of the state behind a key.
///
/// # Errors
///
/// [`OtherAlgorithm`] when the key holds anything but the digits of redis-cell.
pub fn throttle(
    key: &ReadKey<'_, '_>,
    request: &ThrottleRequest,
) -> Result<redis_cell::Outcome, OtherAlgorithm> {
    let stored = match key.kind() {
        KeyKind::Missing => None,
        KeyKind::String => Some(state::decimal::decode_decimal(key.bytes())?),
        KeyKind::SortedSet | KeyKind::Other => return Err(OtherAlgorithm),
    };
    fault::point(Point::Decide);
    Ok(request.rule.decide(stored, clock::now(), request.quantity))
}

/// What a charge makes of the state behind a key.
///
/// # Errors
///
/// [`ChargeError`] when the key holds anything else, or the debt would be beyond all bounds.
pub fn charge<'key>(
    key: &'key ReadKey<'_, '_>,
    request: &Request,
) -> Result<Outcome<NewState<'key>>, ChargeError> {
    let stored = load(key)?;
    fault::point(Point::Decide);
    request.rule.charge(stored, clock::now(), request.options.cost)
}

/// What a refund makes of the state behind a key.
///
/// # Errors
///
/// [`OtherAlgorithm`] when the key holds anything else.
pub fn refund<'key>(
    key: &'key ReadKey<'_, '_>,
    request: &Request,
) -> Result<Outcome<NewState<'key>>, OtherAlgorithm> {
    let stored = load(key)?;
    fault::point(Point::Decide);
    request.rule.refund(stored, clock::now(), request.options.cost)
}

/// What a step with a reservation makes of the state behind a key.
///
/// # Errors
///
/// [`ReservationError`], among them that the key holds anything else.
pub fn reserve<'key>(
    key: &'key ReadKey<'_, '_>,
    request: &ReservationRequest<'key>,
) -> Result<Outcome<NewState<'key>>, ReservationError> {
    let stored = load(key)?;
    fault::point(Point::Decide);
    request.rule.take_step(stored, clock::now(), request.id, request.step)
}

/// Why a change did not come about as it should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The server did not take it.
    NotStored,
    /// The server took it, but does not pass it on.
    NotReplicated,
}

/// What becomes of one key, whatever the key holds.
pub trait Commit {
    /// Stores and replicates the change, and closes the key.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotStored`] if the server does not take the change.
    fn commit<'call>(&self, key: WriteKey<'_, 'call>) -> Result<Committed<'call>, CommitError>;
}

impl Commit for KeyWrite {
    #[inline(always)]
    fn commit<'call>(&self, key: WriteKey<'_, 'call>) -> Result<Committed<'call>, CommitError> {
        commit(key, self)
    }
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
    write: &KeyWrite,
) -> Result<Committed<'call>, CommitError> {
    let KeyWrite::Keep(kept) = write else {
        return forget(key);
    };
    let needed_ms = clock::expire_at_ms(kept.lapses_at);
    let relaxed_ms = clock::expire_at_ms(kept.lapses_at.after(kept.ttl_slack));
    let serves = |ms| (needed_ms..=relaxed_ms).contains(&ms);
    let new_expiry_ms = (!key.expire_at_ms().is_some_and(serves)).then_some(relaxed_ms);
    store(&mut key, &kept.change, new_expiry_ms).map_err(|Refused| CommitError::NotStored)?;
    let replicated = replication::send(&key, &kept.change, new_expiry_ms);
    Ok(Committed { key: key.close(), event: Event::Set, replicated })
}

/// Deletes a key.
#[cold]
fn forget<'call>(mut key: WriteKey<'_, 'call>) -> Result<Committed<'call>, CommitError> {
    key.delete().map_err(|Refused| CommitError::NotStored)?;
    let replicated = key.replicate_del();
    Ok(Committed { key: key.close(), event: Event::Del, replicated })
}

/// A key that was changed and is closed: what is left is to tell of it.
#[must_use]
pub struct Committed<'call> {
    /// The key.
    pub key: ChangedKey<'call>,
    /// What happened to it.
    pub event: Event,
    /// Whether the server took the effect.
    pub replicated: Result<(), Refused>,
}

impl<'call> Committed<'call> {
    /// Announces the change.
    ///
    /// # Errors
    ///
    /// [`CommitError::NotReplicated`] when the server did not take the effect.
    pub fn announce(self, call: &mut Call<'call>) -> Result<(), CommitError> {
        call.announce(self.key, self.event);
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
        Change::Tail { offset, entries } => key.overwrite(*offset, entries)?,
    }
    new_expiry_ms.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))
}
