//! Bans: until a fixed instant, every call on a key is denied, whatever its rule and cost.
//!
//! The state is the instant at which the ban ends and the length of the ban. It replaces the state
//! that the key had before. When the ban ends, the key is unused under every rule.
//!
//! ```text
//! 0 s ban for 10 s   4 s denied, retry 6 s   9.999 s denied, retry 1 ms   10 s allowed
//! ```
//!
//! A clock that steps back lengthens a ban by at most the length of that ban. If more time than
//! that is left, the ban is re-based: it then ends its whole length after `now`. The next deciding
//! call with a cost stores that.

use crate::bounds::{Cost, Limit, Period};
use crate::call::{CallOptions, Mode};
use crate::decision::{Decision, Next, Outcome, StateWrite, Verdict};
use crate::fields::{Field, Fields};
use crate::time::{Instant, Span};

#[cfg(test)]
mod tests;

/// The name of the state, as `RL.INSPECT` shows it.
pub const NAME: &str = "BLOCKED";

/// A ban as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The instant from which the key is unused.
    pub until: Instant,
    /// The length of the ban.
    pub duration: Period,
}

/// A ban that has not ended, as seen at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBan {
    ban: Ban,
    left: Span,
    /// Whether the ban had to be re-based because the clock stepped back.
    is_repaired: bool,
}

impl Ban {
    /// Returns a ban that starts at `now`.
    pub const fn new(now: Instant, duration: Period) -> Self {
        Self { until: now.after(duration.span()), duration }
    }

    /// Returns the ban as seen at `now`; `None` if it has ended. If more than its length is left,
    /// the clock stepped back: the ban then starts at `now`.
    #[cold]
    pub fn at(self, now: Instant) -> Option<LiveBan> {
        let left = self.until.since(now);
        if left.is_zero() {
            None
        } else if left > self.duration.span() {
            let left = self.duration.span();
            Some(LiveBan { ban: Self::new(now, self.duration), left, is_repaired: true })
        } else {
            Some(LiveBan { ban: self, left, is_repaired: false })
        }
    }

    /// Returns the state to store, with the instant of its expiry.
    pub const fn next(self) -> Next<Self> {
        Next::until(self.until, self)
    }

    /// Returns the state as names and numbers, for `RL.INSPECT`.
    pub fn inspect(&self) -> Vec<(&'static str, u64)> {
        vec![(Self::FIELDS[0].name, self.until.as_us())]
    }
}

impl LiveBan {
    /// Returns the ban, re-based if necessary.
    pub const fn ban(&self) -> Ban {
        self.ban
    }

    /// Returns the time until the ban ends: at least 1 us.
    pub const fn left(&self) -> Span {
        self.left
    }

    /// Decides a call with any options under a rule with `limit`: the call is denied, also with
    /// cost 0. The outcome holds a ban that had to be re-based, unless the cost is 0.
    #[cold]
    pub fn decide(&self, limit: Limit, options: CallOptions, mode: Mode) -> Outcome<Ban> {
        let CallOptions { cost, partial, .. } = options;
        let takes_a_part = partial && mode == Mode::Take && !cost.is_zero();
        let wanted = if takes_a_part { Cost::ONE } else { cost };
        let needed = wanted.plus(options.left_units(limit));
        let retry_after = (needed.units() <= limit.units()).then_some(self.left);
        let decision = Decision { verdict: Verdict::Banned { retry_after }, ..self.denial(limit) };
        let next = match self.repair(cost) {
            Some(next) => StateWrite::Keep(next),
            None => StateWrite::Nothing,
        };
        Outcome { decision, next }
    }

    /// Returns the reply to a call that settles earlier calls under a rule with `limit`. Such a
    /// call changes nothing.
    pub const fn denial(&self, limit: Limit) -> Decision {
        let verdict = Verdict::Banned { retry_after: Some(self.left) };
        Decision { verdict, limit, remaining: 0, reset_after: self.left }
    }

    /// Returns the state that a deciding call of `cost` stores: a ban that had to be re-based;
    /// `None` for any other ban, and for a cost of 0.
    pub fn repair(&self, cost: Cost) -> Option<Next<Ban>> {
        (self.is_repaired && !cost.is_zero()).then(|| self.ban.next())
    }
}

impl Fields<2> for Ban {
    type Stored = Self;
    const FIELDS: [Field; 2] = [
        Field::instant("until_us"),
        Field::new("duration_us", Period::MIN.as_us(), Period::MAX.as_us()),
    ];

    fn numbers(state: &Self) -> [u64; 2] {
        [state.until.as_us(), state.duration.as_us()]
    }

    fn state([until_us, duration_us]: [u64; 2]) -> Option<Self> {
        let duration = Period::new(Span::from_us(duration_us))?;
        Some(Self { until: Instant::from_us(until_us), duration })
    }
}
