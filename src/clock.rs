//! The module's clock: the only place that reads one.
//!
//! It shows the server's cached time of the running command where the API tells it, which stands
//! still through MULTI and scripts, and the system's time elsewhere. `RL.DEBUG CLOCK` can stop it.

use crate::api;
use redis_throttle_engine::grammar::clock::ClockAction;
use redis_throttle_engine::time::{Instant, Span};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Where the clock stands, in microseconds; [`RUNNING`] when it runs.
static FROZEN_AT_US: AtomicU64 = AtomicU64::new(RUNNING);
const RUNNING: u64 = u64::MAX;

/// While the clock stands, real expiry must not interfere: keys live this much longer.
const FROZEN_TTL_EXTRA: Span = Span::from_days(1);

/// The clock would leave its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange;

/// The time of this command.
pub fn now() -> Instant {
    frozen_at().unwrap_or_else(real)
}

/// When a key has to expire, in real Unix milliseconds, rounded up, for what lapses at `lapses_at`
/// on the module's clock.
pub fn expire_at_ms(lapses_at: Instant) -> u64 {
    let instant = match frozen_at() {
        None => lapses_at,
        Some(now) => real().after(lapses_at.since(now)).after(FROZEN_TTL_EXTRA),
    };
    instant.as_ms_ceil()
}

/// Stops, moves or restarts the clock, and tells what it shows then.
///
/// # Errors
///
/// [`OutOfRange`] when it would show a time before 1970 or after 2200; it then stays as it was.
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

/// Lets the clock show the real time.
pub fn resume() {
    FROZEN_AT_US.store(RUNNING, Relaxed);
}

/// Whether the clock stands.
pub fn is_frozen() -> bool {
    frozen_at().is_some()
}

/// Where the time comes from, for `INFO`.
pub fn source() -> &'static CStr {
    if api::has_cached_time() { c"server" } else { c"system" }
}

fn frozen_at() -> Option<Instant> {
    match FROZEN_AT_US.load(Relaxed) {
        RUNNING => None,
        us => Some(Instant::from_us(us)),
    }
}

/// The real time, kept within the range that the limiters are proven for.
fn real() -> Instant {
    api::cached_time_us().map_or_else(system, Instant::from_us).min(Instant::CLOCK_MAX)
}

/// The system's clock; the epoch itself when it is set before that.
fn system() -> Instant {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Instant::from_us(u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX))
}
