//! The holders of leases behind a key: how they stand, and what a lease that is taken, renewed or
//! given back makes of them.
//!
//! It is the one state that is no string, but the server's own sorted set:
//!
//! ```text
//! score 0                 ""        the mark that the set is ours
//! the lapse in us         id        a holder
//! ```
//!
//! A set without the mark is somebody else's, as is one whose scores cannot be ours where they are
//! looked at: whole, and from 1 to 2^53 - 1. Holders whose lease has lapsed stay until somebody
//! takes one, and removes a few of them. One comes with a call at most, so that any number of them
//! goes in the end, and no call has to remove them all.

use crate::api::Refused;
use crate::api::key::{Event, KeyKind, MemberChanges, ReadKey, WriteKey};
use crate::api::sorted_set::Member;
use crate::clock;
use crate::keyspace::{Commit, CommitError, Committed};
use arrayvec::ArrayVec;
use redis_throttle_engine::leases::{Grant, Holders, Release};
use redis_throttle_engine::time::{Instant, Span};
use std::slice;

/// How many lapsed holders a call removes at most: it adds one, so that any number of them goes.
const REMOVED_MAX: usize = 8;

/// How many holders are looked at one by one before the server is asked to count.
const STEPS_MAX: u64 = REMOVED_MAX as u64;

/// How many holders are shown to people.
const SHOWN_MAX: usize = 100;

/// Why the holders behind a key cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldersError {
    /// The key holds something that is not of our making.
    WrongType,
    /// The server does not answer what it is asked about its own sorted set.
    NotTold,
}

impl From<Refused> for HoldersError {
    fn from(Refused: Refused) -> Self {
        Self::NotTold
    }
}

/// The holders behind an open key, as one of them sees them at one instant.
pub struct Stored<'key, 'open, 'call> {
    key: &'key mut ReadKey<'open, 'call>,
    me: &'key Member,
    now: Instant,
    lapsed: u64,
}

impl<'key, 'open, 'call> Stored<'key, 'open, 'call> {
    /// Those of `key` at `now`, as `me` sees them.
    ///
    /// # Errors
    ///
    /// [`HoldersError::WrongType`] when the key holds anything else.
    pub fn new(
        key: &'key mut ReadKey<'open, 'call>,
        me: &'key Member,
        now: Instant,
    ) -> Result<Self, HoldersError> {
        check(key)?;
        Ok(Self { key, me, now, lapsed: 0 })
    }

    /// Whether some have lapsed, as far as they were counted.
    pub const fn has_lapsed(&self) -> bool {
        self.lapsed > 0
    }
}

impl Holders for Stored<'_, '_, '_> {
    type Error = HoldersError;

    fn live(&mut self) -> Result<u64, HoldersError> {
        self.lapsed = lapsed(self.key, self.now)?;
        Ok(live(self.key, self.lapsed))
    }

    fn mine(&mut self) -> Result<Option<Instant>, HoldersError> {
        let mine = self.key.score(self.me).map(instant).transpose()?;
        Ok(mine.filter(|lapse| *lapse > self.now))
    }

    fn last_of_others(&mut self) -> Result<Option<Instant>, HoldersError> {
        let me = self.me.bytes();
        match self.key.descending().find(|(id, _)| id.bytes() != me) {
            Some((id, score)) if !id.bytes().is_empty() => {
                Ok(Some(instant(score)?).filter(|lapse| *lapse > self.now))
            }
            _ => Ok(None),
        }
    }

    fn lapse_at_rank(&mut self, rank: u64) -> Result<Option<Instant>, HoldersError> {
        if rank <= STEPS_MAX {
            let mut live = self.key.ascending_above(score(self.now));
            let found = live.nth(usize::try_from(rank).unwrap_or(usize::MAX));
            return found.map(|(_, score)| instant(score)).transpose();
        }
        let member = self.key.member_at(1 + self.lapsed + rank)?;
        let score = member.and_then(|member| self.key.score(&member));
        score.map(instant).transpose()
    }
}

/// Whether a key may hold leases: it is missing, or bears the mark.
fn check(key: &ReadKey<'_, '_>) -> Result<(), HoldersError> {
    match key.kind() {
        KeyKind::Missing => Ok(()),
        KeyKind::SortedSet => {
            let mark = Member::empty().ok_or(HoldersError::NotTold)?;
            if key.score(&mark) == Some(0.0) { Ok(()) } else { Err(HoldersError::WrongType) }
        }
        KeyKind::String | KeyKind::Other => Err(HoldersError::WrongType),
    }
}

/// How many of the holders behind a key have lapsed. The mark comes before all of them: were there
/// anything before it, or at its score, then the first to be looked at would be no holder.
fn lapsed(key: &mut ReadKey<'_, '_>, now: Instant) -> Result<u64, HoldersError> {
    let mut members = key.ascending();
    members.pass();
    let mut lapsed = 0;
    for (_, score) in members.by_ref().take(REMOVED_MAX + 1) {
        if instant(score)? > now {
            return Ok(lapsed);
        }
        lapsed += 1;
    }
    let is_all = lapsed <= STEPS_MAX;
    drop(members);
    if is_all { Ok(lapsed) } else { Ok(key.count_members(1, now.as_us())?) }
}

/// How many of the holders have not lapsed.
fn live(key: &ReadKey<'_, '_>, lapsed: u64) -> u64 {
    key.members().saturating_sub(1 + lapsed)
}

/// What becomes of the holders.
pub struct HolderWrite {
    /// What one of them does.
    pub change: Change,
    /// Which one.
    pub id: Member,
    /// When.
    pub now: Instant,
    /// Whether there are any that have lapsed by then.
    pub has_lapsed: bool,
}

/// What a holder does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It holds a lease, new or renewed.
    Hold(Grant),
    /// It gives its live lease back.
    Release(Release),
}

// By reference: moving it costs more than looking at it.
impl Commit for &HolderWrite {
    fn commit<'call>(&self, key: WriteKey<'_, 'call>) -> Result<Committed<'call>, CommitError> {
        commit(key, self)
    }
}

/// Stores and replicates `write`, and closes the key. A few holders that have lapsed go when one
/// comes. The key goes with the last live lease that is released.
///
/// # Errors
///
/// [`CommitError::NotStored`] when the server does not take the change.
pub fn commit<'call>(
    mut key: WriteKey<'_, 'call>,
    write: &HolderWrite,
) -> Result<Committed<'call>, CommitError> {
    let done = match write.change {
        Change::Hold(grant) => hold(&mut key, write, grant),
        Change::Release(left) => release(&mut key, write, left),
    };
    let (event, replicated) = done.map_err(|Refused| CommitError::NotStored)?;
    Ok(Committed { key: key.close(), event, replicated })
}

/// What happened to the key, and whether the server took the effects.
type Done = (Event, Result<(), Refused>);

/// A holder comes or stays, and some go that have lapsed. The expiry is moved where it has to.
fn hold(key: &mut WriteKey<'_, '_>, write: &HolderWrite, grant: Grant) -> Result<Done, Refused> {
    let removed = lapsed_others(key.as_mut(), write);
    removed.iter().try_for_each(|id| key.remove_member(id))?;
    let mark = match key.kind() {
        KeyKind::Missing => Some(Member::empty().ok_or(Refused)?),
        _ => None,
    };
    mark.iter().try_for_each(|mark| key.add_member(mark, 0))?;
    let lapse = grant.lapses_at.as_us();
    key.add_member(&write.id, lapse)?;
    let expiry = new_expiry_ms(key, grant.last_lapse, write.now);
    expiry.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))?;
    let replicate = || {
        if !removed.is_empty() {
            key.replicate_zrem(&removed)?;
        }
        key.replicate_zadd(mark.as_deref(), lapse, &write.id)?;
        expiry.map_or(Ok(()), |ms| key.replicate_pexpireat(ms))
    };
    let (removed, expires) = (!removed.is_empty(), expiry.is_some());
    Ok((Event::SortedSet(MemberChanges { removed, added: true, expires }), replicate()))
}

/// Some that have lapsed, the earliest first, without the one whose call it is.
fn lapsed_others(key: &mut ReadKey<'_, '_>, write: &HolderWrite) -> ArrayVec<Member, REMOVED_MAX> {
    if !write.has_lapsed {
        return ArrayVec::new();
    }
    let mut members = key.ascending();
    members.pass();
    let lapsed = members.take(REMOVED_MAX).take_while(|(_, lapse)| *lapse <= score(write.now));
    lapsed.map(|(id, _)| id).filter(|id| id.bytes() != write.id.bytes()).collect()
}

/// Removes a holder. The expiry is moved if the other leases do not need it; without a live lease
/// the key is unlinked, since any number of lapsed holders may be left in it.
fn release(
    key: &mut WriteKey<'_, '_>,
    write: &HolderWrite,
    left: Release,
) -> Result<Done, Refused> {
    let Some(last_lapse) = left.last_lapse else {
        key.unlink()?;
        return Ok((Event::Del, key.replicate_unlink()));
    };
    key.remove_member(&write.id)?;
    let expiry = new_expiry_ms(key, last_lapse, write.now);
    expiry.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))?;
    let replicate = || {
        key.replicate_zrem(slice::from_ref(&write.id))?;
        expiry.map_or(Ok(()), |ms| key.replicate_pexpireat(ms))
    };
    let changes = MemberChanges { removed: true, added: false, expires: expiry.is_some() };
    Ok((Event::SortedSet(changes), replicate()))
}

/// When the key has to expire, if not when it does. It outlives the last lease by an eighth of what
/// is left of that, so that not every call sets it, and by as much as is left of it at most.
fn new_expiry_ms(key: &WriteKey<'_, '_>, last_lapse: Instant, now: Instant) -> Option<u64> {
    let left = last_lapse.since(now);
    let serves = clock::expire_at_ms(last_lapse)..=clock::expire_at_ms(last_lapse.after(left));
    let is_served = key.expire_at_ms().is_some_and(|ms| serves.contains(&ms));
    (!is_served).then(|| clock::expire_at_ms(last_lapse.after(left.eighth())))
}

/// The live holders, for people.
pub struct Shown {
    /// How many there are.
    pub count: u64,
    /// The first of them to lapse, and what each has left.
    pub first: Vec<(Member, Span)>,
}

/// The holders behind a key at `now`.
///
/// # Errors
///
/// [`HoldersError`] when they cannot be told.
pub fn show(key: &mut ReadKey<'_, '_>, now: Instant) -> Result<Shown, HoldersError> {
    check(key)?;
    let lapsed = lapsed(key, now)?;
    let count = live(key, lapsed);
    let live = key.ascending_above(score(now)).take(SHOWN_MAX);
    let first = live.map(|(id, lapse)| Ok((id, instant(lapse)?.since(now))));
    Ok(Shown { count, first: first.collect::<Result<_, HoldersError>>()? })
}

/// The instant that a score stands for, exactly.
fn instant(score: f64) -> Result<Instant, HoldersError> {
    // From 1 to 2^53 - 1 it is exact where it is whole; NaN and infinities are none of these.
    let is_lapse = (1.0..=self::score(Instant::MAX)).contains(&score) && score.fract() == 0.0;
    if is_lapse { Ok(Instant::from_us(score as u64)) } else { Err(HoldersError::WrongType) }
}

/// The score that stands for an instant, exactly: none that is asked about is later than 2^53 us.
fn score(instant: Instant) -> f64 {
    instant.as_us() as f64
}
