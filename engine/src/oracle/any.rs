//! The models of all algorithms behind one trait object.

use crate::oracle::answer::{Answer, Verb, Wrote, act};
use crate::oracle::model::{Limits, Oracle};

/// The model of any algorithm.
pub trait AnyOracle {
    /// Makes a call: see [`act`].
    fn act(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Option<(Answer, Wrote)>;
    /// Answers a call that another rule denies: reports the standing at `now` and takes nothing.
    fn hold_back(&mut self, limits: &Limits, now: i128, cost: i128) -> (Answer, Wrote);
    /// Returns a copy with the same state.
    fn copy(&self) -> Box<dyn AnyOracle>;
}

impl<O: Oracle + 'static> AnyOracle for O {
    fn act(
        &mut self,
        verb: Verb,
        limits: &Limits,
        now: i128,
        cost: i128,
    ) -> Option<(Answer, Wrote)> {
        act(self, verb, limits, now, cost)
    }

    fn hold_back(&mut self, limits: &Limits, now: i128, cost: i128) -> (Answer, Wrote) {
        let repaired = cost > 0 && self.repair(limits, now);
        let (answer, _) = act(self, Verb::Decide, limits, now, 0).expect("a decision");
        let wrote = if repaired { Wrote::State } else { Wrote::Nothing };
        (Answer { retry_after_ms: 0, ..answer }, wrote)
    }

    fn copy(&self) -> Box<dyn AnyOracle> {
        Box::new(self.clone())
    }
}
