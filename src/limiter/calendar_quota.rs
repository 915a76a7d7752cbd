//! Calendar quota: count the cost in a day, week, month, quarter or year, start again in the next.
//!
//! The state is when the period began and how much has been used in it. Where periods begin and end
//! is told by a [`Calendar`]; nothing here knows one.
//!
//! ```text
//! | period                 | next                   |
//! start .... used .... now  end: all is there again
//! ```
//!
//! What was used counts as long as the start that is stored lies in the period that is open, also
//! when the rule has another unit, zone or start by now.
//!
//! Never more than the limit in one period. Around the edge of two periods up to twice the limit
//! may pass in a time shorter than one.
//!
//! Source: what billing calls an allowance per period.

use super::bounds::{Cost, Limit};
use super::calendar::{Calendar, CalendarPeriod};
use super::decision::{Decision, Next};
use super::fields::{Field, Fields};
use super::reserved::{OpenWindow, Window};
use super::standing::{Limiter, Standing};
use super::time::{Instant, Span};

/// The rule: `limit` units in each period of `calendar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarQuota {
    /// Units per period.
    pub limit: Limit,
    /// Which periods.
    pub calendar: Calendar,
}

/// A period that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// When it began, under the rule that opened it.
    pub start: Instant,
    /// How much has been used in it: at least 1, or there would be no state. Above the limit, what
    /// was charged is owed until the period ends.
    pub used: u64,
}

/// The period that is open at one instant.
struct View {
    limit: Limit,
    open: State,
    end: Instant,
    until_end: Span,
    repaired: bool,
}

impl Limiter<'_> for CalendarQuota {
    type State = State;
    type NewState = State;

    /// A period that starts ahead of `now` counts as open; ahead by more than the length of the
    /// current one, what was used in it moves there.
    #[inline(always)]
    fn standing(&self, stored: Option<State>, now: Instant) -> impl Standing<NewState = State> {
        let (open, end, repaired) = self.open_period(stored, now);
        View { limit: self.limit, open, end, until_end: end.since(now), repaired }
    }
}

/// What is open when a stored period begins after the `current` one, the clock having stepped back:
/// its state, its end, and whether it had to be repaired.
#[cold]
fn open_ahead(
    state: State,
    now: Instant,
    current: CalendarPeriod,
    calendar: Calendar,
) -> (State, Instant, bool) {
    if state.start.since(now) > current.span() {
        (State { start: current.start, used: state.used }, current.end, true)
    } else {
        (state, calendar.period_at(state.start).end, false)
    }
}

impl Standing for View {
    type NewState = State;

    #[inline(always)]
    fn limit(&self) -> Limit {
        self.limit
    }

    #[inline(always)]
    fn is_repaired(&self) -> bool {
        self.repaired
    }

    #[inline(always)]
    fn has_room_for(&self, cost: Cost) -> bool {
        cost.units() <= self.remaining()
    }

    #[inline(always)]
    fn room_in(&self, _cost: Cost) -> Span {
        self.until_end
    }

    fn used(&self) -> u128 {
        self.open.used.into()
    }

    #[inline(always)]
    fn take(&mut self, cost: Cost) {
        self.open.used += cost.units();
    }

    fn give_back(&mut self, cost: Cost) {
        self.open.used = self.open.used.saturating_sub(cost.units());
    }

    #[inline(always)]
    fn remaining(&self) -> u64 {
        self.limit.units().saturating_sub(self.open.used)
    }

    #[inline(always)]
    fn reset_after(&self) -> Span {
        if self.open.used == 0 { Span::ZERO } else { self.until_end }
    }

    #[inline(always)]
    fn next(self, _decision: &Decision) -> Next<State> {
        Next::until(self.end, self.open)
    }
}

impl Fields<2> for CalendarQuota {
    type Stored = State;
    const FIELDS: [Field; 2] =
        [Field::instant("period_start_us"), Field::new("used", 1, Cost::TOTAL_MAX)];

    fn numbers(state: &State) -> [u64; 2] {
        [state.start.as_us(), state.used]
    }

    fn state([start_us, used]: [u64; 2]) -> Option<State> {
        Some(State { start: Instant::from_us(start_us), used })
    }
}

impl CalendarQuota {
    /// The period that is open at `now`, by what is stored, for a key with reservations.
    pub(super) fn window_at(&self, stored: Option<Window>, now: Instant) -> OpenWindow {
        let stored = stored.map(|Window { start, used }| State { start, used });
        let (State { start, used }, end, repaired) = self.open_period(stored, now);
        OpenWindow { start, used, until_end: end.since(now), lapses_at: end, repaired }
    }

    /// The period that is open at `now`, its end, and whether it had to be repaired.
    #[inline(always)]
    fn open_period(&self, stored: Option<State>, now: Instant) -> (State, Instant, bool) {
        let current = self.calendar.period_at(now);
        match stored {
            Some(state) if current.holds(state.start) => (state, current.end, false),
            Some(state) if state.start >= current.end => {
                open_ahead(state, now, current, self.calendar)
            }
            _ => (State { start: current.start, used: 0 }, current.end, false),
        }
    }
}
