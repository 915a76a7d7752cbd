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
    /// Which periods.
    pub calendar: Calendar,
}

impl Limiter<'_> for CalendarQuota {
    type State = Window;
    type NewState = Window;

    /// A period that starts ahead of `now` counts as open; ahead by more than the length of the
    /// current one, what was used in it moves there.
    #[inline(always)]
    fn standing(&self, stored: Option<Window>, now: Instant) -> impl Standing<NewState = Window> {
        WindowView { limit: self.limit, open: self.window_at(stored, now) }
    }
}

/// What is open when a stored period begins after the `current` one, the clock having stepped back:
/// its state, its end, and whether it had to be repaired.
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
    /// The period that is open at `now`, by what is stored.
    #[inline(always)]
    pub(super) fn window_at(&self, stored: Option<Window>, now: Instant) -> OpenWindow {
        let (Window { start, used }, end, repaired) = self.open_period(stored, now);
        OpenWindow { start, used, until_end: end.since(now), lapses_at: end, repaired }
    }

    /// The period that is open at `now`, its end, and whether it had to be repaired.
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
