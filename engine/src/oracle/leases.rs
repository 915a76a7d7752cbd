//! The model of leases: a list of holders and expiries, searched for every question.

use crate::bounds::{Limit, Period};
use crate::leases::{Holders, Lease};
use crate::oracle::model::div_ceil;
use crate::oracle::reply::Reply;
use crate::time::{Instant, Span};
use std::convert::Infallible;

/// The number of leases that a grant checks, earliest expiry first, to drop expired ones. An
/// expired lease that was not dropped is live again if the clock is set back, unless the release of
/// the last live lease deleted all of them.
const LOOKED_AT: usize = 8;

/// Every lease that was granted and neither released nor dropped, by its holder. Times are in
/// microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leases {
    held: Vec<(Vec<u8>, i128)>,
}

impl Leases {
    /// Returns the expiries of the live leases, in ascending order.
    pub fn live(&self, now: i128) -> Vec<i128> {
        let expiries = self.held.iter().map(|(_, expiry)| *expiry);
        let mut live: Vec<_> = expiries.filter(|expiry| *expiry > now).collect();
        live.sort_unstable();
        live
    }

    /// Returns the instant at which the live lease of a holder expires; `None` if it has none.
    pub fn of(&self, id: &[u8], now: i128) -> Option<i128> {
        let held = self.held.iter().find(|(holder, expiry)| holder == id && *expiry > now);
        held.map(|(_, expiry)| *expiry)
    }

    /// Requests a lease after which `left` permits must be free.
    pub fn lease(&mut self, id: &[u8], limit: i128, left: i128, ttl_us: i128, now: i128) -> Reply {
        let is_full = |at| self.live(at).len() as i128 + left >= limit;
        let is_allowed = self.of(id, now).is_some() || !is_full(now);
        let ms_until = |expiry: i128| div_ceil(expiry - now, 1_000);
        let retry_after_ms = if is_allowed {
            0
        } else if left >= limit {
            -1
        } else {
            let expiries = self.live(now).into_iter().map(ms_until);
            expiries.filter(|ms| !is_full(now + ms * 1_000)).min().expect("all expire")
        };
        if is_allowed {
            self.drop_expired(id, now);
            self.hold(id, now + ttl_us);
        }
        let live = self.live(now);
        Reply {
            allowed: is_allowed.into(),
            limit,
            remaining: (limit - live.len() as i128).max(0),
            retry_after_ms,
            reset_after_ms: live.last().map_or(0, |expiry| ms_until(*expiry)),
        }
    }

    /// Renews a live lease; returns true if there was one.
    pub fn renew(&mut self, id: &[u8], ttl_us: i128, now: i128) -> bool {
        let is_live = self.of(id, now).is_some();
        if is_live {
            self.hold(id, now + ttl_us);
        }
        is_live
    }

    /// Releases a live lease; returns true if there was one. If none is live afterwards, drops all
    /// expired leases too.
    pub fn release(&mut self, id: &[u8], now: i128) -> bool {
        let is_live = self.of(id, now).is_some();
        self.held.retain(|(holder, _)| !is_live || holder != id);
        if is_live && self.live(now).is_empty() {
            self.held.clear();
        }
        is_live
    }

    /// Looks at the [`LOOKED_AT`] leases that expire first, and drops those that have expired,
    /// except the caller's own.
    fn drop_expired(&mut self, id: &[u8], now: i128) {
        self.held.sort_by(|(id, expiry), other| (expiry, id).cmp(&(&other.1, &other.0)));
        let earliest = self.held.drain(..LOOKED_AT.min(self.held.len()));
        let kept: Vec<_> =
            earliest.filter(|(holder, expiry)| *expiry > now || holder == id).collect();
        self.held.splice(..0, kept);
    }

    fn hold(&mut self, id: &[u8], expiry: i128) {
        self.held.retain(|(holder, _)| holder != id);
        self.held.push((id.to_vec(), expiry));
    }
}

/// The list as seen by one holder at one time.
#[derive(Debug)]
pub struct Seen<'a> {
    leases: &'a Leases,
    me: &'a [u8],
    now: i128,
}

impl<'a> Seen<'a> {
    /// Makes the view of the holder `me`.
    pub const fn new(leases: &'a Leases, me: &'a [u8], now: i128) -> Self {
        Self { leases, me, now }
    }
}

impl Holders for Seen<'_> {
    type Error = Infallible;

    fn live(&mut self) -> Result<u64, Infallible> {
        Ok(self.leases.live(self.now).len() as u64)
    }

    fn mine(&mut self) -> Result<Option<Instant>, Infallible> {
        Ok(self.leases.of(self.me, self.now).map(instant))
    }

    fn last_of_others(&mut self) -> Result<Option<Instant>, Infallible> {
        let others = self.leases.held.iter().filter(|(id, _)| id != self.me);
        let live = others.map(|(_, expiry)| *expiry).filter(|expiry| *expiry > self.now);
        Ok(live.max().map(instant))
    }

    fn expiry_at_rank(&mut self, rank: u64) -> Result<Option<Instant>, Infallible> {
        Ok(self.leases.live(self.now).get(rank as usize).copied().map(instant))
    }
}

/// Makes the rule of `limit` holders with a ttl of `ttl_us`.
pub fn lease_rule(limit: i128, ttl_us: i128) -> Lease {
    let limit = Limit::new(limit.try_into().expect("not negative")).expect("in bounds");
    let ttl = Span::from_us(ttl_us.try_into().expect("not negative"));
    Lease { limit, ttl: Period::new(ttl).expect("in bounds") }
}

fn instant(us: i128) -> Instant {
    Instant::from_us(us.try_into().expect("a time after 1970"))
}
