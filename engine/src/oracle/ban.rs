//! The naive model of a key that was banned: the calls that the ban denies, then the key's ordinary
//! model, which starts unused.

use crate::oracle::model::{Limits, div_ceil};
use crate::oracle::reply::{AnyOracle, Reply, Verb, Wrote};

/// A key with a ban, or with the state that replaced it.
pub struct Banned {
    /// The end and the length of the stored ban, in microseconds; `None` once it is replaced.
    ban: Option<(i128, i128)>,
    model: Box<dyn AnyOracle>,
}

impl Banned {
    /// Makes the model of a key that is banned at `now` for `duration_us`. `model` is that of a
    /// missing key.
    pub fn new(now: i128, duration_us: i128, model: Box<dyn AnyOracle>) -> Self {
        Self { ban: Some((now + duration_us, duration_us)), model }
    }

    /// Returns the expected reply of a call that the ban denies; `None` if no ban applies.
    fn denied(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Option<(Reply, Wrote)> {
        let (until, duration_us) = self.ban.filter(|(until, _)| *until > now)?;
        let ends = until.min(now + duration_us);
        let takes = verb.decides() && cost > 0;
        let wrote = if takes && ends < until { Wrote::State } else { Wrote::Nothing };
        if wrote == Wrote::State {
            self.ban = Some((ends, duration_us));
        }
        let (plain, _) = self.model.copy().act(Verb::Decide, limits, now, 0)?;
        let wanted = if verb.is_partial() { cost.min(1) } else { cost };
        let never = verb.decides() && wanted + verb.left(plain.limit) > plain.limit;
        let left_ms = div_ceil(ends - now, 1_000);
        let reply = Reply {
            allowed: 0,
            limit: plain.limit,
            remaining: 0,
            retry_after_ms: if never { -1 } else { left_ms },
            reset_after_ms: left_ms,
        };
        Some((reply, wrote))
    }
}

impl AnyOracle for Banned {
    fn act(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Option<(Reply, Wrote)> {
        if let Some(denied) = self.denied(verb, limits, now, cost) {
            return Some(denied);
        }
        let acted = self.model.act(verb, limits, now, cost)?;
        if acted.1 != Wrote::Nothing {
            self.ban = None;
        }
        Some(acted)
    }

    fn decide_only(&mut self, limits: &Limits, now: i128, cost: i128) -> (Reply, Wrote) {
        let decided = self.model.decide_only(limits, now, cost);
        if decided.1 != Wrote::Nothing {
            self.ban = None;
        }
        decided
    }

    fn copy(&self) -> Box<dyn AnyOracle> {
        Box::new(Self { ban: self.ban, model: self.model.copy() })
    }
}
