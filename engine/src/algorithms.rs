//! The table of algorithms, and what follows from there being several.

pub mod backoff;
pub mod bucket;
pub mod fixed_window;
pub mod gcra;
pub mod leaky_bucket;
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
use crate::bounds::{Cost, Slots};
use crate::call::{self, ChargeError, Limiter, Mode};
use crate::decision::Outcome;
use crate::fields::Fields;
use crate::msgpack::NotAState;
use crate::reservations::list::Unread;
use crate::reservations::stored::{self, Windowed};
use crate::reservations::window::{self as reserved, ReservationError, Step};
use crate::time::Instant;

/// The table of algorithms: calls another macro with a row for each.
///
/// A row has the name, the rule and its positional arguments: as an error text names them, and
/// which of the first are numbers and durations. Then come the types of a key's state: as read, and
/// as it is to be stored.
macro_rules! for_algorithms {
    ($make:ident) => {
        $make! {
            /// `RL.FIXED key limit window [COST n] [ALIGNED]`
            "FIXED" FixedWindow("limit window": Number Duration)
                Window => Window,
            /// `RL.SLIDING key limit window [COST n]`
            "SLIDING" SlidingWindow("limit window": Number Duration)
                sliding_window::State => sliding_window::State,
            /// `RL.SLIDINGLOG key limit window [COST n]`
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

/// A positional argument of a rule, as far as its text is the same for every algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// An integer.
    Number,
    /// A duration.
    Duration,
}

/// The key holds the state of another algorithm, or reservations that are none.
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

/// What is stored, as the plain state of one algorithm; returns what is made of anything else.
macro_rules! stored_state {
    ($stored:expr, $limiter:ident, $of_other:expr) => {
        match $stored {
            None => None,
            Some(State::$limiter(state)) => Some(state),
            Some(other) => return $of_other(other),
        }
    };
}

/// Makes the enums over all algorithms, and what is done with any of them, of the table's rows.
macro_rules! algorithms {
    ($(
        $(#[$call:meta])*
        $name:literal $limiter:ident($_arguments:literal: $($argument:ident)*)
            $state:ty => $new_state:ty,
    )*) => {
        /// Which algorithm.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Algorithm {
            $($(#[$call])* $limiter,)*
        }

        /// An algorithm with its limits: everything about a call but its subject and cost.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $($(#[$call])* $limiter($limiter),)*
        }

        /// What a key holds, as read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum State<'a> {
            $($(#[$call])* $limiter($state),)*
            /// A window with reservations.
            Reserved(stored::State<'a>),
        }

        /// What a key is to hold.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum NewState<'a> {
            $($(#[$call])* $limiter($new_state),)*
            /// Of a key that has reservations, or had.
            Reserved(stored::Edit<'a>),
        }

        impl Algorithm {
            /// All of them, in the order of the pages.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$limiter),*];

            /// The name, as `RL.PEEK` takes it and `RL.INSPECT` shows it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$limiter => $name,)*
                }
            }

            /// The command that decides by it.
            pub const fn command(self) -> &'static str {
                match self {
                    $(Self::$limiter => concat!("RL.", $name),)*
                }
            }
        }

        impl Algorithm {
            /// The first positional arguments, as far as they are numbers and durations.
            pub const fn arguments(self) -> &'static [Argument] {
                match self {
                    $(Self::$limiter => &[$(Argument::$argument),*],)*
                }
            }
        }

        impl Rule {
            /// Tells whose rule it is.
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$limiter(_) => Algorithm::$limiter,)*
                }
            }

            /// Decides a call of `cost` at `now` on what is stored, changing nothing.
            ///
            /// # Errors
            ///
            /// [`OtherAlgorithm`] when `stored` is not a state of this rule's algorithm.
            pub fn decide<'a>(
                &self,
                stored: Option<State<'a>>,
                now: Instant,
                cost: Cost,
            ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
                self.decide_as(Mode::Take, stored, now, cost)
            }

            /// The same, for a call that may not take although there is room.
            ///
            /// # Errors
            ///
            /// [`OtherAlgorithm`] as for [`Self::decide`].
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
                            self.decide_reserved(mode, other, now, cost)
                        });
                        let outcome = call::decide(rule.standing(stored, now), cost, mode);
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }

            /// Decides a call that takes what is there, up to `cost`, changing nothing. What is
            /// granted stands in the verdict; of a cost of 0 it is none.
            ///
            /// # Errors
            ///
            /// [`OtherAlgorithm`] when `stored` is not a state of this rule's algorithm.
            #[inline]
            pub fn decide_partly<'a>(
                &self,
                stored: Option<State<'a>>,
                now: Instant,
                cost: Cost,
            ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
                match self {
                    $(Self::$limiter(rule) => {
                        let stored = stored_state!(stored, $limiter, |other| {
                            let view = self.reserved(Some(other), now, &[])?;
                            Ok(call::decide_partly(view, cost).map(NewState::Reserved))
                        });
                        let outcome = call::decide_partly(rule.standing(stored, now), cost);
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }

            /// Takes `cost` at `now` from what is stored, whether or not it is there, changing
            /// nothing. Allowed is what had room. Otherwise the subject is in debt, and the time
            /// until it is out of it is the verdict's.
            ///
            /// # Errors
            ///
            /// [`ChargeError::OtherAlgorithm`] when `stored` is not a state of this rule's
            /// algorithm; the others when the debt would be beyond all bounds.
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
                            let view = self.reserved(Some(other), now, &[])?;
                            Ok(call::charge(view, cost)?.map(NewState::Reserved))
                        });
                        let outcome = call::charge(rule.standing(stored, now), cost)?;
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }

            /// Gives `cost` back at `now`, not past the full allowance, changing nothing. Allowed
            /// is what leaves no debt; otherwise the verdict tells the time until there is none.
            ///
            /// # Errors
            ///
            /// [`OtherAlgorithm`] when `stored` is not a state of this rule's algorithm.
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
                            let view = self.reserved(Some(other), now, &[])?;
                            Ok(call::refund(view, cost).map(NewState::Reserved))
                        });
                        let outcome = call::refund(rule.standing(stored, now), cost);
                        Ok(outcome.map(NewState::$limiter))
                    })*
                }
            }
        }

        impl State<'_> {
            /// Whose state it is.
            pub const fn algorithm(&self) -> Algorithm {
                match self {
                    $(Self::$limiter(_) => Algorithm::$limiter,)*
                    Self::Reserved(stored::State { of: Windowed::Fixed, .. }) => {
                        Algorithm::FixedWindow
                    }
                    Self::Reserved(stored::State { of: Windowed::Quota, .. }) => {
                        Algorithm::CalendarQuota
                    }
                }
            }

            /// The state at `now` as names and numbers, for people.
            ///
            /// # Errors
            ///
            /// [`NotAState`] when its list of reservations is none.
            pub fn shown(&self, now: Instant) -> Result<Vec<(&'static str, u64)>, NotAState> {
                match self {
                    $(Self::$limiter(state) => Ok($limiter::shown(state)),)*
                    Self::Reserved(state) => state.shown(now),
                }
            }
        }
    };
}

for_algorithms!(algorithms);

impl<'a> State<'a> {
    /// Returns the state if it belongs to `algorithm`, and `None` if it belongs to another one: a
    /// rule whose algorithm changed starts with an unused key.
    ///
    /// # Errors
    ///
    /// [`OtherAlgorithm`] when a state of another algorithm has a reservation that is open at
    /// `now`, or an invalid list of reservations.
    #[inline(always)]
    pub fn under(self, algorithm: Algorithm, now: Instant) -> Result<Option<Self>, OtherAlgorithm> {
        if self.algorithm() == algorithm { Ok(Some(self)) } else { self.replaced(now) }
    }

    /// Returns `None`, if the state may be replaced by one of another algorithm at `now`.
    #[cold]
    fn replaced(self, now: Instant) -> Result<Option<Self>, OtherAlgorithm> {
        let Self::Reserved(state) = self else { return Ok(None) };
        let mut is_open = false;
        let read = state.list.read(|reservation, _| {
            is_open |= reservation.at(now).is_some_and(|seen| seen.held.is_some());
        });
        if read.is_ok() && !is_open { Ok(None) } else { Err(OtherAlgorithm) }
    }
}

impl Rule {
    /// The same rule, with a sliding log that rounds to `slots`.
    #[must_use]
    pub const fn with_slots(self, slots: Slots) -> Self {
        match self {
            Self::SlidingLog(rule) => Self::SlidingLog(SlidingLog { slots, ..rule }),
            rule => rule,
        }
    }

    /// Takes a step with the reservation of `id` at `now`, changing nothing.
    ///
    /// # Errors
    ///
    /// [`ReservationError`], [`ReservationError::OtherAlgorithm`] first.
    #[cold]
    pub fn take_step<'a>(
        &self,
        stored: Option<State<'a>>,
        now: Instant,
        id: &'a [u8],
        step: Step,
    ) -> Result<Outcome<NewState<'a>>, ReservationError> {
        let view = self.reserved(stored, now, id)?;
        Ok(reserved::take_step(view, step)?.map(NewState::Reserved))
    }

    /// Decides a call on what is no plain state of this rule's algorithm.
    #[cold]
    #[inline(never)]
    fn decide_reserved<'a>(
        &self,
        mode: Mode,
        stored: State<'a>,
        now: Instant,
        cost: Cost,
    ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
        let view = self.reserved(Some(stored), now, &[])?;
        Ok(call::decide(view, cost, mode).map(NewState::Reserved))
    }

    /// Where a subject stands that has, or may get, reservations, that of `id` told apart.
    #[cold]
    #[inline(never)]
    fn reserved<'a>(
        &self,
        stored: Option<State<'a>>,
        now: Instant,
        id: &'a [u8],
    ) -> Result<reserved::View<'a>, OtherAlgorithm> {
        let (of, limit) = match self {
            Self::FixedWindow(rule) => (Windowed::Fixed, rule.limit),
            Self::CalendarQuota(rule) => (Windowed::Quota, rule.limit),
            _ => return Err(OtherAlgorithm),
        };
        let (window, list) = match (stored, of) {
            (None, _) => (None, Unread::NONE),
            (Some(State::FixedWindow(window)), Windowed::Fixed)
            | (Some(State::CalendarQuota(window)), Windowed::Quota) => (Some(window), Unread::NONE),
            (Some(State::Reserved(state)), _) if state.of == of => {
                (Some(state.window).filter(|window| window.used > 0), state.list)
            }
            _ => return Err(OtherAlgorithm),
        };
        let open = match self {
            Self::FixedWindow(rule) => rule.window_at(window, now),
            Self::CalendarQuota(rule) => rule.window_at(window, now),
            _ => return Err(OtherAlgorithm),
        };
        Ok(reserved::View::new(of, limit, open, list, now, id)?)
    }
}
