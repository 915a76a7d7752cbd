//! Calls on a state that is not a plain state of the rule's algorithm: a window with reservations,
//! a ban, or the state of another algorithm.
//!
//! Only such calls come here, so the others do not pay for it.

use super::{Algorithm, NewState, OtherAlgorithm, Rule, State};
use crate::ban::{self, Ban, LiveBan};
use crate::bounds::Cost;
use crate::call::{self, CallOptions, ChargeError, Mode};
use crate::decision::{Outcome, StateWrite};
use crate::time::Instant;

impl<'a> State<'a> {
    /// Returns the name of the state's algorithm, as `RL.INSPECT` shows it.
    pub fn name(&self) -> &'static str {
        self.algorithm().map_or(ban::NAME, Algorithm::name)
    }

    /// Returns the state as it applies at `now`: `None` for a ban that has ended.
    pub fn at(self, now: Instant) -> Option<Self> {
        match self {
            Self::Banned(ban) => ban.at(now).map(|live| Self::Banned(live.ban())),
            state => Some(state),
        }
    }

    /// Returns the ban, if the state is one.
    #[cold]
    pub const fn ban(&self) -> Option<Ban> {
        match self {
            Self::Banned(ban) => Some(*ban),
            _ => None,
        }
    }

    /// Returns the ban in the state at `now`; `None` if it has ended.
    ///
    /// # Errors
    ///
    /// Returns [`OtherAlgorithm`] if the state is not a ban.
    #[cold]
    pub(crate) fn live_ban(&self, now: Instant) -> Result<Option<LiveBan>, OtherAlgorithm> {
        self.ban().map(|ban| ban.at(now)).ok_or(OtherAlgorithm)
    }

    /// Returns the state if it belongs to `algorithm` or is a ban, or `None` if it belongs to
    /// another one: when the algorithm of a rule changes, its keys count as unused.
    ///
    /// # Errors
    ///
    /// Returns [`OtherAlgorithm`] if a state of another algorithm has a reservation that is open at
    /// `now`, or an invalid list of reservations.
    #[inline(always)]
    pub fn under(self, algorithm: Algorithm, now: Instant) -> Result<Option<Self>, OtherAlgorithm> {
        if self.algorithm() == Some(algorithm) { Ok(Some(self)) } else { self.replaced(now) }
    }

    /// Returns `None` if another algorithm may replace this state at `now`, the state if it is a
    /// ban that applies, or an error if the state must stay.
    #[cold]
    fn replaced(self, now: Instant) -> Result<Option<Self>, OtherAlgorithm> {
        let Self::Reserved(state) = self else {
            // Not re-based here: the rule that decides the call stores the re-based ban.
            let applies = self.ban().is_some_and(|ban| ban.at(now).is_some());
            return Ok(applies.then_some(self));
        };
        let mut is_open = false;
        let read = state.list.read(|reservation, _| {
            is_open |= reservation.at(now).is_some_and(|seen| seen.held.is_some());
        });
        if read.is_ok() && !is_open { Ok(None) } else { Err(OtherAlgorithm) }
    }
}

impl Rule {
    /// Decides a call with options on a state that is not a plain state of this rule's algorithm.
    #[cold]
    #[inline(never)]
    pub(super) fn decide_other<'a>(
        &self,
        mode: Mode,
        stored: State<'a>,
        now: Instant,
        options: CallOptions,
    ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
        match self.reserved(Some(stored), now, &[]) {
            Ok(view) => Ok(call::decide_with(view, options, mode).map(NewState::Reserved)),
            Err(_) => self.decide_banned(mode, stored, now, options),
        }
    }

    /// Charges a state that is not a plain state of this rule's algorithm.
    #[cold]
    pub(super) fn charge_other<'a>(
        &self,
        stored: State<'a>,
        now: Instant,
        cost: Cost,
    ) -> Result<Outcome<NewState<'a>>, ChargeError> {
        match self.reserved(Some(stored), now, &[]) {
            Ok(view) => Ok(call::charge(view, cost)?.map(NewState::Reserved)),
            Err(_) => match stored.live_ban(now)? {
                Some(live) => Ok(self.denial(live, now)),
                None => self.charge(None, now, cost),
            },
        }
    }

    /// Refunds to a state that is not a plain state of this rule's algorithm.
    #[cold]
    pub(super) fn refund_other<'a>(
        &self,
        stored: State<'a>,
        now: Instant,
        cost: Cost,
    ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
        match self.reserved(Some(stored), now, &[]) {
            Ok(view) => Ok(call::refund(view, cost).map(NewState::Reserved)),
            Err(_) => match stored.live_ban(now)? {
                Some(live) => Ok(self.denial(live, now)),
                None => self.refund(None, now, cost),
            },
        }
    }

    /// Decides a call on a state that is not one of this rule's algorithm: a ban denies the call,
    /// and a ban that has ended counts as no state.
    ///
    /// # Errors
    ///
    /// Returns [`OtherAlgorithm`] for any other state.
    #[cold]
    #[inline(never)]
    fn decide_banned<'a>(
        &self,
        mode: Mode,
        stored: State<'a>,
        now: Instant,
        options: CallOptions,
    ) -> Result<Outcome<NewState<'a>>, OtherAlgorithm> {
        match stored.live_ban(now)? {
            Some(live) => Ok(live.decide(self.limit(now), options, mode).map(NewState::Banned)),
            None => self.decide_call(mode, None, now, options),
        }
    }

    /// Returns the outcome of a call that settles earlier calls: it changes nothing.
    #[cold]
    pub(crate) fn denial<'a>(&self, live: LiveBan, now: Instant) -> Outcome<NewState<'a>> {
        Outcome { decision: live.denial(self.limit(now)), next: StateWrite::Nothing }
    }
}
