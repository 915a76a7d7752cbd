//! Reads the replies of the server. It does no I/O.

use std::time::Duration;

use redis::Value;

use crate::rules::item::Keyed;
use crate::{Decision, Error, Kind, Rule, Source};

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
        banned: false,
    })
}

/// Marks a denial that is never lifted as a ban, unless the units that the call needs are above a
/// limit.
fn or_banned(call: &Keyed<'_>, decision: Decision) -> Decision {
    let cost = if call.partial { call.cost.min(1) } else { call.cost };
    let needed = cost.saturating_add(call.leave.map_or(0, |leave| leave.units(decision.limit)));
    let banned = decision.never() && (decision.limit == 0 || needed <= decision.limit);
    Decision { banned, ..decision }
}

/// Reads the decision on a call. An allowed call took its cost; a partial one, what it was granted.
pub(crate) fn decision(call: &Keyed<'_>, reply: &Value) -> Result<Decision, Error> {
    if call.partial {
        return granted(call.rule, reply, call.cost).map(|decision| or_banned(call, decision));
    }
    let decision = granted(call.rule, reply, 1)?;
    let granted = if decision.allowed { call.cost } else { 0 };
    Ok(or_banned(call, Decision { granted, ..decision }))
}

/// Reads the decision on a call that is granted up to `most` units. That of a policy has seven
/// integers, or five of its default from a server without the module.
fn granted(rule: &Rule, reply: &Value, most: u64) -> Result<Decision, Error> {
    let reply = array(reply)?;
    let is_of_default = rule.terms().default.is_some() && reply.len() == 5;
    let decision = if rule.kind() == Kind::Policy && !is_of_default {
        let [granted, limit, remaining, retry, reset, would, would_retry] = integers(reply)?;
        of_integers(rule, [granted, limit, remaining, retry, reset], (would, would_retry))?
    } else {
        let five: [i64; 5] = integers(reply)?;
        of_integers(rule, five, (five[0], five[3]))?
    };
    if decision.granted > most { Err(Error::not_a_decision()) } else { Ok(decision) }
}

/// Reads the decision on one call, or on several together.
pub(crate) fn of_calls(
    calls: &[Keyed<'_>],
    is_all: bool,
    reply: &Value,
) -> Result<Decision, Error> {
    if is_all { decision_all(calls, reply) } else { decision(&calls[0], reply) }
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
    decision.banned &= decision.never();
    Ok(decision)
}

/// Returns the denial of a call whose first reservation found too many on its key. `None` without a
/// reservation.
pub(crate) fn too_many(calls: &[Keyed<'_>]) -> Option<Decision> {
    let at = calls.iter().position(|call| call.ttl_us.is_some())?;
    let ttl = Duration::from_micros(calls[at].ttl_us?);
    let row = |(index, call): (usize, &Keyed<'_>)| {
        let wait = if index == at { ttl } else { Duration::ZERO };
        let row = call.rule.without_state(index != at, wait);
        Decision { source: Source::Server, degraded: false, ..row }
    };
    let rows = calls.iter().enumerate().map(row).collect();
    Some(Decision::of_rows(at, rows))
}

/// Reads the reply of a charge, a refund, a commit or a cancellation, which is five integers under
/// every rule.
pub(crate) fn settled(call: &Keyed<'_>, reply: &Value) -> Result<Decision, Error> {
    let five: [i64; 5] = integers(array(reply)?)?;
    Ok(or_banned(call, of_integers(call.rule, five, (five[0], five[3]))?))
}

/// Reads the reply of a renewal or a release: 1, or 0 if the lease has expired.
pub(crate) fn held(reply: &Value) -> Result<bool, Error> {
    match reply {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        _ => Err(Error::not_a_decision()),
    }
}
