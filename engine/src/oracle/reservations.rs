//! The model of a window with reservations: the model of the window, and a list of reservations.

use crate::algorithms::State;
use crate::bounds::{Cost, Leave, Period};
use crate::call::Mode;
use crate::msgpack::NotAState;
use crate::oracle::draw::{DAY_US, Share, Source};
use crate::oracle::key::Key;
use crate::oracle::model::{Limits, Oracle, Unexplained};
use crate::oracle::reply::{Reply, Verb, Wrote, ms_until};
use crate::oracle::subject::{Subject, Twin};
use crate::oracle::windows::{Window, Windows};
use crate::reservations::one::Reservation;
use crate::reservations::window::{self, ReservationError};
use crate::time::{Instant, Span};
use std::marker::PhantomData;

/// The data stored for an id.
#[derive(Clone, Debug)]
struct Held {
    id: Vec<u8>,
    since: i128,
    ttl: i128,
    /// The units held; `None` once the reservation is settled.
    amount: Option<i128>,
}

impl Held {
    fn is_remembered(&self, now: i128) -> bool {
        now < self.since + self.ttl
    }
}

/// A window and all its reservations, open or settled. Expired ones stay until they are dropped.
#[derive(Clone, Default)]
pub struct Reserved<W> {
    window: Window<W>,
    list: Vec<Held>,
}

impl<W> Reserved<W> {
    fn open(&self, now: i128) -> i128 {
        let open = self.list.iter().filter(|held| held.is_remembered(now));
        open.filter_map(|held| held.amount).sum()
    }

    fn count(&self, now: i128) -> usize {
        self.list.iter().filter(|held| held.is_remembered(now)).count()
    }

    fn tidy(&mut self, now: i128) {
        self.list.retain(|held| held.is_remembered(now));
    }

    /// Removes the reservation of an id and returns it.
    fn take_out(&mut self, id: &[u8], now: i128) -> Option<Held> {
        self.tidy(now);
        let at = self.list.iter().position(|held| held.id == id)?;
        Some(self.list.remove(at))
    }
}

impl<W: Windows> Oracle for Reserved<W> {
    fn repair(&mut self, limits: &Limits, now: i128) -> bool {
        let mut moved = false;
        for held in &mut self.list {
            if held.since - now > held.ttl {
                (held.since, moved) = (now, true);
            }
        }
        if moved {
            self.tidy(now);
        }
        self.window.repair(limits, now) || moved
    }

    fn would_allow(&self, limits: &Limits, now: i128, cost: i128) -> bool {
        self.window.would_allow(limits, now, self.open(now) + cost)
    }

    fn take(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.window.take(limits, now, cost);
    }

    fn give(&mut self, limits: &Limits, now: i128, cost: i128) {
        self.window.give(limits, now, cost);
    }

    fn finds_nothing(&self, limits: &Limits, now: i128) -> bool {
        self.window.is_unused(limits, now)
    }

    fn is_blank(&self, limits: &Limits, now: i128) -> bool {
        self.window.is_unused(limits, now) && self.count(now) == 0
    }

    fn stored(&mut self, limits: &Limits, now: i128) {
        if !self.window.is_open(limits, now) {
            self.window = Window::default();
        }
        if self.count(now) == 0 {
            self.list.clear();
        }
    }
}

impl<W: Windows> TryFrom<State<'_>> for Reserved<W> {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let State::Reserved(state) = state else {
            return Ok(Self { window: Window::try_from(state)?, list: Vec::new() });
        };
        let crate::reservations::stored::State { of, list, window } = state;
        if of != W::OF {
            return Err(Unexplained);
        }
        let window = match window.used {
            0 => Window::default(),
            _ => Window::read(window),
        };
        let held = |reservation: Reservation<'_>| Held {
            id: reservation.id.to_vec(),
            since: reservation.since.as_us().into(),
            ttl: reservation.ttl.as_us().into(),
            amount: reservation.held.map(|held| held.units().into()),
        };
        let mut model = Self { window, list: Vec::new() };
        let read = list.read(|reservation, _| model.list.push(held(reservation)));
        read.map(|_| model).map_err(|NotAState| Unexplained)
    }
}

/// An algorithm that counts in a window, on a key that may have reservations.
pub struct Reserving<S>(PhantomData<S>);

impl<S: Subject + Windows> Subject for Reserving<S> {
    type Model = Reserved<S>;
    fn rule(limits: &Limits) -> crate::algorithms::Rule {
        S::rule(limits)
    }
    fn about_us(state: &State<'_>) -> Option<u64> {
        S::about_us(state)
    }
    fn span_us(limits: &Limits) -> i128 {
        S::span_us(limits)
    }
    fn longest_wait_us(limits: &Limits, cost: i128) -> i128 {
        S::longest_wait_us(limits, cost)
    }
    fn most(limits: &Limits, elapsed_us: i128) -> Option<i128> {
        S::most(limits, elapsed_us)
    }
}

/// A reservation to make, in the numbers of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The time for which the id is remembered, in microseconds.
    pub ttl_us: i128,
    /// The units to hold.
    pub cost: i128,
    /// The units that must remain after it.
    pub leave: Option<Leave>,
    /// Whether the call comes from a policy in shadow mode.
    pub is_shadow: bool,
    /// Whether another rule denies the call, so that nothing is held.
    pub is_vain: bool,
}

impl Hold {
    /// Makes a reservation without options.
    pub const fn new(ttl_us: i128, cost: i128) -> Self {
        Self { ttl_us, cost, leave: None, is_shadow: false, is_vain: false }
    }

    /// Draws a reservation. The ttl is often about as long as the window, `span_us`.
    fn draw(source: &mut impl Source, limits: &Limits, span_us: i128) -> Self {
        let ttl_us = match source.below(4) {
            0 => source.between(1_000, 10_000_000),
            _ => span_us * source.between(1, 40) / 16,
        };
        let cost = Share::draw(source).of(limits);
        let leave = (source.below(4) == 0).then(|| Leave::draw(source));
        let (is_shadow, is_vain) = (source.below(5) == 1, source.below(5) == 1);
        Self { ttl_us: ttl_us.clamp(1_000, 366 * DAY_US), cost, leave, is_shadow, is_vain }
    }

    /// Returns the reservation as the engine takes it.
    fn of_the_engine(self) -> window::Hold {
        let Self { ttl_us, cost, leave, is_shadow, .. } = self;
        let ttl = Span::from_us(ttl_us.try_into().expect("not negative"));
        window::Hold { ttl: Period::new(ttl).expect("a ttl"), cost: units(cost), leave, is_shadow }
    }
}

fn units(cost: i128) -> Cost {
    Cost::new(cost.try_into().expect("small")).expect("a cost")
}

/// A step with a reservation, in the numbers of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Holds a cost.
    Reserve(Hold),
    /// Settles the reservation with this cost; `None` for the amount held.
    Commit(Option<i128>),
    /// Frees the units held.
    Cancel,
}

/// Returns the expected reply and write of a step. Updates `model` to the state after it.
///
/// # Errors
///
/// Returns the reason if the step must be refused.
pub fn take_step<W: Windows>(
    model: &mut Reserved<W>,
    id: &[u8],
    step: Step,
    limits: &Limits,
    now: i128,
) -> Result<(Reply, Wrote), ReservationError> {
    let mut left = model.clone();
    let repaired = left.repair(limits, now);
    let mut others = left.clone();
    let own = others.take_out(id, now);
    let open = own.as_ref().and_then(|own| own.amount);
    let (allowed, changed, mut retry_after_ms) = match step {
        Step::Reserve(hold) => {
            let Hold { ttl_us: ttl, cost: amount, leave, is_shadow, is_vain } = hold;
            if own.is_some() && open.is_none() {
                return Err(ReservationError::Settled);
            } else if own.is_none() && others.count(now) >= 1_024 {
                return Err(ReservationError::TooMany);
            }
            let leaving = leave.map_or(Verb::Decide, Verb::Leaving);
            let needed = amount + leaving.left(limits.capacity);
            let fits = |at| needed == 0 || others.would_allow(limits, at, needed);
            let retry_after_ms = if needed > limits.capacity { -1 } else { ms_until(now, fits) };
            let allowed = retry_after_ms == 0;
            let holds = !is_vain && (allowed || is_shadow);
            if holds {
                let amount = Some(if allowed { amount } else { 0 });
                others.list.push(Held { id: id.to_vec(), since: now, ttl, amount });
                left = others;
            }
            (allowed, holds, Some(retry_after_ms))
        }
        Step::Commit(cost) => {
            if let (Some(own), Some(amount)) = (&own, open) {
                let cost = cost.unwrap_or(amount);
                let fits = others.would_allow(limits, now, cost);
                if cost > 0 {
                    others.take(limits, now, cost);
                }
                if !fits && others.uses_more_than(limits, now, Cost::TOTAL_MAX.into()) {
                    return Err(crate::call::ChargeError::TooManyUnits.into());
                }
                let forgotten_at = (own.since + own.ttl).max(now + own.ttl.min(60_000_000));
                let ttl = (forgotten_at - now).min(366 * DAY_US);
                others.list.push(Held { since: now, ttl, amount: None, ..own.clone() });
                left = others;
            }
            (own.is_some(), open.is_some(), None)
        }
        Step::Cancel => {
            if open.is_some() {
                left = others;
            }
            (open.is_some(), open.is_some(), None)
        }
    };
    let reply = Reply {
        allowed: allowed.into(),
        limit: limits.capacity,
        remaining: left.remaining(limits, now),
        retry_after_ms: *retry_after_ms
            .get_or_insert_with(|| ms_until(now, |at| left.is_clear(limits, at))),
        reset_after_ms: ms_until(now, |at| left.is_unused(limits, at)),
    };
    let writes = changed || repaired;
    if writes && left.is_blank(limits, now) {
        *model = Reserved::default();
        return Ok((reply, Wrote::Deletion));
    }
    if writes {
        left.stored(limits, now);
    }
    *model = left;
    Ok((reply, if writes { Wrote::State } else { Wrote::Nothing }))
}

impl Key {
    /// Returns the reply of a step with a reservation, and the change to store. Stores nothing.
    ///
    /// # Errors
    ///
    /// Returns [`ReservationError`] if the step is refused.
    pub fn step(
        &self,
        rule: &crate::algorithms::Rule,
        now: i128,
        id: &[u8],
        step: Step,
    ) -> Result<(Reply, Option<super::Write>), ReservationError> {
        let now = Instant::from_us(now.try_into().expect("not negative"));
        let step = match step {
            Step::Reserve(hold) if hold.is_vain => {
                let hold = hold.of_the_engine();
                let outcome = rule.reserve(Mode::TakeNothing, self.state(), now, id, hold)?;
                return Ok((outcome.decision.into(), super::Write::of(&outcome.next)));
            }
            Step::Reserve(hold) => window::Step::Reserve(hold.of_the_engine()),
            Step::Commit(cost) => window::Step::Commit { cost: cost.map(units) },
            Step::Cancel => window::Step::Cancel,
        };
        let outcome = rule.take_step(self.state(), now, id, step)?;
        Ok((outcome.decision.into(), super::Write::of(&outcome.next)))
    }
}

impl<S: Subject + Windows> Twin<Reserving<S>> {
    /// Takes a step on the key and on the model, and compares them. Returns `None` if both refuse
    /// the step for the same reason and nothing changes.
    ///
    /// # Errors
    ///
    /// Returns the difference: in a number, in a write, or in the promised retry time.
    pub fn step(
        &mut self,
        limits: &Limits,
        now: i128,
        id: &[u8],
        step: Step,
    ) -> Result<Option<Reply>, String> {
        let rule = S::rule(limits);
        let before = self.key.clone();
        let expected = take_step(&mut self.model, id, step, limits, now);
        let done = before.step(&rule, now, id, step);
        let said = match (done, expected) {
            (Err(error), Err(expected)) if error == expected => return Ok(None),
            (Ok((reply, write)), Ok(expected)) => {
                if let Some(write) = &write {
                    self.key.store(write);
                }
                let wrote = Wrote::of(write.as_ref());
                let promised = now + reply.retry_after_ms * 1_000;
                let allowed_at =
                    |at| self.key.step(&rule, at, id, step).is_ok_and(|(then, _)| then.allowed > 0);
                let waits = matches!(step, Step::Reserve(..)) && reply.retry_after_ms > 0;
                let is_kept = !waits
                    || promised > super::CLOCK_MAX_US
                    || allowed_at(promised) && !allowed_at(promised - 1_000);
                match wrote {
                    _ if (reply, wrote) != expected => {
                        format!("{reply:?} {wrote:?}, {expected:?}")
                    }
                    Wrote::State if self.key.expires_at <= now => {
                        "what it stored has expired".into()
                    }
                    _ if !is_kept => format!("the promise of {reply:?} is not kept"),
                    _ => return Ok(Some(reply)),
                }
            }
            (done, expected) => format!("{done:?}, expected {expected:?}"),
        };
        Err(format!("{step:?} of {id:02x?} at {now} of {limits:?} on {before:02x?}: {said}"))
    }
}

/// A call on a key that may have reservations: a plain call, or a step of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyCall {
    /// A plain call and its cost.
    Plain(Verb, i128),
    /// A step with the reservation of one of [`IDS`].
    Step(usize, Step),
}

/// The ids to draw from: few, so that they repeat, and some that differ in order and encoding.
pub const IDS: [&[u8]; 6] = [b"a", b"b", b"job-17", b"\0", b"\xff\xfe", &[b'z'; 64]];

impl AnyCall {
    /// Draws any call. A ttl is often about as long as the window, `span_us`.
    pub fn draw(source: &mut impl Source, limits: &Limits, span_us: i128) -> Self {
        let share = |source: &mut _| Share::draw(source).of(limits);
        let id = source.below(IDS.len() as u64) as usize;
        match source.below(9) {
            0..3 => Self::Plain(Verb::draw(source), share(source)),
            3..6 => Self::Step(id, Step::Reserve(Hold::draw(source, limits, span_us))),
            6 => Self::Step(id, Step::Commit(None)),
            7 => Self::Step(id, Step::Commit(Some(share(source)))),
            _ => Self::Step(id, Step::Cancel),
        }
    }
}

impl<S: Subject + Windows> Twin<Reserving<S>> {
    /// Makes a call of any kind on the key and on the model, and compares them.
    ///
    /// # Errors
    ///
    /// Returns the difference.
    pub fn any_call(
        &mut self,
        limits: &Limits,
        now: i128,
        call: AnyCall,
    ) -> Result<Option<Reply>, String> {
        match call {
            AnyCall::Plain(verb, cost) => self.call(verb, limits, now, cost),
            AnyCall::Step(id, step) => self.step(limits, now, IDS[id], step),
        }
    }
}
