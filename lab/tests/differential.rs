//! The lab next to a real server: 1,000 random timelines through the simulation, and then the same
//! calls through the module on a frozen clock. Every integer of every reply is equal.
//!
//! `RL_MODULE` names the module.

use redis::Value;
use redis_throttle_lab::rules::RuleError;
use redis_throttle_lab::simulation::column::Column;
use redis_throttle_lab::simulation::retries::Retries;
use redis_throttle_lab::simulation::{Outcome, START, Scenario, run};
use redis_throttle_lab::traffic::{Shape, Traffic};
use std::collections::BTreeMap;
use std::env;
use support::{Client, Random, Server, integers, raw_error};

const TIMELINES: u64 = 1_000;

/// The lengths of time lines. Calendar quotas need months.
const DURATIONS_MS: [u64; 6] =
    [1_000, 60_000, 3_600_000, 86_400_000, 60 * 86_400_000, 366 * 86_400_000];

/// The number of timelines in which each feature was decided, to prove that none is left out.
type Counts = BTreeMap<&'static str, u64>;

/// Draws words of rules for traffic of one duration.
struct Draw<'a> {
    random: &'a mut Random,
    duration_ms: u64,
}

impl Draw<'_> {
    fn one_in(&mut self, number: u64) -> bool {
        self.random.below(number) == 0
    }

    /// Returns a limit, usually one that a few dozen calls reach.
    fn limit(&mut self) -> u64 {
        match self.random.below(12) {
            0 => 1_000_000_000_000,
            1 => 1 + self.random.below(2_000),
            _ => 1 + self.random.below(12),
        }
    }

    /// Returns a duration from 1 ms to twice that of the time line.
    fn period_ms(&mut self) -> u64 {
        let longest_ms = (2 * self.duration_ms).min(366 * 86_400_000);
        let scale = [1, 4, 20, 100, 1_000][self.random.below(5) as usize];
        1 + self.random.below(longest_ms / scale)
    }

    fn zone(&mut self) -> String {
        let zones = ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"];
        if self.one_in(3) { String::new() } else { format!(" ZONE {}", self.random.pick(&zones)) }
    }

    fn quota(&mut self) -> String {
        let (limit, zone) = (self.limit(), self.zone());
        let unit = *self.random.pick(&["day", "week", "month", "quarter", "year"]);
        let start = match unit {
            "week" => format!(" START {}", self.random.pick(&["mon", "wed", "sun"])),
            "month" => format!(" START {}", 1 + self.random.below(31)),
            "year" => format!(" START {}", 1 + self.random.below(12)),
            _ => String::new(),
        };
        format!("QUOTA {limit} {unit}{zone}{start}")
    }

    fn algorithm(&mut self) -> String {
        let (limit, rate, period_ms) = (self.limit(), self.limit(), self.period_ms());
        match self.random.below(8) {
            0 => format!("GCRA {limit} {rate} {period_ms}ms"),
            1 => format!("TOKENBUCKET {limit} {rate} {period_ms}ms"),
            2 => format!("LEAKYBUCKET {limit} {rate} {period_ms}ms"),
            3 if self.one_in(2) => format!("FIXED {limit} {period_ms}ms ALIGNED"),
            3 => format!("FIXED {limit} {period_ms}ms"),
            4 => format!("SLIDING {limit} {period_ms}ms"),
            5 if self.one_in(2) => format!("SLIDINGLOG {limit} {period_ms}ms SLOTS 16"),
            5 => format!("SLIDINGLOG {limit} {period_ms}ms"),
            6 => {
                let attempts = 1 + self.random.below(5);
                let (base_ms, max_ms) = (period_ms, period_ms.saturating_mul(6));
                format!("BACKOFF {attempts} {base_ms}ms {max_ms}ms {}ms", max_ms + period_ms)
            }
            _ => self.quota(),
        }
    }

    /// Returns a rule with options. `PARTIAL` is only for a single rule.
    fn rule(&mut self, is_one: bool) -> String {
        let mut rule = self.algorithm();
        if self.one_in(40) {
            // An invalid option: the lab has the error text of the module.
            let invalid = [" COST x", " LEAVE 101%", " WITHOUT", " COST 1 COST 1"];
            return rule + *self.random.pick(&invalid);
        }
        if self.one_in(3) && !rule.starts_with("BACKOFF") {
            // Nothing, a few units, and more than most limits.
            let cost = *self.random.pick(&[0, 1, 2, 3, 15, 1_000_000_000_000_u64]);
            rule += &format!(" COST {cost}");
        }
        if self.one_in(4) {
            let leave = *self.random.pick(&["0", "2", "5", "50%", "100%"]);
            rule += &format!(" LEAVE {leave}");
        }
        if is_one && self.one_in(4) && !rule.starts_with("BACKOFF") {
            rule += " PARTIAL";
        }
        rule
    }

    fn scenario(&mut self) -> Scenario {
        let keys = 1 + self.random.below(3);
        let calls = 5 + self.random.below(50);
        let rate = calls as f64 * 1_000.0 / self.duration_ms as f64;
        let shapes = [
            Shape::Steady(rate),
            Shape::Bursty(rate),
            Shape::Greedy(rate / keys as f64),
            Shape::Herd(rate),
            Shape::Day(rate),
            Shape::Abuser(rate),
            Shape::Drawn(vec![(0.0, rate), (0.5, rate * 4.0), (0.5, 0.0), (1.0, rate)]),
        ];
        let rules = if self.one_in(2) { 1 } else { 2 + self.random.below(3) };
        let traffic = Traffic {
            shape: self.random.pick(&shapes).clone(),
            duration_ms: self.duration_ms,
            seed: self.random.below(u32::MAX.into()) as u32,
            keys: keys as u8,
        };
        let rules: Vec<_> = (0..rules).map(|_| self.rule(rules == 1)).collect();
        // A cost of 0 cannot be granted in part.
        let least_cost = u64::from(rules[0].ends_with("PARTIAL"));
        Scenario {
            traffic,
            cost: least_cost.max(*self.random.pick(&[0, 1, 1, 1, 2, 5, 20])),
            retries: *self.random.pick(&[Retries::None, Retries::Obey, Retries::Hammer]),
            watch: self.random.below(keys) as u8,
            choices: vec![rules],
        }
    }
}

fn key(timeline: u64, key: u8, rule: usize) -> String {
    format!("{timeline}:{key}:{rule}")
}

/// Returns the words of a call: the command of the only rule, or `RL.ALL`.
fn call(timeline: u64, key_number: u8, rules: &[String]) -> Vec<String> {
    match rules {
        [rule] => {
            let mut words = rule.split_whitespace().map(str::to_owned);
            let command = format!("RL.{}", words.next().expect("an algorithm"));
            [command, key(timeline, key_number, 0)].into_iter().chain(words).collect()
        }
        rules => {
            let pair = |(at, rule): (usize, &String)| [key(timeline, key_number, at), rule.clone()];
            let pairs = rules.iter().enumerate().flat_map(pair);
            ["RL.ALL".to_owned()].into_iter().chain(pairs).collect()
        }
    }
}

fn freeze(at_us: u64) -> Vec<String> {
    let at_us = START.as_us() + at_us;
    ["RL.DEBUG", "CLOCK", "FREEZE"]
        .map(str::to_owned)
        .into_iter()
        .chain([at_us.to_string()])
        .collect()
}

/// Splits a reply into the five integers and the place of the rule that gives them.
fn decided(reply: &Value, rules: usize) -> ([i64; 5], i64) {
    if rules == 1 {
        return (integers(reply).unwrap_or_else(|| panic!("no decision: {reply:?}")), 0);
    }
    let decision = support::several::decision_of(reply);
    let decision = decision.unwrap_or_else(|| panic!("no decision by several rules: {reply:?}"));
    (decision.five, decision.rule - 1)
}

/// Makes the calls of a timeline on the server and compares each reply, and the units left at the
/// end. Returns the number of calls.
fn compare(client: &mut Client, timeline: u64, scenario: &Scenario, outcome: &Outcome) -> usize {
    let (columns, rules) = (&outcome.columns, &outcome.texts.rules);
    let mut commands = Vec::with_capacity(2 * columns.len() + 1);
    let (at_us, keys) = (columns.at_us.to_vec(), columns.key.to_vec());
    for (at_us, key) in at_us.iter().zip(&keys) {
        commands.push(freeze(*at_us as u64));
        commands.push(call(timeline, *key as u8, rules));
    }
    let replies = client.pipeline(&commands);
    let (five, place) = (columns.integers.each_ref().map(Column::to_vec), columns.rule.to_vec());
    for (at, reply) in replies.iter().skip(1).step_by(2).enumerate() {
        let expected = (five.each_ref().map(|column| column[at]), place[at]);
        let (integers, rule) = decided(reply, rules.len());
        assert_eq!(
            (integers, rule),
            expected,
            "timeline {timeline}, call {at}: {:?} in {scenario:?}",
            commands[2 * at + 1]
        );
    }
    let mut looks = vec![freeze(scenario.traffic.duration_us())];
    let mut levels = Vec::new();
    for (at, line) in outcome.texts.policy_lines.iter().enumerate() {
        // The line of a policy is the rule without its options. A look replies as a call of cost 0
        // would; calls of BACKOFF have no cost.
        let words: Vec<_> =
            line.split(' ').skip(2).chain(["COST", "0"]).map(str::to_owned).collect();
        if words[0] != "BACKOFF" {
            let look = ["RL.PEEK".to_owned(), key(timeline, scenario.watch, at)];
            looks.push(look.into_iter().chain(words).collect());
            levels.push(outcome.levels[at].to_vec().last().copied());
        }
    }
    let looked = client.pipeline(&looks);
    for ((look, reply), level) in looks.iter().zip(&looked).skip(1).zip(levels) {
        let left = integers(reply).map(|integers| integers[2]);
        assert_eq!(left, level, "timeline {timeline}: {look:?}: {reply:?}");
    }
    columns.len()
}

/// Compares the error of a rule with the error of the server.
fn compare_error(client: &mut Client, timeline: u64, rules: &[String], error: &RuleError) {
    let reply = client.call(&call(timeline, 0, rules));
    let expected = match rules {
        [_] => error.text.clone(),
        _ => error.text.replacen("ERR ", &format!("ERR rule {}: ", error.rule + 1), 1),
    };
    assert_eq!(raw_error(&reply), Some(expected), "{rules:?}");
}

/// Counts the features of a timeline.
fn count(counts: &mut Counts, outcome: &Outcome) {
    let rules = &outcome.texts.rules;
    let names = [
        "GCRA",
        "TOKENBUCKET",
        "LEAKYBUCKET",
        "FIXED",
        "SLIDING ",
        "SLIDINGLOG",
        "BACKOFF",
        "QUOTA",
        "ALIGNED",
        "SLOTS",
        "ZONE",
        "START",
        "COST 0",
        "COST 15",
        "LEAVE",
        "PARTIAL",
        "%",
    ];
    for name in names {
        *counts.entry(name).or_default() += u64::from(rules.iter().any(|rule| rule.contains(name)));
    }
    for number in 2..=4 {
        let name = ["two rules", "three rules", "four rules"][number - 2];
        *counts.entry(name).or_default() += u64::from(rules.len() == number);
    }
    let columns = &outcome.columns;
    let [allowed, _, _, waits, _] = columns.integers.each_ref().map(Column::to_vec);
    let features = [
        ("denied", allowed.contains(&0)),
        ("granted in part", allowed.iter().any(|units| *units > 1)),
        ("never", waits.contains(&-1)),
        ("retried", columns.attempt.to_vec().iter().any(|attempt| *attempt > 1)),
        ("decided by a later rule", columns.rule.to_vec().iter().any(|rule| *rule > 0)),
    ];
    for (name, has_it) in features {
        *counts.entry(name).or_default() += u64::from(has_it);
    }
}

#[test]
fn lab_and_server_give_the_same_integers() {
    assert!(
        env::var_os("RL_MODULE").is_some(),
        "RL_MODULE is not set: name the module, for example target/release/libredis_throttle.so"
    );
    let server = Server::start();
    let mut client = server.client();
    let mut random = Random::new(28);
    let (mut calls, mut errors, mut counts) = (0, 0, Counts::new());
    for timeline in 0..TIMELINES {
        let duration_ms = *random.pick(&DURATIONS_MS);
        let scenario = Draw { random: &mut random, duration_ms }.scenario();
        let results = run(&scenario, |outcome| outcome).expect("few calls");
        match &results.choices[0] {
            Ok(outcome) => {
                count(&mut counts, outcome);
                calls += compare(&mut client, timeline, &scenario, outcome);
            }
            Err(error) => {
                compare_error(&mut client, timeline, &scenario.choices[0], error);
                errors += 1;
            }
        }
    }
    server.assert_alive();
    assert!(calls > 20 * TIMELINES as usize, "{calls} calls");
    assert!(errors > 20 && errors < TIMELINES / 4, "{errors} timelines with an error");
    for (feature, timelines) in counts {
        assert!(timelines >= 20, "{feature}: {timelines} timelines");
    }
}
