//! The calls of a log, decided by rules: each by itself, all together, or by policies.

use super::event::{Effect, Event};
use super::failure::Failure;
use super::policies::Policy;
use super::states::States;
use super::tally::{Fate, Tally, Verdict};
use crate::rules::{Choice, Write, decide};
use redis_throttle_engine::algorithms::{Algorithm, OtherAlgorithm};
use redis_throttle_engine::bounds::Cost;
use redis_throttle_engine::call::{CallOptions, Mode};
use redis_throttle_engine::decision;
use redis_throttle_engine::grammar::number;
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::time::Instant;

/// One rule, by itself.
#[derive(Debug)]
pub struct Trial {
    /// The rule, as it was written.
    pub rule: String,
    request: Request,
    /// Whether the lines give the cost.
    priced: bool,
    /// The stored states.
    pub states: States,
    /// The numbers.
    pub tally: Tally,
}

/// Several rules, as one `RL.ALL`.
#[derive(Debug)]
pub struct Joint {
    /// The rules, as they were written.
    pub rules: Vec<String>,
    choice: Choice,
    /// The cost of the last call, if the lines give it.
    priced_at: Option<u64>,
    /// The states under each rule.
    pub states: Vec<States>,
    /// The bytes of one key's states.
    bytes: Vec<Vec<u8>>,
    /// The numbers of all rules together.
    pub tally: Tally,
    /// The denied calls whose reply each rule gave: the one with the longest wait.
    pub denials: Vec<u64>,
}

/// The policies of a file.
#[derive(Debug)]
pub struct PolicyTrial {
    /// The policies.
    pub policies: Vec<Policy>,
    /// The numbers of each policy.
    pub counts: Vec<PolicyCounts>,
    /// The stored states.
    pub states: States,
    /// The numbers of all policies together.
    pub tally: Tally,
}

/// The numbers of one policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyCounts {
    /// All calls.
    pub calls: u64,
    /// The denied calls.
    pub denied: u64,
    /// The calls that shadow mode allows and the rule would deny.
    pub shadow_denied: u64,
    /// The keys with denied calls, also in shadow mode.
    pub keys_denied: u64,
}

impl Trial {
    /// Creates the trial of a rule. `priced` is true if the lines give the cost.
    ///
    /// # Errors
    ///
    /// The text of the module's error.
    pub fn new(rule: &str, priced: bool) -> Result<Self, String> {
        let choice = Choice::parse(&[rule])
            .map_err(|error| format!("invalid --rule `{rule}`: {}", error.text))?;
        let [request] = choice.requests() else { return Err("missing --rule".to_owned()) };
        let (window_us, life_us) = window_and_life_us(rule);
        let algorithm = request.rule.algorithm();
        Ok(Self {
            rule: rule.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            request: *request,
            priced: priced && algorithm != Algorithm::Backoff,
            states: States::new([algorithm]),
            tally: Tally::new(window_us, life_us),
        })
    }

    /// Returns the rule's algorithm.
    pub const fn algorithm(&self) -> Algorithm {
        self.request.rule.algorithm()
    }

    /// Reads the numbers of a key, so that they are near when its call is decided.
    #[inline]
    pub fn read_ahead(&self, key: u32) -> (usize, u32) {
        (self.states.get(key).len(), self.tally.of_key(key).denied)
    }

    /// Decides a call.
    ///
    /// # Errors
    ///
    /// [`Failure`] of the states.
    #[inline]
    pub fn call(&mut self, event: &Event) -> Result<(), Failure> {
        if self.priced {
            self.request.options.cost = cost(event.cost);
        }
        let now = Instant::from_us(event.at_us);
        let request = &self.request;
        let verdict = self.states.decide(event.key, |stored| put_to(request, stored, now))?;
        self.tally.count(event.key, event.at_us, fate(verdict));
        Ok(())
    }
}

impl Joint {
    /// Creates the trial of several rules. `priced` is true if the lines give the cost.
    ///
    /// # Errors
    ///
    /// The text of the module's error.
    pub fn new(rules: &[String], priced: bool) -> Result<Self, String> {
        let choice = Choice::parse(rules).map_err(|error| {
            let rule = rules.get(error.rule).map_or("", String::as_str);
            format!("invalid --rule `{rule}`: {}", error.text)
        })?;
        let times = rules.iter().map(|rule| window_and_life_us(rule));
        let longest = times.reduce(|(a, b), (c, d)| (a.max(c), b.max(d)));
        let (window_us, life_us) = longest.unwrap_or_default();
        let algorithms = choice.requests().iter().map(|request| request.rule.algorithm());
        Ok(Self {
            rules: rules.to_vec(),
            // No line has this cost, so the first one sets its own.
            priced_at: priced.then_some(u64::MAX),
            states: algorithms.map(|algorithm| States::new([algorithm])).collect(),
            bytes: vec![Vec::new(); rules.len()],
            tally: Tally::new(window_us, life_us),
            denials: vec![0; rules.len()],
            choice,
        })
    }

    /// Returns the algorithms of the rules.
    pub fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        self.choice.requests().iter().map(|request| request.rule.algorithm())
    }

    /// Decides a call.
    ///
    /// # Errors
    ///
    /// [`Failure`] of the states.
    pub fn call(&mut self, event: &Event) -> Result<(), Failure> {
        if self.priced_at.is_some_and(|last| last != event.cost) {
            self.choice = self.choice.clone().with_cost(cost(event.cost));
            self.priced_at = Some(event.cost);
        }
        for (states, bytes) in self.states.iter().zip(&mut self.bytes) {
            bytes.clear();
            bytes.extend_from_slice(states.get(event.key));
        }
        let now = Instant::from_us(event.at_us);
        let reply = self.choice.decide(&mut self.bytes, now).map_err(|_| foreign())?;
        for (states, bytes) in self.states.iter_mut().zip(&self.bytes) {
            states.set(event.key, bytes)?;
        }
        let [allowed, _, _, wait_ms, _] = reply.integers;
        let verdict = match (allowed, wait_ms) {
            (0, decision::Decision::NEVER) => Verdict::Never,
            (0, _) => Verdict::Denied,
            _ => Verdict::Allowed,
        };
        let denials = self.denials.get_mut(reply.rule);
        if let Some(denials) = denials.filter(|_| allowed == 0) {
            *denials += 1;
        }
        let wait_us = u64::try_from(wait_ms).unwrap_or(0).saturating_mul(1_000);
        self.tally.count(event.key, event.at_us, Fate { verdict, wait_us });
        Ok(())
    }
}

impl PolicyTrial {
    /// Creates the trial of policies.
    pub fn new(policies: &[Policy]) -> Self {
        let lives = policies.iter().map(|policy| window_and_life_us(&policy.rule_text()).1);
        let states = States::new(policies.iter().map(|policy| policy.rule().algorithm()));
        Self {
            policies: policies.to_vec(),
            counts: vec![PolicyCounts::default(); policies.len()],
            states,
            tally: Tally::new(0, lives.max().unwrap_or(0)),
        }
    }

    /// Decides a call. A call without a policy is allowed.
    ///
    /// # Errors
    ///
    /// [`Failure`] of the states.
    pub fn call(&mut self, event: &Event) -> Result<(), Failure> {
        let number = usize::from(event.applied.policy);
        let allowed = Fate { verdict: Verdict::Allowed, wait_us: 0 };
        let (fate, policy) = match (event.applied.effect, self.policies.get(number)) {
            (Effect::None, _) | (_, None) => {
                self.tally.count(event.key, event.at_us, allowed);
                return Ok(());
            }
            (Effect::Off, Some(_)) => (allowed, number),
            (Effect::Blocked, Some(_)) => (Fate { verdict: Verdict::Denied, wait_us: 0 }, number),
            (effect, Some(policy)) => {
                let rule = *policy.rule();
                let is_priced = rule.algorithm() != Algorithm::Backoff;
                let cost = if is_priced { cost(event.cost) } else { Cost::ONE };
                let request = Request { rule, options: CallOptions::of_cost(cost) };
                let now = Instant::from_us(event.at_us);
                let verdict =
                    self.states.decide(event.key, |stored| put_to(&request, stored, now))?;
                let fate = fate(verdict);
                let is_shadowed = effect == Effect::Shadow && fate.verdict != Verdict::Allowed;
                let verdict = if is_shadowed { Verdict::ShadowDenied } else { fate.verdict };
                (Fate { verdict, ..fate }, number)
            }
        };
        let is_first = self.tally.count(event.key, event.at_us, fate);
        if let Some(counts) = self.counts.get_mut(policy) {
            counts.calls += 1;
            counts.denied += u64::from(matches!(fate.verdict, Verdict::Denied | Verdict::Never));
            counts.shadow_denied += u64::from(fate.verdict == Verdict::ShadowDenied);
            counts.keys_denied += u64::from(is_first);
        }
        Ok(())
    }
}

/// Decides a call by one rule.
#[inline]
fn put_to(
    request: &Request,
    stored: &[u8],
    now: Instant,
) -> Result<(decision::Verdict, Option<Write>), Failure> {
    match decide(request, stored, Mode::Take, now) {
        Ok((decision, write)) => Ok((decision.verdict, write)),
        Err(OtherAlgorithm) => Err(foreign()),
    }
}

/// A defect of this program: a key has the state of another rule.
#[cold]
fn foreign() -> Failure {
    Failure::usage("a key holds the state of another algorithm: please report this")
}

#[inline]
fn fate(verdict: decision::Verdict) -> Fate {
    let (verdict, wait_us) = match verdict {
        decision::Verdict::Allowed { wait } | decision::Verdict::Granted { wait, .. } => {
            (Verdict::Allowed, wait.as_us())
        }
        decision::Verdict::Denied { retry_after } => (Verdict::Denied, retry_after.as_us()),
        decision::Verdict::Impossible | decision::Verdict::Banned { .. } => (Verdict::Never, 0),
    };
    Fate { verdict, wait_us }
}

/// Returns the cost of a line, which was checked when it was read.
fn cost(units: u64) -> Cost {
    Cost::new(units).unwrap_or(Cost::ABOVE_EVERY_LIMIT)
}

/// Returns the length of a rule's window or period, and the longest life of a stored key after a
/// call, both in microseconds.
fn window_and_life_us(rule: &str) -> (u64, u64) {
    const DAY_US: u64 = 86_400_000_000;
    let words: Vec<_> = rule.split_ascii_whitespace().collect();
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let integer = |at: usize| number::integer(word(at).as_bytes()).unwrap_or_default();
    let period_us = |at: usize| {
        number::period(word(at).as_bytes()).map(|period| period.as_us()).unwrap_or_default()
    };
    // A key may live an eighth longer, so that not every call has to extend it.
    let and_an_eighth = |us: u64| us.saturating_add(us / 8);
    match word(0).to_ascii_uppercase().as_str() {
        "FIXED" => (period_us(2), period_us(2)),
        "SLIDING" => (period_us(2), period_us(2).saturating_mul(2)),
        "SLIDINGLOG" => (period_us(2), and_an_eighth(period_us(2))),
        "GCRA" | "TOKENBUCKET" | "LEAKYBUCKET" => {
            let full_us = u128::from(integer(1)) * u128::from(period_us(3));
            let life_us = full_us.div_ceil(u128::from(integer(2).max(1)));
            (period_us(3), and_an_eighth(u64::try_from(life_us).unwrap_or(u64::MAX)))
        }
        "BACKOFF" => (period_us(2), and_an_eighth(period_us(4).saturating_add(period_us(3)))),
        "QUOTA" => {
            let days = match word(2).to_ascii_lowercase().as_str() {
                "day" => 1,
                "week" => 7,
                "month" => 31,
                "quarter" => 92,
                _ => 366,
            };
            (days * DAY_US, days * DAY_US)
        }
        _ => (0, 0),
    }
}
