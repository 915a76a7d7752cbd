//! The arguments of redis-cell's command: tables of valid ones, and of errors with their texts.

use crate::grammar::redis_cell::*;
use crate::grammar::tests::words;
use crate::time::Instant;

#[test]
fn max_burst_is_the_limit_minus_one_and_the_quantity_is_optional() {
    let rows = [
        ("15 30 60", 16, 1),
        ("0 30 60", 1, 1),
        ("0015 030 060 03", 16, 3),
        ("15 30 60 0", 16, 0),
        ("999999999999 1000000000000 31622400 1000000000000", 1_000_000_000_000, 1_000_000_000_000),
        ("4 1000000000 1", 5, 1),
        // The longest refill in whole periods of 366 days: 99 periods, less than a hundred years.
        ("98 1 31622400", 99, 1),
    ];
    for (text, limit, quantity) in rows {
        let request = throttle(&words(text)).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        assert_eq!(request.quantity.units(), quantity, "{text}");
        let outcome = request.rule.decide(None, Instant::from_us(0), Cost::ZERO);
        assert_eq!(outcome.decision.limit.units(), limit, "{text}");
    }
}

#[test]
fn first_invalid_argument_from_the_left_has_its_own_error_text() {
    use GrammarError::*;
    let numbers = ["-1", "+1", "1.0", "", "x", "1e3", "0x1", " 1", "18446744073709551616", "1s"];
    let places = [
        ("? 30 60 1", MaxBurst),
        ("15 ? 60 1", CountPerPeriod),
        ("15 30 ? 1", PeriodInSeconds),
        ("15 30 60 ?", Quantity),
    ];
    for (line, expected) in places {
        for number in numbers {
            let args: Vec<_> = words(line)
                .into_iter()
                .map(|w| if w == b"?" { number.as_bytes() } else { w })
                .collect();
            assert_eq!(throttle(&args), Err(expected), "{line}: {number:?}");
        }
    }
    let rows = [
        ("", Arity),
        ("15 30", Arity),
        ("15 30 60 1 1", Arity),
        ("1000000000000 30 60", MaxBurst),
        ("18446744073709551615 30 60", MaxBurst),
        ("15 0 60", CountPerPeriod),
        ("15 1000000000001 60", CountPerPeriod),
        ("15 30 0", PeriodInSeconds),
        ("15 30 31622401", PeriodInSeconds),
        ("15 30 18446744073709551615", PeriodInSeconds),
        ("15 30 60 1000000000001", Quantity),
        ("15 1000000001 1", CountTooHigh),
        ("99 1 31622400", MaxBurstRefill),
        // The first error from the left. Each argument is checked before all are checked together.
        ("x x x x", MaxBurst),
        ("15 x x x", CountPerPeriod),
        ("15 30 x x", PeriodInSeconds),
        ("15 1000000001 1 x", Quantity),
    ];
    for (text, expected) in rows {
        let args = if text.is_empty() { Vec::new() } else { words(text) };
        assert_eq!(throttle(&args), Err(expected), "{text}");
        let text = expected.text().map(|text| text.to_str().expect("ASCII"));
        assert!(text.is_none_or(|text| text.starts_with("ERR ") && text.is_ascii()));
    }
}
