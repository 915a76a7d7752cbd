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
//! takes, renews or gives back another, and removes a few of them. One comes with a call at most,
//! so that any number of them goes in the end, and no call has to remove them all.

use super::api::{Event, KeyKind, Member, MemberChanges, ReadKey, Refused, WriteKey};
use super::clock;
use super::keyspace::{CommitError, Committed};
use crate::limiter::lease::{Census, Grant, Holders};
use crate::limiter::{Instant, Span};
use arrayvec::ArrayVec;

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

/// The holders behind an open key, as one of them sees them.
pub struct Stored<'key, 'open, 'call> {
    key: &'key mut ReadKey<'open, 'call>,
    me: &'key Member,
    now: Instant,
    lapsed: u64,
}

impl<'key, 'open, 'call> Stored<'key, 'open, 'call> {
    /// Those of `key`, as `me` sees them.
    pub fn new(key: &'key mut ReadKey<'open, 'call>, me: &'key Member) -> Self {
        Self { key, me, now: Instant::from_us(0), lapsed: 0 }
    }
}

impl Holders for Stored<'_, '_, '_> {
    type Error = HoldersError;

    fn census(&mut self, now: Instant) -> Result<Census, HoldersError> {
        (self.now, self.lapsed) = (now, lapsed(self.key, now)?);
        let live = self.key.members().saturating_sub(1 + self.lapsed);
        let mine = self.key.score(self.me).map(instant).transpose()?;
        let me = self.me.bytes();
        let last_of_others = match self.key.descending().find(|(id, _)| id.bytes() != me) {
            Some((id, score)) if !is_mark(&id, score) => Some(instant(score)?),
            _ => None,
        };
        let is_live = |lapse: &Instant| *lapse > now;
        let (mine, last_of_others) = (mine.filter(is_live), last_of_others.filter(is_live));
        Ok(Census { live, mine, last_of_others })
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

/// How many of the holders behind a key have lapsed, which is found to hold nothing else.
fn lapsed(key: &mut ReadKey<'_, '_>, now: Instant) -> Result<u64, HoldersError> {
    match key.kind() {
        KeyKind::Missing => return Ok(0),
        KeyKind::SortedSet => {}
        KeyKind::String | KeyKind::Other => return Err(HoldersError::WrongType),
    }
    let mut members = key.ascending();
    match members.next() {
        Some((mark, score)) if is_mark(&mark, score) => {}
        _ => return Err(HoldersError::WrongType),
    }
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

/// What becomes of the holders.
pub struct Write {
    change: Change,
    id: Member,
    now: Instant,
}

/// What one of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It holds a lease, new or renewed.
    Hold(Grant),
    /// It gives its lease back; the last of all lapses then.
    Release {
        /// When.
        last_lapse: Instant,
    },
}

impl Write {
    /// A lease that is taken or renewed at `now`.
    pub const fn hold(id: Member, grant: Grant, now: Instant) -> Self {
        Self { change: Change::Hold(grant), id, now }
    }

    /// A lease that is given back at `now`; `None` when it is not live.
    pub fn release(id: Member, census: &Census, now: Instant) -> Option<Self> {
        let last_lapse = census.mine.and(census.last())?;
        Some(Self { change: Change::Release { last_lapse }, id, now })
    }
}

/// Stores and replicates `write`, and closes the key. A few holders that have lapsed go with it.
///
/// # Errors
///
/// [`CommitError::NotStored`] when the server does not take the change.
pub fn commit<'call>(
    mut key: WriteKey<'_, 'call>,
    write: &Write,
) -> Result<Committed<'call>, CommitError> {
    let not_stored = |Refused| CommitError::NotStored;
    let mut removed = lapsed_others(key.as_mut(), write);
    let last_lapse = match write.change {
        Change::Hold(grant) => grant.last_lapse,
        Change::Release { last_lapse } => {
            removed.extend(Member::new(write.id.bytes()));
            last_lapse
        }
    };
    let is_release = matches!(write.change, Change::Release { .. });
    if is_release && key.members() <= 1 + removed.len() as u64 {
        key.delete().map_err(not_stored)?;
        let replicated = key.replicate_del();
        return Ok(Committed { key: key.close(), event: Event::Del, replicated });
    }
    let effects = apply(&mut key, write, &removed, last_lapse).map_err(not_stored)?;
    let (changes, replicated) = effects;
    Ok(Committed { key: key.close(), event: Event::SortedSet(changes), replicated })
}

type Removed = ArrayVec<Member, { REMOVED_MAX + 1 }>;

/// Some that have lapsed, the earliest first, without the one whose call it is.
fn lapsed_others(key: &mut ReadKey<'_, '_>, write: &Write) -> Removed {
    let members = key.ascending().skip(1).take(REMOVED_MAX);
    let lapsed = members.take_while(|(_, lapse)| *lapse <= score(write.now));
    lapsed.map(|(id, _)| id).filter(|id| id.bytes() != write.id.bytes()).collect()
}

/// Changes the members and, where it has to, the expiry; then the same for replicas.
fn apply(
    key: &mut WriteKey<'_, '_>,
    write: &Write,
    removed: &[Member],
    last_lapse: Instant,
) -> Result<(MemberChanges, Result<(), Refused>), Refused> {
    let mark = match key.kind() {
        KeyKind::Missing => Some(Member::new(b"").ok_or(Refused)?),
        _ => None,
    };
    removed.iter().try_for_each(|id| key.remove_member(id))?;
    let added = match write.change {
        Change::Hold(grant) => Some(grant.lapses_at.as_us()),
        Change::Release { .. } => None,
    };
    if let Some(lapse) = added {
        mark.iter().try_for_each(|mark| key.add_member(mark, 0))?;
        key.add_member(&write.id, lapse)?;
    }
    let expiry = new_expiry_ms(key, last_lapse, write.now);
    expiry.map_or(Ok(()), |ms| key.set_expire_at_ms(ms))?;
    let replicate = || {
        if !removed.is_empty() {
            key.replicate_zrem(removed)?;
        }
        if let Some(lapse) = added {
            key.replicate_zadd(mark.as_ref(), lapse, &write.id)?;
        }
        expiry.map_or(Ok(()), |ms| key.replicate_pexpireat(ms))
    };
    let changes = MemberChanges {
        removed: !removed.is_empty(),
        added: added.is_some(),
        expires: expiry.is_some(),
    };
    Ok((changes, replicate()))
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
    let lapsed = lapsed(key, now)?;
    let count = key.members().saturating_sub(1 + lapsed);
    let live = key.ascending_above(score(now)).take(SHOWN_MAX);
    let first = live.map(|(id, lapse)| Ok((id, instant(lapse)?.since(now))));
    Ok(Shown { count, first: first.collect::<Result<_, HoldersError>>()? })
}

/// Whether a member is the one that says that the set is ours.
fn is_mark(member: &Member, score: f64) -> bool {
    score == 0.0 && member.bytes().is_empty()
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
