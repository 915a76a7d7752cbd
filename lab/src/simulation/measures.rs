//! The measures of a run: units left over time, and sums over all calls.

use super::columns::{Columns, START};
use crate::rules::{self, Choice};
use crate::wording::Bound;
use redis_throttle_engine::algorithms::OtherAlgorithm;
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::{CallOptions, Mode};
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::time::Span;

/// The number of instants at which the level is measured: the start, the end and even steps
/// between.
pub const LEVELS: u64 = 601;

/// The units left of one key under each rule, at even instants. Calls of the same instant are
/// included.
pub struct Levels {
    /// A call of cost 0 for each rule.
    peeks: Vec<Request>,
    duration_us: u64,
    measured: Vec<Vec<i64>>,
    next: u64,
}

impl Levels {
    /// Makes the measures of a choice, still without values.
    pub fn new(choice: &Choice, duration_us: u64) -> Self {
        let options = CallOptions::of_cost(Cost::ZERO);
        let peek = |request: &Request| Request { rule: request.rule, options };
        let peeks: Vec<_> = choice.requests().iter().map(peek).collect();
        let measured = vec![Vec::new(); peeks.len()];
        Self { peeks, duration_us, measured, next: 0 }
    }

    /// Returns the instant of a measure.
    fn instant_us(&self, measure: u64) -> u64 {
        let product = u128::from(self.duration_us) * u128::from(measure);
        u64::try_from(product / u128::from(LEVELS - 1)).unwrap_or(u64::MAX)
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
        while self.next < LEVELS && self.instant_us(self.next) < at_us {
            self.measure(states)?;
        }
        Ok(())
    }

    /// Measures at all other instants and returns the values of each rule.
    ///
    /// # Errors
    ///
    /// Returns [`OtherAlgorithm`] if a key holds the state of another algorithm.
    pub fn finish(
        mut self,
        states: Option<&Vec<Vec<u8>>>,
    ) -> Result<Vec<Vec<i64>>, OtherAlgorithm> {
        while self.next < LEVELS {
            self.measure(states)?;
        }
        Ok(self.measured)
    }

    fn measure(&mut self, states: Option<&Vec<Vec<u8>>>) -> Result<(), OtherAlgorithm> {
        let now = START.after(Span::from_us(self.instant_us(self.next)));
        for (at, (peek, measured)) in self.peeks.iter().zip(&mut self.measured).enumerate() {
            let state = states.and_then(|states| states.get(at)).map_or(&[][..], Vec::as_slice);
            let (decision, _) = rules::decide(peek, state, Mode::Take, now)?;
            measured.push(decision.integers()[2]);
        }
        self.next += 1;
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
    /// The longest wait of a denied call, or of an allowed call that is queued; `None` if no call
    /// has to wait.
    pub longest_wait_ms: Option<i64>,
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

impl Summary {
    /// Sums up the calls of a choice. `bounds` has the bound of each rule.
    pub fn of(columns: &Columns, choice: &Choice, bounds: &[Bound], keys: u8) -> Self {
        let mut summary = Self::default();
        let [allowed, _, _, waits, _] = &columns.integers;
        for ((granted, wait), attempt) in allowed.iter().zip(waits).zip(&columns.attempt) {
            let is_denied = *granted == 0;
            summary.allowed += u64::from(!is_denied);
            summary.denied += u64::from(is_denied);
            summary.first_attempts_denied += u64::from(is_denied && *attempt == 1);
            let wait = Some(*wait).filter(|wait| *wait > 0);
            summary.longest_wait_ms = summary.longest_wait_ms.max(wait);
        }
        let grants = Grants::of(columns, choice, keys);
        for (request, bound) in choice.requests().iter().zip(bounds) {
            let (most, total) = grants.most_and_total(bound.window.as_us());
            // Where the cost may be granted in part, the weight of a grant is its units.
            let units = if request.options.partial { 1 } else { request.options.cost.units() };
            if summary.windows.is_empty() {
                summary.granted_units = total.saturating_mul(units);
            }
            let most_units = most.saturating_mul(units);
            summary.windows.push(BusiestWindow { bound: *bound, most_units });
        }
        summary
    }
}

/// The allowed calls of each key: instant and weight. The weight is the first integer of the reply:
/// 1, or the units of a cost that is granted in part.
struct Grants(Vec<Vec<(u64, u64)>>);

impl Grants {
    fn of(columns: &Columns, choice: &Choice, keys: u8) -> Self {
        let is_partial = choice.requests().iter().any(|request| request.options.partial);
        let mut grants = vec![Vec::new(); usize::from(keys)];
        let calls = columns.at_us.iter().zip(&columns.key).zip(&columns.integers[0]);
        for ((at_us, key), granted) in calls.filter(|(_, granted)| **granted > 0) {
            let weight = if is_partial { u64::try_from(*granted).unwrap_or(0) } else { 1 };
            if let Some(grants) = grants.get_mut(usize::from(*key)) {
                grants.push((*at_us, weight));
            }
        }
        Self(grants)
    }

    /// Returns the largest weight of one key in any window of this length, and the weight of all
    /// keys.
    fn most_and_total(&self, window_us: u64) -> (u64, u64) {
        let (mut most, mut total) = (0, 0_u64);
        for grants in &self.0 {
            let (mut first, mut within) = (0, 0_u64);
            for (at_us, weight) in grants {
                within = within.saturating_add(*weight);
                total = total.saturating_add(*weight);
                while at_us - grants[first].0 >= window_us.max(1) {
                    within -= grants[first].1;
                    first += 1;
                }
                most = most.max(within);
            }
        }
        (most, total)
    }
}
