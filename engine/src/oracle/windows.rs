//! The naive fixed window and sliding-window counter.

use super::model::{Limits, Oracle, floor_to, take_off};

/// The open window: its start and the cost of each call in it.
#[derive(Clone, Default)]
pub struct FixedWindow {
    pub(super) start: i128,
    pub(super) calls: Vec<i128>,
}

impl FixedWindow {
    pub(super) fn is_open(&self, limits: &Limits, now: i128) -> bool {
        let ended = now >= self.start + limits.period_us;
        let before_boundary = self.start < floor_to(now, limits.period_us);
        let dropped = limits.aligned && before_boundary;
        !(self.calls.is_empty() || ended || dropped)
    }

    pub(super) fn opening(limits: &Limits, now: i128) -> i128 {
        if limits.aligned { floor_to(now, limits.period_us) } else { now }
    }
}

impl Oracle for FixedWindow {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let ahead = !self.calls.is_empty() && self.start - now > limits.period_us;
        if ahead {
            self.start = Self::opening(limits, now);
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let used = if self.is_open(limits, now) { self.calls.iter().sum() } else { 0 };
        used + cost <= limits.capacity
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        if !self.is_open(limits, now) {
            *self = Self { start: Self::opening(limits, now), calls: Vec::new() };
        }
        self.calls.push(cost);
    }

    fn give(&mut self, _limits: &Limits, _now: i128, cost: i128) {
        take_off(&mut self.calls, cost);
    }
}

/// The calls of the current window, which starts at `start`, and of the one before.
#[derive(Clone, Default)]
pub struct SlidingWindow {
    pub(super) start: i128,
    pub(super) previous: Vec<i128>,
    pub(super) current: Vec<i128>,
}

impl SlidingWindow {
    /// The same calls on the grid of `limits`: off it, all that count are in the current window.
    fn on_grid(&self, limits: &Limits) -> Self {
        let start = floor_to(self.start, limits.period_us);
        if start == self.start {
            return self.clone();
        }
        let current = [self.previous.clone(), self.current.clone()].concat();
        Self { start, previous: Vec::new(), current }
    }

    /// The two windows once time has moved on to `now`, or stands before the current one.
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
            // What is left is what the window before, if there is one, would have left.
            let before = self.start - limits.period_us;
            let start = if before < 0 { self.start } else { before };
            let current = std::mem::take(&mut self.previous);
            *self = Self { start, previous: Vec::new(), current };
        }
    }
}
