//! The model that a stored state stands for, so that a call on any state can be compared.

use crate::algorithms::{State, sliding_window};
use crate::oracle::backoff::Backoff;
use crate::oracle::buckets::{Amount, LeakyBucket, TokenBucket};
use crate::oracle::gcra::Gcra;
use crate::oracle::log::SlidingLog;
use crate::oracle::quota::CalendarQuota;
use crate::oracle::windows::{FixedWindow, SlidingWindow};

/// The state of another algorithm, or one that no calls can have left and that no model explains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unexplained;

macro_rules! expect_state {
    ($state:expr, $kind:ident) => {
        match $state {
            State::$kind(state) => state,
            _ => return Err(Unexplained),
        }
    };
}

impl TryFrom<State<'_>> for FixedWindow {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, FixedWindow);
        Ok(Self { start: state.start.as_us().into(), calls: vec![state.used.into()] })
    }
}

impl TryFrom<State<'_>> for SlidingWindow {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, SlidingWindow);
        // Beyond the largest count nothing is added up any more.
        if state.previous + state.current > sliding_window::State::COUNT_MAX {
            return Err(Unexplained);
        }
        let calls = |count: u64| if count > 0 { vec![count.into()] } else { Vec::new() };
        Ok(Self {
            start: state.start.as_us().into(),
            previous: calls(state.previous),
            current: calls(state.current),
        })
    }
}

impl TryFrom<State<'_>> for SlidingLog {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let log = expect_state!(state, SlidingLog);
        // A number that would leave its six bytes has the log written anew, without the dead. A
        // model would keep them, and count them again once the clock is set back.
        let last = log.last();
        let age_us = last.instant.since(log.entry(0).instant).as_us();
        if last.total.max(age_us) >= 1 << 47 {
            return Err(Unexplained);
        }
        let (mut calls, mut echoes) = (Vec::<(i128, i128)>::new(), Vec::new());
        for index in 0..log.entries.len() {
            let entry = log.entry(index);
            let cost = entry.total.checked_sub(log.total_before(index)).ok_or(Unexplained)?;
            let at = entry.instant.as_us().into();
            // Every call that is in a log took something, unless it was refunded: then its entry is
            // that of the call before.
            let before = calls.last().map_or(-1, |(before, _)| *before);
            match cost {
                0 if before != at => return Err(Unexplained),
                _ if before > at => return Err(Unexplained),
                _ => {
                    let total = log.total_before(index).into();
                    echoes.extend((before == at).then_some((at, total)));
                    calls.extend((cost > 0).then_some((at, cost.into())));
                }
            }
        }
        let coarsest_slot = log.slot.as_us().into();
        Ok(Self { calls, echoes, coarsest_slot, is_repaired: false })
    }
}

impl TryFrom<State<'_>> for TokenBucket {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, TokenBucket);
        // In debt, there are fewer tokens than none.
        let whole = i128::from(state.units) - i128::from(state.debt);
        let numerator = state.fraction.into();
        Ok(Self { left: Some(Amount { at: state.updated.as_us().into(), whole, numerator }) })
    }
}

impl TryFrom<State<'_>> for LeakyBucket {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, LeakyBucket);
        let (at, whole) = (state.updated.as_us().into(), state.units.into());
        let (debt, fraction) = (state.debt.into(), state.fraction.into());
        let (numerator, paid) = if debt > 0 { (0, fraction) } else { (fraction, 0) };
        Ok(Self {
            queued: Some(Amount { at, whole, numerator }),
            debt: Amount { at, whole: debt, numerator: paid },
        })
    }
}

impl TryFrom<State<'_>> for Backoff {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, Backoff);
        Ok(Self { count: state.count.into(), last: state.last.as_us().into() })
    }
}

impl TryFrom<State<'_>> for CalendarQuota {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, CalendarQuota);
        Ok(Self { start: state.start.as_us().into(), calls: vec![state.used.into()] })
    }
}

impl TryFrom<State<'_>> for Gcra {
    type Error = Unexplained;
    fn try_from(state: State<'_>) -> Result<Self, Unexplained> {
        let state = expect_state!(state, Gcra);
        Ok(Self { arrival_ns: state.arrival_ns.into(), writer_ns: 1 << state.tolerance_log2 })
    }
}
