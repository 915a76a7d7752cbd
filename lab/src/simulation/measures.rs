//! The measures of a run: units left over time, and sums over all calls.

use super::column::{Column, ColumnWriter};
use super::columns::START;
use super::retries::Retry;
use crate::rules::{self, Choice, Reply};
use crate::wording::Bound;
use redis_throttle_engine::algorithms::OtherAlgorithm;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::{CallOptions, Mode};
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::time::Span;
use std::collections::VecDeque;

/// The number of instants at which the level is measured: the start, the end and even steps
/// between.
pub const LEVELS: u64 = 601;

/// The units left of one key under each rule, at even instants. Calls of the same instant are
/// included.
pub struct Levels {
    /// A call of cost 0 for each rule.
    peeks: Vec<Request>,
    duration_us: u64,
    measured: Vec<ColumnWriter>,
    /// The number of instants measured.
    count: u64,
    /// The next instant.
    next_us: u64,
}

impl Levels {
    /// Creates the measures of a choice, still without values.
    pub fn new(choice: &Choice, duration_us: u64) -> Self {
        let options = CallOptions::of_cost(Cost::ZERO);
        let peek = |request: &Request| Request { rule: request.rule, options };
        let peeks: Vec<_> = choice.requests().iter().map(peek).collect();
        let measured = vec![ColumnWriter::default(); peeks.len()];
        Self { peeks, duration_us, measured, count: 0, next_us: 0 }
    }

    /// Measures at all instants before `at_us` that were not measured yet. `states` are the keys of
    /// the rules, still without the call at `at_us`.
    ///
    /// # Errors
    ///
    /// Returns [`OtherAlgorithm`] if a key holds the state of another algorithm.
    pub fn measure_before(
        &mut self,
        at_us: u64,
        states: Option<&Vec<Vec<u8>>>,
    ) -> Result<(), OtherAlgorithm> {
        while self.next_us < at_us && self.count < LEVELS {
            self.measure(states)?;
        }
        Ok(())
    }

    /// Measures at all other instants and returns the values of each rule.
    ///
    /// # Errors
    ///
    /// Returns [`OtherAlgorithm`] if a key holds the state of another algorithm.
    pub fn finish(mut self, states: Option<&Vec<Vec<u8>>>) -> Result<Vec<Column>, OtherAlgorithm> {
        while self.count < LEVELS {
            self.measure(states)?;
        }
        Ok(self.measured.into_iter().map(ColumnWriter::finish).collect())
    }

    fn measure(&mut self, states: Option<&Vec<Vec<u8>>>) -> Result<(), OtherAlgorithm> {
        let now = START.after(Span::from_us(self.next_us));
        for (at, (peek, measured)) in self.peeks.iter().zip(&mut self.measured).enumerate() {
            let state = states.and_then(|states| states.get(at)).map_or(&[][..], Vec::as_slice);
            let (decision, _) = rules::decide(peek, state, Mode::Take, now)?;
            measured.push(decision.integers()[2]);
        }
        self.count += 1;
        self.next_us = self.duration_us.saturating_mul(self.count) / (LEVELS - 1);
        Ok(())
    }
}

/// The sums over all calls of a choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of allowed calls.
    pub allowed: u64,
    /// The number of denied calls, retries included.
    pub denied: u64,
    /// The units granted, counted by the first rule.
    pub granted_units: u64,
    /// The number of denied calls that were no retries.
    pub first_attempts_denied: u64,
    /// The longest wait of a denied call until its retry; `None` if no call has to wait.
    pub longest_wait_ms: Option<i64>,
    /// The allowed calls that wait in the queue of a leaky bucket before they act.
    pub queued: u64,
    /// The longest of those waits; `None` if there are none.
    pub longest_queue_ms: Option<i64>,
    /// The busiest window of each rule.
    pub windows: Vec<BusiestWindow>,
}

/// The most units that one key was granted in any window of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusiestWindow {
    /// The length of the window and the bound that the rule promises.
    pub bound: Bound,
    /// The most units in any window of this length. The end of a window is not part of it.
    pub most_units: u64,
}

/// Sums up calls while they are decided.
pub struct Summing {
    summary: Summary,
    rules: Vec<Counted>,
}

/// The grants of a rule. The weight of a grant is 1; where a cost may be granted in part, it is the
/// number of its units.
struct Counted {
    window_us: u64,
    /// The units of a weight of 1.
    units: u64,
    is_partial: bool,
    /// The instants and weights of the grants in the current window of each key, and their sum.
    recent: Vec<(VecDeque<(u64, u64)>, u64)>,
    /// The largest such sum.
    most: u64,
    total: u64,
}

impl Summing {
    /// Creates empty sums for a choice. `bounds` has the bound of each rule.
    pub fn new(choice: &Choice, bounds: &[Bound], keys: u8) -> Self {
        let counted = |(request, bound): (&Request, &Bound)| Counted {
            window_us: bound.window.as_us(),
            units: if request.options.partial { 1 } else { request.options.cost.units() },
            is_partial: request.options.partial,
            recent: vec![(VecDeque::new(), 0); usize::from(keys)],
            most: 0,
            total: 0,
        };
        let rules = choice.requests().iter().zip(bounds).map(counted).collect();
        let window = |bound: &Bound| BusiestWindow { bound: *bound, most_units: 0 };
        let windows = bounds.iter().map(window).collect();
        Self { summary: Summary { windows, ..Summary::default() }, rules }
    }

    /// Adds a call and its reply.
    pub fn add(&mut self, call: &Retry, reply: &Reply) {
        let [granted, .., wait_ms, _] = reply.integers;
        let is_denied = granted == 0;
        self.summary.allowed += u64::from(!is_denied);
        self.summary.denied += u64::from(is_denied);
        self.summary.first_attempts_denied += u64::from(is_denied && call.attempt == 1);
        let wait_ms = Some(wait_ms).filter(|wait_ms| *wait_ms > 0);
        if is_denied {
            self.summary.longest_wait_ms = self.summary.longest_wait_ms.max(wait_ms);
        } else {
            self.summary.queued += u64::from(wait_ms.is_some());
            self.summary.longest_queue_ms = self.summary.longest_queue_ms.max(wait_ms);
            for rule in &mut self.rules {
                rule.add(call, u64::try_from(granted).unwrap_or(0));
            }
        }
    }

    /// Returns the sums.
    pub fn finish(mut self) -> Summary {
        let units = |rule: &Counted, weight: u64| weight.saturating_mul(rule.units);
        self.summary.granted_units = self.rules.first().map_or(0, |rule| units(rule, rule.total));
        for (window, rule) in self.summary.windows.iter_mut().zip(&self.rules) {
            window.most_units = units(rule, rule.most);
        }
        self.summary
    }
}

impl Counted {
    /// Adds a grant.
    fn add(&mut self, call: &Retry, granted: u64) {
        let weight = if self.is_partial { granted } else { 1 };
        self.total = self.total.saturating_add(weight);
        let Some((grants, sum)) = self.recent.get_mut(usize::from(call.key)) else { return };
        while let Some((at_us, weight)) = grants.front() {
            if call.at_us - at_us < self.window_us {
                break;
            }
            *sum -= weight;
            grants.pop_front();
        }
        grants.push_back((call.at_us, weight));
        *sum = sum.saturating_add(weight);
        self.most = self.most.max(*sum);
    }
}
