//! The grammar in tables: valid arguments, invalid ones, and the texts of the errors.

use crate::algorithms::backoff::Backoff;
use crate::algorithms::fixed_window::FixedWindow;
use crate::algorithms::quota::CalendarQuota;
use crate::algorithms::{Algorithm, Rule};
use crate::bounds::{Cost, Limit, Period, Slots};
use crate::calendar::zone::Zone;
use crate::calendar::{Calendar, Unit};
use crate::call::CallOptions;
use crate::grammar::clock::ClockAction;
use crate::grammar::error::GrammarError;
use crate::grammar::lease::{LeaseRequest, release, renew};
use crate::grammar::packed::packed_rule;
use crate::grammar::request::{AnyRequest, Request};
use crate::grammar::reservation::hold;
use crate::grammar::rule::{request, rule, rule_with_cost};
use crate::grammar::*;
use crate::oracle::example;
use crate::time::{Instant, Span};
use proptest::prelude::*;

pub(super) fn words(text: &str) -> Vec<&[u8]> {
    text.split(' ').map(str::as_bytes).collect()
}

fn parse(algorithm: Algorithm, text: &str) -> Result<Request, GrammarError> {
    request(algorithm, &words(text), Slots::DEFAULT)
}

fn fixed(limit: u64, window_us: u64, aligned: bool, cost: u64) -> Request {
    let limit = Limit::new(limit).unwrap();
    let window = Period::new(Span::from_us(window_us)).unwrap();
    let rule = Rule::FixedWindow(FixedWindow { limit, window, aligned });
    let cost = Cost::new(cost).unwrap();
    Request { rule, options: CallOptions { cost, ..CallOptions::NONE } }
}

fn partial(request: Request) -> Request {
    let options = CallOptions { partial: true, ..request.options };
    Request { options, ..request }
}

#[test]
fn options_may_come_in_any_order_and_any_case() {
    let rows = [
        ("15 10", fixed(15, 10_000_000, false, 1)),
        ("15 10 COST 3", fixed(15, 10_000_000, false, 3)),
        ("15 10 ALIGNED", fixed(15, 10_000_000, true, 1)),
        ("15 10 cost 0 Aligned", fixed(15, 10_000_000, true, 0)),
        ("15 10 COST 20 PARTIAL", partial(fixed(15, 10_000_000, false, 20))),
        ("15 10 partial aligned cost 3", partial(fixed(15, 10_000_000, true, 3))),
        ("15 10 PARTIAL", partial(fixed(15, 10_000_000, false, 1))),
        ("15 10 aLiGnEd CoSt 1000000000000", fixed(15, 10_000_000, true, 1_000_000_000_000)),
    ];
    for (text, expected) in rows {
        assert_eq!(parse(Algorithm::FixedWindow, text), Ok(expected), "{text}");
    }
}

#[test]
fn duration_has_an_optional_unit_and_at_most_six_decimals() {
    let rows = [
        ("60", Some(60_000_000)),
        ("0.5", Some(500_000)),
        ("500ms", Some(500_000)),
        ("1.5ms", Some(1_500)),
        ("1s", Some(1_000_000)),
        ("2m", Some(120_000_000)),
        ("1h", Some(3_600_000_000)),
        ("366d", Some(31_622_400_000_000)),
        ("0.000001d", Some(86_400)),
        ("0000000000000000000000000060.500000", Some(60_500_000)),
        ("1ms", Some(1_000)),
        ("0.001", Some(1_000)),
        // Out of bounds.
        ("0", None),
        ("0.999ms", None),
        ("0.000999", None),
        ("366.000001d", None),
        ("31622401", None),
        ("99999999999999999999999999", None),
        ("18446744073709551615d", None),
        // Not a whole number of microseconds.
        ("1.0005ms", None),
        ("2.0001ms", None),
        ("1.0000005h", None),
        // No digit before or after the point, too many digits after it, or no single number.
        (".5", None),
        ("5.", None),
        (".", None),
        ("1.0000000", None),
        ("1.2.3", None),
        ("", None),
        // An invalid unit, or more than one.
        ("ms", None),
        ("1S", None),
        ("1MS", None),
        ("1w", None),
        ("1us", None),
        ("1 s", None),
        ("1s ", None),
        ("1sm", None),
        ("1h30m", None),
        // Not a plain number.
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1e3", None),
        ("0x10", None),
        ("1,5", None),
        ("inf", None),
        ("nan", None),
        ("1\0", None),
        ("١", None),
    ];
    for (text, expected) in rows {
        let period = number::period(text.as_bytes()).map(Period::as_us);
        assert_eq!(period, expected, "{text:?}");
    }
}

#[test]
fn integers_are_plain_digits_within_bounds() {
    let rows = [
        ("1", Some(1)),
        ("007", Some(7)),
        ("1000000000000", Some(1_000_000_000_000)),
        ("0", None),
        ("1000000000001", None),
        ("18446744073709551616", None),
        ("340282366920938463463374607431768211457", None),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1 ", None),
        ("1.0", None),
        ("1e3", None),
        ("0x1", None),
        ("1_000", None),
        ("1\0", None),
    ];
    for (text, expected) in rows {
        assert_eq!(number::limit(text.as_bytes()).map(Limit::units), expected, "{text:?}");
    }
    assert_eq!(number::cost(b"0"), Cost::new(0));
    assert_eq!(number::cost(b"1000000000001"), None);
}

#[test]
fn request_returns_the_first_error_from_the_left() {
    use Algorithm::{
        Backoff, CalendarQuota, FixedWindow, Gcra, LeakyBucket, SlidingLog, SlidingWindow,
        TokenBucket,
    };
    let rows = [
        (FixedWindow, "0 10", GrammarError::Limit),
        (FixedWindow, "x y", GrammarError::Limit),
        (FixedWindow, "1 y", GrammarError::Window),
        (FixedWindow, "1 10 x", GrammarError::OptionOrAligned),
        (FixedWindow, "1 10 COST", GrammarError::MissingCost),
        (FixedWindow, "1 10 COST x", GrammarError::Cost),
        (FixedWindow, "1 10 COST 1 cost 1", GrammarError::RepeatedCost),
        (FixedWindow, "1 10 ALIGNED COST 1 ALIGNED", GrammarError::RepeatedAligned),
        (FixedWindow, "1", GrammarError::Arity),
        (SlidingWindow, "1 10 ALIGNED", GrammarError::Option),
        (SlidingLog, "1 0", GrammarError::Window),
        (TokenBucket, "0 1 1", GrammarError::Capacity),
        (LeakyBucket, "1 0 1", GrammarError::Rate),
        (Gcra, "0 1 1", GrammarError::Burst),
        (Gcra, "1 1 0", GrammarError::Period),
        (Gcra, "1 1", GrammarError::Arity),
        (Gcra, "1 1000001 1ms", GrammarError::RateTooHigh),
        (Gcra, "36526 1 1d", GrammarError::BurstRefill),
        (TokenBucket, "36526 1 1d", GrammarError::CapacityRefill),
        (LeakyBucket, "36526 1 1d COST", GrammarError::CapacityRefill),
        (Gcra, "6 10 60 10", GrammarError::Option),
        (Gcra, "6 10 60 COST 0 PARTIAL", GrammarError::PartialOfNothing),
        (SlidingLog, "6 10 PARTIAL COST 0", GrammarError::PartialOfNothing),
        (SlidingWindow, "6 10 PARTIAL COST 2 partial", GrammarError::RepeatedPartial),
        (Backoff, "3 1s 8s", GrammarError::Arity),
        (Backoff, "0 1s 8s 1h", GrammarError::Attempts),
        (Backoff, "1000001 1s 8s 1h", GrammarError::Attempts),
        (Backoff, "3 0s 8s 1h", GrammarError::Base),
        (Backoff, "3 1s 367d 1h", GrammarError::Max),
        (Backoff, "3 1s 8s x", GrammarError::Forget),
        (Backoff, "3 8.001s 8s 1h", GrammarError::BaseAboveMax),
        (Backoff, "3 1s 1h 1h", GrammarError::MaxNotBelowForget),
        (Backoff, "3 8s 1s 1s", GrammarError::BaseAboveMax),
        (Backoff, "3 1s 8s 1h COST 1", GrammarError::NoOption),
        (Backoff, "3 1s 8s 1h PARTIAL", GrammarError::NoOption),
        (CalendarQuota, "3", GrammarError::Arity),
        (CalendarQuota, "0 x", GrammarError::Limit),
        (CalendarQuota, "3 days", GrammarError::Unit),
        (CalendarQuota, "3 60 ZONE x", GrammarError::Unit),
        (CalendarQuota, "3 day ZONE x START 1", GrammarError::Zone),
        (CalendarQuota, "3 day ZONE Factory", GrammarError::Zone),
        (CalendarQuota, "3 day ZONE etc/unknown", GrammarError::Zone),
        (CalendarQuota, "3 day COST 1 ZONE", GrammarError::MissingZone),
        (CalendarQuota, "3 day ZONE UTC zone UTC", GrammarError::RepeatedZone),
        (CalendarQuota, "3 day START 1", GrammarError::StartNotHere),
        (CalendarQuota, "3 quarter START 1", GrammarError::StartNotHere),
        (CalendarQuota, "3 week START 1", GrammarError::StartOfWeek),
        (CalendarQuota, "3 week START monday", GrammarError::StartOfWeek),
        (CalendarQuota, "3 month START 0", GrammarError::StartOfMonth),
        (CalendarQuota, "3 month START 32", GrammarError::StartOfMonth),
        (CalendarQuota, "3 month START 257", GrammarError::StartOfMonth),
        (CalendarQuota, "3 month START mon", GrammarError::StartOfMonth),
        (CalendarQuota, "3 year START 13", GrammarError::StartOfYear),
        (CalendarQuota, "3 year START +1", GrammarError::StartOfYear),
        (CalendarQuota, "3 year START", GrammarError::MissingStart),
        (CalendarQuota, "3 year START 1 START 1", GrammarError::RepeatedStart),
        (CalendarQuota, "3 year COST 1 START 1 COST 1", GrammarError::RepeatedCost),
        (CalendarQuota, "3 year COST x", GrammarError::Cost),
        (CalendarQuota, "3 year COST", GrammarError::MissingCost),
        (CalendarQuota, "3 year PARTIAL COST 1 PARTIAL", GrammarError::RepeatedPartial),
        (CalendarQuota, "3 year PARTIAL COST 0", GrammarError::PartialOfNothing),
        (CalendarQuota, "3 year ALIGNED", GrammarError::OptionOfQuota),
    ];
    for (algorithm, text, expected) in rows {
        assert_eq!(parse(algorithm, text), Err(expected), "{algorithm:?} {text}");
    }
}

#[test]
fn peek_takes_the_algorithm_before_its_arguments() {
    for algorithm in Algorithm::ALL {
        let name = algorithm.name().to_lowercase();
        let rule = example(algorithm);
        assert!(parse(algorithm, &rule).is_ok(), "{name} {rule}");
        // The result is also the same with a cost, which is an error for some algorithms.
        for args in [&rule, &format!("{rule} COST 2"), &format!("{rule} COST x")] {
            let text = format!("{name} {args}");
            assert_eq!(rule_with_cost(&words(&text), Slots::DEFAULT), parse(algorithm, args));
        }
    }
    let quota = "6 week COST 2 ZONE Europe/Berlin START sun";
    let text = format!("quota {quota}");
    let read = rule_with_cost(&words(&text), Slots::DEFAULT);
    assert_eq!(read, parse(Algorithm::CalendarQuota, quota));
    assert!(read.is_ok(), "{text}");
    assert_eq!(rule_with_cost(&words("gcr 1 1 1"), Slots::DEFAULT), Err(GrammarError::Algorithm));
    assert_eq!(rule_with_cost(&[], Slots::DEFAULT), Err(GrammarError::Arity));
}

#[test]
fn backoff_takes_its_attempts_and_delays_in_order_and_costs_one_unit() {
    let period = |ms| Period::new(Span::from_ms(ms)).unwrap();
    let rule = |attempts, base_ms, max_ms, forget_ms| {
        let attempts = Limit::new(attempts).unwrap();
        let (base, max, forget) = (period(base_ms), period(max_ms), period(forget_ms));
        let rule = Rule::Backoff(Backoff::new(attempts, base, max, forget).unwrap());
        Request { rule, options: CallOptions::NONE }
    };
    let rows = [
        ("3 1s 8s 1h", rule(3, 1_000, 8_000, 3_600_000)),
        ("1000000 1ms 1ms 2ms", rule(1_000_000, 1, 1, 2)),
        ("1 0.5 0.5 1", rule(1, 500, 500, 1_000)),
    ];
    for (text, expected) in rows {
        assert_eq!(parse(Algorithm::Backoff, text), Ok(expected), "{text}");
    }
}

#[test]
fn quota_takes_a_calendar_unit_and_optionally_a_zone_and_a_start() {
    let rule = |unit, start, zone: &str, cost, partial| {
        let zone = Zone::named(zone.as_bytes()).unwrap();
        let calendar = Calendar::new(unit, start, zone).unwrap();
        let limit = Limit::new(1_000).unwrap();
        let rule = Rule::CalendarQuota(CalendarQuota { limit, calendar });
        let cost = Cost::new(cost).unwrap();
        Request { rule, options: CallOptions { cost, partial, leave: None } }
    };
    let rows = [
        ("1000 day", rule(Unit::Day, 1, "UTC", 1, false)),
        ("1000 Quarter COST 0", rule(Unit::Quarter, 1, "UTC", 0, false)),
        ("1000 WEEK", rule(Unit::Week, 1, "UTC", 1, false)),
        ("1000 week start Sun", rule(Unit::Week, 7, "UTC", 1, false)),
        ("1000 week START thu ZONE utc", rule(Unit::Week, 4, "UTC", 1, false)),
        ("1000 month", rule(Unit::Month, 1, "UTC", 1, false)),
        (
            "1000 month COST 2 zone europe/BERLIN PARTIAL START 031",
            rule(Unit::Month, 31, "Europe/Berlin", 2, true),
        ),
        ("1000 year START 12 ZONE Zulu", rule(Unit::Year, 12, "Zulu", 1, false)),
    ];
    for (text, expected) in rows {
        assert_eq!(parse(Algorithm::CalendarQuota, text), Ok(expected), "{text}");
        let packed = text.replace(' ', "  ");
        let packed = format!("quota {packed}");
        let read = packed_rule(packed.as_bytes(), Slots::DEFAULT);
        assert_eq!(read, Ok(AnyRequest::Units(expected)));
    }
}

#[test]
fn in_full_refuses_a_partial_request() {
    let whole = fixed(15, 10_000_000, false, 3);
    assert_eq!(whole.in_full(), Ok(whole));
    assert_eq!(partial(whole).in_full(), Err(GrammarError::PartialNotHere));
}

#[test]
fn clock_action_parses_freeze_advance_and_resume() {
    let day = Span::from_days(1);
    let latest = Instant::CLOCK_MAX;
    let rows = [
        ("CLOCK FREEZE", Ok(ClockAction::Freeze(None))),
        ("clock freeze 0", Ok(ClockAction::Freeze(Some(Instant::from_us(0))))),
        ("clock freeze 7258118400000000", Ok(ClockAction::Freeze(Some(latest)))),
        ("clock freeze 7258118400000001", Err(GrammarError::UnixTime)),
        ("clock freeze -1", Err(GrammarError::UnixTime)),
        ("clock freeze 1 2", Err(GrammarError::Arity)),
        ("clock advance 1d", Ok(ClockAction::Forward(day))),
        ("clock advance -1d", Ok(ClockAction::Back(day))),
        ("clock advance --1d", Err(GrammarError::Duration)),
        ("clock advance", Err(GrammarError::Arity)),
        ("clock resume", Ok(ClockAction::Resume)),
        ("clock resume 1", Err(GrammarError::Arity)),
        ("clock stop", Err(GrammarError::ClockAction)),
        ("watch stop", Err(GrammarError::Subcommand)),
        ("clock", Err(GrammarError::Arity)),
    ];
    for (text, expected) in rows {
        assert_eq!(ClockAction::parse(&words(text)), expected, "{text}");
    }
}

#[test]
fn every_error_except_arity_has_an_ascii_text() {
    use GrammarError::*;
    let errors = [
        Limit,
        Burst,
        Capacity,
        Rate,
        Cost,
        Window,
        Period,
        RateTooHigh,
        BurstRefill,
        CapacityRefill,
        Attempts,
        Base,
        Max,
        Forget,
        BaseAboveMax,
        MaxNotBelowForget,
        Unit,
        Zone,
        StartOfWeek,
        StartOfMonth,
        StartOfYear,
        StartNotHere,
        Option,
        OptionOrAligned,
        OptionOfQuota,
        OptionOfLog,
        NoOption,
        RepeatedCost,
        RepeatedAligned,
        RepeatedPartial,
        RepeatedZone,
        RepeatedStart,
        RepeatedSlots,
        MissingSlots,
        Slots,
        MissingZone,
        MissingStart,
        MissingCost,
        PartialOfNothing,
        PartialNotHere,
        LeaseId,
        LeaseLimit,
        Ttl,
        LeaseOption,
        LeaseArity,
        LeaseNotHere,
        ReserveNotHere,
        ReserveArity,
        NotReservable,
        PolicyNotReservable,
        Algorithm,
        Subcommand,
        ClockAction,
        UnixTime,
        Duration,
    ];
    let texts: Vec<_> =
        errors.iter().map(|error| error.text().unwrap().to_str().unwrap()).collect();
    for text in &texts {
        assert!(text.starts_with("ERR ") && text.chars().all(|char| (' '..='~').contains(&char)));
        assert_eq!(texts.iter().filter(|other| other == &text).count(), 1, "{text}");
    }
    assert_eq!(
        Period.text().unwrap().to_str().unwrap(),
        "ERR invalid period: expected a duration from 1ms to 366d, such as 60, 0.5, 500ms or 1h"
    );
    assert_eq!(Arity.text(), None);
}

proptest! {
    #![proptest_config(crate::properties::config())]

    /// Checks that no bytes cause a panic, and that accepted arguments are within their bounds.
    #[test]
    fn arbitrary_arguments_parse_or_fail_without_a_panic(
        args in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..12),
            "[0-9]{1,25}(\\.[0-9]{0,8})?(ms|s|m|h|d)?".prop_map(String::into_bytes),
            prop::sample::select(vec![
                &b"COST"[..], b"ALIGNED", b"PARTIAL", b"gcra", b"FIXED", b"CLOCK", b"month",
                b"week", b"LEASE", b"ZONE", b"START", b"sun", b"Europe/Berlin", b"SLOTS", b"64",
                b"LEAVE", b"20%", b"RESERVE", b"USE",
            ])
                .prop_map(<[u8]>::to_vec),
        ], 0..9),
    ) {
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        for algorithm in Algorithm::ALL {
            if let Ok(Request { options, .. }) = request(algorithm, &args, Slots::DEFAULT) {
                let CallOptions { cost, partial, .. } = options;
                prop_assert!(cost.units() <= Cost::MAX && !(partial && cost.is_zero()));
            }
        }
        let _ = rule_with_cost(&args, Slots::DEFAULT);
        if let Ok(AnyRequest::Lease(LeaseRequest { id, rule, .. })) = rule(&args, Slots::DEFAULT) {
            prop_assert!((1..=128).contains(&id.len()) && rule.limit.units() <= 1_000_000);
        }
        let _ = (renew(&args), release(&args), hold(&args, Slots::DEFAULT));
        let _ = ClockAction::parse(&args);
    }

    /// Checks that a duration in whole microseconds parses to the same value in each of its forms.
    #[test]
    fn duration_parses_in_each_of_its_forms(us in 1_000_u64..=31_622_400_000_000) {
        let (seconds, rest) = (us / 1_000_000, us % 1_000_000);
        for text in [format!("{seconds}.{rest:06}"), format!("{seconds}.{rest:06}s")] {
            prop_assert_eq!(number::period(text.as_bytes()).map(Period::as_us), Some(us));
        }
        let (ms, rest) = (us / 1_000, us % 1_000);
        let text = format!("{ms}.{rest:03}ms");
        prop_assert_eq!(number::period(text.as_bytes()).map(Period::as_us), Some(us));
    }
}
