//! Runs the rules of each choice on the same traffic.
//!
//! A client may repeat a call that is denied. Its retries depend on the replies, so each choice has
//! calls of its own.

pub mod column;
mod columns;
pub mod measures;
pub mod retries;

#[cfg(test)]
mod tests;

use self::column::Column;
use self::columns::ColumnsWriter;
pub use self::columns::{Columns, START};
use self::measures::{Levels, Summary, Summing};
use self::retries::{Retries, Retry, RetryQueue};
use crate::rules::{Choice, RuleError};
use crate::traffic::{CALLS_MAX, Call, TooManyCalls, Traffic};
use crate::wording::{self, Bound, Texts};
use redis_throttle_engine::algorithms::OtherAlgorithm;
use redis_throttle_engine::time::Span;
use std::panic::resume_unwind;
use std::thread;

/// The text of [`OtherAlgorithm`], as the module replies it.
const WRONGTYPE: &str = "WRONGTYPE the key does not hold a state of this algorithm";

/// Traffic, and the choices that decide it.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The traffic.
    pub traffic: Traffic,
    /// The cost of a call, for rules without their own.
    pub cost: u64,
    /// The behaviour of a client whose call is denied.
    pub retries: Retries,
    /// The key whose level is measured, counted from 0.
    pub watch: u8,
    /// The rules of each choice.
    pub choices: Vec<Vec<String>>,
}

/// The result of one choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The calls.
    pub columns: Columns,
    /// Whether retries were left out, because there were too many calls.
    pub truncated: bool,
    /// The units left of the watched key under each rule, at even instants.
    pub levels: Vec<Column>,
    /// The sums over all calls.
    pub summary: Summary,
    /// The texts of the rules.
    pub texts: Texts,
}

/// The results of all choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Results<T> {
    /// The number of calls that are no retries.
    pub offered: usize,
    /// The result of each choice, or the error in its rules.
    pub choices: Vec<Result<T, RuleError>>,
}

/// Runs each choice of a scenario in a thread of its own. `finish` takes the result there.
///
/// # Errors
///
/// Returns [`TooManyCalls`] if the traffic has too many.
pub fn run<T: Send>(
    scenario: &Scenario,
    finish: impl Fn(Outcome) -> T + Sync,
) -> Result<Results<T>, TooManyCalls> {
    let calls = scenario.traffic.calls()?;
    let choices = thread::scope(|scope| {
        let (calls, finish) = (calls.as_slice(), &finish);
        let mut threads = Vec::new();
        for rules in &scenario.choices {
            threads.push(scope.spawn(move || run_choice(rules, calls, scenario).map(finish)));
        }
        let results = threads.into_iter().map(thread::ScopedJoinHandle::join);
        results.map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    Ok(Results { offered: calls.len(), choices })
}

/// Runs one choice.
///
/// # Errors
///
/// Returns [`RuleError`] for the first invalid rule.
fn run_choice(rules: &[String], calls: &[Call], scenario: &Scenario) -> Result<Outcome, RuleError> {
    let (choice, words) = wording::choice_of_cost(rules, scenario.cost)?;
    let until = START.after(Span::from_ms(scenario.traffic.duration_ms));
    let bounds = choice.requests().iter().zip(&words);
    let bounds: Vec<_> =
        bounds.map(|(request, text)| wording::bound(&request.rule, text, START, until)).collect();
    // Only one rule writes a key, so its state is never another algorithm's.
    let decided = decide(&choice, calls, &bounds, scenario)
        .map_err(|OtherAlgorithm| RuleError { rule: 0, text: WRONGTYPE.to_owned() })?;
    let Decided { columns, truncated, levels, summary } = decided;
    let texts = wording::texts(&choice, &words);
    Ok(Outcome { columns, truncated, levels, summary, texts })
}

/// The decisions of one choice.
struct Decided {
    columns: Columns,
    truncated: bool,
    levels: Vec<Column>,
    summary: Summary,
}

/// Decides all calls and their retries in order of time. A retry precedes a new call of the same
/// instant.
fn decide(
    choice: &Choice,
    calls: &[Call],
    bounds: &[Bound],
    scenario: &Scenario,
) -> Result<Decided, OtherAlgorithm> {
    let rules = choice.requests().len();
    let mut states = vec![vec![Vec::new(); rules]; usize::from(scenario.traffic.keys)];
    let duration_us = scenario.traffic.duration_us();
    let mut levels = Levels::new(choice, duration_us);
    let mut columns = ColumnsWriter::with_capacity(calls.len());
    let mut summing = Summing::new(choice, bounds, scenario.traffic.keys);
    let mut queue = RetryQueue::new(scenario.retries, duration_us, CALLS_MAX - calls.len());
    let mut calls = calls.iter().copied().peekable();
    let watched = usize::from(scenario.watch);
    loop {
        let call = match queue.pop_until(calls.peek().map(|call| call.at_us)) {
            Some(retry) => retry,
            None => match calls.next() {
                Some(Call { at_us, key }) => Retry { at_us, key, attempt: 1 },
                None => break,
            },
        };
        levels.measure_before(call.at_us, states.get(watched))?;
        let Some(keys) = states.get_mut(usize::from(call.key)) else { continue };
        let reply = choice.decide(keys, START.after(Span::from_us(call.at_us)))?;
        columns.push(&call, &reply);
        summing.add(&call, &reply);
        queue.push_after(&call, &reply);
    }
    let levels = levels.finish(states.get(watched))?;
    let summary = summing.finish();
    let (columns, truncated) = (columns.finish(), queue.is_truncated());
    Ok(Decided { columns, truncated, levels, summary })
}
