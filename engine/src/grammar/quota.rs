//! The arguments of `QUOTA`: a limit, a calendar unit, and the start and time zone of its periods.

use crate::algorithms::Rule;
use crate::algorithms::quota::CalendarQuota;
use crate::calendar::zone::Zone;
use crate::calendar::{Calendar, Unit};
use crate::call::CallOptions;
use crate::grammar::error::GrammarError;
use crate::grammar::number;
use crate::grammar::options::GivenOptions;
use crate::grammar::request::Request;

/// The days of a week, beginning with the default start.
pub(super) const WEEKDAYS: [&[u8]; 7] = [b"mon", b"tue", b"wed", b"thu", b"fri", b"sat", b"sun"];

/// Parses all arguments of `QUOTA`.
#[inline]
pub fn request(args: &[&[u8]]) -> Result<Request, GrammarError> {
    let [limit, unit, rest @ ..] = args else {
        return Err(GrammarError::Arity);
    };
    let limit = number::limit(limit).ok_or(GrammarError::Limit)?;
    let unit = unit_named(unit).ok_or(GrammarError::Unit)?;
    let Options { zone, start, call } = if rest.is_empty() {
        Options { zone: Zone::UTC, start: 1, call: CallOptions::NONE }
    } else {
        options(rest, unit)?
    };
    let calendar = Calendar::new(unit, start, zone).ok_or_else(|| start_error(unit))?;
    Ok(Request { rule: Rule::CalendarQuota(CalendarQuota { limit, calendar }), options: call })
}

struct Options {
    zone: Zone,
    start: u8,
    call: CallOptions,
}

#[inline(always)]
fn options(mut args: &[&[u8]], unit: Unit) -> Result<Options, GrammarError> {
    let (mut zone, mut start, mut given) = (None, None, GivenOptions::default());
    while let [name, rest @ ..] = args {
        args = rest;
        if name.eq_ignore_ascii_case(b"ZONE") {
            if zone.is_some() {
                return Err(GrammarError::RepeatedZone);
            }
            let [name, rest @ ..] = args else {
                return Err(GrammarError::MissingZone);
            };
            zone = Some(Zone::named(name).ok_or(GrammarError::Zone)?);
            args = rest;
        } else if name.eq_ignore_ascii_case(b"START") {
            if start.is_some() {
                return Err(GrammarError::RepeatedStart);
            }
            let [value, rest @ ..] = args else {
                return Err(GrammarError::MissingStart);
            };
            start = Some(start_of(unit, value).ok_or_else(|| start_error(unit))?);
            args = rest;
        } else if !given.read(name, &mut args)? {
            return Err(GrammarError::OptionOfQuota);
        }
    }
    let call = given.check()?;
    Ok(Options { zone: zone.unwrap_or(Zone::UTC), start: start.unwrap_or(1), call })
}

#[inline(always)]
fn unit_named(name: &[u8]) -> Option<Unit> {
    Unit::ALL.into_iter().find(|unit| name.eq_ignore_ascii_case(unit.name().as_bytes()))
}

/// Returns the start of a period; `None` if a period of this unit cannot start there.
fn start_of(unit: Unit, value: &[u8]) -> Option<u8> {
    match unit {
        Unit::Day | Unit::Quarter => None,
        Unit::Week => {
            let named = |weekday: &(u8, &[u8])| value.eq_ignore_ascii_case(weekday.1);
            (1..).zip(WEEKDAYS).find(named).map(|(number, _)| number)
        }
        Unit::Month | Unit::Year => {
            let number = u8::try_from(number::integer(value)?).ok()?;
            unit.starts().contains(&number).then_some(number)
        }
    }
}

const fn start_error(unit: Unit) -> GrammarError {
    match unit {
        Unit::Day | Unit::Quarter => GrammarError::StartNotHere,
        Unit::Week => GrammarError::StartOfWeek,
        Unit::Month => GrammarError::StartOfMonth,
        Unit::Year => GrammarError::StartOfYear,
    }
}
