//! The wire protocol: builds commands and reads replies. It does no I/O.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use redis::Value;

use crate::call::Keyed;
use crate::connection::Command;
use crate::rule::COST_MAX;
use crate::{Decision, Error, Kind, Rule, Source};

const RULES_MAX: usize = 16;
/// The maximum number of words for a cost: `COST`, the number and `PARTIAL`.
const TAKEN_WORDS_MAX: usize = 3;
const ID_BYTES_MAX: usize = 128;

/// The commands on a rule's state, apart from a check.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verb {
    Peek,
    Refund,
    Charge,
}

fn checked_id(id: Option<&str>) -> Result<&str, Error> {
    let fits = |id: &&str| (1..=ID_BYTES_MAX).contains(&id.len());
    id.filter(fits).ok_or_else(|| Error::invalid("id", "expected 1 to 128 bytes"))
}

fn no_lease(rule: &Rule) -> Result<(), Error> {
    if rule.kind() == Kind::Lease {
        let expected = format!("expected no lease, use lease() for {}", rule.name());
        return Err(Error::invalid("rule", expected));
    }
    Ok(())
}

pub(crate) fn expected_lease(rule: &Rule) -> Error {
    Error::invalid("rule", format!("expected a lease, use check() for {}", rule.name()))
}

/// Builds a command for one key: the words of `head`, then the words of the rule after its
/// algorithm.
fn of_rule<'a>(head: &[&'a str], call: &'a Keyed<'_>, partial: bool) -> Result<Command<'a>, Error> {
    let terms = call.rule.terms();
    let more = if partial || call.cost != 1 { TAKEN_WORDS_MAX } else { 0 };
    let mut words = Vec::with_capacity(head.len() + terms.words.len() + terms.options.len() + more);
    words.extend(head.iter().map(|word| Cow::from(*word)));
    write_rule(call, partial, &mut words)?;
    Ok(Command::new(words))
}

/// Appends the words of a rule that follow its algorithm.
fn write_rule<'a>(
    call: &'a Keyed<'_>,
    partial: bool,
    into: &mut Vec<Cow<'a, str>>,
) -> Result<(), Error> {
    let terms = call.rule.terms();
    let numbers = terms.words.iter().skip(1).map(|word| Cow::from(word.as_str()));
    let options = terms.options.iter().map(|word| Cow::from(word.as_str()));
    if terms.kind == Kind::Lease {
        if call.cost != 1 {
            return Err(Error::invalid("cost", "expected 1: a holder has one permit"));
        }
        into.push(checked_id(call.id)?.into());
        into.extend(numbers);
        return Ok(());
    }
    if call.cost > COST_MAX {
        return Err(Error::invalid("cost", "expected an integer from 0 to 10^12"));
    }
    into.extend(numbers);
    if call.cost == 1 && !partial {
        into.extend(options);
        return Ok(());
    }
    if !call.rule.takes_cost() {
        let expected = format!("expected 1: rule {} counts one at a time", terms.name);
        return Err(Error::invalid("cost", expected));
    }
    let cost = [Cow::from("COST"), call.cost.to_string().into()];
    let taken = cost.into_iter().chain(partial.then(|| "PARTIAL".into()));
    // The server reads the options of a quota first.
    if terms.kind == Kind::Quota {
        into.extend(options.chain(taken));
    } else {
        into.extend(taken.chain(options));
    }
    Ok(())
}

/// Builds the command that decides a call and takes its cost. With `partial`, the command takes as
/// many units of the cost as are left.
pub(crate) fn check<'a>(call: &'a Keyed<'_>, partial: bool) -> Result<Command<'a>, Error> {
    no_lease(call.rule)?;
    deciding(call, partial)
}

/// Builds the rule's own command, such as `RL.GCRA`.
fn deciding<'a>(call: &'a Keyed<'_>, partial: bool) -> Result<Command<'a>, Error> {
    of_rule(&[&call.rule.terms().command, &call.key], call, partial)
}

pub(crate) fn named<'a>(verb: Verb, call: &'a Keyed<'_>) -> Result<Command<'a>, Error> {
    no_lease(call.rule)?;
    let name = match verb {
        Verb::Peek => "RL.PEEK",
        Verb::Refund => "RL.REFUND",
        Verb::Charge => "RL.CHARGE",
    };
    of_rule(&[name, &call.key, call.rule.algorithm()], call, false)
}

/// Builds a status command that every back end answers regardless of the key's value.
pub(crate) fn probe(key: &str) -> Command<'_> {
    Command::new(["RL.PEEK", key, "GCRA", "1", "1", "1", "COST", "0"].map(Cow::from))
}

/// Builds the command that deletes a subject's state.
pub(crate) fn forget(key: &str) -> Command<'_> {
    Command::new(["DEL", key].map(Cow::from))
}

/// Builds the command that takes a permit, or renews the permit that the same holder already has.
pub(crate) fn lease<'a>(call: &'a Keyed<'_>) -> Result<Command<'a>, Error> {
    if call.rule.kind() != Kind::Lease {
        return Err(expected_lease(call.rule));
    }
    deciding(call, false)
}

/// Builds the command that renews a permit for one ttl from now.
pub(crate) fn renew<'a>(rule: &'a Rule, key: &'a str, id: &'a str) -> Result<Command<'a>, Error> {
    let ttl = rule.terms().words.last().map_or("", String::as_str);
    let words = ["RL.RENEW", key, checked_id(Some(id))?, ttl];
    Ok(Command::new(words.map(Cow::from)))
}

/// Builds the command that releases a permit.
pub(crate) fn release<'a>(key: &'a str, id: &'a str) -> Result<Command<'a>, Error> {
    Ok(Command::new(["RL.RELEASE", key, checked_id(Some(id))?].map(Cow::from)))
}

/// Refuses the rules whose calls cannot be refunded.
pub(crate) fn refundable(rule: &Rule) -> Result<(), Error> {
    no_lease(rule)?;
    if rule.kind() == Kind::Backoff {
        let expected = format!("expected no backoff, use check() for {}", rule.name());
        return Err(Error::invalid("rule", expected));
    }
    Ok(())
}

/// Builds the command that decides several rules at once, each with its key and cost.
pub(crate) fn check_all<'a>(calls: &'a [Keyed<'_>], peek: bool) -> Result<Command<'a>, Error> {
    if !(1..=RULES_MAX).contains(&calls.len()) {
        return Err(Error::invalid("calls", "expected 1 to 16 calls"));
    }
    let keys: HashSet<_> = calls.iter().map(|call| &call.key).collect();
    if keys.len() != calls.len() {
        return Err(Error::invalid("calls", "expected each key once"));
    }
    let mut all = vec![Cow::from(if peek { "RL.PEEKALL" } else { "RL.ALL" })];
    for call in calls {
        let mut words = vec![Cow::from(call.rule.algorithm())];
        write_rule(call, false, &mut words)?;
        if words.iter().any(|word| word.contains([' ', '\n'])) {
            return Err(Error::invalid("id", "expected no spaces in a call of several rules"));
        }
        all.push(call.key.as_str().into());
        all.push(words.join(" ").into());
    }
    Ok(Command::new(all))
}

/// Splits a command of the module into its name without `RL.`, its keys, and the other words.
/// `None` if it is not a command of the module.
fn apart<'a>(command: &'a Command<'_>) -> Option<(&'a str, Vec<&'a str>, Vec<&'a str>)> {
    let mut words = command.words().iter().map(|word| &**word);
    let name = words.next()?.strip_prefix("RL.")?;
    if !matches!(name, "ALL" | "PEEKALL") {
        return Some((name, vec![words.next()?], words.collect()));
    }
    let rules = words.clone().skip(1).step_by(2).collect();
    Some((name, words.step_by(2).collect(), rules))
}

/// Returns the keys of a command of the module.
pub(crate) fn keys<'a>(command: &'a Command<'_>) -> impl Iterator<Item = &'a str> {
    let words = command.words();
    let several = matches!(words.first().map(|name| &**name), Some("RL.ALL" | "RL.PEEKALL"));
    let of_one = if several { words.len() } else { 2 };
    words.iter().take(of_one).skip(1).step_by(2).map(|key| &**key)
}

/// Converts a command to a call of the function library. `None` if the module has no such command.
pub(crate) fn as_function<'a>(command: &'a Command<'_>) -> Option<Command<'a>> {
    let (name, keys, rest) = apart(command)?;
    let call = if matches!(name, "PEEK" | "PEEKALL") { "FCALL_RO" } else { "FCALL" };
    let function = format!("rl_{}", name.to_ascii_lowercase());
    let head = [call.into(), function.into(), keys.len().to_string().into()];
    let tail = keys.into_iter().chain(rest).map(Cow::from);
    Some(Command::at(command.key(), head.into_iter().chain(tail)))
}

/// Converts a command to a call of the script. `None` if the module has no such command.
pub(crate) fn as_script<'a>(command: &'a Command<'_>, sha: &'a str) -> Option<Command<'a>> {
    let (name, keys, rest) = apart(command)?;
    let head = ["EVALSHA".into(), sha.into(), keys.len().to_string().into()];
    let tail = keys.into_iter().chain([name]).chain(rest).map(Cow::from);
    Some(Command::at(command.key(), head.into_iter().chain(tail)))
}

fn integers<const N: usize>(reply: &[Value]) -> Result<[i64; N], Error> {
    let integer = |value: &Value| if let Value::Int(number) = value { Some(*number) } else { None };
    let found: Option<Vec<i64>> = reply.iter().map(integer).collect();
    found.and_then(|found| found.try_into().ok()).ok_or_else(Error::not_a_decision)
}

fn array(reply: &Value) -> Result<&[Value], Error> {
    if let Value::Array(values) = reply { Ok(values) } else { Err(Error::not_a_decision()) }
}

fn natural(number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|_| Error::not_a_decision())
}

/// Converts a retry time. The server's -1, which is never, becomes the largest duration.
fn wait(ms: i64) -> Result<Duration, Error> {
    if ms == -1 { Ok(Duration::MAX) } else { natural(ms).map(Duration::from_millis) }
}

fn of_integers(rule: &Rule, five: [i64; 5], would: (i64, i64)) -> Result<Decision, Error> {
    let [granted, limit, remaining, retry, reset] = five;
    Ok(Decision {
        allowed: granted > 0,
        limit: natural(limit)?,
        remaining: natural(remaining)?,
        retry_after: wait(retry)?,
        reset_after: Duration::from_millis(natural(reset)?),
        rule: rule.terms().name.clone(),
        source: Source::Server,
        degraded: false,
        reason: None,
        would_allow: would.0 > 0,
        would_retry_after: wait(would.1)?,
        granted: natural(granted)?,
        window: rule.terms().window,
        rows: Vec::new(),
        deciding: 0,
    })
}

/// Reads the decision on a call that is not partial. An allowed call took its cost.
pub(crate) fn decision(call: &Keyed<'_>, reply: &Value) -> Result<Decision, Error> {
    let decision = granted(call.rule, reply, 1)?;
    let granted = if decision.allowed { call.cost } else { 0 };
    Ok(Decision { granted, ..decision })
}

/// Reads the decision on a partial call, which is granted up to `most` units.
pub(crate) fn granted(rule: &Rule, reply: &Value, most: u64) -> Result<Decision, Error> {
    let reply = array(reply)?;
    let decision = if rule.kind() == Kind::Policy {
        let [granted, limit, remaining, retry, reset, would, would_retry] = integers(reply)?;
        of_integers(rule, [granted, limit, remaining, retry, reset], (would, would_retry))?
    } else {
        let five: [i64; 5] = integers(reply)?;
        of_integers(rule, five, (five[0], five[3]))?
    };
    if decision.granted > most { Err(Error::not_a_decision()) } else { Ok(decision) }
}

/// Reads the decision on several rules, with a row for each.
pub(crate) fn decision_all(calls: &[Keyed<'_>], reply: &Value) -> Result<Decision, Error> {
    let reply = array(reply)?;
    if reply.len() != 6 + calls.len() {
        return Err(Error::not_a_decision());
    }
    let [granted, _, _, retry, _, at] = integers(&reply[..6])?;
    let read = |(call, row): (&Keyed<'_>, &Value)| decision(call, row);
    let rows: Vec<_> = calls.iter().zip(&reply[6..]).map(read).collect::<Result<_, _>>()?;
    let at = usize::try_from(at).ok().filter(|at| (1..=rows.len()).contains(at));
    let (Some(at), 0..=1) = (at, granted) else { return Err(Error::not_a_decision()) };
    let would_allow = rows.iter().all(|row| row.would_allow);
    let mut decision = Decision::of_rows(at - 1, rows);
    decision.allowed = granted == 1;
    decision.granted = if decision.allowed { decision.granted } else { 0 };
    decision.retry_after = wait(retry)?;
    decision.would_allow = would_allow;
    if granted == 0 {
        decision.would_retry_after = decision.retry_after;
    }
    Ok(decision)
}

/// Reads the reply of a charge or a refund, which is five integers under every rule.
pub(crate) fn settled(rule: &Rule, reply: &Value) -> Result<Decision, Error> {
    let five: [i64; 5] = integers(array(reply)?)?;
    of_integers(rule, five, (five[0], five[3]))
}

/// Reads the reply of a renewal or a release: 1, or 0 if the lease has expired.
pub(crate) fn held(reply: &Value) -> Result<bool, Error> {
    match reply {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(Error::not_a_decision()),
    }
}
