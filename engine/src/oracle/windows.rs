//! The model of the algorithms that count the calls of one open window: the fixed window, and the
//! calendar quota. The start and end of calendar periods come from the calendar itself, whose own
//! test compares it with another implementation.

use crate::algorithms::window::Window as Stored;
use crate::algorithms::{Rule, State, fixed_window, quota};
use crate::calendar::zone::Zone;
use crate::calendar::{Calendar, Unit};
use crate::oracle::model::{Limits, Oracle, Unexplained, expect_state, floor_to, take_off};
use crate::oracle::subject::{Subject, duration, limit, period};
use crate::reservations::stored::Windowed;
use crate::time::Instant;
use std::marker::PhantomData;

/// The windows of an algorithm.
pub trait Windows: Clone + Default + 'static {
    /// The algorithm.
    const OF: Windowed;
    /// Returns the start of a window that a call at `now` opens.
    fn opening(limits: &Limits, now: i128) -> i128;
    /// Returns the earliest start of a window that is open at `now`.
    fn earliest(limits: &Limits, now: i128) -> i128 {
        Self::opening(limits, now)
    }
    /// Returns the length of a window that a call at `now` opens.
    fn length(limits: &Limits, now: i128) -> i128;
    /// Returns the window of a state of the algorithm.
    ///
    /// # Errors
    ///
    /// Returns [`Unexplained`] for another algorithm's state.
    fn stored(state: State<'_>) -> Result<Stored, Unexplained>;
}

/// The open window: its start, and the cost of each call in it.
#[derive(Clone, Default)]
pub struct Window<W> {
    start: i128,
    calls: Vec<i128>,
    of: PhantomData<W>,
}

/// The model of `RL.FIXED`.
pub type FixedWindow = Window<Fixed>;
/// The model of `RL.QUOTA`.
pub type CalendarQuota = Window<Quotas>;

impl<W: Windows> Window<W> {
    /// Returns the model of a stored window, in which one call used all units.
    pub(super) fn read(stored: Stored) -> Self {
        let calls = vec![stored.used.into()];
        Self { start: stored.start.as_us().into(), calls, of: PhantomData }
    }

    /// Returns true if the window's usage counts.
    pub(super) fn is_open(&self, limits: &Limits, now: i128) -> bool {
        !self.calls.is_empty() && self.start >= W::earliest(limits, now)
    }
}

impl<W: Windows> Oracle for Window<W> {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let ahead = !self.calls.is_empty() && self.start - now > W::length(limits, now);
        if ahead {
            self.start = W::opening(limits, now);
        }
        ahead
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        let used = if self.is_open(limits, now) { self.calls.iter().sum() } else { 0 };
        used + cost <= limits.capacity
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        if !self.is_open(limits, now) {
            *self = Self { start: W::opening(limits, now), ..Self::default() };
        }
        self.calls.push(cost);
    }

    fn give(&mut self, _limits: &Limits, _now: i128, cost: i128) {
        take_off(&mut self.calls, cost);
    }
}

impl<W: Windows> TryFrom<State<'_>> for Window<W> {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        W::stored(state).map(Self::read)
    }
}

/// `RL.FIXED`
#[derive(Clone, Default)]
pub struct Fixed;

impl Subject for Fixed {
    type Model = FixedWindow;
    fn rule(limits: &Limits) -> Rule {
        Rule::FixedWindow(fixed_window::FixedWindow {
            limit: limit(limits.capacity),
            window: period(limits),
            aligned: limits.aligned,
        })
    }
    fn words(limits: &Limits) -> String {
        let aligned = if limits.aligned { " ALIGNED" } else { "" };
        format!("{} {}{aligned}", limits.capacity, duration(limits.period_us))
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::FixedWindow(state) = state else { return None };
        Some(state.start.as_us())
    }
    fn span_us(limits: &Limits) -> i128 {
        limits.period_us
    }
    fn longest_wait_us(limits: &Limits, _cost: i128) -> i128 {
        limits.period_us
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        // If aligned, both windows may be used up next to the boundary between them. Otherwise, the
        // call that opened the first window lies a whole window before the second.
        let twice = 2 * limits.capacity - i128::from(!limits.aligned);
        (elapsed_us < limits.period_us).then_some(twice)
    }
    fn bursts(limits: &Limits, forward: bool) -> i128 {
        // If aligned, the clock may be set to just before a boundary, which gives one more window.
        i128::from(forward) + i128::from(limits.aligned)
    }
}

impl Windows for Fixed {
    const OF: Windowed = Windowed::Fixed;
    fn opening(limits: &Limits, now: i128) -> i128 {
        if limits.aligned { floor_to(now, limits.period_us) } else { now }
    }
    fn earliest(limits: &Limits, now: i128) -> i128 {
        if limits.aligned { Self::opening(limits, now) } else { now - limits.period_us + 1 }
    }
    fn length(limits: &Limits, _now: i128) -> i128 {
        limits.period_us
    }
    fn stored(state: State<'_>) -> Result<Stored, Unexplained> {
        Ok(expect_state!(state, FixedWindow))
    }
}

const HOUR_US: i128 = 3_600_000_000;

/// The calendars that limits are mapped to: every unit, and zones with every kind of clock change.
const CALENDARS: [(Unit, u8, &str); 14] = [
    (Unit::Day, 1, "UTC"),
    (Unit::Day, 1, "Europe/Berlin"),
    (Unit::Day, 1, "America/Santiago"),
    (Unit::Day, 1, "Australia/Lord_Howe"),
    (Unit::Day, 1, "America/St_Johns"),
    (Unit::Day, 1, "Pacific/Apia"),
    (Unit::Week, 7, "America/Havana"),
    (Unit::Week, 1, "UTC"),
    (Unit::Month, 1, "Europe/Berlin"),
    (Unit::Month, 31, "America/New_York"),
    (Unit::Month, 29, "Africa/Cairo"),
    (Unit::Quarter, 1, "Asia/Kathmandu"),
    (Unit::Year, 1, "Pacific/Kiritimati"),
    (Unit::Year, 4, "Asia/Tokyo"),
];

/// Maps limits to a calendar: its unit, start and zone.
pub fn calendar(limits: &Limits) -> (Unit, u8, &'static str) {
    let many = CALENDARS.len() as i128;
    let drawn = limits.rate * 2 + i128::from(limits.aligned) + limits.period_us;
    CALENDARS[usize::try_from(drawn % many).expect("a place in the list")]
}

/// Returns the calendar of `limits`.
fn calendar_of(limits: &Limits) -> Calendar {
    let (unit, start, zone) = calendar(limits);
    let zone = Zone::named(zone.as_bytes()).expect("a zone of the database");
    Calendar::new(unit, start, zone).expect("a start of the unit")
}

/// Returns the lengths of the shortest and of the longest period, in hours.
fn hours(limits: &Limits) -> (i128, i128) {
    let (unit, ..) = calendar(limits);
    let (shortest, longest) = match unit {
        Unit::Day => (1, 1),
        Unit::Week => (7, 7),
        Unit::Month => (28, 31),
        Unit::Quarter => (90, 92),
        Unit::Year => (365, 366),
    };
    (shortest * 24 - 1, longest * 24 + 2)
}

/// `RL.QUOTA`
#[derive(Clone, Default)]
pub struct Quotas;

impl Subject for Quotas {
    type Model = CalendarQuota;
    fn rule(limits: &Limits) -> Rule {
        Rule::CalendarQuota(quota::CalendarQuota {
            limit: limit(limits.capacity),
            calendar: calendar_of(limits),
        })
    }
    fn words(limits: &Limits) -> String {
        const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
        let (unit, start, zone) = calendar(limits);
        let start = match unit {
            Unit::Day | Unit::Quarter => String::new(),
            Unit::Week => format!(" START {}", WEEKDAYS[usize::from(start) - 1]),
            Unit::Month | Unit::Year => format!(" START {start}"),
        };
        format!("{} {}{start} ZONE {zone}", limits.capacity, unit.name())
    }
    fn example() -> String {
        "5 day".to_owned()
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        let State::CalendarQuota(state) = state else { return None };
        Some(state.start.as_us())
    }
    fn span_us(limits: &Limits) -> i128 {
        hours(limits).1 * HOUR_US
    }
    fn longest_wait_us(limits: &Limits, _cost: i128) -> i128 {
        Self::span_us(limits)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        // Both periods may be used up next to the boundary between them.
        (elapsed_us < hours(limits).0 * HOUR_US).then_some(2 * limits.capacity)
    }
    fn bursts(_limits: &Limits, forward: bool) -> i128 {
        // The clock may be set to just before a boundary, which gives one more period.
        i128::from(forward) + 1
    }
}

impl Windows for Quotas {
    const OF: Windowed = Windowed::Quota;
    fn opening(limits: &Limits, now: i128) -> i128 {
        calendar_period(limits, now).0
    }
    fn length(limits: &Limits, now: i128) -> i128 {
        let (start, end) = calendar_period(limits, now);
        end - start
    }
    fn stored(state: State<'_>) -> Result<Stored, Unexplained> {
        Ok(expect_state!(state, CalendarQuota))
    }
}

/// Returns the start of the period that holds `at`, and that of the next one.
fn calendar_period(limits: &Limits, at: i128) -> (i128, i128) {
    let at = Instant::from_us(u64::try_from(at).unwrap_or(u64::MAX));
    let period = calendar_of(limits).period_at(at);
    (period.start.as_us().into(), period.end.as_us().into())
}
