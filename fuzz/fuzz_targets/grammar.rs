//! Feeds any bytes to the grammar, as arguments separated by spaces and as a rule in one argument.
//! The grammar must not panic. It must accept the same arguments as a naive implementation of the
//! design, with the same meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redis_throttle_engine::algorithms::backoff::Backoff;
use redis_throttle_engine::algorithms::quota::CalendarQuota;
use redis_throttle_engine::algorithms::{Algorithm, Rule};
use redis_throttle_engine::bounds::{Cost, Leave, Limit, Period, Slots};
use redis_throttle_engine::calendar::zone::Zone;
use redis_throttle_engine::calendar::{Calendar, Unit};
use redis_throttle_engine::call::CallOptions;
use redis_throttle_engine::grammar::clock::ClockAction;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::lease::{LeaseRequest, lease, release, renew};
use redis_throttle_engine::grammar::packed::packed_rule;
use redis_throttle_engine::grammar::redis_cell::{ThrottleRequest, throttle};
use redis_throttle_engine::grammar::redis_gcra::{GcraError, gcra};
use redis_throttle_engine::grammar::request::{AnyRequest, Request};
use redis_throttle_engine::grammar::reservation::{
    HoldRequest, ReservationVerb, RuleSource, hold, packed_hold, reservation,
};
use redis_throttle_engine::grammar::rule::{request, rule as any_rule, rule_with_cost};
use redis_throttle_engine::grammar::top::{TopRequest, top};
use redis_throttle_engine::grammar::usage::usage;
use redis_throttle_engine::leases::Lease;
use redis_throttle_engine::oracle::{AnySubject, CellLimits, DAY_US, Limits, Source, UNITS_MAX};
use redis_throttle_engine::reservations::window::Hold;
use redis_throttle_engine::time::{Instant, Span};
use std::slice;

fuzz_target!(|bytes: &[u8]| {
    let mut source = bytes;
    let algorithm = Algorithm::ALL[source.below(Algorithm::ALL.len() as u64) as usize];
    let args: Vec<&[u8]> = source.split(|byte| *byte == b' ').collect();
    let slots = Slots::DEFAULT;

    let read = request(algorithm, &args, slots);
    assert_eq!(read.ok(), expected(algorithm, &args), "{algorithm:?} {args:?}: {read:?}");
    let named = [&[algorithm.name().as_bytes()], args.as_slice()].concat();
    assert_eq!(rule_with_cost(&named, slots), read, "a rule that is named reads the same");
    let _ = rule_with_cost(&args, slots);
    reads_packed_what_it_reads_in_words(source, &args, algorithm);

    let read = lease(&args);
    assert_eq!(read.ok(), expected_lease(&args), "LEASE {args:?}: {read:?}");
    let named = [&[b"LEASE".as_slice()], args.as_slice()].concat();
    assert_eq!(
        any_rule(&named, slots),
        read.map(AnyRequest::Lease),
        "a rule that is named reads the same"
    );
    if args.iter().all(|arg| !arg.is_empty()) {
        let packed = [b"LEASE ", source].concat();
        let packed = packed_rule(&packed, slots).ok();
        assert_eq!(packed, read.ok().map(AnyRequest::Lease), "so does one argument");
    }
    let _ = (renew(&args), release(&args));

    let read = hold(&args, slots);
    assert_eq!(read.ok(), expected_hold(&args), "RESERVE {args:?}: {read:?}");
    if args.iter().all(|arg| !arg.is_empty()) {
        let packed = [b"RESERVE ", source].concat();
        let packed = packed_hold(&packed, slots).ok();
        assert_eq!(packed, read.ok(), "so does a reservation in one argument");
    }
    for verb in [ReservationVerb::Commit, ReservationVerb::Cancel] {
        let _ = reservation(verb, &args, slots);
    }

    let read = throttle(&args);
    assert_eq!(read.ok(), expected_throttle(&args), "CL.THROTTLE {args:?}: {read:?}");

    let read = gcra(&args).and_then(|request| request.counted());
    assert_eq!(read, expected_gcra(&args), "GCRA {args:?}");
    let read = top(if source.is_empty() { &[] } else { &args });
    assert_eq!(read.ok(), expected_top(source), "RL.TOP {args:?}: {read:?}");

    if let Ok(ClockAction::Freeze(Some(instant))) = ClockAction::parse(&args) {
        assert!(instant <= Instant::CLOCK_MAX);
    }
});

/// Checks that a rule in one argument, as in `RL.ALL`, means the same as its words do as separate
/// arguments. In the one argument, any number of spaces may separate the words.
fn reads_packed_what_it_reads_in_words(rule: &[u8], args: &[&[u8]], algorithm: Algorithm) {
    let slots = Slots::DEFAULT;
    let words: Vec<&[u8]> = args.iter().copied().filter(|word| !word.is_empty()).collect();
    let named = [algorithm.name().as_bytes(), b" ", rule].concat();
    let read = packed_rule(&named, slots);
    let meant = expected(algorithm, &words).map(AnyRequest::Units);
    assert_eq!(read.ok(), meant, "{algorithm:?} {words:?}: {read:?}");
    let in_words = request(algorithm, &words, slots).map_err(|error| match error {
        GrammarError::Arity => GrammarError::RuleArity(algorithm),
        error => error,
    });
    assert_eq!(read, in_words.map(AnyRequest::Units), "the same meaning, or the same error");
    // The rule is also read without the algorithm's name, so that any bytes stand in its place.
    let read = packed_rule(rule, slots);
    match words.is_empty() {
        true => assert_eq!(read, Err(GrammarError::Algorithm)),
        false => assert_eq!(read.ok(), any_rule(&words, slots).ok(), "{words:?}: {read:?}"),
    }
}

/// Returns the expected meaning of the arguments; `None` if the grammar must reject them.
fn expected(algorithm: Algorithm, args: &[&[u8]]) -> Option<Request> {
    use Algorithm::*;
    if algorithm == Backoff {
        return backoff(args);
    }
    if algorithm == CalendarQuota {
        return quota(args);
    }
    let has_rate = algorithm.arguments().len() == 3;
    let (positional, options) = args.split_at_checked(if has_rate { 3 } else { 2 })?;
    let capacity = integer(positional[0], 1)?;
    let rate = if has_rate { integer(positional[1], 1)? } else { 1 };
    let period_us = duration_us(positional.last()?)?;
    let too_fast = rate > 1_000 * period_us;
    let too_long = capacity * period_us > 36_525 * DAY_US * rate;
    if has_rate && (too_fast || too_long) {
        return None;
    }
    let (mut given, mut aligned, mut slots) = (Given::default(), false, 1_024);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"ALIGNED" if algorithm == FixedWindow && !aligned => aligned = true,
            b"SLOTS" if algorithm == SlidingLog && !aligned => {
                // `Limits` uses the same field for both options.
                aligned = true;
                slots = integer(options.next()?, 16).filter(|slots| *slots <= 65_536)?;
            }
            name => given.read(name, &mut options)?,
        }
    }
    let limits = Limits { capacity, rate, period_us, aligned, slots };
    let options = given.check()?;
    Some(Request { rule: (AnySubject::of(algorithm).rule)(&limits), options })
}

/// The options that all calls that count units accept.
#[derive(Default)]
struct Given {
    cost: Option<i128>,
    partial: bool,
    leave: Option<Leave>,
}

impl Given {
    /// Reads the option `name`, which is in capital letters, and its value from `rest`. Returns
    /// `None` if the grammar must reject the call.
    fn read(&mut self, name: &[u8], rest: &mut slice::Iter<'_, &[u8]>) -> Option<()> {
        match name {
            b"COST" if self.cost.is_none() => self.cost = Some(integer(rest.next()?, 0)?),
            b"PARTIAL" if !self.partial => self.partial = true,
            b"LEAVE" if self.leave.is_none() => self.leave = Some(leave(rest.next()?)?),
            _ => return None,
        }
        Some(())
    }

    fn check(self) -> Option<CallOptions> {
        let cost = Cost::new(self.cost.unwrap_or(1).try_into().expect("not negative"))?;
        let is_nothing = self.partial && cost.is_zero();
        (!is_nothing).then_some(CallOptions { cost, partial: self.partial, leave: self.leave })
    }
}

/// Reads the units to leave, or the percentage of the limit.
fn leave(value: &[u8]) -> Option<Leave> {
    let units = |digits| Cost::new(integer(digits, 0)?.try_into().ok()?);
    match value.split_last() {
        Some((b'%', digits)) => {
            Some(Leave::Percent(units(digits)?.units().try_into().ok().filter(|p| *p <= 100)?))
        }
        _ => units(value).map(Leave::Units),
    }
}

/// Returns the expected meaning of the arguments of `RL.TOP`, which spaces separate; `None` if the
/// grammar must reject them.
fn expected_top(line: &[u8]) -> Option<TopRequest> {
    let line = line.to_ascii_uppercase();
    let (count, calls) = match line.strip_suffix(b"CALLS") {
        Some([]) => return Some(TopRequest::Called { count: 10 }),
        Some([count @ .., b' ']) => (count, true),
        _ => (&line[..], false),
    };
    match count {
        b"" if !calls => return Some(TopRequest::Denied { count: 10 }),
        b"RESET" if !calls => return Some(TopRequest::Reset),
        _ => {}
    }
    let count = integer(count, 1).filter(|count| *count <= 128)?.try_into().expect("small");
    Some(if calls { TopRequest::Called { count } } else { TopRequest::Denied { count } })
}

/// Returns the expected meaning of a holder's id, a limit of holders and a ttl; `None` if the
/// grammar must reject them.
fn expected_lease<'a>(args: &[&'a [u8]]) -> Option<LeaseRequest<'a>> {
    let (id, limit, ttl, leaves) = match args {
        [id, limit, ttl] => (id, limit, ttl, None),
        [id, limit, ttl, name, value] if name.eq_ignore_ascii_case(b"LEAVE") => {
            (id, limit, ttl, Some(leave(value)?))
        }
        _ => return None,
    };
    let limit = integer(limit, 1).filter(|limit| *limit <= 1_000_000)?;
    let ttl = Span::from_us(duration_us(ttl)?.try_into().expect("short"));
    let limit = Limit::new(limit.try_into().expect("not negative"))?;
    let rule = Lease { limit, ttl: Period::new(ttl)? };
    (1..=128).contains(&id.len()).then_some(LeaseRequest { id, rule, leave: leaves })
}

/// Returns the expected meaning of a reservation: an id, a ttl, and a rule of `FIXED` or `QUOTA` or
/// the use of a policy; `None` if the grammar must reject them. The use is read by the grammar.
fn expected_hold<'a>(args: &[&'a [u8]]) -> Option<HoldRequest<'a>> {
    let [id, ttl, name, rest @ ..] = args else { return None };
    let ttl = Span::from_us(duration_us(ttl)?.try_into().expect("short"));
    let (source, options) = match name.to_ascii_uppercase().as_slice() {
        b"FIXED" => {
            let Request { rule, options } = expected(Algorithm::FixedWindow, rest)?;
            (RuleSource::Call(rule), options)
        }
        b"QUOTA" => {
            let Request { rule, options } = expected(Algorithm::CalendarQuota, rest)?;
            (RuleSource::Call(rule), options)
        }
        b"USE" => {
            let usage = usage(rest).ok()?;
            (RuleSource::Policy(usage), usage.given.or_default())
        }
        _ => return None,
    };
    let CallOptions { cost, partial, leave } = options;
    let hold = Hold { ttl: Period::new(ttl)?, cost, leave, is_shadow: false };
    let is_valid = (1..=64).contains(&id.len()) && !partial;
    is_valid.then_some(HoldRequest { id, source, hold })
}

/// Returns the expected meaning of the four numbers of `CL.THROTTLE`, of which the last is
/// optional; `None` if the grammar must reject them.
fn expected_throttle(args: &[&[u8]]) -> Option<ThrottleRequest> {
    let (positional, quantity) = args.split_at_checked(3)?;
    let quantity = match quantity {
        [] => 1,
        [quantity] => integer(quantity, 0)?,
        _ => return None,
    };
    let limit = digits_of(positional[0])? + 1;
    let (count, period_s) = (digits_of(positional[1])?, digits_of(positional[2])?);
    // A period above the largest valid number becomes that number. `rule` then checks the
    // combination.
    let period_us = period_s.min(UNITS_MAX) * 1_000_000;
    let rule = CellLimits { limit, count, period_us, of_gcra: false }.rule()?;
    let quantity = Cost::new(quantity.try_into().expect("not negative"))?;
    Some(ThrottleRequest { rule, quantity })
}

/// Reads three numbers, then TOKENS and a fourth, with the errors of Redis.
fn expected_gcra(args: &[&[u8]]) -> Result<ThrottleRequest, GcraError> {
    let (positional, option) = args.split_at_checked(3).ok_or(GcraError::Arity)?;
    if option.len() > 2 {
        return Err(GcraError::Arity);
    }
    let max_burst = redis_integer(positional[0]).filter(|number| *number >= 0);
    let limit = max_burst.ok_or(GcraError::MaxBurst)? + 1;
    let tokens = |digits: &[u8]| match redis_integer(digits) {
        None => Err(GcraError::NotAnInteger),
        Some(..1) => Err(GcraError::Tokens),
        Some(number) => Ok(number),
    };
    let count = tokens(positional[1])?;
    let period_us = gcra_period_us(positional[2])?;
    let quantity = match option {
        [] => 1,
        [name, value @ ..] if name.to_ascii_uppercase() == b"TOKENS" => {
            tokens(value.first().ok_or(GcraError::MissingTokens)?)?
        }
        _ => return Err(GcraError::Syntax),
    };
    let rule = CellLimits { limit, count, period_us, of_gcra: true }.rule();
    let quantity = u64::try_from(quantity).ok().and_then(Cost::new);
    let quantity = quantity.unwrap_or(Cost::ABOVE_EVERY_LIMIT);
    Ok(ThrottleRequest { rule: rule.ok_or(GcraError::Beyond)?, quantity })
}

/// Reads an integer of 64 bits that is written as Redis writes it.
fn redis_integer(digits: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(digits).ok()?;
    let number = text.parse::<i64>().ok()?;
    (number.to_string() == text).then_some(number.into())
}

/// Reads seconds as microseconds, rounded up.
fn gcra_period_us(seconds: &[u8]) -> Result<i128, GcraError> {
    let text = std::str::from_utf8(seconds).map_err(|_| GcraError::NotANumber)?;
    let number = text.strip_prefix('-').unwrap_or(text);
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_plain = |part: &str| !part.is_empty() && part.chars().all(|char| char.is_ascii_digit());
    if !is_plain(whole) || !is_plain(decimals) {
        return Err(GcraError::NotANumber);
    }
    let whole = digits_of(whole.as_bytes()).filter(|seconds| *seconds < 1_000_000_000_000);
    let is_zero = whole == Some(0) && decimals.trim_end_matches('0').is_empty();
    if text != number || is_zero {
        return Err(GcraError::Period);
    }
    let counted: i128 = format!("{decimals:0<6}")[..6].parse().expect("six digits");
    let rounded = i128::from(decimals.bytes().skip(6).any(|digit| digit != b'0'));
    Ok(whole.ok_or(GcraError::Period)? * 1_000_000 + counted + rounded)
}

/// Reads a number of attempts, then three durations in ascending order. Only the first two
/// durations may be equal.
fn backoff(args: &[&[u8]]) -> Option<Request> {
    let [attempts, base, max, forget] = args else { return None };
    let attempts = integer(attempts, 1).filter(|attempts| *attempts <= 1_000_000)?;
    let (base, max, forget) = (duration_us(base)?, duration_us(max)?, duration_us(forget)?);
    if base > max || max >= forget {
        return None;
    }
    let period = |us: i128| Period::new(Span::from_us(us.try_into().expect("short")));
    let attempts = Limit::new(attempts.try_into().expect("not negative"))?;
    let rule = Backoff::new(attempts, period(base)?, period(max)?, period(forget)?).ok()?;
    Some(Request { rule: Rule::Backoff(rule), options: CallOptions::NONE })
}

/// Reads a limit and a unit, then a zone, a start, and the options of a call, each at most once.
fn quota(args: &[&[u8]]) -> Option<Request> {
    const UNITS: [(&[u8], Unit, i128); 5] = [
        (b"DAY", Unit::Day, 0),
        (b"WEEK", Unit::Week, 7),
        (b"MONTH", Unit::Month, 31),
        (b"QUARTER", Unit::Quarter, 0),
        (b"YEAR", Unit::Year, 12),
    ];
    let (positional, options) = args.split_at_checked(2)?;
    let capacity = integer(positional[0], 1)?;
    let named = |(name, ..): &&(&[u8], Unit, i128)| *name == positional[1].to_ascii_uppercase();
    let (_, unit, starts) = *UNITS.iter().find(named)?;
    let (mut zone, mut start, mut given) = (None, None, Given::default());
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.to_ascii_uppercase().as_slice() {
            b"ZONE" if zone.is_none() => {
                let name = options.next()?;
                let is_it = |zone: &Zone| zone.name().as_bytes().eq_ignore_ascii_case(name);
                zone = Some(Zone::all().find(is_it)?);
            }
            b"START" if start.is_none() => {
                let value = options.next()?;
                let weekday = |value: &[u8]| match value.to_ascii_uppercase().as_slice() {
                    b"MON" => Some(1),
                    b"TUE" => Some(2),
                    b"WED" => Some(3),
                    b"THU" => Some(4),
                    b"FRI" => Some(5),
                    b"SAT" => Some(6),
                    b"SUN" => Some(7),
                    _ => None,
                };
                let number = if unit == Unit::Week { weekday(value) } else { integer(value, 1) };
                start = Some(number.filter(|number| *number <= starts)?);
            }
            name => given.read(name, &mut options)?,
        }
    }
    let start = u8::try_from(start.unwrap_or(1)).ok()?;
    let calendar = Calendar::new(unit, start, zone.unwrap_or(Zone::UTC))?;
    let limit = Limit::new(capacity.try_into().expect("not negative"))?;
    let rule = Rule::CalendarQuota(CalendarQuota { limit, calendar });
    Some(Request { rule, options: given.check()? })
}

/// Reads plain digits, with or without leading zeros; `None` if the number is out of bounds.
fn integer(digits: &[u8], min: i128) -> Option<i128> {
    let number = digits_of(digits)?;
    (min..=UNITS_MAX).contains(&number).then_some(number)
}

fn digits_of(digits: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(digits).ok()?;
    let plain = !text.is_empty() && text.chars().all(|char| char.is_ascii_digit());
    let significant = text.trim_start_matches('0');
    // Longer numbers are above every bound. One of twenty digits still fits into 128 bits.
    let short = plain && significant.len() <= 20;
    short.then(|| format!("0{significant}").parse().expect("digits"))
}

/// Reads digits, then optionally a point with up to six digits, then optionally a unit.
fn duration_us(duration: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(duration).ok()?;
    let units =
        [("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", DAY_US / 24), ("d", DAY_US)];
    let unit = units.iter().find(|(unit, _)| text.ends_with(unit));
    let (unit, unit_us) = *unit.unwrap_or(&("", 1_000_000));
    let number = text.strip_suffix(unit)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let (whole, fraction) = (digits_of(whole.as_bytes())?, digits_of(decimals.as_bytes())?);
    if decimals.len() > 6 {
        return None;
    }
    let scale = 10_i128.pow(decimals.len() as u32);
    let is_whole = fraction * unit_us % scale == 0;
    let us = whole * unit_us + fraction * unit_us / scale;
    (is_whole && (1_000..=366 * DAY_US).contains(&us)).then_some(us)
}
