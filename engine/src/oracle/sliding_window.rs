//! The model of the sliding-window counter.

use crate::algorithms::{Rule, State, sliding_window};
use crate::oracle::model::{
    Limits, Oracle, Unexplained, div_ceil, expect_state, floor_to, take_off,
};
use crate::oracle::subject::{Subject, limit, period};

/// The calls of the current window, which starts at `start`, and of the previous one.
#[derive(Clone, Default)]
pub struct SlidingWindow {
    pub(super) start: i128,
    pub(super) previous: Vec<i128>,
    pub(super) current: Vec<i128>,
}

impl SlidingWindow {
    /// Moves the windows to the grid of `limits`. If they were on another grid, all calls that
    /// count move to the current window.
    fn on_grid(&self, limits: &Limits) -> Self {
        let start = floor_to(self.start, limits.period_us);
        if start == self.start {
            return self.clone();
        }
        let current = [self.previous.clone(), self.current.clone()].concat();
        Self { start, previous: Vec::new(), current }
    }

    /// Returns the two windows as seen at `now`. `now` may lie before the current window.
    fn at(&self, limits: &Limits, now: i128) -> Self {
        let mut seen = self.on_grid(limits);
        let start = floor_to(now, limits.period_us);
        if seen.start + limits.period_us == start {
            seen = Self { start, previous: seen.current, current: Vec::new() };
        } else if seen.start < start {
            seen = Self { start, ..Self::default() };
        }
        seen
    }
}

impl Oracle for SlidingWindow {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let seen = self.on_grid(limits);
        let ahead = !seen.current.is_empty() && seen.start - now > limits.period_us;
        if ahead {
            *self = Self { start: floor_to(now, limits.period_us), ..seen };
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let seen = self.at(limits, now);
        let (previous, current): (i128, i128) =
            (seen.previous.iter().sum(), seen.current.iter().sum());
        let left = limits.period_us - (now - seen.start).max(0);
        previous * left + (current + cost) * limits.period_us <= limits.capacity * limits.period_us
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        *self = self.at(limits, now);
        self.current.push(cost);
    }

    fn give(&mut self, limits: &Limits, now: i128, cost: i128) {
        *self = self.at(limits, now);
        let more = take_off(&mut self.current, cost);
        take_off(&mut self.previous, more);
        if self.current.is_empty() {
            // The units left count in the previous window, if there is one.
            let before = self.start - limits.period_us;
            let start = if before < 0 { self.start } else { before };
            let current = std::mem::take(&mut self.previous);
            *self = Self { start, previous: Vec::new(), current };
        }
    }
}

impl TryFrom<State<'_>> for SlidingWindow {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, SlidingWindow);
        // If the sum exceeds the largest count, the limiter caps it on another grid. The model does
        // not.
        if state.previous + state.current > sliding_window::State::COUNT_MAX {
            return Err(Unexplained);
        }
        let calls = |count: u64| if count > 0 { vec![count.into()] } else { Vec::new() };
        Ok(Self {
            start: state.start.as_us().into(),
            previous: calls(state.previous),
            current: calls(state.current),
        })
    }
}

/// `RL.SLIDING`
pub struct Sliding;

impl Subject for Sliding {
    type Model = SlidingWindow;
    fn rule(limits: &Limits) -> Rule {
        let (limit, window) = (limit(limits.capacity), period(limits));
        Rule::SlidingWindow(sliding_window::SlidingWindow { limit, window })
    }
    fn explain(state: State<'_>, limits: &Limits) -> Result<Self::Model, Unexplained> {
        let counts = expect_state!(state, SlidingWindow);
        let [previous, current] = [counts.previous, counts.current].map(i128::from);
        let most = i128::from(sliding_window::State::COUNT_MAX);
        if previous + current <= most {
            return Self::Model::try_from(state);
        }
        let read = |start, previous, current| SlidingWindow { start, previous, current };
        let at = i128::from(counts.start.as_us());
        let start = floor_to(at, limits.period_us);
        // On another grid, the limiter adds the two counts up and caps the sum at the largest
        // count.
        let is_on_grid = start == at;
        Ok(if is_on_grid {
            read(at, vec![previous], vec![current])
        } else {
            read(start, Vec::new(), vec![most])
        })
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::SlidingWindow(state) = state else { return None };
        Some(state.start.as_us())
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        // Until the end of a window that was used up at its start, and until enough of it has
        // faded.
        limits.period_us + div_ceil(limits.period_us * cost, limits.capacity)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        (elapsed_us < limits.period_us).then_some(2 * limits.capacity - 1)
    }
    fn bursts(_limits: &Limits, _forward: bool) -> i128 {
        // Even if set back, the clock may show the end of a window, at which the previous one
        // hardly counts.
        1
    }
}
