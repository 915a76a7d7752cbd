//! Leases: at most so many holders at once, each with a permit that lapses unless it is renewed.
//!
//! What is remembered is a set of holders, each with an id and the instant at which its permit
//! lapses. From that instant on it is free, to the microsecond: a holder that died gives its permit
//! back by doing nothing.
//!
//! ```text
//! limit 2, ttl 60 s:   0 s a   1 s b   2 s c denied, retry 58 s   60 s c, in the place of a
//! ```
//!
//! Asking again with the id of a live lease renews it: it lapses a ttl from now, also when that is
//! sooner than before. That is allowed under a lowered limit too, so whoever has not heard the
//! answer may repeat the call. Nobody loses a lease to a lowered limit.
//!
//! Never more than the limit at once. There is no repair: a clock that steps back lengthens the
//! leases by its step, until they are renewed or released. One that steps forward ends them early.
//!
//! A set of any size is looked at, never walked: the rule asks [`Holders`] for a few numbers.
//!
//! Source: C. Gray and D. Cheriton, Leases: an efficient fault-tolerant mechanism for distributed
//! file cache consistency, 1989; with a limit, a counting semaphore.

use crate::bounds::{Limit, Period};
use crate::call::Mode;
use crate::decision::{Decision, Verdict};
use crate::time::Instant;

#[cfg(test)]
mod tests;

/// The rule: at most `limit` holders, each for `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The most holders at once, at most [`Self::LIMIT_MAX`].
    pub limit: Limit,
    /// How long a permit lasts that is not renewed.
    pub ttl: Period,
}

/// The holders of one subject, as one of them or a new one sees them at one instant. A lease is
/// live up to the instant at which it lapses, and not at it.
pub trait Holders {
    /// Why they cannot be told.
    type Error;

    /// How many leases are live.
    ///
    /// # Errors
    ///
    /// When they cannot be told.
    fn live(&mut self) -> Result<u64, Self::Error>;

    /// When the caller's own lease lapses; `None` when it is not live.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    fn mine(&mut self) -> Result<Option<Instant>, Self::Error>;

    /// When the last of the live leases of the others lapses; `None` when there is none.
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    fn last_of_others(&mut self) -> Result<Option<Instant>, Self::Error>;

    /// When the live lease lapses that has `rank` others before it in the order of lapsing; `None`
    /// when there is none. To be asked after [`Self::live`].
    ///
    /// # Errors
    ///
    /// When it cannot be told.
    fn lapse_at_rank(&mut self, rank: u64) -> Result<Option<Instant>, Self::Error>;
}

/// A lease that is given or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// When it lapses.
    pub lapses_at: Instant,
    /// When the last of all leases lapses: so long the key has to live.
    pub last_lapse: Instant,
}

/// A live lease that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// When the last lease of the other holders lapses, which is how long the key has to live;
    /// `None` if no other lease is live, and the key is no longer needed.
    pub last_lapse: Option<Instant>,
}

impl Lease {
    /// The most holders that a limit may allow.
    pub const LIMIT_MAX: Limit = Limit::ATTEMPTS_MAX;

    /// Decides at `now` whether the caller may hold a lease, changing nothing. What is to be stored
    /// is the grant; there is none for a denial, nor for who has to hold back.
    ///
    /// `remaining` is the number of free permits, `retry_after` the time until enough leases lapse
    /// by themselves, `reset_after` the time until the last one does.
    ///
    /// # Errors
    ///
    /// When the holders cannot be told.
    pub fn decide<H: Holders>(
        &self,
        holders: &mut H,
        now: Instant,
        mode: Mode,
    ) -> Result<(Decision, Option<Grant>), H::Error> {
        let live = holders.live()?;
        let mine = holders.mine()?;
        let last_of_others = holders.last_of_others()?;
        let limit = self.limit.units();
        let verdict = match live.checked_sub(limit) {
            Some(too_many) if mine.is_none() => {
                // With so many and one more gone there is room for one.
                let enough = holders.lapse_at_rank(too_many)?;
                Verdict::Denied { retry_after: enough.unwrap_or(now).since(now) }
            }
            _ => Verdict::ALLOWED,
        };
        let takes = verdict.is_allowed() && mode == Mode::Take;
        let grant = takes.then(|| Grant::new(self.ttl, now, last_of_others));
        let live = live + u64::from(takes && mine.is_none());
        let as_it_is = mine.max(last_of_others);
        let last = grant.map_or(as_it_is, |grant| Some(grant.last_lapse));
        let decision = Decision {
            verdict,
            limit: self.limit,
            remaining: limit.saturating_sub(live),
            reset_after: last.unwrap_or(now).since(now),
        };
        Ok((decision, grant))
    }
}

/// The caller's live lease, prolonged or shortened to `ttl` from `now`; `None` when it has lapsed,
/// or there never was one.
///
/// # Errors
///
/// When the holders cannot be told.
pub fn renew<H: Holders>(
    holders: &mut H,
    ttl: Period,
    now: Instant,
) -> Result<Option<Grant>, H::Error> {
    match holders.mine()? {
        None => Ok(None),
        Some(_) => Ok(Some(Grant::new(ttl, now, holders.last_of_others()?))),
    }
}

/// Releases the caller's live lease; `None` when it has lapsed, or there never was one.
///
/// # Errors
///
/// When the holders cannot be told.
pub fn release<H: Holders>(holders: &mut H) -> Result<Option<Release>, H::Error> {
    match holders.mine()? {
        None => Ok(None),
        Some(_) => Ok(Some(Release { last_lapse: holders.last_of_others()? })),
    }
}

impl Grant {
    fn new(ttl: Period, now: Instant, last_of_others: Option<Instant>) -> Self {
        let lapses_at = now.after(ttl.span());
        let last_lapse = last_of_others.map_or(lapses_at, |last| last.max(lapses_at));
        Self { lapses_at, last_lapse }
    }
}
