//! The cases of the engine's benches: two calls of each algorithm, one allowed and one denied, each
//! split into its steps. Nothing here is random or reads a clock, so the work is always the same.

use redis_throttle_engine::algorithms::{Algorithm, Argument, NewState, State};
use redis_throttle_engine::bounds::Slots;
use redis_throttle_engine::decision::Outcome;
use redis_throttle_engine::grammar;
use redis_throttle_engine::grammar::request::Request;
use redis_throttle_engine::state;
use redis_throttle_engine::time::Instant;
use std::hint::black_box;

/// 2027-01-15 08:00:00 UTC, in microseconds.
const NOW_US: u64 = 1_800_000_000_000_000;

/// A call of one algorithm, and the stored state on which it is allowed or denied.
pub struct Case {
    pub name: String,
    algorithm: Algorithm,
    args: Vec<&'static [u8]>,
    bytes: Vec<u8>,
}

/// A step of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Parses the arguments.
    Parse,
    /// Decodes the state.
    Decode,
    /// Decides the call.
    Decide,
    /// Encodes the new state.
    Encode,
}

impl Step {
    pub const ALL: [Self; 4] = [Self::Parse, Self::Decode, Self::Decide, Self::Encode];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse",
            Self::Decode => "decode",
            Self::Decide => "decide",
            Self::Encode => "encode",
        }
    }
}

/// Returns two cases of each algorithm: an allowed call after one unit was used, and a denied call
/// after all units were used.
pub fn all() -> Vec<Case> {
    let cases = |algorithm: Algorithm| {
        let mut durations = [&b"1h"[..], b"2h", b"1d"].into_iter();
        let argument = |argument: &Argument| match argument {
            Argument::Number => b"100",
            Argument::Duration => durations.next().expect("at most three durations"),
        };
        let mut args: Vec<&[u8]> = algorithm.arguments().iter().map(argument).collect();
        if algorithm == Algorithm::CalendarQuota {
            args.extend([&b"month"[..], b"ZONE", b"Europe/Berlin"]);
        }
        [("allowed", 1), ("denied", 100)].map(|(verdict, calls_before)| {
            let name = format!("{}/{verdict}", algorithm.name().to_ascii_lowercase());
            Case { name, algorithm, args: args.clone(), bytes: vec![] }.after(calls_before)
        })
    };
    Algorithm::ALL.into_iter().flat_map(cases).collect()
}

impl Case {
    /// Returns the case with the state that `calls` allowed calls, a millisecond apart, leave.
    fn after(mut self, calls: u64) -> Self {
        for call in 0..calls {
            let now = Instant::from_us(NOW_US + call * 1_000);
            let stored = (!self.bytes.is_empty()).then(|| self.state());
            let outcome = decide(&self.request(), stored, now);
            let change = state::encode(&outcome.next.kept().expect("an allowed call").state);
            change.apply(&mut self.bytes);
        }
        self
    }

    fn request(&self) -> Request {
        grammar::rule::request(self.algorithm, &self.args, Slots::DEFAULT).expect("a valid call")
    }

    fn state(&self) -> State<'_> {
        state::decode(&self.bytes).expect("a state")
    }

    /// Repeats one step `times` times. Returns false, and repeats nothing, for [`Step::Encode`] of
    /// a denied call, which has no new state.
    pub fn repeat(&self, step: Step, times: u64) -> bool {
        let (request, stored) = (self.request(), self.state());
        let now = Instant::from_us(NOW_US + 100_000);
        let outcome = decide(&request, Some(stored), now);
        match step {
            Step::Parse => {
                for _ in 0..times {
                    let args = black_box(self.args.as_slice());
                    let _ = black_box(grammar::rule::request(self.algorithm, args, Slots::DEFAULT));
                }
            }
            Step::Decode => {
                for _ in 0..times {
                    let _ = black_box(state::decode(black_box(&self.bytes)));
                }
            }
            Step::Decide => {
                for _ in 0..times {
                    black_box(decide(black_box(&request), black_box(Some(stored)), now));
                }
            }
            Step::Encode => {
                let Some(next) = outcome.next.kept() else { return false };
                for _ in 0..times {
                    black_box(state::encode(black_box(&next.state)));
                }
            }
        }
        true
    }
}

fn decide<'a>(request: &Request, stored: Option<State<'a>>, now: Instant) -> Outcome<NewState<'a>> {
    request.rule.decide(stored, now, request.options.cost).expect("its own state")
}
