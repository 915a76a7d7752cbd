//! The arguments of `RL.TOP`, and its setting.

use crate::grammar::error::GrammarError;
use crate::grammar::number;
use crate::top::HalfLife;

/// The number of rows if the call does not give one.
const COUNT: usize = 10;

/// The largest number of rows.
const COUNT_MAX: u64 = 128;

/// A parsed call of `RL.TOP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopRequest {
    /// Shows the keys that are denied most.
    Denied {
        /// The number of rows, 1 to 128.
        count: usize,
    },
    /// Shows the keys that are called most.
    Called {
        /// The number of rows, 1 to 128.
        count: usize,
    },
    /// Forgets all keys.
    Reset,
}

/// Parses the arguments of `RL.TOP`.
///
/// # Errors
///
/// Returns the first error, from left to right.
pub fn top(args: &[&[u8]]) -> Result<TopRequest, GrammarError> {
    let (first, rest) = match args {
        [] => return Ok(TopRequest::Denied { count: COUNT }),
        [first, rest @ ..] => (first, rest),
    };
    if first.eq_ignore_ascii_case(b"RESET") {
        return if rest.is_empty() { Ok(TopRequest::Reset) } else { Err(GrammarError::Arity) };
    }
    let (count, rest) = match number::integer(first).filter(|n| (1..=COUNT_MAX).contains(n)) {
        Some(count) => (count as usize, rest),
        None if first.eq_ignore_ascii_case(b"CALLS") => (COUNT, args),
        None => return Err(GrammarError::TopCount),
    };
    match rest {
        [] => Ok(TopRequest::Denied { count }),
        [word] if word.eq_ignore_ascii_case(b"CALLS") => Ok(TopRequest::Called { count }),
        [word, ..] if !word.eq_ignore_ascii_case(b"CALLS") => Err(GrammarError::OptionOfTop),
        _ => Err(GrammarError::Arity),
    }
}

/// Parses a half-life: a duration from 1 s to 1 d, or 0 for none. Returns `None` if it is invalid.
pub fn half_life(text: &[u8]) -> Option<HalfLife> {
    match text {
        b"0" => Some(HalfLife::NEVER),
        text => HalfLife::new(number::period(text)?.span()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    #[test]
    fn top_parses_every_form_of_the_command_and_names_every_error() {
        let denied = |count| Ok(TopRequest::Denied { count });
        let called = |count| Ok(TopRequest::Called { count });
        let table: [(&str, Result<TopRequest, GrammarError>); 19] = [
            ("", denied(10)),
            ("1", denied(1)),
            ("128", denied(128)),
            ("5 CALLS", called(5)),
            ("calls", called(10)),
            ("Reset", Ok(TopRequest::Reset)),
            ("0", Err(GrammarError::TopCount)),
            ("129", Err(GrammarError::TopCount)),
            ("-1", Err(GrammarError::TopCount)),
            ("ten", Err(GrammarError::TopCount)),
            ("18446744073709551616", Err(GrammarError::TopCount)),
            ("10 DENIED", Err(GrammarError::OptionOfTop)),
            ("10 20", Err(GrammarError::OptionOfTop)),
            ("10 RESET", Err(GrammarError::OptionOfTop)),
            ("CALLS 5", Err(GrammarError::Arity)),
            ("CALLS CALLS", Err(GrammarError::Arity)),
            ("5 CALLS CALLS", Err(GrammarError::Arity)),
            ("RESET 5", Err(GrammarError::Arity)),
            ("RESET RESET", Err(GrammarError::Arity)),
        ];
        for (line, expected) in table {
            let args: Vec<_> = line.split_ascii_whitespace().map(str::as_bytes).collect();
            assert_eq!(top(&args), expected, "RL.TOP {line}");
        }
    }

    #[test]
    fn half_life_is_a_duration_from_1s_to_1d_or_0() {
        let seconds = |seconds: u64| HalfLife::new(Span::from_ms(seconds * 1_000));
        let table = [
            ("0", Some(HalfLife::NEVER)),
            ("1s", seconds(1)),
            ("10m", Some(HalfLife::DEFAULT)),
            ("600", Some(HalfLife::DEFAULT)),
            ("1d", seconds(86_400)),
            ("999ms", None),
            ("86401", None),
            ("", None),
            ("-1", None),
            ("never", None),
        ];
        for (text, expected) in table {
            assert_eq!(half_life(text.as_bytes()), expected, "{text}");
        }
    }
}
