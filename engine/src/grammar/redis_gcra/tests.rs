//! The arguments of Redis' `GCRA`: tables of valid ones, and of errors with their texts.

use crate::grammar::redis_gcra::*;
use crate::grammar::tests::words;
use crate::redis_cell::Verdict;
use crate::time::Instant;

/// The rule of these numbers, with the period in microseconds.
fn rule(limit: u64, tokens: u64, period_us: u64) -> Option<RedisCell> {
    let tokens = NonZeroU64::new(tokens).expect("tokens");
    RedisCell::of_any_period(Limit::new(limit)?, tokens, Span::from_us(period_us))
}

#[test]
fn max_burst_is_the_limit_minus_one_and_tokens_are_optional() {
    let rows = [
        ("5 10 60", rule(6, 10, 60_000_000), 1),
        ("0 10 60", rule(1, 10, 60_000_000), 1),
        ("5 10 60 TOKENS 6", rule(6, 10, 60_000_000), 6),
        ("5 10 60 tOkEnS 7", rule(6, 10, 60_000_000), 7),
        ("5 10 60.000000000", rule(6, 10, 60_000_000), 1),
        ("5 10 0060", rule(6, 10, 60_000_000), 1),
        ("5 10 0.5", rule(6, 10, 500_000), 1),
        ("5 10 1.25", rule(6, 10, 1_250_000), 1),
        ("5 10 0.123456", rule(6, 10, 123_456), 1),
        // More than six decimals are rounded up to a microsecond.
        ("5 10 0.123456000", rule(6, 10, 123_456), 1),
        ("5 10 0.123456001", rule(6, 10, 123_457), 1),
        ("5 10 0.1234569999999999999999999", rule(6, 10, 123_457), 1),
        ("5 10 1.999999999", rule(6, 10, 2_000_000), 1),
        ("5 1 0.000000000000000000000000001", rule(6, 1, 1), 1),
        ("0 1 000000000000000000000000000001", rule(1, 1, 1_000_000), 1),
        // The bounds of what the module counts.
        ("999999999999 1000000000 1", rule(1_000_000_000_000, 1_000_000_000, 1_000_000), 1),
        ("0 1 3155760000", rule(1, 1, 3_155_760_000_000_000), 1),
        ("0 9223372036 9.223372036", rule(1, 9_223_372_036, 9_223_373), 1),
    ];
    for (text, rule, tokens) in rows {
        let request = gcra(&words(text)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        let counted = request.counted().ok();
        assert_eq!(counted.map(|request| request.rule), rule, "{text}");
        assert_eq!(request.tokens.units(), tokens, "{text}");
    }
}

#[test]
fn more_tokens_than_any_limit_are_never_allowed() {
    for count in ["1000000000001", "9223372036854775807"] {
        let text = format!("999999999999 1000000000000 1000 TOKENS {count}");
        let request = gcra(&words(&text)).and_then(GcraRequest::counted).expect("valid");
        let now = Instant::from_us(1_800_000_000_000_000);
        let outcome = request.rule.decide(None, now, request.quantity);
        assert_eq!(outcome.decision.verdict, Verdict::Impossible, "{count}");
        assert_eq!(outcome.decision.remaining, 1_000_000_000_000);
        assert_eq!(outcome.next, None);
    }
}

#[test]
fn limits_beyond_what_the_module_counts_are_refused_after_all_other_errors() {
    let beyond = [
        "1000000000000 10 60",
        "9223372036854775807 10 60",
        // More than one token per nanosecond.
        "5 1000000001 1",
        "5 9223372036854775807 60",
        "0 1001 0.000001",
        // More than 36,525 days to refill from empty.
        "0 1 3155760000.000001",
        "1 1 3155760000",
        "0 1 999999999999.999999999",
    ];
    for text in beyond {
        let request = gcra(&words(text)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(request.counted(), Err(GcraError::Beyond), "{text}");
    }
}

#[test]
fn first_invalid_argument_from_the_left_has_its_own_error() {
    use GcraError::*;
    // Redis reads none of these as an integer.
    let not_integers = ["", "x", "1.0", "+1", "01", "00", "-0", "-01", " 1", "1 ", "1e3", "0x1"];
    let too_large = ["9223372036854775808", "-9223372036854775809", "99999999999999999999"];
    for number in not_integers.into_iter().chain(too_large) {
        let rows = [([number, "10", "60"], MaxBurst), (["5", number, "60"], NotAnInteger)];
        for (line, expected) in rows {
            assert_eq!(gcra(&line.map(str::as_bytes)), Err(expected), "{line:?}");
        }
        let line = ["5", "10", "60", "TOKENS", number];
        assert_eq!(gcra(&line.map(str::as_bytes)), Err(NotAnInteger), "{line:?}");
    }
    for number in ["", "-", ".", "1.", ".5", "1..5", "1.5.", "1e3", "1E3", "inf", "nan", "+1", "1s"]
    {
        assert_eq!(gcra(&[b"5", b"10", number.as_bytes()]), Err(NotANumber), "{number:?}");
    }
    for number in ["0", "0.0", "-0", "0.000000000", "-1", "-0.5", "-1000000000000"] {
        assert_eq!(gcra(&[b"5", b"10", number.as_bytes()]), Err(Period), "{number:?}");
    }
    for number in ["1000000000000", "1000000000000.5", "99999999999999999999999999"] {
        assert_eq!(gcra(&[b"5", b"10", number.as_bytes()]), Err(Period), "{number:?}");
    }
    let rows = [
        ("5 10", Arity),
        ("5 10 60 TOKENS 1 TOKENS", Arity),
        ("-1 10 60", MaxBurst),
        ("5 0 60", Tokens),
        ("5 -1 60", Tokens),
        ("5 -9223372036854775808 60", Tokens),
        ("5 10 60 COST", Syntax),
        ("5 10 60 1", Syntax),
        ("5 10 60 COST 1", Syntax),
        ("5 10 60 TOKENS", MissingTokens),
        ("5 10 60 TOKENS 0", Tokens),
        ("5 10 60 TOKENS -1", Tokens),
        // The first error from the left; the number of arguments comes first of all.
        ("x x x x x x", Arity),
        ("x x x x", MaxBurst),
        ("5 x x x", NotAnInteger),
        ("5 0 x x", Tokens),
        ("5 10 x x", NotANumber),
        ("5 10 0 x", Period),
        ("5 10 60 x x", Syntax),
        ("9223372036854775807 10 60 x", Syntax),
    ];
    for (text, expected) in rows {
        assert_eq!(gcra(&words(text)), Err(expected), "{text}");
    }
    assert_eq!(gcra(&[]), Err(Arity));
}

#[test]
fn error_texts_match_redis_except_for_limits_it_counts_and_the_module_does_not() {
    use GcraError::*;
    let rows = [
        (MaxBurst, "ERR value is out of range, must be positive"),
        (NotAnInteger, "ERR value is not an integer or out of range"),
        (Tokens, "ERR value is out of range, value must between 1 and 9223372036854775807"),
        (NotANumber, "ERR value is not a valid float"),
        (Period, "ERR period must be > 0 and < 1e12"),
        (Syntax, "ERR syntax error"),
        (MissingTokens, "ERR Missing TOKENS value"),
    ];
    for (error, text) in rows {
        assert_eq!(error.text().and_then(|text| text.to_str().ok()), Some(text));
    }
    assert_eq!(Arity.text(), None);
    let beyond = Beyond.text().and_then(|text| text.to_str().ok()).expect("a text");
    assert!(beyond.starts_with("ERR invalid max-burst, tokens-per-period or period: "), "{beyond}");
}
