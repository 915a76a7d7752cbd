//! The wire protocol: builds commands. It does no I/O.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::rules::durations::{self, Span, checked_us};
use crate::rules::item::Keyed;
use crate::wire::command::Command;
use crate::{Error, Kind, Rule};

const RULES_MAX: usize = 16;
/// The words of the options of a call: `COST`, `PARTIAL`, `LEAVE` and two numbers.
const TAKEN_WORDS_MAX: usize = 5;
const ID_BYTES_MAX: usize = 128;
/// The longest id of an admission, in bytes: that of a reservation.
const HELD_ID_BYTES_MAX: usize = 64;

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

/// Returns the id of an admission: its leases and reservations have the same one.
pub(crate) fn checked_held_id(id: Option<&str>) -> Result<&str, Error> {
    let fits = |id: &&str| {
        (1..=HELD_ID_BYTES_MAX).contains(&id.len()) && !id.contains(char::is_whitespace)
    };
    id.filter(fits).ok_or_else(|| Error::invalid("id", "expected 1 to 64 bytes without spaces"))
}

/// Refuses the items that are renewed and ended under an id.
fn nothing_held(call: &Keyed<'_>) -> Result<(), Error> {
    let expected = match (call.rule.kind(), call.ttl_us) {
        (Kind::Lease, _) => "expected no lease, use lease() for",
        (_, Some(_)) => "expected no reservation, use admit() for",
        _ => return Ok(()),
    };
    Err(Error::invalid("rule", format!("{expected} {}", call.rule.name())))
}

fn in_full(call: &Keyed<'_>) -> Result<(), Error> {
    if call.partial { Err(not_partial()) } else { Ok(()) }
}

pub(crate) fn not_partial() -> Error {
    Error::invalid("partial", "expected only in check()")
}

pub(crate) fn expected_lease(rule: &Rule) -> Error {
    Error::invalid("rule", format!("expected a lease, use check() for {}", rule.name()))
}

/// Returns the rule that decides a call without the module: the default of a policy. `None` if it
/// is the same rule.
fn without_module(rule: &Rule) -> Option<&Rule> {
    rule.terms().default.as_ref()
}

/// Builds a command for one key. `head` returns the words that come before those of the rule after
/// its algorithm.
fn of_rule<'a, const N: usize>(
    head: impl Fn(&'a Rule) -> [&'a str; N],
    call: &'a Keyed<'_>,
) -> Result<Command<'a>, Error> {
    let cost = call.cost_word();
    let taken = if cost.is_some() || call.leave.is_some() { TAKEN_WORDS_MAX } else { 0 };
    let written = |rule: &'a Rule| {
        let terms = rule.terms();
        let mut words = Vec::with_capacity(N + terms.words.len() + terms.options.len() + taken);
        words.extend(head(rule).map(Cow::from));
        write_rule(rule, call, cost, &mut words)?;
        Ok::<_, Error>(words)
    };
    let default = without_module(call.rule).map(written).transpose()?;
    Ok(Command::new(written(call.rule)?).or_without_module(default))
}

/// Appends the words of a rule that follow its algorithm.
fn write_rule<'a>(
    rule: &'a Rule,
    call: &'a Keyed<'_>,
    cost: Option<u64>,
    into: &mut Vec<Cow<'a, str>>,
) -> Result<(), Error> {
    let terms = rule.terms();
    let numbers = terms.words.iter().skip(1).map(|word| Cow::from(word.as_str()));
    let options = terms.options.iter().map(|word| Cow::from(word.as_str()));
    if terms.kind == Kind::Lease {
        into.push(checked_id(call.id)?.into());
    }
    into.extend(numbers);
    // The server reads the options of a quota before those of a call.
    if terms.kind == Kind::Quota {
        into.extend(options);
        write_taken(call, cost, into);
    } else {
        write_taken(call, cost, into);
        into.extend(options);
    }
    Ok(())
}

/// Appends the options of a call.
fn write_taken<'a>(call: &Keyed<'_>, cost: Option<u64>, into: &mut Vec<Cow<'a, str>>) {
    if let Some(cost) = cost {
        into.extend(["COST".into(), cost.to_string().into()]);
    }
    if call.partial {
        into.push("PARTIAL".into());
    }
    if let Some(leave) = call.leave {
        into.extend(["LEAVE".into(), leave.text().into()]);
    }
}

/// Builds the command that decides a call and takes its cost.
pub(crate) fn check<'a>(call: &'a Keyed<'_>) -> Result<Command<'a>, Error> {
    nothing_held(call)?;
    of_rule(|rule| [&*rule.terms().command, &*call.key], call)
}

pub(crate) fn named<'a>(verb: Verb, call: &'a Keyed<'_>) -> Result<Command<'a>, Error> {
    nothing_held(call)?;
    in_full(call)?;
    let name = match verb {
        Verb::Peek => "RL.PEEK",
        Verb::Refund => "RL.REFUND",
        Verb::Charge => "RL.CHARGE",
    };
    if call.leave.is_some() && !matches!(verb, Verb::Peek) {
        return Err(Error::invalid("leave", "expected only in calls that decide"));
    }
    of_rule(|rule| [name, &call.key, rule.algorithm()], call)
}

/// Builds a status command that gets a reply from every back end, whatever the key's value.
pub(crate) fn probe(key: &str) -> Command<'_> {
    Command::new(["RL.PEEK", key, "GCRA", "1", "1", "1", "COST", "0"].map(Cow::from))
}

/// Builds the command that deletes a subject's state.
pub(crate) fn forget(key: &str) -> Command<'_> {
    Command::new(["DEL", key].map(Cow::from))
}

/// Builds the command that denies a subject for a time.
pub(crate) fn block<'a>(key: &'a str, duration: &impl Span) -> Result<Command<'a>, Error> {
    let duration = durations::text(checked_us(duration, "duration")?);
    Ok(Command::new(["RL.BLOCK".into(), key.into(), duration.into()]))
}

/// Builds the command that takes a permit, or renews the permit that the same holder already has.
pub(crate) fn lease<'a>(call: &'a Keyed<'_>) -> Result<Command<'a>, Error> {
    if call.rule.kind() != Kind::Lease {
        return Err(expected_lease(call.rule));
    }
    of_rule(|rule| [&*rule.terms().command, &*call.key], call)
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

/// Appends the words of a reservation from its id on.
fn write_reservation<'a>(
    call: &'a Keyed<'_>,
    ttl_us: Option<u64>,
    cost: Option<u64>,
    into: &mut Vec<Cow<'a, str>>,
) -> Result<(), Error> {
    into.push(checked_held_id(call.id)?.into());
    into.extend(ttl_us.map(|ttl_us| Cow::from(durations::text(ttl_us))));
    into.push(call.rule.algorithm().into());
    write_rule(call.rule, call, cost, into)
}

/// Builds the command that makes a reservation, or renews that of the same id.
pub(crate) fn reserve<'a>(call: &'a Keyed<'_>) -> Result<Command<'a>, Error> {
    let mut words = vec!["RL.RESERVE".into(), Cow::from(&*call.key)];
    write_reservation(call, call.ttl_us, call.cost_word(), &mut words)?;
    Ok(Command::new(words))
}

/// Builds the command that ends a reservation and takes the units that its work took. The cost is
/// always sent: without it, the server takes the reserved units.
pub(crate) fn commit<'a>(call: &'a Keyed<'_>, units: u64) -> Result<Command<'a>, Error> {
    let mut words = vec!["RL.COMMIT".into(), Cow::from(&*call.key)];
    write_reservation(call, None, Some(units), &mut words)?;
    Ok(Command::new(words))
}

/// Builds the command that ends a reservation and takes nothing.
pub(crate) fn cancel<'a>(call: &'a Keyed<'_>) -> Result<Command<'a>, Error> {
    let mut words = vec!["RL.CANCEL".into(), Cow::from(&*call.key)];
    write_reservation(call, None, None, &mut words)?;
    Ok(Command::new(words))
}

/// Refuses the items that cannot be refunded.
pub(crate) fn refundable(call: &Keyed<'_>) -> Result<(), Error> {
    nothing_held(call)?;
    in_full(call)?;
    if call.rule.kind() == Kind::Backoff {
        let expected = format!("expected no backoff, use check() for {}", call.rule.name());
        return Err(Error::invalid("rule", expected));
    }
    Ok(())
}

/// Builds the command that decides several rules at once, each with its key and cost.
pub(crate) fn check_all<'a>(calls: &'a [Keyed<'_>], peek: bool) -> Result<Command<'a>, Error> {
    if !(1..=RULES_MAX).contains(&calls.len()) {
        return Err(Error::invalid("items", "expected 1 to 16 items"));
    }
    let keys: HashSet<_> = calls.iter().map(|call| &call.key).collect();
    if keys.len() != calls.len() {
        return Err(Error::invalid("items", "expected each key once"));
    }
    let has_default = calls.iter().any(|call| without_module(call.rule).is_some());
    let written = |by_default: bool| {
        let mut all = vec![Cow::from(if peek { "RL.PEEKALL" } else { "RL.ALL" })];
        for call in calls {
            all.push(call.key.as_str().into());
            all.push(packed(call, by_default)?.into());
        }
        Ok::<_, Error>(all)
    };
    let default = has_default.then(|| written(true)).transpose()?;
    Ok(Command::new(written(false)?).or_without_module(default))
}

/// Returns the words of one of several rules, joined by spaces. `by_default`: in the form for a
/// server without the module.
fn packed(call: &Keyed<'_>, by_default: bool) -> Result<String, Error> {
    in_full(call)?;
    let cost = call.cost_word();
    let mut words = Vec::new();
    if call.ttl_us.is_some() {
        words.push("RESERVE".into());
        write_reservation(call, call.ttl_us, cost, &mut words)?;
    } else {
        let default = without_module(call.rule).filter(|_| by_default);
        let rule = default.unwrap_or(call.rule);
        words.push(rule.algorithm().into());
        write_rule(rule, call, cost, &mut words)?;
    }
    if words.iter().any(|word| word.contains([' ', '\n'])) {
        return Err(Error::invalid("id", "expected no spaces in a call of several rules"));
    }
    Ok(words.join(" "))
}

/// Splits a command of the module into its name without `RL.`, its keys, and the other words.
/// `None` if it is not a command of the module.
fn apart<'a>(command: &'a Command<'_>) -> Option<(&'a str, Vec<&'a str>, Vec<&'a str>)> {
    let mut words = command.words_without_module().iter().map(|word| &**word);
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
