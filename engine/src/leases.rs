//! Leases: at most `limit` holders at once, each with a permit that expires unless it is renewed.
//!
//! The state is a set of holders, each with an id and the instant at which its permit expires. From
//! that instant on the permit is free, to the microsecond: a crashed holder's permit is freed
//! without any call.
//!
//! ```text
//! limit 2, ttl 60 s:   0 s a   1 s b   2 s c denied, retry 58 s   60 s c, in the place of a
//! ```
//!
//! A call with the id of a live lease renews that lease, which then expires `ttl` after the call,
//! even if that is sooner than before. A renewal is allowed under a lowered limit too, so a caller
//! that missed the reply may repeat the call. Lowering the limit ends no lease.
//!
//! Grants at most `limit` permits at once. States are never repaired: a clock that steps back
//! lengthens the leases by the length of that step, until they are renewed or released. A clock
//! that steps forward ends them early.
//!
//! No call walks the set, which may be large: the rule reads a few numbers from [`Holders`].
//!
//! Source: C. Gray and D. Cheriton, Leases: an efficient fault-tolerant mechanism for distributed
//! file cache consistency, 1989; with a limit, a counting semaphore.

use crate::bounds::{Leave, Limit, Period};
use crate::call::Mode;
use crate::decision::{Decision, Verdict};
use crate::time::Instant;

#[cfg(test)]
mod tests;

/// The rule: at most `limit` holders, each for `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The largest number of holders at once, at most [`Self::LIMIT_MAX`].
    pub limit: Limit,
    /// The time after which a permit expires unless it is renewed.
    pub ttl: Period,
}

/// The holders of one key at one instant, as seen by a caller that holds a lease or wants one. A
/// lease is live before the instant of its expiry, and no longer at that instant.
pub trait Holders {
    /// The reason why the holders cannot be read.
    type Error;

    /// Returns the number of live leases.
    ///
    /// # Errors
    ///
    /// Returns an error if the holders cannot be read.
    fn live(&mut self) -> Result<u64, Self::Error>;

    /// Returns the instant at which the caller's own lease expires; `None` if it is not live.
    ///
    /// # Errors
    ///
    /// Returns an error if the lease cannot be read.
    fn mine(&mut self) -> Result<Option<Instant>, Self::Error>;

    /// Returns the instant at which the last live lease of another holder expires; `None` if no
    /// other holder has a live lease.
    ///
    /// # Errors
    ///
    /// Returns an error if the holders cannot be read.
    fn last_of_others(&mut self) -> Result<Option<Instant>, Self::Error>;

    /// Returns the expiry of the live lease at position `rank` in order of expiry, where 0 is the
    /// first to expire; `None` if there is none. Called after [`Self::live`].
    ///
    /// # Errors
    ///
    /// Returns an error if the holders cannot be read.
    fn expiry_at_rank(&mut self, rank: u64) -> Result<Option<Instant>, Self::Error>;
}

/// A lease that is granted or renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The instant at which the lease expires.
    pub expires_at: Instant,
    /// The instant at which the last of all leases expires: the end of the key's life.
    pub last_expiry: Instant,
}

/// A live lease that is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The instant at which the last lease of the other holders expires: the end of the key's life.
    /// `None` if no other lease is live, and the key is no longer needed.
    pub last_expiry: Option<Instant>,
}

impl Lease {
    /// The largest limit of holders.
    pub const LIMIT_MAX: Limit = Limit::ATTEMPTS_MAX;

    /// Decides at `now` if the caller may hold a lease. Returns the grant to store; `None` for a
    /// denied call, and for any call under [`Mode::TakeNothing`].
    ///
    /// A new lease is granted only if the permits of `leave` are still free afterwards; a renewal
    /// needs no free permit. In the decision, `remaining` is the number of free permits,
    /// `retry_after` the time until enough leases expire by themselves, and `reset_after` the time
    /// until the last lease expires.
    ///
    /// # Errors
    ///
    /// Returns an error if the holders cannot be read.
    pub fn decide<H: Holders>(
        &self,
        holders: &mut H,
        leave: Option<Leave>,
        now: Instant,
        mode: Mode,
    ) -> Result<(Decision, Option<Grant>), H::Error> {
        let live = holders.live()?;
        let mine = holders.mine()?;
        let last_of_others = holders.last_of_others()?;
        let limit = self.limit.units();
        let usable = limit.saturating_sub(leave.map_or(0, |leave| leave.units(self.limit)));
        let verdict = match live.checked_sub(usable) {
            _ if mine.is_none() && usable == 0 => Verdict::Impossible,
            Some(too_many) if mine.is_none() => {
                // One permit is free when `too_many` leases and one more have expired.
                let enough = holders.expiry_at_rank(too_many)?;
                Verdict::Denied { retry_after: enough.unwrap_or(now).since(now) }
            }
            _ => Verdict::ALLOWED,
        };
        let takes = verdict.is_allowed() && mode == Mode::Take;
        let grant = takes.then(|| Grant::new(self.ttl, now, last_of_others));
        let live = live + u64::from(takes && mine.is_none());
        let as_it_is = mine.max(last_of_others);
        let last = grant.map_or(as_it_is, |grant| Some(grant.last_expiry));
        let decision = Decision {
            verdict,
            limit: self.limit,
            remaining: limit.saturating_sub(live),
            reset_after: last.unwrap_or(now).since(now),
        };
        Ok((decision, grant))
    }
}

/// Renews the caller's live lease: it expires `ttl` from `now`, later or sooner than before.
/// Returns `None` if it has expired or never existed.
///
/// # Errors
///
/// Returns an error if the holders cannot be read.
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

/// Releases the caller's live lease. Returns `None` if it has expired or never existed.
///
/// # Errors
///
/// Returns an error if the holders cannot be read.
pub fn release<H: Holders>(holders: &mut H) -> Result<Option<Release>, H::Error> {
    match holders.mine()? {
        None => Ok(None),
        Some(_) => Ok(Some(Release { last_expiry: holders.last_of_others()? })),
    }
}

impl Grant {
    fn new(ttl: Period, now: Instant, last_of_others: Option<Instant>) -> Self {
        let expires_at = now.after(ttl.span());
        let last_expiry = last_of_others.map_or(expires_at, |last| last.max(expires_at));
        Self { expires_at, last_expiry }
    }
}
