//! The holders of a key with leases: how they are stored, and the changes that taking, renewing and
//! releasing a lease make.
//!
//! Leases are the only state that is not a string. They are stored in a sorted set of the server:
//!
//! ```text
//! score 0                 ""        the mark of a set of leases
//! its expiry in us        id        a holder
//! ```
//!
//! A set without the mark belongs to another program. So does a set in which the module reads a
//! score that is not a whole number from 1 to 2^53 - 1. Expired holders stay in the set until a
//! call takes a lease: the call adds at most one holder and removes up to [`REMOVED_MAX`] expired
//! ones. So expired holders do not accumulate, and no call must remove many.
//!
//! A ban of the key is a string, in place of the set. A ban that has ended counts as a missing key
//! while it is still there: a lease replaces it.

use crate::api::Refused;
use crate::api::key::{Event, KeyKind, MemberChanges, ReadKey, WriteKey};
use crate::api::sorted_set::Member;
use crate::commands::table::CommandId;
use crate::keyspace::{self, Commit, CommitError, Committed};
use crate::{clock, info};
use arrayvec::ArrayVec;
use redis_throttle_engine::leases::{Grant, Holders, Release};
use redis_throttle_engine::time::{Instant, Span};
use std::slice;

/// The largest number of expired holders that a call removes. A call adds at most one holder, so
/// expired holders do not accumulate.
const REMOVED_MAX: usize = 8;

/// The largest number of holders that are read one by one. To count or skip more, the module sends
/// the server a query.
const STEPS_MAX: u64 = REMOVED_MAX as u64;

/// The largest number of holders in a reply of `RL.INSPECT`.
const LISTED_MAX: usize = 100;

/// The reason why the holders of a key cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldersError {
    /// The key holds a value that the module did not write.
    WrongType,
    /// The server refused a query about the key's sorted set.
    QueryRefused,
}

impl From<Refused> for HoldersError {
    fn from(Refused: Refused) -> Self {
        Self::QueryRefused
    }
}

/// The holders of an open key at `now`, for a call of the holder `me`.
pub struct Stored<'key, 'open, 'call> {
    key: &'key mut ReadKey<'open, 'call>,
    me: &'key Member,
    now: Instant,
    expired: u64,
}

impl<'key, 'open, 'call> Stored<'key, 'open, 'call> {
    /// Reads the holders of `key` at `now`, for the holder `me`.
    ///
    /// # Errors
    ///
    /// [`HoldersError::WrongType`] if the key holds anything but leases.
    pub fn new(
        key: &'key mut ReadKey<'open, 'call>,
        me: &'key Member,
        now: Instant,
    ) -> Result<Self, HoldersError> {
        check(key, now)?;
        Ok(Self { key, me, now, expired: 0 })
    }

    /// Returns true if the latest call of `live` found expired holders.
    pub const fn has_expired(&self) -> bool {
        self.expired > 0
    }
}

impl Holders for Stored<'_, '_, '_> {
    type Error = HoldersError;

    fn live(&mut self) -> Result<u64, HoldersError> {
        self.expired = count_expired(self.key, self.now)?;
        Ok(live(self.key, self.expired))
    }

    fn mine(&mut self) -> Result<Option<Instant>, HoldersError> {
        let mine = self.key.score(self.me).map(instant).transpose()?;
        Ok(mine.filter(|expiry| *expiry > self.now))
    }

    fn last_of_others(&mut self) -> Result<Option<Instant>, HoldersError> {
        let me = self.me.bytes();
        match self.key.descending().find(|(id, _)| id.bytes() != me) {
            Some((id, score)) if !id.bytes().is_empty() => {
                Ok(Some(instant(score)?).filter(|expiry| *expiry > self.now))
            }
            _ => Ok(None),
        }
    }

    #[inline(always)]
    fn expiry_at_rank(&mut self, rank: u64) -> Result<Option<Instant>, HoldersError> {
        if rank <= STEPS_MAX {
            let mut live = self.key.ascending_above(score(self.now));
            let found = live.nth(usize::try_from(rank).unwrap_or(usize::MAX));
            return found.map(|(_, score)| instant(score)).transpose();
        }
        let member = self.key.member_at(1 + self.expired + rank)?;
        let score = member.and_then(|member| self.key.score(&member));
        score.map(instant).transpose()
    }
}

/// Checks that a key may hold leases at `now`: it is missing, has the mark, or holds a ban that has
/// ended.
fn check(key: &ReadKey<'_, '_>, now: Instant) -> Result<(), HoldersError> {
    match key.kind() {
        KeyKind::Missing => Ok(()),
        KeyKind::SortedSet => check_mark(key),
        KeyKind::String => match keyspace::ban(key) {
            Some(ban) if ban.at(now).is_none() => Ok(()),
            _ => Err(HoldersError::WrongType),
        },
        KeyKind::Other => Err(HoldersError::WrongType),
    }
}

/// Checks that a sorted set has the mark of a set of leases.
#[inline(always)]
pub fn check_mark(key: &ReadKey<'_, '_>) -> Result<(), HoldersError> {
    let mark = Member::empty().ok_or(HoldersError::QueryRefused)?;
    if key.score(&mark) == Some(0.0) { Ok(()) } else { Err(HoldersError::WrongType) }
}

/// Returns the number of expired holders of a key. The first member is skipped, because it is the
/// mark in a valid set. If it is not the mark, the next member has a score of at most 0, the score
/// of the mark, and that is an error.
fn count_expired(key: &mut ReadKey<'_, '_>, now: Instant) -> Result<u64, HoldersError> {
    let mut members = key.ascending();
    members.pass();
    let mut expired = 0;
    for (_, score) in members.by_ref().take(REMOVED_MAX + 1) {
        if instant(score)? > now {
            return Ok(expired);
        }
        expired += 1;
    }
    let is_all = expired <= STEPS_MAX;
    drop(members);
    if is_all { Ok(expired) } else { Ok(key.count_members(1, now.as_us())?) }
}

/// Returns the number of live holders: all members except the mark and the expired holders.
fn live(key: &ReadKey<'_, '_>, expired: u64) -> u64 {
    key.members().saturating_sub(1 + expired)
}

/// The change to store for one holder of a key.
pub struct HolderWrite {
    /// The kind of change.
    pub change: Change,
    /// The holder's id.
    pub id: Member,
    /// The time of the call.
    pub now: Instant,
    /// Whether there are expired holders at `now`.
    pub has_expired: bool,
}

/// The kind of change that a holder makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The holder takes or renews a lease.
    Hold(Grant),
    /// The holder releases its live lease.
    Release(Release),
}

// Implemented for a reference, because moving a `HolderWrite` costs more than reading it.
impl Commit for &HolderWrite {
    fn commit<'call>(
        &self,
        id: CommandId,
        key: WriteKey<'_, 'call>,
    ) -> Result<Committed<'call>, CommitError> {
        commit(id, key, self)
    }
}

/// Stores and replicates `write` for command `id`, and closes the key. When a holder is added, some
/// expired holders are removed. When the last live lease is released, the key is unlinked.
///
/// # Errors
///
/// [`CommitError::NotStored`] if the server does not accept the change.
pub fn commit<'call>(
    id: CommandId,
    mut key: WriteKey<'_, 'call>,
    write: &HolderWrite,
) -> Result<Committed<'call>, CommitError> {
    let creates = key.kind() == KeyKind::Missing;
    let done = match write.change {
        Change::Hold(grant) => hold(&mut key, write, grant),
        Change::Release(left) => release(&mut key, write, left),
    };
    let (event, replicated) = done.map_err(|Refused| CommitError::NotStored)?;
    if creates {
        info::count_created(id);
    }
    Ok(Committed { key: key.close(), event, replicated })
}

/// The event of the key's change, and the result of replicating that change.
type Done = (Event, Result<(), Refused>);

/// Adds or renews a holder, and removes a few expired holders. Sets a new expiry on the key if it
/// cannot keep its present one.
fn hold(key: &mut WriteKey<'_, '_>, write: &HolderWrite, grant: Grant) -> Result<Done, Refused> {
    let removed = expired_others(key.as_mut(), write);
    removed.iter().try_for_each(|id| key.remove_member(id))?;
    let (mark, replaced) = match key.kind() {
        KeyKind::SortedSet => (None, false),
        kind => (Some(Member::empty().ok_or(Refused)?), kind == KeyKind::String),
    };
    if replaced {
        key.unlink()?;
    }
    mark.iter().try_for_each(|mark| key.add_member(mark, 0))?;
    let score = grant.expires_at.as_us();
    key.add_member(&write.id, score)?;
    let expiry = new_expiry_ms(key, grant.last_expiry, write.now);
    expiry.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))?;
    let replicate = || {
        if replaced {
            key.replicate_unlink()?;
        }
        if !removed.is_empty() {
            key.replicate_zrem(&removed)?;
        }
        key.replicate_zadd(mark.as_deref(), score, &write.id)?;
        expiry.map_or(Ok(()), |ms| key.replicate_pexpireat(ms))
    };
    let (removed, expires) = (!removed.is_empty(), expiry.is_some());
    let changes =
        MemberChanges { replaced, removed, added: true, expires, ..MemberChanges::default() };
    Ok((Event::SortedSet(changes), replicate()))
}

/// Returns up to [`REMOVED_MAX`] expired holders to remove, the earliest expiry first. The calling
/// holder is not among them.
fn expired_others(key: &mut ReadKey<'_, '_>, write: &HolderWrite) -> ArrayVec<Member, REMOVED_MAX> {
    if !write.has_expired {
        return ArrayVec::new();
    }
    let mut members = key.ascending();
    members.pass();
    let expired = members.take(REMOVED_MAX).take_while(|(_, expiry)| *expiry <= score(write.now));
    expired.map(|(id, _)| id).filter(|id| id.bytes() != write.id.bytes()).collect()
}

/// Removes a holder. Sets an earlier expiry on the key if the other leases do not need the present
/// one. If no live lease is left, unlinks the key: it may hold many expired holders, and the server
/// frees them in the background.
fn release(
    key: &mut WriteKey<'_, '_>,
    write: &HolderWrite,
    left: Release,
) -> Result<Done, Refused> {
    let Some(last_expiry) = left.last_expiry else {
        key.unlink()?;
        return Ok((Event::Del, key.replicate_unlink()));
    };
    key.remove_member(&write.id)?;
    let expiry = new_expiry_ms(key, last_expiry, write.now);
    expiry.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))?;
    let replicate = || {
        key.replicate_zrem(slice::from_ref(&write.id))?;
        expiry.map_or(Ok(()), |ms| key.replicate_pexpireat(ms))
    };
    let expires = expiry.is_some();
    let changes = MemberChanges { removed: true, expires, ..MemberChanges::default() };
    Ok((Event::SortedSet(changes), replicate()))
}

/// Returns a new expiry for the key, or `None` if the key can keep its present one. A new expiry is
/// `left / 8` after the last lease expires, where `left` is the time from `now` to that instant, so
/// that not every call sets one. The key keeps an expiry from 0 to `left` after that instant.
fn new_expiry_ms(key: &WriteKey<'_, '_>, last_expiry: Instant, now: Instant) -> Option<u64> {
    let left = last_expiry.since(now);
    let serves = clock::expire_at_ms(last_expiry)..=clock::expire_at_ms(last_expiry.after(left));
    let is_served = key.expire_at_ms().is_some_and(|ms| serves.contains(&ms));
    (!is_served).then(|| clock::expire_at_ms(last_expiry.after(left.eighth())))
}

/// The live holders, for `RL.INSPECT`.
pub struct Listing {
    /// The number of live holders.
    pub count: u64,
    /// Up to [`LISTED_MAX`] live holders with the remaining time of each, earliest expiry first.
    pub first: Vec<(Member, Span)>,
}

/// Returns the number of live holders of a key at `now`, and those that expire first.
///
/// # Errors
///
/// [`HoldersError`] if the holders cannot be read.
pub fn list(key: &mut ReadKey<'_, '_>, now: Instant) -> Result<Listing, HoldersError> {
    check(key, now)?;
    let expired = count_expired(key, now)?;
    let count = live(key, expired);
    let live = key.ascending_above(score(now)).take(LISTED_MAX);
    let first = live.map(|(id, expiry)| Ok((id, instant(expiry)?.since(now))));
    Ok(Listing { count, first: first.collect::<Result<_, HoldersError>>()? })
}

/// Converts a score to its instant, exactly.
fn instant(score: f64) -> Result<Instant, HoldersError> {
    // NaN and numbers outside the range convert to its ends. From 1 to 2^53 - 1 only a whole score
    // converts back to itself: a test of its fraction would be a call into the C library.
    let expiry = Instant::from_us(score as u64);
    let is_expiry = expiry.as_us() > 0 && expiry <= Instant::MAX && self::score(expiry) == score;
    if is_expiry { Ok(expiry) } else { Err(HoldersError::WrongType) }
}

/// Converts an instant to its score, exactly: no instant used here is later than 2^53 us.
fn score(instant: Instant) -> f64 {
    instant.as_us() as f64
}
