//! A window with reservations: units held for one id count as used for every other call.
//!
//! An expensive job holds its estimate before it starts, under an id and for a limited time
//! ([`Step::Reserve`]). Later it reports the units it really used ([`Step::Commit`]), or that it
//! used none ([`Step::Cancel`]). An open reservation expires by itself, so a crashed job does not
//! hold units for ever. A settled id is remembered for some time ([`Reservation::settled`]):
//! settling it again changes nothing.
//!
//! The state is the algorithm's ordinary window and a list of reservations. Open reservations
//! outlive their window; a commit counts in the window open at that moment. Any algorithm that
//! counts in a window can support reservations: it only has to compute the open window and its end
//! ([`OpenWindow`]).
//!
//! In one window, at most the limit is used, plus the units that commits use beyond their
//! reservations.

use crate::algorithms::window::{OpenWindow, Window};
use crate::bounds::{Cost, Leave, Limit, Period};
use crate::call::{ChargeError, Mode, Standing, conclude};
use crate::decision::{Decision, Next, Outcome, StateWrite, Verdict};
use crate::msgpack::NotAState;
use crate::reservations::list::{Reservations, Unread};
use crate::reservations::one::Reservation;
use crate::reservations::stored::{Edit, ListEdit, Windowed};
use crate::time::{Instant, Span};
use std::cmp::Ordering;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

/// The reason why a reservation is not made, or not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationError {
    /// The key holds the state of another algorithm, or the rule's algorithm has no reservations.
    OtherAlgorithm,
    /// The id is settled, and still remembered.
    Settled,
    /// The key holds [`Reservation::COUNT_MAX`] ids already.
    TooMany,
    /// The commit would exceed the largest debt.
    Charge(ChargeError),
}

impl From<NotAState> for ReservationError {
    fn from(_: NotAState) -> Self {
        Self::OtherAlgorithm
    }
}

impl From<ChargeError> for ReservationError {
    fn from(error: ChargeError) -> Self {
        Self::Charge(error)
    }
}

/// A reservation to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The time after which the reservation expires.
    pub ttl: Period,
    /// The units to hold.
    pub cost: Cost,
    /// The units that must remain after it.
    pub leave: Option<Leave>,
    /// Whether the call comes from a policy in shadow mode. A cost for which there is no room is
    /// then held as 0 units, so that the id can be settled.
    pub is_shadow: bool,
}

/// A step in the life of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Holds units for some time, if there is room.
    Reserve(Hold),
    /// Uses `cost`, by default the units held, and settles the id.
    Commit {
        /// The units used; `None` for those held.
        cost: Option<Cost>,
    },
    /// Frees the units held.
    Cancel,
}

/// A window and its reservations at one instant, as seen by a call with one id or none.
pub struct WindowView<'a> {
    of: Windowed,
    limit: Limit,
    now: Instant,
    window: OpenWindow,
    stored: Reservations<'a>,
    others: Totals,
    /// The id of the call; empty if the call has none. `others` does not count the reservation of
    /// this id.
    id: &'a [u8],
    own: Option<Reservation<'a>>,
    edit: ListEdit,
    /// The units that a commit of `id` uses.
    committed: Cost,
    /// The length in bytes of the stored reservations whose ids sort before `id`.
    len_before: usize,
    /// Whether some reservations have expired or are re-based.
    tidies: bool,
}

/// The totals of several reservations.
#[derive(Clone, Copy, Debug)]
struct Totals {
    count: usize,
    held: u64,
    /// The expiry of the last reservation that holds units.
    held_until: Instant,
    /// The expiry of the last reservation, open or settled.
    until: Instant,
}

impl Totals {
    const NONE: Self =
        Self { count: 0, held: 0, held_until: Instant::from_us(0), until: Instant::from_us(0) };

    #[inline]
    fn add(&mut self, reservation: &Reservation<'_>) {
        let expires_at = reservation.expires_at();
        self.count += 1;
        self.until = self.until.max(expires_at);
        if let Some(held) = reservation.held.filter(|held| !held.is_zero()) {
            // The sum is at most 1,024 x 10^12.
            self.held += held.units();
            self.held_until = self.held_until.max(expires_at);
        }
    }
}

impl<'a> WindowView<'a> {
    /// Makes the view of a window and its reservations at `now`, under a limit. The reservation of
    /// `id` is kept apart from the others.
    ///
    /// # Errors
    ///
    /// Returns [`NotAState`] if the list is invalid.
    pub fn new(
        of: Windowed,
        limit: Limit,
        window: OpenWindow,
        list: Unread<'a>,
        now: Instant,
        id: &'a [u8],
    ) -> Result<Self, NotAState> {
        let (mut others, mut own) = (Totals::NONE, None);
        let (mut len_before, mut expired, mut rebased) = (0, false, false);
        // The list is sorted by id: ids are compared until the place of `id` is reached.
        let mut is_to_come = true;
        let stored = list.read(|reservation, len| {
            let mut is_own = false;
            if is_to_come {
                match reservation.id.cmp(id) {
                    Ordering::Less => len_before += len,
                    order => (is_to_come, is_own) = (false, order == Ordering::Equal),
                }
            }
            let Some(seen) = reservation.at(now) else {
                expired = true;
                return;
            };
            rebased |= seen.since != reservation.since;
            if is_own {
                own = Some(seen);
            } else {
                others.add(&seen);
            }
        })?;
        let edit = match (rebased, others.count) {
            (true, _) => ListEdit::Tidy,
            (false, 0) if own.is_none() => ListEdit::Drop,
            _ => ListEdit::Keep,
        };
        let tidies = expired || rebased;
        let committed = Cost::ZERO;
        Ok(Self {
            of,
            limit,
            now,
            window,
            stored,
            others,
            id,
            own,
            edit,
            committed,
            len_before,
            tidies,
        })
    }

    /// Returns the totals of all reservations, including that of `id`.
    fn totals(&self) -> Totals {
        let mut totals = self.others;
        if let Some(own) = &self.own {
            totals.add(own);
        }
        totals
    }

    /// Returns the units used plus those held by other ids.
    fn taken(&self) -> u128 {
        u128::from(self.window.used) + u128::from(self.others.held)
    }

    /// Returns true if there is room for `cost` besides the units used or held by other ids.
    fn has_room_next_to_others(&self, cost: Cost) -> bool {
        self.taken() + u128::from(cost.units()) <= self.limit.units().into()
    }

    /// Returns the outcome: stores the state, or deletes the key if nothing is left.
    fn conclude(self, verdict: Verdict, writes: bool) -> Outcome<Edit<'a>> {
        let forgets = writes && self.is_blank();
        let outcome = conclude(self, verdict, writes && !forgets);
        if forgets { Outcome { next: StateWrite::Forget, ..outcome } } else { outcome }
    }
}

impl<'a> Standing for WindowView<'a> {
    type NewState = Edit<'a>;

    fn limit(&self) -> Limit {
        self.limit
    }

    fn is_repaired(&self) -> bool {
        self.window.repaired || self.edit == ListEdit::Tidy
    }

    fn has_room_for(&self, cost: Cost) -> bool {
        self.used() + u128::from(cost.units()) <= self.limit.units().into()
    }

    /// Returns the time until enough units are free, because the window ends or reservations
    /// expire. The reservation of `id` does not count.
    fn room_in(&self, cost: Cost) -> Span {
        let open = self.stored.iter().filter_map(|reservation| {
            let seen = reservation.at(self.now).filter(|seen| seen.id != self.id)?;
            Some((seen.expires_at().since(self.now), seen.held?.units()))
        });
        let mut freed: Vec<(Span, u64)> = open.collect();
        freed.push((self.window.until_end, self.window.used));
        freed.sort_unstable();
        let room = u128::from(self.limit.units().saturating_sub(cost.units()));
        let mut taken = self.taken();
        for (after, units) in freed {
            if taken <= room {
                break;
            }
            taken = taken.saturating_sub(units.into());
            if taken <= room {
                return after;
            }
        }
        Span::ZERO
    }

    fn used(&self) -> u128 {
        u128::from(self.window.used) + u128::from(self.totals().held)
    }

    fn refundable(&self) -> u128 {
        self.window.used.into()
    }

    fn is_blank(&self) -> bool {
        self.window.used == 0 && self.others.count == 0 && self.own.is_none()
    }

    fn take(&mut self, cost: Cost) {
        self.window.used = self.window.used.saturating_add(cost.units());
    }

    fn give_back(&mut self, cost: Cost) {
        self.window.used = self.window.used.saturating_sub(cost.units());
    }

    fn remaining(&self) -> u64 {
        let left = u128::from(self.limit.units()).saturating_sub(self.used());
        u64::try_from(left).unwrap_or(u64::MAX)
    }

    fn reset_after(&self) -> Span {
        let held = self.totals().held_until.since(self.now);
        if self.window.used == 0 { held } else { held.max(self.window.until_end) }
    }

    fn next(self, _decision: &Decision) -> Next<Edit<'a>> {
        let totals = self.totals();
        let OpenWindow { start, used, expires_at, .. } = self.window;
        let (window, expires_at) = if used == 0 {
            (Window { start: Instant::from_us(0), used }, totals.until)
        } else {
            (Window { start, used }, totals.until.max(expires_at))
        };
        let (ttl, held) = match self.own {
            Some(own) => (own.ttl.span(), own.held),
            None => (Span::ZERO, None),
        };
        let list = if totals.count == 0 { ListEdit::Drop } else { self.edit };
        let (of, stored, id, now) = (self.of, self.stored, self.id, self.now);
        let count = u16::try_from(totals.count).unwrap_or(u16::MAX);
        let len_before = u32::try_from(self.len_before).unwrap_or(u32::MAX);
        let (tidies, committed) = (self.tidies, self.committed);
        let edit = Edit {
            of,
            list,
            tidies,
            count,
            len_before,
            window,
            stored,
            id,
            ttl,
            held,
            committed,
            now,
        };
        Next::until(expires_at, edit)
    }
}

/// Applies `step` to the reservation of the view's id.
///
/// # Errors
///
/// Returns a [`ReservationError`]. Nothing changes then.
#[cold]
pub fn take_step<'a>(
    view: WindowView<'a>,
    step: Step,
) -> Result<Outcome<Edit<'a>>, ReservationError> {
    match step {
        Step::Reserve(hold) => reserve(view, hold, Mode::Take),
        Step::Commit { cost } => Ok(commit(view, cost)?),
        Step::Cancel => Ok(cancel(view)),
    }
}

/// Makes the reservation `hold` for the view's id from now on, if there is room besides the units
/// used or held by other ids and if enough units remain. A reservation that the id already has is
/// replaced, including its ttl; if there is no room for the new cost, it stays as it is. A
/// reservation of cost 0 holds nothing, but its id is remembered. In shadow mode, a cost for which
/// there is no room becomes a reservation of cost 0, although the verdict denies the call.
///
/// # Errors
///
/// Returns [`ReservationError::Settled`] or, checked next, [`ReservationError::TooMany`], whatever
/// the mode.
#[cold]
pub fn reserve<'a>(
    mut view: WindowView<'a>,
    hold: Hold,
    mode: Mode,
) -> Result<Outcome<Edit<'a>>, ReservationError> {
    let Hold { ttl, cost, leave, is_shadow } = hold;
    match view.own {
        Some(Reservation { held: None, .. }) => return Err(ReservationError::Settled),
        None if view.others.count >= Reservation::COUNT_MAX => {
            return Err(ReservationError::TooMany);
        }
        _ => {}
    }
    let needed = cost.plus(leave.map_or(0, |leave| leave.units(view.limit)));
    let verdict = if needed.units() > view.limit.units() {
        Verdict::Impossible
    } else if needed.is_zero() || view.has_room_next_to_others(needed) {
        Verdict::ALLOWED
    } else {
        Verdict::Denied { retry_after: view.room_in(needed) }
    };
    let repairs = view.is_repaired();
    let holds = mode == Mode::Take && (verdict.is_allowed() || is_shadow);
    if holds {
        let (id, since) = (view.id, view.now);
        let held = Some(if verdict.is_allowed() { cost } else { Cost::ZERO });
        view.edit = if view.own.is_some() { ListEdit::Replace } else { ListEdit::Insert };
        view.own = Some(Reservation { id, since, ttl, held });
    }
    Ok(view.conclude(verdict, holds || repairs))
}

/// Uses `cost`, by default the units that the id holds, and settles the id. The verdict is allowed
/// if the id was open or is settled already; its `wait` is the time until the debt is paid. For an
/// unknown id, nothing is used and the verdict is denied.
///
/// # Errors
///
/// Returns [`ChargeError::TooManyUnits`], but only if there was no room for the cost.
fn commit<'a>(
    mut view: WindowView<'a>,
    cost: Option<Cost>,
) -> Result<Outcome<Edit<'a>>, ChargeError> {
    let is_known = view.own.is_some();
    let open = view.own.and_then(|own| own.held);
    if let (Some(own), Some(held)) = (view.own, open) {
        let cost = cost.unwrap_or(held);
        view.own = Some(own.settled(view.now));
        view.edit = ListEdit::Replace;
        let fits = view.has_room_next_to_others(cost);
        view.take(cost);
        view.committed = cost;
        if !fits && view.used() > Cost::TOTAL_MAX.into() {
            return Err(ChargeError::TooManyUnits);
        }
    }
    let clear_in = view.clear_in();
    let verdict = if is_known {
        Verdict::Allowed { wait: clear_in }
    } else {
        Verdict::Denied { retry_after: clear_in }
    };
    let writes = open.is_some() || view.is_repaired();
    Ok(view.conclude(verdict, writes))
}

/// Frees the units that the id holds, and forgets the id. The verdict is allowed if the id was
/// open. It also holds the time until the debt is paid.
fn cancel<'a>(mut view: WindowView<'a>) -> Outcome<Edit<'a>> {
    let is_open = view.own.is_some_and(|own| own.held.is_some());
    let repairs = view.is_repaired();
    if is_open {
        view.own = None;
        view.edit = ListEdit::Remove;
    }
    let clear_in = view.clear_in();
    let verdict = if is_open {
        Verdict::Allowed { wait: clear_in }
    } else {
        Verdict::Denied { retry_after: clear_in }
    };
    view.conclude(verdict, is_open || repairs)
}
