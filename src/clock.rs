//! The module's clock: the only code that reads the time.
//!
//! It returns the server's cached time of the running command, which is constant during MULTI and
//! scripts. If the API does not provide that, it returns the system's time. `RL.DEBUG CLOCK` can
//! freeze the clock.

use crate::api;
use redis_throttle_engine::grammar::clock::ClockAction;
use redis_throttle_engine::time::{Instant, Span};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The frozen time, in Unix microseconds; [`RUNNING`] if the clock is not frozen.
static FROZEN_AT_US: AtomicU64 = AtomicU64::new(RUNNING);
const RUNNING: u64 = u64::MAX;

/// The time added to the expiry of keys while the clock is frozen, so that the server does not
/// remove them during a test.
const FROZEN_TTL_EXTRA: Span = Span::from_days(1);

/// The error of a request that would move the clock out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

/// Returns the time of the running command.
pub fn now() -> Instant {
    frozen_at().unwrap_or_else(real)
}

/// Converts the expiry of a state to the expiry of its key. `expires_at` is on the module's clock.
/// The result is on the real clock, in Unix milliseconds, rounded up.
#[inline(always)]
pub fn expire_at_ms(expires_at: Instant) -> u64 {
    match frozen_at() {
        None => expires_at.as_ms_ceil(),
        Some(now) => expire_at_ms_while_frozen(expires_at, now),
    }
}

#[cold]
fn expire_at_ms_while_frozen(expires_at: Instant, now: Instant) -> u64 {
    real().after(expires_at.since(now)).after(FROZEN_TTL_EXTRA).as_ms_ceil()
}

/// Freezes, moves or resumes the clock, and returns its new time.
///
/// # Errors
///
/// [`OutOfRange`] if the time would be before 1970 or after 2200; the clock is then unchanged.
pub fn apply(action: ClockAction) -> Result<Instant, OutOfRange> {
    let target_us = match action {
        ClockAction::Freeze(instant) => Some(instant.unwrap_or_else(now).as_us()),
        ClockAction::Forward(span) => now().as_us().checked_add(span.as_us()),
        ClockAction::Back(span) => now().as_us().checked_sub(span.as_us()),
        ClockAction::Resume => {
            resume();
            return Ok(now());
        }
    };
    let target_us = target_us.filter(|us| *us <= Instant::CLOCK_MAX.as_us()).ok_or(OutOfRange)?;
    FROZEN_AT_US.store(target_us, Relaxed);
    Ok(now())
}

/// Makes the clock return the real time.
pub fn resume() {
    FROZEN_AT_US.store(RUNNING, Relaxed);
}

/// Returns true if the clock is frozen.
pub fn is_frozen() -> bool {
    frozen_at().is_some()
}

/// Returns the source of the time, for `INFO`.
pub fn source() -> &'static CStr {
    if api::has_cached_time() { c"server" } else { c"system" }
}

fn frozen_at() -> Option<Instant> {
    match FROZEN_AT_US.load(Relaxed) {
        RUNNING => None,
        us => Some(Instant::from_us(us)),
    }
}

/// Returns the real time, limited to the range in which the algorithms are proven correct.
fn real() -> Instant {
    // The Unix epoch, if the system's clock shows an earlier time.
    let us = api::cached_time_us().or_else(api::system_time_us).unwrap_or(0);
    Instant::from_us(us).min(Instant::CLOCK_MAX)
}
