//! `RL.DEBUG CLOCK`: stops and moves the module's clock, for tests.

use crate::grammar::error::GrammarError;
use crate::grammar::number;
use crate::time::{Instant, Span};

/// A change to the module's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockAction {
    /// Stops the clock, at the given instant or at its current time.
    Freeze(Option<Instant>),
    /// Stops the clock and moves it forward.
    Forward(Span),
    /// Stops the clock and moves it back.
    Back(Span),
    /// Lets the clock show the real time again.
    Resume,
}

impl ClockAction {
    /// Parses the arguments after `RL.DEBUG`.
    ///
    /// # Errors
    ///
    /// Returns the first error, from left to right.
    pub fn parse(args: &[&[u8]]) -> Result<Self, GrammarError> {
        let [subcommand, action, values @ ..] = args else {
            return Err(GrammarError::Arity);
        };
        if !subcommand.eq_ignore_ascii_case(b"CLOCK") {
            return Err(GrammarError::Subcommand);
        }
        if action.eq_ignore_ascii_case(b"FREEZE") {
            match values {
                [] => Ok(Self::Freeze(None)),
                [unix_us] => instant(unix_us).map(|instant| Self::Freeze(Some(instant))),
                _ => Err(GrammarError::Arity),
            }
        } else if action.eq_ignore_ascii_case(b"ADVANCE") {
            let [duration] = values else {
                return Err(GrammarError::Arity);
            };
            let (back, duration) = match duration.split_first() {
                Some((b'-', duration)) => (true, duration),
                _ => (false, *duration),
            };
            let span = number::period(duration).ok_or(GrammarError::Duration)?.span();
            Ok(if back { Self::Back(span) } else { Self::Forward(span) })
        } else if action.eq_ignore_ascii_case(b"RESUME") {
            if values.is_empty() { Ok(Self::Resume) } else { Err(GrammarError::Arity) }
        } else {
            Err(GrammarError::ClockAction)
        }
    }
}

fn instant(unix_us: &[u8]) -> Result<Instant, GrammarError> {
    number::integer(unix_us)
        .map(Instant::from_us)
        .filter(|instant| *instant <= Instant::CLOCK_MAX)
        .ok_or(GrammarError::UnixTime)
}
