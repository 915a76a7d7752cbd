//! The rules that a call is put to, and the decisions that a server would make.
//!
//! A *choice* is one rule, or several that one `RL.ALL` decides. It is written in the words of the
//! command. The state of a key is the bytes that a server would store.

use redis_throttle_engine::algorithms::{Algorithm, OtherAlgorithm};
use redis_throttle_engine::bounds::{Cost, Slots};
use redis_throttle_engine::call::Mode;
use redis_throttle_engine::decision::{Decision, StateWrite};
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::packed::{RULES_MAX, packed_rule};
use redis_throttle_engine::grammar::request::{AnyRequest, Request};
use redis_throttle_engine::rule_set::{Row, deciding};
use redis_throttle_engine::state::{self, Change};
use redis_throttle_engine::time::Instant;

/// One rule, or several that one `RL.ALL` decides.
#[derive(Clone, Debug)]
pub struct Choice {
    requests: Vec<Request>,
}

/// An error in a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The place of the rule in its choice, counted from 0.
    pub rule: usize,
    /// The text of the module's error reply.
    pub text: String,
}

/// The reply of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The five integers: `allowed limit remaining retry_after_ms reset_after_ms`.
    pub integers: [i64; 5],
    /// The place of the rule that gives the reply, counted from 0.
    pub rule: usize,
}

/// The change of a key.
pub enum Write {
    /// The key gets these bytes.
    Keep(Change),
    /// The key is deleted.
    Delete,
}

/// The rules that the lab decides: of those of the module, the ones that take units.
const ALGORITHMS: &str =
    "GCRA, TOKENBUCKET, LEAKYBUCKET, FIXED, SLIDING, SLIDINGLOG, BACKOFF or QUOTA";

impl Choice {
    /// Reads a choice: one rule, or 2 to 16 for one `RL.ALL`.
    ///
    /// # Errors
    ///
    /// [`RuleError`] for the first invalid rule.
    pub fn parse<T: AsRef<[u8]>>(rules: &[T]) -> Result<Self, RuleError> {
        if rules.len() > RULES_MAX {
            return Err(text_of(0, GrammarError::TooManyRules));
        }
        let is_one = rules.len() == 1;
        let request = |(at, rule): (usize, &T)| {
            let request = packed_rule(rule.as_ref(), Slots::DEFAULT);
            // A single rule may grant a part of its cost.
            let request = if is_one { request } else { request.and_then(AnyRequest::in_full) };
            match request {
                Ok(AnyRequest::Units(request)) => Ok(request),
                Ok(AnyRequest::Lease(_))
                | Err(
                    GrammarError::UseNotHere
                    | GrammarError::ReserveNotHere
                    | GrammarError::Algorithm,
                ) => Err(RuleError { rule: at, text: no_algorithm(rule.as_ref()) }),
                Err(error) => Err(text_of(at, error)),
            }
        };
        let requests: Vec<_> = rules.iter().enumerate().map(request).collect::<Result<_, _>>()?;
        if requests.is_empty() {
            return Err(text_of(0, GrammarError::Algorithm));
        }
        Ok(Self { requests })
    }

    /// Returns the rules.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Sets the cost of each rule that may have a cost.
    #[must_use]
    pub fn with_cost(mut self, cost: Cost) -> Self {
        let costs = |request: &&mut Request| request.rule.algorithm() != Algorithm::Backoff;
        for request in self.requests.iter_mut().filter(costs) {
            request.options.cost = cost;
        }
        self
    }

    /// Decides a call at `now` and stores its changes. `states` has the bytes of one key for each
    /// rule, in the same order; no bytes for a key that does not exist.
    ///
    /// # Errors
    ///
    /// [`OtherAlgorithm`] if a key holds the state of another algorithm.
    pub fn decide(&self, states: &mut [Vec<u8>], now: Instant) -> Result<Reply, OtherAlgorithm> {
        if let ([request], [state]) = (self.requests.as_slice(), &mut *states) {
            let (decision, write) = decide(request, state, Mode::Take, now)?;
            apply(write, state);
            return Ok(Reply { integers: decision.integers(), rule: 0 });
        }
        let (mut rows, mut writes) = (Vec::new(), Vec::new());
        let mut first_denial = None;
        for (at, (request, state)) in self.requests.iter().zip(&*states).enumerate() {
            let mode = if first_denial.is_some() { Mode::TakeNothing } else { Mode::Take };
            let (decision, write) = decide(request, state, mode, now)?;
            rows.push(row(request, decision));
            writes.push(write);
            if first_denial.is_none() && rows[at].denies() {
                first_denial = Some(at);
            }
        }
        // The rules before a denial took their units: they decide again and take nothing.
        for (at, request) in self.requests.iter().enumerate().take(first_denial.unwrap_or(0)) {
            let (decision, write) = decide(request, &states[at], Mode::TakeNothing, now)?;
            (rows[at], writes[at]) = (row(request, decision), write);
        }
        for (write, state) in writes.into_iter().zip(states) {
            apply(write, state);
        }
        Ok(reply_of(&rows))
    }
}

/// Decides a call by one rule on the bytes of its key; no bytes for a key that does not exist.
///
/// # Errors
///
/// [`OtherAlgorithm`] if the key holds anything but a state of the rule's algorithm.
pub fn decide(
    request: &Request,
    stored: &[u8],
    mode: Mode,
    now: Instant,
) -> Result<(Decision, Option<Write>), OtherAlgorithm> {
    let stored = if stored.is_empty() { None } else { Some(state::decode(stored)?) };
    let outcome = request.rule.decide_call(mode, stored, now, request.options)?;
    let write = match &outcome.next {
        StateWrite::Nothing => None,
        StateWrite::Keep(next) => Some(Write::Keep(state::encode(&next.state))),
        StateWrite::Forget => Some(Write::Delete),
    };
    Ok((outcome.decision, write))
}

/// Creates the row of a decision, for [`deciding`].
fn row(request: &Request, decision: Decision) -> Row {
    let left_units = request.options.left_units(decision.limit);
    Row { decision, cost: request.options.cost, left_units, force: None }
}

/// Returns the reply of several rules. The wait of an allowed call is the longest of all rules.
fn reply_of(rows: &[Row]) -> Reply {
    let rule = deciding(rows);
    let mut integers = rows.get(rule).map(|row| row.decision.integers()).unwrap_or_default();
    if integers[0] != 0 {
        let waits = rows.iter().map(|row| row.decision.integers()[3]);
        integers[3] = waits.max().unwrap_or(0);
    }
    Reply { integers, rule }
}

fn apply(write: Option<Write>, state: &mut Vec<u8>) {
    match write {
        None => {}
        Some(Write::Keep(change)) => change.apply(state),
        Some(Write::Delete) => state.clear(),
    }
}

/// Returns the error of a rule whose first word is no algorithm here, with what to write for a rate
/// such as `10/s`.
fn no_algorithm(rule: &[u8]) -> String {
    let text = String::from_utf8_lossy(rule);
    let rate = text.split_once('/').or_else(|| text.split_once(" per "));
    let rate = rate.and_then(|(units, period)| {
        let units: u32 = units.trim().parse().ok()?;
        let first = period.trim().chars().next()?;
        let unit = ['s', 'm', 'h', 'd'].into_iter().find(|unit| *unit == first)?;
        Some(format!(
            "for {units} per period, GCRA {units} {units} 1{unit} or FIXED {units} 1{unit}"
        ))
    });
    let rate = rate.unwrap_or_else(|| "such as GCRA 20 10 1s".to_owned());
    format!("ERR invalid rule: expected {ALGORITHMS}; {rate}")
}

fn text_of(rule: usize, error: GrammarError) -> RuleError {
    let text = error.text().map(|text| text.to_string_lossy().into_owned());
    let text = text.unwrap_or_else(|| "ERR wrong number of arguments".to_owned());
    RuleError { rule, text }
}
