//! The only code that reads clocks. Timeouts, caches and leases use tokio's clock, which a test can
//! pause and move. Only HTTP headers use the calendar.

use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns Unix time in ms.
pub(crate) fn epoch_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
