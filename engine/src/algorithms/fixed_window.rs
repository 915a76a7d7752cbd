//! Fixed window: count the cost in a window of time, start again in the next.
//!
//! The state is when the window opened and how much has been used in it. A window opens at the
//! first allowed call, or, aligned, at multiples of its length since the Unix epoch.
//!
//! Never more than the limit in one window. Around the edge of two windows up to twice the limit
//! may pass in a time shorter than one: that is the price of two numbers of state.
//!
//! Source: the `INCR` and `EXPIRE` pattern of the Redis documentation, made atomic and exact.

use crate::algorithms::window::{OpenWindow, Window, WindowView};
use crate::bounds::{Cost, Limit, Period};
use crate::call::{Limiter, Standing};
use crate::fields::{Field, Fields};
use crate::time::Instant;

/// The rule: `limit` units per `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Units per window.
    pub limit: Limit,
    /// Length of a window.
    pub window: Period,
    /// Whether windows start at multiples of their length since the Unix epoch.
    pub aligned: bool,
}

impl Limiter<'_> for FixedWindow {
    type State = Window;
    type NewState = Window;

    /// A window that starts ahead of `now` counts as open; ahead by more than its length, it is
    /// opened anew with what was used.
    #[inline(always)]
    fn standing(&self, stored: Option<Window>, now: Instant) -> impl Standing<NewState = Window> {
        WindowView { limit: self.limit, open: self.window_at(stored, now) }
    }
}

impl Fields<2> for FixedWindow {
    type Stored = Window;
    const FIELDS: [Field; 2] =
        [Field::instant("window_start_us"), Field::new("used", 1, Cost::TOTAL_MAX)];

    fn numbers(state: &Window) -> [u64; 2] {
        [state.start.as_us(), state.used]
    }

    fn state([start_us, used]: [u64; 2]) -> Option<Window> {
        Some(Window { start: Instant::from_us(start_us), used })
    }
}

impl FixedWindow {
    /// The window that is open at `now`, by what is stored.
    #[inline(always)]
    pub(super) fn window_at(&self, stored: Option<Window>, now: Instant) -> OpenWindow {
        let (Window { start, used }, repaired) = self.open_window(stored, now);
        let until_end = self.end(start).since(now);
        OpenWindow { start, used, until_end, lapses_at: start.after(self.window.span()), repaired }
    }

    /// The window that is open at `now`, and whether it had to be repaired.
    fn open_window(&self, stored: Option<Window>, now: Instant) -> (Window, bool) {
        let fresh = if self.aligned { now.floor_to(self.window.span()) } else { now };
        match stored {
            Some(state) if state.start.since(now) > self.window.span() => {
                (Window { start: fresh, used: state.used }, true)
            }
            Some(state) if now < self.end(state.start) => (state, false),
            _ => (Window { start: fresh, used: 0 }, false),
        }
    }

    /// When a window that opened at `start` ends. Aligned, the next boundary ends it, also when it
    /// was opened off the boundary by a call without `ALIGNED`.
    fn end(&self, start: Instant) -> Instant {
        let window = self.window.span();
        let from = if self.aligned { start.floor_to(window) } else { start };
        from.after(window)
    }
}
