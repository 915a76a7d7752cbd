//! Calendar quota: adds up the costs in a day, week, month, quarter or year and starts again at 0
//! in the next one.
//!
//! The state is the start of the period and the units used in it. A [`Calendar`] computes the start
//! and end of periods.
//!
//! ```text
//! | period                 | next                   |
//! start .... used .... now  end: usage resets
//! ```
//!
//! Usage counts while the stored start lies in the open period, even if the rule's unit, zone or
//! start has changed since.
//!
//! Allows at most the limit in one period. Around the boundary between two periods, up to twice the
//! limit may be allowed in less time than one period.
//!
//! Source: allowances per billing period.

use crate::algorithms::window::{OpenWindow, Window, WindowView};
use crate::bounds::{Cost, Limit};
use crate::calendar::{Calendar, CalendarPeriod};
use crate::call::{Limiter, Standing};
use crate::fields::{Field, Fields};
use crate::time::Instant;

/// The rule: `limit` units in each period of `calendar`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarQuota {
    /// Units per period.
    pub limit: Limit,
    /// The calendar, which computes the start and end of each period.
    pub calendar: Calendar,
}

impl Limiter<'_> for CalendarQuota {
    type State = Window;
    type NewState = Window;

    /// Returns the period open at `now`. A stored period that starts after `now` counts as open. If
    /// it starts after `now` by more than the length of the current period, the clock stepped back,
    /// and its usage moves to the current period.
    #[inline(always)]
    fn standing(&self, stored: Option<Window>, now: Instant) -> impl Standing<NewState = Window> {
        WindowView { limit: self.limit, open: self.window_at(stored, now) }
    }
}

/// Returns the open period if the stored one begins after `current`, which happens if the clock
/// stepped back. Returns its state, its end, and true if its usage moved to `current`.
#[cold]
fn open_ahead(
    state: Window,
    now: Instant,
    current: CalendarPeriod,
    calendar: Calendar,
) -> (Window, Instant, bool) {
    if state.start.since(now) > current.span() {
        (Window { start: current.start, used: state.used }, current.end, true)
    } else {
        (state, calendar.period_at(state.start).end, false)
    }
}

impl Fields<2> for CalendarQuota {
    type Stored = Window;
    const FIELDS: [Field; 2] =
        [Field::instant("period_start_us"), Field::new("used", 1, Cost::TOTAL_MAX)];

    fn numbers(state: &Window) -> [u64; 2] {
        [state.start.as_us(), state.used]
    }

    fn state([start_us, used]: [u64; 2]) -> Option<Window> {
        Some(Window { start: Instant::from_us(start_us), used })
    }
}

impl CalendarQuota {
    /// Returns the period that is open at `now`, given the stored one.
    #[inline(always)]
    pub(crate) fn window_at(&self, stored: Option<Window>, now: Instant) -> OpenWindow {
        let (Window { start, used }, end, repaired) = self.open_period(stored, now);
        OpenWindow { start, used, until_end: end.since(now), expires_at: end, repaired }
    }

    /// Returns the period that is open at `now`, and its end. Returns true with them if the clock
    /// stepped back and the stored usage moved to the current period.
    #[inline(always)]
    fn open_period(&self, stored: Option<Window>, now: Instant) -> (Window, Instant, bool) {
        let current = self.calendar.period_at(now);
        match stored {
            Some(state) if current.holds(state.start) => (state, current.end, false),
            Some(state) if state.start >= current.end => {
                open_ahead(state, now, current, self.calendar)
            }
            _ => (Window { start: current.start, used: 0 }, current.end, false),
        }
    }
}
