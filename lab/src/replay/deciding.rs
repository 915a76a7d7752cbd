//! All limits that a replay tries on the same calls, and the report about them.

use super::arguments::ReplayArguments;
use super::escaping::printable;
use super::event::Event;
use super::failure::Failure;
use super::keys::Keys;
use super::ladder::Ladder;
use super::policies::Policy;
use super::report::{
    ExcludedReport, KeyReport, LimitReport, PolicyReport, RungReport, RungUnits, SuggestionReport,
};
use super::states::{States, len_max};
use super::suggest::{COVERS, Covered, Suggest, Suggestion, rank};
use super::tally::{OfKey, Tally};
use super::trial::{Joint, PolicyTrial, Trial};
use redis_throttle_engine::algorithms::Algorithm;
use redis_throttle_engine::policy::name::FullName;
use std::hint::black_box;

/// The limits.
#[derive(Debug)]
enum Limits {
    /// Rules, each by itself; none for a suggestion alone.
    Rules(Vec<Trial>),
    Joint(Box<Joint>),
    Policies(Box<PolicyTrial>),
}

/// All that calls are put to.
#[derive(Debug)]
pub struct Deciding {
    limits: Limits,
    suggest: Option<Suggest>,
    /// The number of calls.
    pub calls: u64,
    /// The time of the first call and of the last one.
    pub span_us: Option<(u64, u64)>,
}

/// The most rules that are tried each by itself.
pub const RULES_MAX: usize = 4;

/// The number of most denied keys that are reported.
const KEYS_REPORTED: usize = 10;

/// The number of characters of a key that are printed.
const KEY_LEN: usize = 80;

/// The policies that are reported: those with the most calls.
const POLICIES_REPORTED: usize = 100;

impl Deciding {
    /// Creates the limits that the arguments request.
    ///
    /// # Errors
    ///
    /// [`Failure`] for an invalid rule, or if there is nothing to do.
    pub fn new(arguments: &ReplayArguments, policies: Option<&[Policy]>) -> Result<Self, Failure> {
        let rules = &arguments.rules;
        let priced = arguments.cost.is_some();
        if rules.is_empty() && policies.is_none() && arguments.suggest.is_none() {
            return Err(Failure::usage(
                "nothing to do: name a limit with --rule 'GCRA 20 10 1s', policies with --policies \
                 FILE, or request a limit with --suggest",
            ));
        }
        let limits = if let Some(policies) = policies {
            Limits::Policies(Box::new(PolicyTrial::new(policies)))
        } else if arguments.all && rules.len() > 1 {
            Limits::Joint(Box::new(Joint::new(rules, priced)?))
        } else if rules.len() > RULES_MAX {
            return Err(Failure::usage(format!(
                "too many rules: expected at most {RULES_MAX}, or 16 with --all"
            )));
        } else {
            let trials = rules.iter().map(|rule| Trial::new(rule, priced));
            Limits::Rules(trials.collect::<Result<_, _>>()?)
        };
        let suggest = match arguments.suggest {
            None => None,
            Some(algorithm) => Some(Suggest::new(Ladder::new(algorithm, arguments)?, arguments)?),
        };
        Ok(Self { limits, suggest, calls: 0, span_us: None })
    }

    /// Puts calls to all limits, in their order.
    ///
    /// Reads the numbers of a later call's key before each call: the processor then waits for
    /// several places in memory at once.
    ///
    /// # Errors
    ///
    /// [`Failure`] of the limits, at the first call that fails.
    pub fn call_all(&mut self, events: &[Event]) -> Result<(), Failure> {
        const AHEAD: usize = 8;
        for (at, event) in events.iter().enumerate() {
            if let (Some(later), Limits::Rules(trials)) = (events.get(at + AHEAD), &self.limits) {
                for trial in trials {
                    black_box(trial.read_ahead(later.key));
                }
            }
            self.call(event)?;
        }
        Ok(())
    }

    /// Puts a call to all limits.
    #[inline]
    fn call(&mut self, event: &Event) -> Result<(), Failure> {
        self.calls += 1;
        let from_us = self.span_us.map_or(event.at_us, |(from_us, _)| from_us);
        self.span_us = Some((from_us, event.at_us));
        if let Some(suggest) = &mut self.suggest {
            suggest.call(event);
        }
        match &mut self.limits {
            Limits::Rules(trials) => trials.iter_mut().try_for_each(|trial| trial.call(event)),
            Limits::Joint(joint) => joint.call(event),
            Limits::Policies(policies) => policies.call(event),
        }
    }

    /// Returns the reports of all limits.
    pub fn limits(&self, keys: &Keys) -> Vec<LimitReport> {
        match &self.limits {
            Limits::Rules(trials) => {
                let report = |trial: &Trial| {
                    let value_len = value_len([trial.algorithm()], [&trial.states]);
                    limit(trial.rule.clone(), &trial.tally, value_len, keys)
                };
                trials.iter().map(report).collect()
            }
            Limits::Joint(joint) => {
                let Joint { rules, states, tally, denials, .. } = &**joint;
                let value_len = value_len(joint.algorithms(), states);
                let mut report = limit("all rules together".to_owned(), tally, value_len, keys);
                // Each rule has a key of its own.
                let more = rules.len() as u64;
                let bytes_a_key = &mut report.memory.bytes_a_key;
                let one = *bytes_a_key - value_len;
                *bytes_a_key = one * more + value_len;
                report.memory.bytes = report.memory.keys_at_once.saturating_mul(*bytes_a_key);
                let denials = denials.iter().copied();
                report.denials_answered_by = rules.iter().cloned().zip(denials).collect();
                vec![report]
            }
            Limits::Policies(policies) => {
                let PolicyTrial { policies, states, tally, .. } = &**policies;
                let algorithms = policies.iter().map(|policy| policy.rule().algorithm());
                let longest = algorithms.filter_map(len_max).max().unwrap_or(0);
                let value_len = states.longest_log_len().unwrap_or(0).max(longest) as u64;
                vec![limit("all policies".to_owned(), tally, value_len, keys)]
            }
        }
    }

    /// Returns the reports of the policies that were called, those with the most calls first.
    pub fn policies(&self) -> Vec<PolicyReport> {
        let Limits::Policies(trial) = &self.limits else { return Vec::new() };
        let called =
            trial.policies.iter().zip(&trial.counts).filter(|(_, counts)| counts.calls > 0);
        let mut reports: Vec<_> = called
            .map(|(policy, counts)| PolicyReport {
                name: policy.name.clone(),
                mode: policy.mode(),
                rule: policy.rule_text(),
                calls: counts.calls,
                denied: counts.denied,
                shadow_denied: counts.shadow_denied,
                keys_denied: counts.keys_denied,
            })
            .collect();
        reports.sort_by_key(|report| std::cmp::Reverse(report.calls));
        reports.truncate(POLICIES_REPORTED);
        reports
    }

    /// Returns the report of the suggestion.
    pub fn suggestion(&self, arguments: &ReplayArguments, keys: &Keys) -> Option<SuggestionReport> {
        let suggest = self.suggest.as_ref()?;
        let Suggestion { frontier, rule, excluded_keys, excluded_calls, excluded } =
            suggest.finish(number_of(keys))?;
        let all = keys.len() as u64;
        let suggested = rule.as_ref().map(|(_, at)| *at);
        let rung = |(at, covered): (usize, Covered)| RungReport {
            rung: covered.rung,
            units: COVERS
                .iter()
                .zip(covered.units)
                .map(|((percent, one_in), units)| RungUnits {
                    cover: cover_text(percent, *one_in, all),
                    units,
                })
                .collect(),
            suggested: suggested == Some(at),
        };
        let name =
            arguments.policy.as_deref().filter(|name| FullName::parse(name.as_bytes()).is_some());
        let name = name.unwrap_or("suggested");
        let rule = rule.map(|(rule, _)| rule);
        let (percent, one_in) = suggest.cover();
        let excluded = excluded.iter().map(|excluded| ExcludedReport {
            key: printable(keys.key(excluded.key), KEY_LEN),
            calls: excluded.calls.into(),
            needs: excluded.needs,
        });
        Some(SuggestionReport {
            cover: cover_text(percent, one_in, all),
            horizon: arguments.horizon.clone(),
            margin_percent: arguments.margin,
            frontier: frontier.into_iter().enumerate().map(rung).collect(),
            policy_line: rule.as_ref().map(|rule| format!("{name} SHADOW {rule}")),
            rule,
            excluded_keys,
            excluded_calls,
            excluded: excluded.collect(),
        })
    }
}

/// Returns the report of one limit, with its most denied keys.
fn limit(name: String, tally: &Tally, value_len: u64, keys: &Keys) -> LimitReport {
    let key_len = (keys.bytes_len() as u64).div_ceil((keys.len() as u64).max(1));
    let mut report = LimitReport::new(name, tally, value_len, key_len);
    let top = tally.most_denied(number_of(keys), KEYS_REPORTED);
    let key = |(key, of_key): &(u32, OfKey)| KeyReport {
        key: printable(keys.key(*key), KEY_LEN),
        calls: of_key.calls.into(),
        denied: of_key.denied.into(),
        peak: of_key.peak.into(),
        peak_window_ms: tally.window_us() / 1_000,
    };
    report.most_denied = top.iter().map(key).collect();
    report
}

/// Returns the number of keys. There are fewer than 2^32.
fn number_of(keys: &Keys) -> u32 {
    u32::try_from(keys.len()).unwrap_or(u32::MAX)
}

/// Returns the percentage of keys that a suggestion covers; `all` if it covers every key because
/// there are too few for the percentage.
fn cover_text(percent: &str, one_in: u64, keys: u64) -> String {
    if rank(keys, one_in) == keys { "all".to_owned() } else { format!("{percent} %") }
}

/// Returns the bytes of the values that a key has under these rules, at most.
fn value_len<'a>(
    algorithms: impl IntoIterator<Item = Algorithm>,
    states: impl IntoIterator<Item = &'a States>,
) -> u64 {
    let lens = algorithms.into_iter().zip(states).map(|(algorithm, states)| {
        len_max(algorithm).or_else(|| states.longest_log_len()).unwrap_or(0) as u64
    });
    lens.sum()
}
