//! The texts of a rule: canonical words, a line of a policy file, the command of a call; and the
//! bound that a rule promises.

use crate::rules::{Choice, RuleError};
use redis_throttle_engine::algorithms::leaky_bucket::LeakyBucket;
use redis_throttle_engine::algorithms::token_bucket::TokenBucket;
use redis_throttle_engine::algorithms::{Algorithm, Rule};
use redis_throttle_engine::bounds::{Leave, Refill};
use redis_throttle_engine::calendar::Calendar;
use redis_throttle_engine::call::CallOptions;
use redis_throttle_engine::grammar::number;
use redis_throttle_engine::grammar::options::GivenOptions;
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::grammar::rule_text::rule_text;
use redis_throttle_engine::time::{Instant, Span};
use std::fmt::Write as _;

/// The texts of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    /// The canonical words of each rule, with its options.
    pub rules: Vec<String>,
    /// A line of a policy file for each rule, in shadow mode.
    pub policy_lines: Vec<String>,
    /// The command of a call for the first key.
    pub command: String,
}

/// The most units that a rule lets through in any stretch of time of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The length: the rule's window or period.
    pub window: Span,
    /// The units; `None` if the rule promises none.
    pub units: Option<u64>,
}

/// Reads the rules of a choice. A rule without its own `COST` gets `cost`, unless its calls have no
/// cost. Returns the words of the rules as well.
///
/// # Errors
///
/// Returns [`RuleError`] for the first invalid rule.
pub fn choice_of_cost(rules: &[String], cost: u64) -> Result<(Choice, Vec<String>), RuleError> {
    let given = Choice::parse(rules)?;
    let with_cost = |(rule, request): (&String, &Request)| {
        let words: Vec<_> = rule.split(' ').map(str::as_bytes).collect();
        let has_none = request.rule.algorithm() == Algorithm::Backoff;
        let is_final = cost == 1 || has_none || GivenOptions::give_cost(&words);
        if is_final { rule.clone() } else { format!("{rule} COST {cost}") }
    };
    let rules: Vec<_> = rules.iter().zip(given.requests()).map(with_cost).collect();
    Ok((Choice::parse(&rules)?, rules))
}

/// Returns the texts of a choice that was read from `rules`.
pub fn texts(choice: &Choice, rules: &[String]) -> Texts {
    let (mut canonical, mut policy_lines) = (Vec::new(), Vec::new());
    for (at, (request, rule)) in choice.requests().iter().zip(rules).enumerate() {
        let plain = rule_text(&request.rule, arguments(rule).as_slice());
        policy_lines.push(format!("api-{} SHADOW {plain}", at + 1));
        canonical.push(plain + &options_text(&request.options));
    }
    let command = command(&canonical);
    Texts { rules: canonical, policy_lines, command }
}

/// Returns the words of a rule after its name.
fn arguments(rule: &str) -> Vec<&[u8]> {
    rule.split(' ').filter(|word| !word.is_empty()).skip(1).map(str::as_bytes).collect()
}

fn options_text(options: &CallOptions) -> String {
    let mut text = String::new();
    if options.cost.units() != 1 {
        let _ = write!(text, " COST {}", options.cost.units());
    }
    if options.partial {
        text.push_str(" PARTIAL");
    }
    match options.leave {
        None => {}
        Some(Leave::Units(units)) => {
            let _ = write!(text, " LEAVE {}", units.units());
        }
        Some(Leave::Percent(percent)) => {
            let _ = write!(text, " LEAVE {percent}%");
        }
    }
    text
}

/// Returns the command for the first key. Several keys of one call have a common hash tag, so that
/// they share a slot of a cluster.
fn command(rules: &[String]) -> String {
    match rules {
        [rule] => {
            let (name, arguments) = rule.split_once(' ').unwrap_or((rule, ""));
            format!("RL.{name} {} {arguments}", key_name(0, None))
        }
        rules => {
            let pair = |(at, rule)| format!(" {} \"{rule}\"", key_name(0, Some(at)));
            let pairs: String = rules.iter().enumerate().map(pair).collect();
            format!("RL.ALL{pairs}")
        }
    }
}

/// Returns the name of a key, counted from 0. One of several keys of a call also has the place of
/// its rule.
pub fn key_name(key: u8, rule: Option<usize>) -> String {
    let user = u16::from(key) + 1;
    rule.map_or_else(|| format!("user:{user}"), |at| format!("{{user:{user}}}:{}", at + 1))
}

/// Returns the bound of the rule in `text` for calls between two instants.
pub fn bound(rule: &Rule, text: &str, from: Instant, until: Instant) -> Bound {
    let refilled = |refill: &Refill| Bound {
        window: refill.period().span(),
        units: Some(refill.capacity().units() + refill.rate().units()),
    };
    match rule {
        // Without a grid, the call that opened a window came a whole window before its end.
        Rule::FixedWindow(fixed) => Bound {
            window: fixed.window.span(),
            units: Some(2 * fixed.limit.units() - u64::from(!fixed.aligned)),
        },
        Rule::SlidingWindow(sliding) => {
            Bound { window: sliding.window.span(), units: Some(2 * sliding.limit.units() - 1) }
        }
        Rule::SlidingLog(log) => {
            Bound { window: log.window.span(), units: Some(log.limit.units()) }
        }
        Rule::TokenBucket(TokenBucket(refill)) | Rule::LeakyBucket(LeakyBucket(refill)) => {
            refilled(refill)
        }
        Rule::Gcra(_) => {
            // The rule does not keep its rate and period.
            let words = arguments(text);
            let units = |at: usize| words.get(at).and_then(|word| number::integer(word));
            let window = last_duration(&words, 2);
            Bound { window, units: units(0).zip(units(1)).map(|(burst, rate)| burst + rate) }
        }
        Rule::Backoff(_) => Bound { window: last_duration(&arguments(text), 3), units: None },
        Rule::CalendarQuota(quota) => Bound {
            window: shortest_period(quota.calendar, from, until),
            units: Some(2 * quota.limit.units()),
        },
    }
}

fn last_duration(words: &[&[u8]], at: usize) -> Span {
    let period = words.get(at).and_then(|word| number::period(word));
    period.map_or(Span::ZERO, |period| period.span())
}

/// Returns the length of the shortest period between two instants. No stretch of this length
/// touches more than two periods.
fn shortest_period(calendar: Calendar, from: Instant, until: Instant) -> Span {
    let mut period = calendar.period_at(from);
    let mut shortest = period.span();
    while period.end < until {
        period = calendar.period_at(period.end);
        shortest = shortest.min(period.span());
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn texts_of(given: &[&str], cost: u64) -> Texts {
        let (choice, words) = choice_of_cost(&rules(given), cost).expect("valid rules");
        texts(&choice, &words)
    }

    #[test]
    fn texts_are_canonical_and_have_the_cost_of_the_traffic() {
        // Rule, cost of the traffic, canonical words, policy line, command.
        let table = [
            ("gcra 6  10 60s ", 1, "GCRA 6 10 1m", "GCRA 6 10 1m"),
            ("GCRA 6 10 60", 3, "GCRA 6 10 1m COST 3", "GCRA 6 10 1m"),
            ("GCRA 6 10 60 cost 2", 3, "GCRA 6 10 1m COST 2", "GCRA 6 10 1m"),
            ("GCRA 6 10 60 COST 1", 3, "GCRA 6 10 1m", "GCRA 6 10 1m"),
            ("FIXED 5 1h ALIGNED", 0, "FIXED 5 1h ALIGNED COST 0", "FIXED 5 1h ALIGNED"),
            ("SLIDING 5 1h LEAVE 20%", 1, "SLIDING 5 1h LEAVE 20%", "SLIDING 5 1h"),
            (
                "TOKENBUCKET 5 1 1s LEAVE 2 PARTIAL",
                2,
                "TOKENBUCKET 5 1 1s COST 2 PARTIAL LEAVE 2",
                "TOKENBUCKET 5 1 1s",
            ),
            ("BACKOFF 3 1 8 1h", 7, "BACKOFF 3 1s 8s 1h", "BACKOFF 3 1s 8s 1h"),
            (
                "QUOTA 9 month ZONE europe/berlin START 15",
                1,
                "QUOTA 9 month ZONE Europe/Berlin START 15",
                "QUOTA 9 month ZONE Europe/Berlin START 15",
            ),
        ];
        for (given, cost, canonical, policy) in table {
            let texts = texts_of(&[given], cost);
            assert_eq!(texts.rules, [canonical], "{given}");
            assert_eq!(texts.policy_lines, [format!("api-1 SHADOW {policy}")], "{given}");
            let (name, arguments) = canonical.split_once(' ').expect("arguments");
            assert_eq!(texts.command, format!("RL.{name} user:1 {arguments}"), "{given}");
        }
    }

    #[test]
    fn several_rules_make_one_command_with_a_hash_tag() {
        let texts = texts_of(&["GCRA 6 10 60", "FIXED 100 1h"], 2);
        assert_eq!(
            texts.command,
            "RL.ALL {user:1}:1 \"GCRA 6 10 1m COST 2\" {user:1}:2 \"FIXED 100 1h COST 2\""
        );
        let expected = ["api-1 SHADOW GCRA 6 10 1m", "api-2 SHADOW FIXED 100 1h"];
        assert_eq!(texts.policy_lines, expected);
    }

    #[test]
    fn invalid_rule_gets_the_error_text_of_the_module() {
        let table = [
            (vec!["GCRA 6 10 60", "GCRA 0 10 60"], 1, "ERR invalid burst: "),
            (vec!["GCRA 6 10 60 COST x"], 0, "ERR invalid cost: "),
            (vec!["GCRA 6 10 60 PARTIAL"], 0, "ERR "),
            (vec!["LEASE a 3 60s"], 0, "ERR invalid rule: "),
            (vec![], 0, "ERR "),
            (vec![""], 0, "ERR "),
        ];
        for (given, at, expected) in table {
            let error = choice_of_cost(&rules(&given), 0).map(|_| ()).expect_err("an error");
            assert_eq!(error.rule, at, "{given:?}");
            assert!(error.text.starts_with(expected), "{given:?}: {}", error.text);
        }
    }

    #[test]
    fn bound_is_that_of_the_algorithm_in_its_own_window() {
        const HOUR_MS: u64 = 3_600_000;
        // 2026-01-01 and the end of the year.
        let from = Instant::from_us(1_767_225_600_000_000);
        let until = from.after(Span::from_days(365));
        let table = [
            ("GCRA 6 10 1h", HOUR_MS, Some(16)),
            ("TOKENBUCKET 6 10 1h", HOUR_MS, Some(16)),
            ("LEAKYBUCKET 6 10 1h", HOUR_MS, Some(16)),
            ("FIXED 10 1h", HOUR_MS, Some(19)),
            ("FIXED 10 1h ALIGNED", HOUR_MS, Some(20)),
            ("SLIDING 10 1h", HOUR_MS, Some(19)),
            ("SLIDINGLOG 10 1h SLOTS 16", HOUR_MS, Some(10)),
            ("BACKOFF 3 1s 8s 1h", HOUR_MS, None),
            // The shortest month is February; the shortest day is that on which summer time begins.
            ("QUOTA 10 month", 28 * 24 * HOUR_MS, Some(20)),
            ("QUOTA 10 day", 24 * HOUR_MS, Some(20)),
            ("QUOTA 10 day ZONE Europe/Berlin", 23 * HOUR_MS, Some(20)),
        ];
        for (text, window_ms, units) in table {
            let choice = Choice::parse(&[text]).expect(text);
            let bound = bound(&choice.requests()[0].rule, text, from, until);
            assert_eq!(bound, Bound { window: Span::from_ms(window_ms), units }, "{text}");
        }
    }
}
