//! The settings `rl.*` of the server's configuration.

use super::ffi::{Loader, Refused};
use crate::limiter::Slots;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Whether `RL.DEBUG` works. Fixed at load.
static DEBUG_COMMANDS: AtomicBool = AtomicBool::new(false);

/// Into how many slots a sliding log divides its window.
static SLIDING_LOG_SLOTS: AtomicU32 = AtomicU32::new(Slots::DEFAULT.count() as u32);

/// Registers both settings and applies what the configuration file says of them.
///
/// # Errors
///
/// [`Refused`] when the server does not take them, or the file sets one out of bounds.
pub fn register(loader: &Loader<'_>) -> Result<(), Refused> {
    loader.register_debug_commands(false)?;
    loader.register_sliding_log_slots(Slots::DEFAULT)?;
    loader.load_settings()
}

/// Whether `RL.DEBUG` works.
pub fn debug_commands() -> bool {
    DEBUG_COMMANDS.load(Relaxed)
}

/// Lets `RL.DEBUG` work, or not.
pub fn set_debug_commands(on: bool) {
    DEBUG_COMMANDS.store(on, Relaxed);
}

/// Into how many slots a sliding log divides its window.
pub fn sliding_log_slots() -> Slots {
    Slots::new(SLIDING_LOG_SLOTS.load(Relaxed)).unwrap_or(Slots::DEFAULT)
}

/// Changes that; `false` when the number is out of bounds, and nothing changes.
pub fn set_sliding_log_slots(value: i64) -> bool {
    let slots = u32::try_from(value).ok().filter(|slots| Slots::new(*slots).is_some());
    if let Some(slots) = slots {
        SLIDING_LOG_SLOTS.store(slots, Relaxed);
    }
    slots.is_some()
}
