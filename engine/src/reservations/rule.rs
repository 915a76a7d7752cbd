//! The reservations of a rule: which rules support them, and the calls on a key that has some.

use crate::algorithms::{NewState, OtherAlgorithm, Rule, State};
use crate::ban::LiveBan;
use crate::call::{CallOptions, Mode};
use crate::decision::Outcome;
use crate::reservations::list::Unread;
use crate::reservations::stored::{Edit, Windowed};
use crate::reservations::window::{self, Hold, ReservationError, Step, WindowView};
use crate::time::Instant;

impl Rule {
    /// Returns true if the rule's algorithm supports reservations.
    pub const fn is_reservable(&self) -> bool {
        matches!(self, Self::FixedWindow(_) | Self::CalendarQuota(_))
    }

    /// Applies `step` to the reservation `id` at `now`. The outcome holds the state to store.
    ///
    /// # Errors
    ///
    /// Returns a [`ReservationError`]. [`ReservationError::OtherAlgorithm`] takes precedence.
    #[cold]
    pub fn take_step<'a>(
        &self,
        stored: Option<State<'a>>,
        now: Instant,
        id: &'a [u8],
        step: Step,
    ) -> Result<Outcome<NewState<'a>>, ReservationError> {
        let refused = |live| match step {
            Step::Reserve(hold) => self.refuse(live, now, Mode::Take, hold),
            Step::Commit { .. } | Step::Cancel => self.denial(live, now),
        };
        self.on_window(stored, now, id, |view| window::take_step(view, step), refused)
    }

    /// Makes the reservation `id` at `now` like [`Step::Reserve`], in the given mode: nothing is
    /// held under [`Mode::TakeNothing`], and a reservation that the id already has stays as it is.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::take_step`], in either mode.
    #[cold]
    pub fn reserve<'a>(
        &self,
        mode: Mode,
        stored: Option<State<'a>>,
        now: Instant,
        id: &'a [u8],
        hold: Hold,
    ) -> Result<Outcome<NewState<'a>>, ReservationError> {
        let refused = |live| self.refuse(live, now, mode, hold);
        self.on_window(stored, now, id, |view| window::reserve(view, hold, mode), refused)
    }

    /// Calls `act` with the view of a key, or `refused` with the ban of a key that is banned. A ban
    /// that has ended counts as no state.
    #[cold]
    fn on_window<'a>(
        &self,
        stored: Option<State<'a>>,
        now: Instant,
        id: &'a [u8],
        act: impl FnOnce(WindowView<'a>) -> Result<Outcome<Edit<'a>>, ReservationError>,
        refused: impl FnOnce(LiveBan) -> Outcome<NewState<'a>>,
    ) -> Result<Outcome<NewState<'a>>, ReservationError> {
        let view = match (self.reserved(stored, now, id), stored) {
            (Err(OtherAlgorithm), Some(other)) => match other.live_ban(now)? {
                Some(live) => return Ok(refused(live)),
                None => self.reserved(None, now, id),
            },
            (view, _) => view,
        };
        Ok(act(view?)?.map(NewState::Reserved))
    }

    /// Denies a reservation because of a ban, also in shadow mode: it holds nothing.
    #[cold]
    fn refuse<'a>(
        &self,
        live: LiveBan,
        now: Instant,
        mode: Mode,
        hold: Hold,
    ) -> Outcome<NewState<'a>> {
        let options = CallOptions { leave: hold.leave, ..CallOptions::of_cost(hold.cost) };
        live.decide(self.limit(now), options, mode).map(NewState::Banned)
    }

    /// Returns the view of a key that has, or may get, reservations. `id` is the reservation to act
    /// on.
    #[cold]
    #[inline(never)]
    pub(crate) fn reserved<'a>(
        &self,
        stored: Option<State<'a>>,
        now: Instant,
        id: &'a [u8],
    ) -> Result<WindowView<'a>, OtherAlgorithm> {
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
        Ok(WindowView::new(of, limit, open, list, now, id)?)
    }
}

#[cfg(test)]
mod tests;
