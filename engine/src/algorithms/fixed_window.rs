//! Fixed window: adds up the costs in a window of time and starts again at 0 in the next one.
//!
//! The state is the start of the window and the units used in it. A window starts at the first
//! allowed call, or, if aligned, at a multiple of its length since the Unix epoch.
//!
//! Allows at most the limit in one window. Around the boundary between two windows, up to twice the
//! limit may be allowed in less time than one window: the price of storing only two numbers.
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
    /// Whether windows start at multiples of their length since the Unix epoch. Otherwise a window
    /// starts at its first allowed call.
    pub aligned: bool,
}

impl Limiter<'_> for FixedWindow {
    type State = Window;
    type NewState = Window;

    /// Returns the window open at `now`. A stored window that starts after `now` counts as open. If
    /// it starts more than one window length after `now`, the clock stepped back, and its usage
    /// moves to a new window.
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
    /// Returns the window that is open at `now`, given the stored one.
    #[inline(always)]
    pub(crate) fn window_at(&self, stored: Option<Window>, now: Instant) -> OpenWindow {
        let (Window { start, used }, repaired) = self.open_window(stored, now);
        let until_end = self.end(start).since(now);
        OpenWindow { start, used, until_end, expires_at: start.after(self.window.span()), repaired }
    }

    /// Returns the window that is open at `now`. Returns true with it if the clock stepped back and
    /// the stored usage moved to a new window.
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

    /// Returns the end of a window that started at `start`. If aligned, it ends at the next
    /// multiple of its length, even if a call without `ALIGNED` started it between two multiples.
    fn end(&self, start: Instant) -> Instant {
        let window = self.window.span();
        let from = if self.aligned { start.floor_to(window) } else { start };
        from.after(window)
    }
}
