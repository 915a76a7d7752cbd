//! A key of a soak: its rules as words, and a model of its state.

use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::bounds::Leave;
use redis_throttle_engine::oracle::{AnyOracle, AnySubject, Limits, Share, Verb};

use support::Random;

/// A key, its two rules and the model of its state.
pub struct Key {
    pub name: String,
    pub subject: AnySubject,
    pub rules: [Limits; 2],
    pub model: Box<dyn AnyOracle>,
    pub calls: u64,
}

/// A call on a key: its limits, its cost, and how it decides.
#[derive(Clone, Copy)]
pub struct Request {
    pub limits: Limits,
    pub cost: i128,
    /// A verb that decides; its options are part of the rule's words.
    pub verb: Verb,
}

impl Key {
    pub fn new(random: &mut Random, subject: AnySubject) -> Self {
        let rules = [Limits::draw(random), Limits::draw(random)];
        let name = format!("{}:{}", subject.algorithm.name(), random.number());
        Self { name, subject, rules, model: (subject.none)(), calls: 0 }
    }

    pub fn counts_delays(&self) -> bool {
        self.subject.algorithm == Algorithm::Backoff
    }

    /// Returns the limits of a rule. `slots` is the setting, which a sliding log with its own slots
    /// ignores.
    pub fn limits(&self, rule: usize, slots: i128) -> Limits {
        let limits = self.rules[rule];
        let has_own_slots = self.subject.algorithm == Algorithm::SlidingLog && limits.aligned;
        if has_own_slots { limits } else { Limits { slots, ..limits } }
    }

    /// Draws one of the two rules, mostly the first, and a cost.
    pub fn draw_request(&self, random: &mut Random, slots: i128) -> Request {
        let limits = self.limits(usize::from(random.below(8) == 0), slots);
        let cost = Share::draw(random).of(&limits);
        Request { limits, cost: if self.counts_delays() { 1 } else { cost }, verb: Verb::Decide }
    }

    /// Returns a call that costs the whole limit of the first rule.
    pub fn full_request(&self, slots: i128) -> Request {
        let limits = self.limits(0, slots);
        let cost = if self.counts_delays() { 1 } else { limits.capacity };
        Request { limits, cost, verb: Verb::Decide }
    }

    /// Returns the rule as `RL.ALL` takes it: the algorithm's name, and the arguments that follow
    /// the key in the algorithm's own command.
    pub fn rule(&self, request: &Request) -> String {
        let Request { limits, cost, verb } = request;
        let AnySubject { algorithm, words, .. } = self.subject;
        let mut rule = format!("{} {}", algorithm.name(), words(limits));
        if *cost != 1 {
            rule.push_str(&format!(" COST {cost}"));
        }
        if verb.is_partial() && *cost > 0 {
            rule.push_str(" PARTIAL");
        }
        if let Some(leave) = verb.leave() {
            rule.push_str(&format!(" LEAVE {}", leave_text(leave)));
        }
        rule
    }

    /// Returns the words of a call on only this key.
    pub fn words(&self, verb: Verb, request: &Request) -> Vec<String> {
        let how = if verb.decides() { verb } else { Verb::Decide };
        let (key, rule) = (&self.name, self.rule(&Request { verb: how, ..*request }));
        let line = match verb {
            Verb::Charge => format!("RL.CHARGE {key} {rule}"),
            Verb::Refund => format!("RL.REFUND {key} {rule}"),
            _ => format!("RL.{}", rule.replacen(' ', &format!(" {key} "), 1)),
        };
        in_words(&line)
    }

    /// Returns the words of a peek at this key.
    pub fn look(&self, request: &Request) -> Vec<String> {
        in_words(&format!("RL.PEEK {} {}", self.name, self.rule(request)))
    }
}

/// Returns the value of the option `LEAVE`.
pub fn leave_text(leave: Leave) -> String {
    match leave {
        Leave::Units(units) => units.units().to_string(),
        Leave::Percent(percent) => format!("{percent}%"),
    }
}

fn in_words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Formats a duration in seconds.
pub fn duration(us: i128) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}
