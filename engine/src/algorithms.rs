//! The table of algorithms, and the enums and methods that cover all of them.

pub mod backoff;
pub mod bucket;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
mod other;
pub mod quota;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
pub mod window;

use self::backoff::Backoff;
use self::fixed_window::FixedWindow;
use self::gcra::Gcra;
use self::leaky_bucket::LeakyBucket;
use self::quota::CalendarQuota;
use self::sliding_log::SlidingLog;
use self::sliding_window::SlidingWindow;
use self::token_bucket::TokenBucket;
use self::window::Window;
use crate::ban::Ban;
use crate::bounds::{Cost, Limit, Slots};
use crate::call::{self, CallOptions, ChargeError, Limiter, Mode, Standing};
use crate::decision::Outcome;
use crate::fields::Fields;
use crate::msgpack::NotAState;
use crate::reservations::stored::{self, Windowed};
use crate::reservations::window::ReservationError;
use crate::time::Instant;

/// The table of algorithms: calls another macro with a row for each.
///
/// A row gives the algorithm's name, its rule type and its positional arguments: first as text for
/// error messages, then the types of the leading ones that are numbers or durations. Two types end
/// the row: the state as read from a key, and the state to store.
macro_rules! for_algorithms {
    ($make:ident) => {
        $make! {
            /// `RL.FIXED key limit window [COST n] [ALIGNED]`
            "FIXED" FixedWindow("limit window": Number Duration)
                Window => Window,
            /// `RL.SLIDING key limit window [COST n]`
            "SLIDING" SlidingWindow("limit window": Number Duration)
                sliding_window::State => sliding_window::State,
            /// `RL.SLIDINGLOG key limit window [SLOTS n] [COST n]`
            "SLIDINGLOG" SlidingLog("limit window": Number Duration)
                sliding_log::Log<'a> => sliding_log::Edit<'a>,
            /// `RL.TOKENBUCKET key capacity rate period [COST n]`
            "TOKENBUCKET" TokenBucket("capacity rate period": Number Number Duration)
                bucket::State => bucket::State,
            /// `RL.LEAKYBUCKET key capacity rate period [COST n]`
            "LEAKYBUCKET" LeakyBucket("capacity rate period": Number Number Duration)
                bucket::State => bucket::State,
            /// `RL.GCRA key burst rate period [COST n]`
            "GCRA" Gcra("burst rate period": Number Number Duration)
                gcra::State => gcra::State,
            /// `RL.BACKOFF key attempts base max forget`
            "BACKOFF" Backoff("attempts base max forget": Number Duration Duration Duration)
                backoff::State => backoff::State,
            /// `RL.QUOTA key limit unit [ZONE name] [START n] [COST n]`
            "QUOTA" CalendarQuota("limit unit": Number)
                Window => Window,
        }
    };
}
pub(crate) use for_algorithms;

/// A type of positional argument that every algorithm parses in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// An integer.
    Number,
    /// A duration.
    Duration,
}

/// The key holds the state of another algorithm, or an invalid list of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherAlgorithm;

impl From<OtherAlgorithm> for ChargeError {
    fn from(_: OtherAlgorithm) -> Self {
        Self::OtherAlgorithm
    }
}

impl From<OtherAlgorithm> for ReservationError {
    fn from(_: OtherAlgorithm) -> Self {
        Self::OtherAlgorithm
    }
}

impl From<NotAState> for OtherAlgorithm {
    fn from(_: NotAState) -> Self {
        Self
    }
}

/// Evaluates to the stored state if it is a plain state (one without reservations) of the algorithm
/// `$limiter`. For any other state, the enclosing function returns `$of_other(state)`.
macro_rules! stored_state {
    ($stored:expr, $limiter:ident, $of_other:expr) => {
        match $stored {
            None => None,
            Some(State::$limiter(state)) => Some(state),
            Some(other) => return $of_other(other),
        }
    };
}

/// Defines the enums of all algorithms, and their methods, from the rows of the table.
macro_rules! algorithms {
    ($(
        $(#[$call:meta])*
        $name:literal $limiter:ident($_arguments:literal: $($argument:ident)*)
            $state:ty => $new_state:ty,
    )*) => {
        /// An algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Algorithm {
            $($(#[$call])* $limiter,)*
        }

        /// An algorithm with its limits: everything about a call except its key and cost.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[$call])* $limiter($limiter),)*
        }

        /// The content of a key, as read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum State<'a> {
            $($(#[$call])* $limiter($state),)*
            /// A window with reservations.
            Reserved(stored::State<'a>),
            /// A ban, which belongs to no algorithm.
            Banned(Ban),
        }

        /// The content to store at a key.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum NewState<'a> {
            $($(#[$call])* $limiter($new_state),)*
            /// The state of a key that has, or had, reservations.
            Reserved(stored::Edit<'a>),
            /// A ban that had to be re-based.
            Banned(Ban),
        }

        impl Algorithm {
            /// All algorithms, in the order of the documentation.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$limiter),*];

            /// Returns the name, as `RL.PEEK` takes it and `RL.INSPECT` shows it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$limiter => $name,)*
                }
            }

            /// Returns the name of the algorithm's command.
            pub const fn command(self) -> &'static str {
                match self {
                    $(Self::$limiter => concat!("RL.", $name),)*
                }
            }
        }

        impl Algorithm {
            /// Returns the types of the leading positional arguments that are numbers or durations.
            pub const fn arguments(self) -> &'static [Argument] {
                match self {
                    $(Self::$limiter => &[$(Argument::$argument),*],)*
                }
            }
        }

        impl Rule {
            /// Returns the rule's algorithm.
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$limiter(_) => Algorithm::$limiter,)*
                }
            }

            /// Returns the limit, capacity or burst.
            #[cold]
            pub(super) fn limit(&self, now: Instant) -> Limit {
                match self {
                    $(Self::$limiter(rule) => rule.standing(None, now).limit(),)*
                }
            }

            /// Decides a call of `cost` at `now` on the stored state. The outcome holds the state
            /// to store.
            ///
            /// # Errors
            ///
            /// Returns [`OtherAlgorithm`] if `stored` is not a state of this rule's algorithm.
            pub fn decide<'a>(
                &self,
                stored: Option<State<'a>>,
                now: Instant,
                cost: Cost,
            ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
                self.decide_as(Mode::Take, stored, now, cost)
            }

            /// Decides like [`Self::decide`], in the given mode: the call takes nothing under
            /// [`Mode::TakeNothing`].
            ///
            /// # Errors
            ///
            /// Returns [`OtherAlgorithm`] as [`Self::decide`] does.
            #[inline]
            pub fn decide_as<'a>(
                &self,
                mode: Mode,
                stored: Option<State<'a>>,
                now: Instant,
                cost: Cost,
            ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
                match self {
                    $(Self::$limiter(rule) => {
                        let stored = stored_state!(stored, $limiter, |other| {
                            self.decide_other(mode, other, now, CallOptions::of_cost(cost))
                        });
                        let outcome = call::decide(rule.standing(stored, now), cost, mode);
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }

            /// Decides a call with options on the stored state.
            ///
            /// # Errors
            ///
            /// Returns [`OtherAlgorithm`] as [`Self::decide`] does.
            #[inline(always)]
            pub fn decide_call<'a>(
                &self,
                mode: Mode,
                stored: Option<State<'a>>,
                now: Instant,
                options: CallOptions,
            ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
                match options {
                    CallOptions { cost, partial: false, leave: None } => {
                        self.decide_as(mode, stored, now, cost)
                    }
                    _ => self.decide_with(mode, stored, now, options),
                }
            }

            #[cold]
            fn decide_with<'a>(
                &self,
                mode: Mode,
                stored: Option<State<'a>>,
                now: Instant,
                options: CallOptions,
            ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
                match self {
                    $(Self::$limiter(rule) => {
                        let stored = stored_state!(stored, $limiter, |other| {
                            self.decide_other(mode, other, now, options)
                        });
                        let outcome = call::decide_with(rule.standing(stored, now), options, mode);
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }

            /// Charges `cost` at `now`, even if there is no room. The outcome holds the state to
            /// store. The verdict is allowed if there was room. Otherwise the key is in debt, and
            /// the verdict holds the time until the debt is paid.
            ///
            /// # Errors
            ///
            /// Returns [`ChargeError::OtherAlgorithm`] if `stored` is not a state of this rule's
            /// algorithm, and the other errors if the debt would exceed its bounds.
            #[inline]
            pub fn charge<'a>(
                &self,
                stored: Option<State<'a>>,
                now: Instant,
                cost: Cost,
            ) -> Result<Outcome<NewState<'a>>, ChargeError> {
                match self {
                    $(Self::$limiter(rule) => {
                        let stored = stored_state!(stored, $limiter, |other| {
                            self.charge_other(other, now, cost)
                        });
                        let outcome = call::charge(rule.standing(stored, now), cost)?;
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }

            /// Gives back `cost` units at `now`, but no more than are used. The outcome holds the
            /// state to store. The verdict is allowed if no debt is left. Otherwise it holds the
            /// time until the debt is paid.
            ///
            /// # Errors
            ///
            /// Returns [`OtherAlgorithm`] if `stored` is not a state of this rule's algorithm.
            #[inline]
            pub fn refund<'a>(
                &self,
                stored: Option<State<'a>>,
                now: Instant,
                cost: Cost,
            ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
                match self {
                    $(Self::$limiter(rule) => {
                        let stored = stored_state!(stored, $limiter, |other| {
                            self.refund_other(other, now, cost)
                        });
                        let outcome = call::refund(rule.standing(stored, now), cost);
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }
        }

        impl State<'_> {
            /// Returns the state's algorithm; `None` for a ban.
            pub const fn algorithm(&self) -> Option<Algorithm> {
                Some(match self {
                    $(Self::$limiter(_) => Algorithm::$limiter,)*
                    Self::Reserved(stored::State { of: Windowed::Fixed, .. }) => {
                        Algorithm::FixedWindow
                    }
                    Self::Reserved(stored::State { of: Windowed::Quota, .. }) => {
                        Algorithm::CalendarQuota
                    }
                    Self::Banned(_) => return None,
                })
            }

            /// Returns the state at `now` as names and numbers, for `RL.INSPECT`.
            ///
            /// # Errors
            ///
            /// Returns [`NotAState`] if the list of reservations is invalid.
            pub fn inspect(&self, now: Instant) -> Result<Vec<(&'static str, u64)>, NotAState> {
                match self {
                    $(Self::$limiter(state) => Ok($limiter::inspect(state)),)*
                    Self::Reserved(state) => state.inspect(now),
                    Self::Banned(ban) => Ok(ban.inspect()),
                }
            }
        }
    };
}

for_algorithms!(algorithms);

impl Rule {
    /// Returns the same rule, with a sliding log that rounds to `slots` unless it has its own.
    #[must_use]
    pub const fn with_slots(self, slots: Slots) -> Self {
        match self {
            Self::SlidingLog(rule) if !rule.has_own_slots => {
                Self::SlidingLog(SlidingLog { slots, ..rule })
            }
            rule => rule,
        }
    }
}

impl NewState<'_> {
    /// Returns the units that the commit of a reservation uses; zero for any other call.
    pub const fn committed(&self) -> Cost {
        match self {
            Self::Reserved(edit) => edit.committed,
            _ => Cost::ZERO,
        }
    }
}
