//! The keys and the clock, which all connections share.

use redis_throttle_engine::grammar::clock::ClockAction;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::keyspace::{Keyspace, Reply};
use redis_throttle_engine::time::{Instant, Span};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as Moment, SystemTime, UNIX_EPOCH};

/// The most memory of all keys, estimated.
const KEYS_MAX_BYTES: usize = 256 * 1024 * 1024;
/// The time between two searches for expired keys while the memory is full.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const CLOCK_RANGE: &str =
    "ERR invalid duration: the clock must stay between the years 1970 and 2200";

/// The keys and the clock.
#[derive(Debug, Default)]
pub struct Database(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    keys: Keyspace,
    /// The time at which the clock is stopped.
    frozen_at: Option<Instant>,
    swept_at: Option<Moment>,
}

impl Database {
    /// Runs a command of the module, or one that concerns keys.
    ///
    /// # Errors
    ///
    /// The text of the error reply.
    pub fn run(&self, words: &[&[u8]]) -> Result<Reply, String> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match words {
            [name, args @ ..] if name.eq_ignore_ascii_case(b"RL.DEBUG") => state.clock(args),
            [name, ..] if is_of_module(name) && state.is_full(KEYS_MAX_BYTES) => {
                Err(OUT_OF_MEMORY.to_owned())
            }
            _ => {
                let now = state.now();
                state.keys.run(now, words)
            }
        }
    }
}

impl State {
    fn now(&self) -> Instant {
        self.frozen_at.unwrap_or_else(|| {
            let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now = Instant::from_us(0).after(Span::from_us_saturating(passed.as_micros()));
            now.min(Instant::CLOCK_MAX)
        })
    }

    /// Returns true if the keys occupy more than `max_bytes`, also without those that have expired.
    fn is_full(&mut self, max_bytes: usize) -> bool {
        if self.keys.bytes() <= max_bytes {
            return false;
        }
        if self.swept_at.is_none_or(|moment| moment.elapsed() >= SWEEP_PAUSE) {
            self.keys.sweep(self.now());
            self.swept_at = Some(Moment::now());
        }
        self.keys.bytes() > max_bytes
    }

    /// Runs `RL.DEBUG`.
    fn clock(&mut self, args: &[&[u8]]) -> Result<Reply, String> {
        let action = ClockAction::parse(args).map_err(text)?;
        let now = self.now();
        let target_us = match action {
            ClockAction::Freeze(instant) => Some(instant.unwrap_or(now).as_us()),
            ClockAction::Forward(span) => now.as_us().checked_add(span.as_us()),
            ClockAction::Back(span) => now.as_us().checked_sub(span.as_us()),
            ClockAction::Resume => None,
        };
        let target = target_us.map(Instant::from_us).filter(|at| *at <= Instant::CLOCK_MAX);
        if target.is_none() && action != ClockAction::Resume {
            return Err(CLOCK_RANGE.to_owned());
        }
        self.frozen_at = target;
        Ok(Reply::Integer(i64::try_from(self.now().as_us()).unwrap_or(i64::MAX)))
    }
}

fn is_of_module(name: &[u8]) -> bool {
    name.get(..3).is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"RL."))
}

fn text(error: GrammarError) -> String {
    match error.text() {
        Some(text) => text.to_string_lossy().into_owned(),
        None => "ERR wrong number of arguments for 'rl.debug' command".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(state: &mut State, line: &str) -> Result<Reply, String> {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        let now = state.now();
        if words[0] == b"RL.DEBUG" { state.clock(&words[1..]) } else { state.keys.run(now, &words) }
    }

    #[test]
    fn clock_stops_moves_and_resumes() {
        let state = &mut State::default();
        let at = |us| Ok(Reply::Integer(us));
        assert_eq!(run(state, "RL.DEBUG CLOCK FREEZE 1767225600000000"), at(1_767_225_600_000_000));
        assert_eq!(run(state, "RL.DEBUG CLOCK ADVANCE 6s"), at(1_767_225_606_000_000));
        assert_eq!(run(state, "RL.DEBUG clock advance -1ms"), at(1_767_225_605_999_000));
        let range = Err(CLOCK_RANGE.to_owned());
        assert_eq!(run(state, "RL.DEBUG CLOCK FREEZE 7258000000000000"), at(7_258_000_000_000_000));
        assert_eq!(run(state, "RL.DEBUG CLOCK ADVANCE 366d"), range);
        assert_eq!(run(state, "RL.DEBUG CLOCK FREEZE 1"), at(1));
        assert_eq!(run(state, "RL.DEBUG CLOCK ADVANCE -1s"), range);
        let Ok(Reply::Integer(now_us)) = run(state, "RL.DEBUG CLOCK RESUME") else {
            panic!("no time")
        };
        assert!(now_us > 1_767_225_600_000_000, "{now_us}");
        let arity = "ERR wrong number of arguments for 'rl.debug' command";
        assert_eq!(run(state, "RL.DEBUG"), Err(arity.to_owned()));
    }

    #[test]
    fn memory_is_full_until_keys_expire() {
        let state = &mut State::default();
        run(state, "RL.DEBUG CLOCK FREEZE").expect("a time");
        run(state, "RL.FIXED short 1 1s").expect("a decision");
        run(state, "RL.FIXED long 1 1h").expect("a decision");
        let full = state.keys.bytes() - 1;
        assert!(!state.is_full(full + 1));
        assert!(state.is_full(full));
        run(state, "RL.DEBUG CLOCK ADVANCE 1m").expect("a time");
        assert!(state.is_full(full), "the last search was at this moment");
        state.swept_at = None;
        assert!(!state.is_full(full), "an expired key is freed");
        assert_eq!(run(state, "EXISTS short long"), Ok(Reply::Integer(1)));
    }
}
